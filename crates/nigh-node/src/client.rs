//! The class `Client`: a server's client, for `client.js`.
//!
//! 1. Reads of memory (`local_reads.rs`) return at once, also while a call waits in the pool.
//! 2. What isn't named `later` and is no read of memory waits for the server: `client.js` says when
//!    it does that.
//!
//! The thread of the JavaScript.

use crate::client_given::{ClientGiven, address};
use crate::client_view::ClientView;
use crate::fault::{Code, Fault, answer};
use crate::local_reads::{LocalReads, Numbered};
use crate::pool_work::{Done, PoolWork};
use crate::replies::Replies;
use crate::scratch::Scratch;
use crate::shared_client::SharedClient;
use napi::bindgen_prelude::{AsyncTask, Buffer, BufferSlice, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use nigh_client::CallError;
use std::rc::Rc;
use std::sync::Arc;

/// Why there is no local access behind an attachment.
const OVER: &str = "the server has ended the connection, or its memory can't be read any more";

/// A client of a server, open or not.
#[napi]
pub struct Client {
    shared: Arc<SharedClient>,
    local: Numbered,
    scratch: Rc<Scratch>,
}

#[napi]
impl Client {
    /// One that isn't attached yet. Keys and values go by these.
    #[napi(constructor)]
    pub fn new(at: String, given: ClientGiven, key: Buffer, value: Buffer) -> Result<Client, Code> {
        answer(|| {
            let shared = Arc::new(SharedClient::new(address(&at)?, given.options()?)?);
            let scratch = Rc::new(Scratch::new(key, value));
            let reads = LocalReads::new(Arc::clone(&shared), Rc::clone(&scratch));
            Ok(Client { shared, local: Numbered::new(reads), scratch })
        })
    }

    /// The server's address, without a password.
    #[napi(getter)]
    pub fn address(&self) -> String {
        self.shared.address().to_string()
    }

    /// The number by which functions find it.
    #[napi(getter)]
    pub fn number(&self) -> u32 {
        self.local.number
    }

    /// Whether it reads the server's memory now.
    #[napi(getter)]
    pub fn is_local(&self) -> bool {
        self.local.reads.memory().is_some()
    }

    /// Why it doesn't.
    #[napi(getter)]
    pub fn why_not_local(&self) -> Option<String> {
        if self.local.reads.memory().is_some() {
            return None;
        }
        let why = Some(self.shared.why_not_local()).filter(|why| !why.is_empty());
        Some(why.unwrap_or_else(|| OVER.to_owned()))
    }

    /// The last value that found no room in the scratch.
    #[napi]
    pub fn long<'env>(&self, env: &'env Env) -> Result<BufferSlice<'env>, Code> {
        answer(|| self.scratch.long(env))
    }

    /// Forgets it: nobody wants it.
    #[napi]
    pub fn forget(&self) {
        self.scratch.forget();
    }

    /// Attaches, in the pool.
    #[napi]
    pub fn attach_later(&self) -> AsyncTask<PoolWork> {
        let shared = Arc::clone(&self.shared);
        PoolWork::new(move || {
            let attached = |client: &mut nigh_client::Client| client.check();
            shared.call(|it| attached(it).map_err(|error| Fault::of_client(&error)))?;
            Ok(Done::Nothing)
        })
    }

    /// Sends requests, and waits for their replies.
    #[napi]
    pub fn send<'env>(&self, env: &'env Env, packed: &[u8]) -> Result<Unknown<'env>, Code> {
        answer(|| {
            let replies = self.shared.send(packed)?;
            replies.list(env).map_err(|error| Fault::of_node(&error))
        })
    }

    /// The same in the pool.
    #[napi]
    pub fn send_later(&self, packed: &[u8]) -> AsyncTask<PoolWork<Replies>> {
        let (shared, packed) = (Arc::clone(&self.shared), copied(packed));
        PoolWork::new(move || shared.send(&packed?))
    }

    /// Begins to read several keys of one moment.
    #[napi]
    pub fn begin_view(&self) -> Result<ClientView, Code> {
        answer(|| {
            if self.local.reads.memory().is_none() {
                // The client may not have looked yet whether its memory is over.
                let begun =
                    |it: &mut nigh_client::Client| it.check().and_then(|()| it.begin_view());
                let begun = |it: &mut _| begun(it).map_err(|error| Fault::of_client(&error));
                self.shared.call(|it| begun(it).map(drop))?;
            }
            let memory = self.local.reads.memory().ok_or_else(|| {
                let address = self.shared.address().to_string();
                Fault::of_client(&CallError::NotAttached { address, cause: OVER.to_owned() })
            })?;
            Ok(ClientView::begin(memory, &self.scratch))
        })
    }

    /// Ends an attempt: whether what it has read counts. Else another one has begun.
    #[napi]
    pub fn end_view(&self, view: &ClientView, to_the_end: bool) -> Result<bool, Code> {
        answer(|| {
            let mut steps = view.steps.borrow_mut();
            if to_the_end && view.memory.borrow().counts(&steps) {
                return Ok(true);
            }
            let counts = self.shared.call(|client| {
                client.end_view(&mut steps, to_the_end).map_err(|error| Fault::of_client(&error))
            })?;
            if let Some(memory) = self.local.reads.memory() {
                *view.memory.borrow_mut() = memory;
            }
            Ok(counts)
        })
    }

    /// A call that waits for a server ends, and all that come fail.
    #[napi]
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Tells nothing more. A call that waits for a reply goes on to its end.
    #[napi]
    pub fn close_later(&self) -> AsyncTask<PoolWork> {
        self.local.reads.forget();
        let shared = Arc::clone(&self.shared);
        PoolWork::new(move || {
            shared.close();
            Ok(Done::Nothing)
        })
    }
}

/// A copy of what is packed, if there is memory for it.
fn copied(packed: &[u8]) -> std::result::Result<Vec<u8>, Fault> {
    let mut copy = Vec::new();
    let (command, bytes) = ("a pipeline".to_owned(), packed.len());
    copy.try_reserve_exact(bytes)
        .map_err(|_| Fault::of_client(&CallError::NoMemory { command, bytes }))?;
    copy.extend_from_slice(packed);
    Ok(copy)
}
