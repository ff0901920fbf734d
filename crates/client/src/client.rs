//! A client of a server: local when it can be, by RESP when it can't.
//!
//! ```text
//! read ── attached? ── memory: copied out ──> answer           (no system call)
//!             │             └─ not sure ── ring or socket ──> answer
//!             └─ no: attach again, at most one try in each pause
//! write ── ring or socket, once ──> reply, or "it may or may not have happened"
//! ```
//!
//! 1. A client reads what it has written: the server publishes a change before it replies.
//! 2. Reads don't go back, also when the server was killed and another one has its memory.
//! 3. A write is sent once. A read that was lost is asked for again.
//! 4. Tries to attach come after pauses that double up to a bound. Behind a timeout the server must
//!    give a sign of life first, so one call waits for it so long, and not each (`probe`).
//! 5. A child of a fork sends and takes nothing: rings and socket are its parent's.
//! 6. A client that attaches once never has a second link: what its server was told by one call
//!    (WATCH, for example) holds for all that follow. So it is for the calls of `on_link`.
//!
//! Belongs to one thread at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nigh_resp::frame::Frame;
use nigh_shm::ForkMark;
use nigh_shm::layout::KEY_BYTES_MAX;

use crate::address::{Address, AddressError};
use crate::call_error::{CallError, check_words, printable};
use crate::client_error::ClientError;
use crate::client_options::ClientOptions;
use crate::link::{Link, LinkError};
use crate::local_side::{LocalSide, Seen};
use crate::probe::Probe;
use crate::read_commands::reads_only;

/// Between two tries to attach: the first pause, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(100);
/// Attachments that may be over, one after the other, within one read.
pub(crate) const ATTACHES_MOST: u32 = 3;

/// A client of a Nigh server, or of any other that speaks RESP.
///
/// Over the Unix socket of a Nigh server on the same host it reads the server's memory by itself,
/// and writes by a ring in shared memory. Over TCP, or where the server allows no more, each call
/// is a request. The calls are the same.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = nigh_client::Client::connect("unix:/run/nigh/nigh.sock")?;
/// client.set(b"greeting", b"hello")?;
/// assert_eq!(client.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Client {
    address: Address,
    options: ClientOptions,
    link: Option<Link>,
    /// Links that there were.
    links: u64,
    /// Whether a call may wait for the server.
    waits: bool,
    /// Whether a call may attach anew.
    stays: bool,
    fork_mark: Arc<ForkMark>,
    /// Not before then the next try; the pause that led to it.
    next_try: Option<Instant>,
    pause: Duration,
    /// Why there is no link.
    cause: String,
    /// Tells when a server goes on that gave no answer in time.
    probe: Option<Probe>,
}

const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Client>();
};

impl Client {
    /// Connects to an address, as [`Address`] reads it: `unix:/path`, `tcp:host:port`, `host:port`,
    /// `redis://…`.
    ///
    /// # Errors
    /// The address can't be read; [`CallError::NotAttached`], [`CallError::CantConnect`].
    pub fn connect(address: &str) -> Result<Client, CallError> {
        Client::connect_with(&Client::address_of(address)?, ClientOptions::default())
    }

    pub(crate) fn address_of(address: &str) -> Result<Address, CallError> {
        address
            .parse()
            .map_err(|error: AddressError| CallError::CantConnect { cause: error.to_string() })
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`CallError::NotAttached`], [`CallError::CantConnect`], [`CallError::NotLocal`].
    pub fn connect_with(address: &Address, options: ClientOptions) -> Result<Client, CallError> {
        let mut client = Client::unattached(address, options)?;
        client.attached()?;
        Ok(client)
    }

    /// A client that attaches with its first call.
    ///
    /// # Errors
    /// [`CallError::CantConnect`]: the system gives no memory.
    pub fn unattached(address: &Address, options: ClientOptions) -> Result<Client, CallError> {
        let fork_mark = new_fork_mark()?;
        Ok(Client {
            address: address.clone(),
            options,
            link: None,
            links: 0,
            waits: true,
            stays: false,
            fork_mark: Arc::new(fork_mark),
            next_try: None,
            pause: Duration::ZERO,
            cause: String::new(),
            probe: None,
        })
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether there was a server when it last called, or looked.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    /// Whether it reads the server's memory now.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.local.is_some())
    }

    /// Why it doesn't, though it is connected.
    #[must_use]
    pub fn why_not_local(&self) -> Option<&str> {
        let link = self.link.as_ref().filter(|link| link.local.is_none())?;
        Some(&link.why_not_local)
    }

    /// Tells whether this process is a child of the one that connected: then each call fails. For a
    /// caller that has a lock around the client, which a child may find locked for ever.
    #[must_use]
    pub fn fork_mark(&self) -> Arc<ForkMark> {
        Arc::clone(&self.fork_mark)
    }

    /// Makes calls that wait for nobody: what memory tells is read, and what would ask the server
    /// or attach is [`CallError::WouldWait`].
    ///
    /// # Errors
    /// That one, and those of the calls.
    pub fn without_waiting<R>(
        &mut self,
        calls: impl FnOnce(&mut Client) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        struct Hurried<'c>(&'c mut Client);
        impl Drop for Hurried<'_> {
            fn drop(&mut self) {
                self.0.waits = true;
            }
        }
        self.waits = false;
        calls(Hurried(self).0)
    }

    /// Makes calls that belong to the attachment with this number ([`Client::link_number`]), as an
    /// EXEC belongs to its WATCH. They don't attach anew.
    ///
    /// # Errors
    /// [`CallError::Over`] if that attachment is over: nothing was sent. Those of the calls.
    pub fn on_link<R>(
        &mut self,
        link_number: u64,
        calls: impl FnOnce(&mut Client) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        struct Staying<'c>(&'c mut Client);
        impl Drop for Staying<'_> {
            fn drop(&mut self) {
                self.0.stays = false;
            }
        }
        if self.links != link_number {
            return Err(self.over());
        }
        self.stays = true;
        calls(Staying(self).0)
    }

    /// Whether there is a server: looks, and attaches again if need be.
    ///
    /// # Errors
    /// [`CallError::NotAttached`], [`CallError::CantConnect`], [`CallError::NotLocal`].
    pub fn check(&mut self) -> Result<(), CallError> {
        self.refuse_child()?;
        self.leave_if_over();
        self.attached().map(drop)
    }

    /// Ends the attachment, also for each [`crate::ClientMemory`] of it. A child of a fork leaves
    /// its parent's as it is.
    pub fn close(mut self) {
        if !self.fork_mark.is_in_child() {
            self.leave("the client is closed".to_owned());
        }
    }

    /// The options it was made with.
    pub(crate) fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Whether a call may wait for the server.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The link, if there is one now, open or not.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// How often it has attached: the number of the attachment that it has now, or had last.
    #[must_use]
    pub fn link_number(&self) -> u64 {
        self.links
    }

    /// The memory that the link with this number has, as long as there is no other.
    pub(crate) fn side_of(&self, link_number: u64) -> Option<&LocalSide> {
        let link = self.link.as_ref().filter(|_| self.links == link_number)?;
        link.local.as_deref()
    }

    #[inline]
    fn refuse_child(&self) -> Result<(), CallError> {
        if self.fork_mark.is_in_child() {
            return Err(CallError::Forked { address: self.address.to_string() });
        }
        Ok(())
    }

    /// The link, for a call that waits for a reply.
    pub(crate) fn attached_to_ask(&mut self) -> Result<&mut Link, CallError> {
        if !self.waits {
            return Err(CallError::WouldWait);
        }
        self.attached()
    }

    /// The link; attaches again if it is over.
    #[inline]
    pub(crate) fn attached(&mut self) -> Result<&mut Link, CallError> {
        self.refuse_child()?;
        let is_open = self.link.as_mut().is_some_and(Link::is_open);
        if !is_open {
            self.attach()?;
        }
        Ok(self.link.as_mut().expect("attached above"))
    }

    /// Attaches, if it is time for a try, or waits for it as long as the options say.
    #[cold]
    fn attach(&mut self) -> Result<(), CallError> {
        self.leave_if_over();
        if self.link.is_some() {
            return Ok(());
        }
        if !self.waits {
            return Err(CallError::WouldWait);
        }
        if self.stays || (self.options.attach_once && self.links > 0) {
            return Err(self.over());
        }
        // None: without an end.
        let deadline = Instant::now().checked_add(self.options.wait);
        let mut denied = None;
        loop {
            let now = Instant::now();
            if self.next_try.is_none_or(|at| at <= now) {
                match self.open() {
                    Ok(link) => {
                        self.link = Some(link);
                        self.links += 1;
                        (self.next_try, self.pause) = (None, Duration::ZERO);
                        return Ok(());
                    }
                    Err(LinkError::Lasting(error)) => return Err(error),
                    Err(LinkError::Denied(error)) => {
                        self.cause = error.to_string();
                        denied = Some(error);
                    }
                    Err(LinkError::Passing(cause) | LinkError::Silent(cause)) => {
                        (self.cause, denied) = (cause, None);
                    }
                }
                self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MOST);
                self.next_try = Some(Instant::now() + self.pause);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) || self.gives_up() {
                if let Some(error) = denied {
                    self.next_try = None;
                    return Err(error);
                }
                let (address, cause) = (self.address.to_string(), self.cause.clone());
                return Err(CallError::NotAttached { address, cause });
            }
            let until = self.next_try.into_iter().chain(deadline).min();
            std::thread::sleep(until.map_or(PAUSE, |until| until.saturating_duration_since(now)));
        }
    }

    /// Whether another thread has said that no call waits for a server any more.
    fn gives_up(&self) -> bool {
        self.options.gives_up.as_ref().is_some_and(|gives_up| gives_up.load(Relaxed))
    }

    /// One try to attach. To a server that was silent, none before it gives a sign of life.
    fn open(&mut self) -> Result<Link, LinkError> {
        if self.probe.as_mut().is_some_and(Probe::is_silent) {
            return Err(LinkError::Passing(self.cause.clone()));
        }
        self.probe = None;
        let opened = Link::open(&self.address, &self.options);
        if let Err(LinkError::Silent(_)) = &opened {
            self.probe = Some(Probe::of(&self.address.endpoint));
        }
        opened
    }

    fn over(&self) -> CallError {
        CallError::Over { address: self.address.to_string(), cause: self.cause.clone() }
    }

    /// Gives the link up if a look now says that it is over. Whether it is.
    pub(crate) fn leave_if_over(&mut self) -> bool {
        let why = self.link.as_mut().and_then(Link::why_over);
        if let Some(why) = why {
            self.leave(why.to_owned());
        }
        why.is_some()
    }

    /// Gives the link up. The next call attaches anew.
    pub(crate) fn leave(&mut self, cause: String) {
        if let Some(link) = self.link.take() {
            link.connection.shut();
        }
        self.cause = cause;
    }

    /// Gives the link up that this error has ended.
    fn lose(&mut self, error: &ClientError) {
        self.leave(error.to_string());
        if error.is_silence() {
            self.probe = Some(Probe::of(&self.address.endpoint));
        }
    }

    /// Reads: from memory if it can, else by this request. `state` is what both put their answer
    /// in.
    #[inline]
    pub(crate) fn read<S: ?Sized, T>(
        &mut self,
        state: &mut S,
        request: &[&[u8]],
        from_memory: impl FnMut(&LocalSide, &mut S) -> Seen<T>,
        from_reply: impl FnOnce(Frame, &mut S) -> Option<T>,
    ) -> Result<T, CallError> {
        match self.look(request[0], state, from_memory)? {
            Some(answer) => Ok(answer),
            None => self.ask(state, request, from_reply),
        }
    }

    /// Reads from memory; `None` if the server is to be asked.
    #[inline]
    pub(crate) fn look<S: ?Sized, T>(
        &mut self,
        command: &[u8],
        state: &mut S,
        mut from_memory: impl FnMut(&LocalSide, &mut S) -> Seen<T>,
    ) -> Result<Option<T>, CallError> {
        for _ in 0..ATTACHES_MOST {
            let Some(side) = &self.attached()?.local else { break };
            match from_memory(side, state) {
                Seen::Is(answer) => return Ok(Some(answer)),
                Seen::Ask => break,
                Seen::Over(why) => self.leave(why),
                Seen::NoRoom(bytes) => return Err(CallError::no_memory(command, bytes)),
            }
        }
        Ok(None)
    }

    /// Asks the server; again if the link is lost meanwhile. Only for what changes nothing.
    #[cold]
    pub(crate) fn ask<S: ?Sized, T>(
        &mut self,
        state: &mut S,
        request: &[&[u8]],
        from_reply: impl FnOnce(Frame, &mut S) -> Option<T>,
    ) -> Result<T, CallError> {
        check_words(request)?;
        for _ in 0..ATTACHES_MOST {
            let error = match self.attached_to_ask()?.call(request) {
                Ok(reply) => {
                    let reply = CallError::if_refused(&self.address, request[0], reply)?;
                    return from_reply(reply, state)
                        .ok_or_else(|| CallError::unexpected(&self.address, request[0]));
                }
                Err(ClientError::NoRoom { bytes, .. }) => {
                    return Err(CallError::no_memory(request[0], bytes));
                }
                Err(error) => error,
            };
            self.lose(&error);
            if error.is_silence() || error.is_too_much() {
                break;
            }
        }
        let (address, command) = (self.address.to_string(), printable(request[0]));
        Err(CallError::Unanswered { address, command, cause: self.cause.clone() })
    }

    /// Sends a request that may change something, once.
    pub(crate) fn once(&mut self, request: &[&[u8]]) -> Result<Frame, CallError> {
        check_words(request)?;
        let command: &[u8] = request.first().copied().unwrap_or_default();
        match self.attached_to_ask()?.call(request) {
            Ok(reply) => Ok(reply),
            // Nothing was sent.
            Err(ClientError::NoRoom { bytes, .. }) => Err(CallError::no_memory(command, bytes)),
            Err(error) => Err(self.unknown(printable(command), &error)),
        }
    }

    /// What a request was is lost with the link. One that reads had no effect.
    pub(crate) fn unknown(&mut self, command: String, error: &ClientError) -> CallError {
        self.lose(error);
        let (address, cause) = (self.address.to_string(), error.to_string());
        if reads_only(command.as_bytes()) {
            return CallError::Unanswered { address, command, cause };
        }
        CallError::Unknown { address, command, cause }
    }
}

/// Tells this process from its children.
pub(crate) fn new_fork_mark() -> Result<ForkMark, CallError> {
    ForkMark::new().map_err(|error| CallError::CantConnect {
        cause: format!("the system gives no page of memory: {error}"),
    })
}

/// The value in a reply, if there is one; `None` if the reply is something else.
pub(crate) fn value_of(reply: &Frame) -> Option<Option<&[u8]>> {
    match reply {
        Frame::Simple(_) => None,
        reply if reply.is_null() => Some(None),
        reply => reply.bytes().map(Some),
    }
}

/// The same, taken out of the reply: a copy might find no memory.
pub(crate) fn owned_value_of(reply: Frame) -> Option<Option<Vec<u8>>> {
    match reply.without_attributes() {
        Frame::Bulk(value) | Frame::BigNumber(value) => Some(Some(value)),
        Frame::Verbatim { text, .. } => Some(Some(text)),
        Frame::Null | Frame::NullArray => Some(None),
        _ => None,
    }
}

/// A key that can be.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<(), CallError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(CallError::KeyTooLong { bytes: key.len() });
    }
    Ok(())
}
