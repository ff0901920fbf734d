//! The memory that a client's server has handed over, for a thread that must not wait.
//!
//! ```text
//! a thread that may wait: Client ── memory() ──> ClientMemory: a thread that must not
//!      ^─────────── None: the client is asked ─────────┘
//! ```
//!
//! 1. It asks nobody, and makes a system call only as often as a link looks at its socket. Where
//!    memory doesn't tell the answer, there is `None`: the same call of the client has one.
//! 2. It belongs to one attachment. When that is over, all its answers are `None`, and the client
//!    has another one by and by.
//! 3. It reads what its client has written: the server publishes a change before it replies.
//!
//! Any thread, and several at once.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nigh_shm::{ForeignValues, LastLook, TooNew};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::Client;
use crate::client_view::{AttemptState, ClientView, ViewSteps};
use crate::link::LOOK_MS;
use crate::local_side::{KeyLife, LocalSide, Seen};

/// Reads of a server's memory that wait for nobody.
pub struct ClientMemory {
    side: Arc<LocalSide>,
    socket: Arc<UnixStream>,
    link_number: u64,
    /// At the socket.
    looked: LastLook,
    is_over: AtomicBool,
}

const _: () = {
    const fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<ClientMemory>();
};

impl Client {
    /// The memory that it reads now, for another thread; `None` if it isn't local now.
    #[must_use]
    pub fn memory(&self) -> Option<ClientMemory> {
        let link = self.link()?;
        Some(ClientMemory {
            side: Arc::clone(link.local.as_ref()?),
            socket: Arc::clone(link.connection.ring_socket()?),
            link_number: self.link_number(),
            looked: LastLook::now(),
            is_over: AtomicBool::new(false),
        })
    }
}

impl ClientMemory {
    /// The number of the attachment: [`Client::link_number`].
    #[must_use]
    pub fn link_number(&self) -> u64 {
        self.link_number
    }

    /// Whether it tells nothing any more. A server's end is noticed by the next look at the
    /// socket.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        if self.looked.is_due(LOOK_MS) {
            self.look_at_socket();
        }
        self.is_over.load(Relaxed)
    }

    /// As [`Client::get_into`].
    #[inline]
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Option<bool> {
        self.answer(|side| side.get(key, into))
    }

    /// As [`Client::exists`].
    #[must_use]
    pub fn exists(&self, key: &[u8]) -> Option<bool> {
        self.answer(|side| side.expiry(key).map(|expiry_ms| expiry_ms.is_some()))
    }

    /// As [`Client::ttl`].
    #[must_use]
    pub fn ttl(&self, key: &[u8]) -> Option<Option<KeyLife>> {
        self.answer(|side| side.life(key))
    }

    /// As [`Client::multi_get_into`].
    pub fn multi_get_into(&self, keys: &[&[u8]], values: &mut ForeignValues) -> Option<()> {
        self.answer(|side| side.multi_get(keys, values))
    }

    /// Begins a view, as [`Client::begin_view`] does: the steps are [`ClientMemory::step_view`].
    #[must_use]
    pub fn begin_view(&self) -> ViewSteps {
        let (link_number, outcome) = (self.link_number, AttemptState::Whole);
        ViewSteps { link_number, views: Vec::new(), outcome, attempts: 0 }
    }

    /// Reads in a view.
    ///
    /// # Errors
    /// [`TooNew`]: the attempt is over.
    pub fn step_view<R>(
        &self,
        steps: &mut ViewSteps,
        read: impl FnOnce(&mut ClientView<'_>) -> Result<R, TooNew>,
    ) -> Result<R, TooNew> {
        if self.is_over() || steps.link_number != self.link_number {
            return Err(steps.end_with(AttemptState::TooNew));
        }
        read(&mut ClientView::of(&self.side, steps))
    }

    /// Whether what a view has read counts for certain. Else [`Client::end_view`] says it, which
    /// may wait.
    #[must_use]
    pub fn counts(&self, steps: &ViewSteps) -> bool {
        matches!(steps.outcome, AttemptState::Whole)
            && steps.link_number == self.link_number
            && self.side.has_its_writers()
            && steps.moments().all(|(at, lsn)| self.side.is_on_disk(at, Some(lsn)))
    }

    #[inline]
    fn answer<T>(&self, look: impl FnOnce(&LocalSide) -> Seen<T>) -> Option<T> {
        if self.is_over() {
            return None;
        }
        match look(&self.side) {
            Seen::Is(answer) => Some(answer),
            // The client says why.
            Seen::Ask | Seen::NoRoom(_) => None,
            Seen::Over(_) => {
                self.is_over.store(true, Relaxed);
                None
            }
        }
    }

    /// Notes whether either side has closed the socket. Bytes in it are the client's.
    #[cold]
    fn look_at_socket(&self) {
        let mut sockets = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let ready = poll(&mut sockets, Some(&Timespec::default()));
        if ready.is_ok() && !sockets[0].revents().is_empty() {
            self.is_over.store(true, Relaxed);
        }
    }
}
