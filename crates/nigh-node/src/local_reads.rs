//! Reads of a server's memory by functions that take and give numbers alone.
//!
//! ```text
//! memory.js: key into the scratch ── clientGet(client's number, bytes) ──> length, value in the scratch
//! ```
//!
//! 1. A method of a class takes four times as long to call as a function does, and longer than the
//!    read. So clients are found by a number.
//! 2. While a read runs, no JavaScript does.
//!
//! The thread of the JavaScript; each has its own clients.

use crate::fault::{Code, answer, guarded};
use crate::scratch::{Scratch, UNSURE};
use crate::shared_client::SharedClient;
use napi::Result;
use napi_derive::napi;
use nigh_client::{ClientMemory, KeyLife};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// In place of milliseconds: it has no expiry, as PTTL says it.
const FOREVER: f64 = -1.0;
/// There is no such key.
const NO_KEY: f64 = -2.0;
/// The server is to be asked.
const ASK: f64 = -3.0;

thread_local! {
    /// The clients of this thread, by their numbers. A number that is free is given again.
    static CLIENTS: RefCell<Vec<Option<Rc<LocalReads>>>> = const { RefCell::new(Vec::new()) };
}

/// What a client reads by itself.
pub(crate) struct LocalReads {
    shared: Arc<SharedClient>,
    /// The server's memory, if it has handed that over; the publication that it came with.
    memory: RefCell<Option<Rc<ClientMemory>>>,
    seen: Cell<u64>,
    scratch: Rc<Scratch>,
}

impl LocalReads {
    pub(crate) fn new(shared: Arc<SharedClient>, scratch: Rc<Scratch>) -> LocalReads {
        LocalReads { shared, memory: RefCell::new(None), seen: Cell::new(0), scratch }
    }

    /// What memory tells; `None` if the server is to be asked.
    #[inline]
    fn look<T>(&self, look: impl FnOnce(&ClientMemory) -> Option<T>) -> Option<T> {
        if self.shared.is_news(self.seen.get()) {
            let (now, memory) = self.shared.take_memory();
            self.seen.set(now);
            *self.memory.borrow_mut() = memory.map(Rc::new);
        }
        let told = look(self.memory.borrow().as_ref()?);
        if told.is_none() && self.memory.borrow().as_ref().is_some_and(|it| it.is_over()) {
            self.forget();
        }
        told
    }

    /// The memory, if it is still the server's.
    pub(crate) fn memory(&self) -> Option<Rc<ClientMemory>> {
        self.look(|memory| (!memory.is_over()).then_some(()))?;
        self.memory.borrow().clone()
    }

    /// Reads nothing more of what it has.
    pub(crate) fn forget(&self) {
        *self.memory.borrow_mut() = None;
    }
}

/// A client that functions find by its number, as long as this lives.
pub(crate) struct Numbered {
    pub(crate) reads: Rc<LocalReads>,
    pub(crate) number: u32,
}

impl Numbered {
    pub(crate) fn new(reads: LocalReads) -> Numbered {
        let reads = Rc::new(reads);
        let at = CLIENTS.with_borrow_mut(|all| {
            let at = all.iter().position(Option::is_none).unwrap_or(all.len());
            all.resize(all.len().max(at + 1), None);
            all[at] = Some(Rc::clone(&reads));
            at
        });
        Numbered { reads, number: u32::try_from(at).unwrap_or(u32::MAX) }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        // Behind the thread's end there are no numbers.
        let _ = CLIENTS.try_with(|all| {
            if let Some(it) = usize::try_from(self.number).ok().and_then(|at| {
                let mut all = all.borrow_mut();
                all.get_mut(at).and_then(Option::take)
            }) {
                drop(it);
            }
        });
    }
}

fn of<T>(client: u32, read: impl FnOnce(&LocalReads) -> Option<T>) -> Option<T> {
    CLIENTS.with_borrow(|all| read(all.get(usize::try_from(client).ok()?)?.as_ref()?))
}

/// The value of a key: its length, or -1 for none, or -2 if the server is to be asked.
#[napi]
pub(crate) fn client_get(client: u32, key_bytes: u32) -> i32 {
    let read = |it: &LocalReads| {
        Some(it.scratch.read(key_bytes, |key, found| it.look(|me| me.get_into(key, found))))
    };
    guarded(|| Ok(of(client, read))).ok().flatten().unwrap_or(UNSURE)
}

/// The values of keys, all of one moment for each partition.
#[napi]
pub(crate) fn client_multi_get(client: u32, keys_bytes: u32) -> Result<i32, Code> {
    let read = |it: &LocalReads| {
        let read = |keys: &[&[u8]], values: &mut _| it.look(|me| me.multi_get_into(keys, values));
        Some(it.scratch.read_all(keys_bytes, read))
    };
    answer(|| of(client, read).unwrap_or(Ok(UNSURE)))
}

/// Whether a key is there: 1 or 0, or -2 if the server is to be asked.
#[napi]
pub(crate) fn client_exists(client: u32, key_bytes: u32) -> Result<i32, Code> {
    let read = |it: &LocalReads| it.look(|me| me.exists(it.scratch.key(key_bytes)));
    answer(|| Ok(of(client, read).map_or(UNSURE, i32::from)))
}

/// Milliseconds for which a key stays.
#[napi]
pub(crate) fn client_ttl(client: u32, key_bytes: u32) -> Result<f64, Code> {
    let read = |it: &LocalReads| it.look(|me| me.ttl(it.scratch.key(key_bytes)));
    answer(|| {
        Ok(match of(client, read) {
            None => ASK,
            Some(None) => NO_KEY,
            Some(Some(KeyLife::Forever)) => FOREVER,
            Some(Some(KeyLife::Left(left))) => (left.as_secs_f64() * 1000.0).floor(),
        })
    })
}
