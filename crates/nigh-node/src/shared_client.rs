//! A client that two threads use: one of the pool calls the server, and that of the JavaScript
//! reads memory meanwhile.
//!
//! ```text
//! JavaScript ── requests ──> pool: client, locked ── ring or socket ──> server
//!     └── memory <── published when the client has attached
//! ```
//!
//! 1. Behind each use of the client its memory is published, before the replies are told. So a
//!    reply is never older than the memory that is read then.
//! 2. A transaction behind a WATCH happens on the attachment that was told the WATCH, or not at
//!    all.
//! 3. When it is closed, no call waits for a server any more, and nothing is sent that wasn't yet.
//!
//! Any thread.

use crate::fault::Fault;
use crate::packed::{self, Request};
use crate::replies::{NodeReply, Replies};
use nigh_client::{Address, CallError, Client, ClientMemory, ClientOptions, Frame};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client, closed or not.
pub(crate) struct SharedClient {
    address: Address,
    /// Ends the client's waits for a server, too.
    is_closed: Arc<AtomicBool>,
    /// `None` when it is closed.
    client: Mutex<Option<Watching>>,
    published: Mutex<Published>,
    /// Counts what was published. It changes with `published` locked.
    publications: AtomicU64,
}

/// A client, and the attachment that was told a WATCH and no EXEC since.
struct Watching {
    client: Client,
    watched: Option<u64>,
}

/// What the thread of the JavaScript is to know of the client.
struct Published {
    /// The attachment that this is of, and whether the client has left it.
    of: (u64, bool),
    /// It is taken once.
    memory: Option<ClientMemory>,
    why_not_local: String,
}

impl SharedClient {
    /// One that attaches when it is first used.
    pub(crate) fn new(address: Address, options: ClientOptions) -> Result<SharedClient, Fault> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let options = ClientOptions { gives_up: Some(Arc::clone(&is_closed)), ..options };
        let client = Client::unattached(&address, options);
        let client = client.map_err(|error| Fault::of_client(&error))?;
        let why_not_local = format!("not attached to {address} yet: await a call");
        let published = Published { of: (0, false), memory: None, why_not_local };
        Ok(SharedClient {
            address,
            is_closed,
            client: Mutex::new(Some(Watching { client, watched: None })),
            published: Mutex::new(published),
            publications: AtomicU64::new(0),
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it is closed, or is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Passes the client to `call`, which may wait for the server.
    pub(crate) fn call<R>(
        &self,
        call: impl FnOnce(&mut Client) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.use_it(|it| call(&mut it.client))
    }

    fn use_it<R>(&self, call: impl FnOnce(&mut Watching) -> Result<R, Fault>) -> Result<R, Fault> {
        let mut client = lock(&self.client);
        let open = client.as_mut().filter(|_| !self.is_closed());
        let open = open.ok_or_else(|| self.closed())?;
        let result = call(open);
        self.publish(&open.client);
        result.map_err(|fault| self.if_closed(fault))
    }

    fn closed(&self) -> Fault {
        Fault::client_closed(&self.address.to_string())
    }

    /// The fault of a call, which may have waited for a server until the client was closed.
    fn if_closed(&self, fault: Fault) -> Fault {
        if fault.is_not_attached() && self.is_closed() { self.closed() } else { fault }
    }

    /// Sends requests, and gives what came of each.
    pub(crate) fn send(&self, packed: &[u8]) -> Result<Replies, Fault> {
        let requests = packed::requests(packed).ok_or_else(|| Fault::own("a packed request"))?;
        let mut replies = self.use_it(|it| Ok(it.send(&requests)))?;
        for reply in &mut replies {
            if let NodeReply::Lost(fault) = reply {
                *fault = self.if_closed(fault.clone());
            }
        }
        Ok(Replies(replies))
    }

    /// Whether there are publications behind this one.
    #[inline]
    pub(crate) fn is_news(&self, seen: u64) -> bool {
        self.publications.load(Ordering::Relaxed) != seen
    }

    /// Takes the memory that was published last, if it isn't taken yet; and which publication that
    /// was, so that the next one is news.
    pub(crate) fn take_memory(&self) -> (u64, Option<ClientMemory>) {
        let mut published = lock(&self.published);
        (self.publications.load(Ordering::Relaxed), published.memory.take())
    }

    /// Why it isn't local, or wasn't behind its last call.
    pub(crate) fn why_not_local(&self) -> String {
        lock(&self.published).why_not_local.clone()
    }

    /// Has a call that waits for a server end; and all that come fail.
    pub(crate) fn stop(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Closes it, behind the call that uses it. Nothing if it is closed. A view that isn't
    /// forgotten yet may still have its memory.
    pub(crate) fn close(&self) {
        self.stop();
        if let Some(watching) = lock(&self.client).take() {
            watching.client.close();
        }
        drop(self.take_memory());
    }

    fn publish(&self, client: &Client) {
        let of = (client.link_number(), client.is_attached());
        let mut published = lock(&self.published);
        if published.of == of {
            return;
        }
        published.of = of;
        published.memory = client.memory();
        published.why_not_local = match client.why_not_local() {
            Some(why) => why.to_owned(),
            None if client.is_local() => String::new(),
            None => format!("not attached to {} now", self.address),
        };
        self.publications.fetch_add(1, Ordering::Relaxed);
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watching {
    fn send(&mut self, requests: &[Request<'_>]) -> Vec<NodeReply> {
        let is_transaction = requests.iter().any(|request| request.words[0] == b"EXEC");
        let watched = self.watched.take_if(|_| is_transaction);
        let mut replies = Vec::with_capacity(requests.len());
        let mut send = |client: &mut Client| {
            let words = requests.iter().map(|request| request.words.iter());
            client.pipeline_each(words, |frame| {
                let as_bytes = requests.get(replies.len()).is_some_and(|it| it.as_bytes);
                replies.push(NodeReply::Came(frame, as_bytes));
            })
        };
        let sent = match watched {
            Some(number) => self.client.on_link(number, send),
            None => send(&mut self.client),
        };
        // Of this link are the replies that have come.
        self.note_watches(requests, &replies);
        match sent {
            Ok(()) => {}
            // Nothing was sent: as if a watched key had changed.
            Err(CallError::Over { .. }) => {
                replies.extend(requests.iter().map(|_| NodeReply::Came(Frame::Null, false)));
            }
            Err(error) => {
                let rest = &requests[replies.len()..];
                replies.extend(without_replies(&mut self.client, rest, error));
            }
        }
        replies
    }

    /// Remembers by which attachment the server was told to watch.
    fn note_watches(&mut self, requests: &[Request<'_>], replies: &[NodeReply]) {
        for (request, reply) in requests.iter().zip(replies) {
            let NodeReply::Came(Frame::Simple(_), _) = reply else { continue };
            match request.words[0] {
                // A key that was watched before, by another attachment, is watched no more.
                b"WATCH" if self.watched.is_none() => {
                    self.watched = Some(self.client.link_number());
                }
                b"UNWATCH" => self.watched = None,
                _ => {}
            }
        }
    }
}

/// What comes of requests whose replies are lost by this error: reads are asked for again, until
/// one fails. Why that failed says nothing of a write.
fn without_replies(
    client: &mut Client,
    requests: &[Request<'_>],
    error: CallError,
) -> Vec<NodeReply> {
    let mut may_ask = matches!(error, CallError::Unknown { .. });
    let (mut read_again, mut replies) = (error.clone(), Vec::with_capacity(requests.len()));
    for request in requests {
        if may_ask && request.reads {
            match client.call(&request.words) {
                Ok(frame) => {
                    replies.push(NodeReply::Came(frame, request.as_bytes));
                    continue;
                }
                Err(error) => (may_ask, read_again) = (false, error),
            }
        }
        let lost = if request.reads { &read_again } else { &error };
        replies.push(NodeReply::Lost(fault_of(lost, request)));
    }
    replies
}

/// Why a request has no reply, by the error of the pipeline in which it was.
fn fault_of(lost: &CallError, request: &Request<'_>) -> Fault {
    let CallError::Unknown { address, cause, .. } = lost else {
        return Fault::of_client(lost);
    };
    let (address, cause) = (address.clone(), cause.clone());
    let command = String::from_utf8_lossy(request.words[0]).into_owned();
    Fault::of_client(&match request.reads {
        true => CallError::Unanswered { address, command, cause },
        false => CallError::Unknown { address, command, cause },
    })
}
