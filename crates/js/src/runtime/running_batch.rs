//! How far a batch has come: which calls are in the request, and how many have their replies. The
//! runtime's thread.

use std::time::Instant;

use crate::caller::fcall::{RunTurn, Tenant};
use crate::caller::host_trait::Host;
use crate::io;

/// Gets each call's index and its whole RESP reply.
pub(super) type TakeReply<'r> = &'r mut dyn FnMut(usize, &[u8]);

/// A batch while it runs.
pub(super) struct RunningBatch<'b> {
    pub(super) tenant: Tenant,
    pub(super) now_ms: u64,
    /// Index in the batch of each call in the request.
    pub(super) entered: Vec<usize>,
    /// Overlays that haven't reached the context yet.
    pub(super) overlays: usize,
    pub(super) host: &'b mut dyn Host,
    reply: TakeReply<'b>,
    /// Calls that have their replies.
    pub(super) answered: usize,
    /// Bytes of these replies.
    bytes: usize,
    /// Bytes of replies that are enough.
    enough: usize,
    /// When the batch has had its time.
    pub(super) until: Option<Instant>,
    is_late: bool,
    /// A call couldn't tell something: the calls behind it wait until it has run again.
    pub(super) is_untold: bool,
}

impl<'b> RunningBatch<'b> {
    /// A batch that begins now. `entered` is an empty list.
    pub(super) fn new(
        tenant: Tenant,
        turn: RunTurn,
        host: &'b mut dyn Host,
        reply: TakeReply<'b>,
        entered: Vec<usize>,
    ) -> RunningBatch<'b> {
        RunningBatch {
            tenant,
            now_ms: turn.now_ms,
            entered,
            overlays: 0,
            host,
            reply,
            answered: 0,
            bytes: 0,
            enough: turn.reply_bytes,
            until: Instant::now().checked_add(turn.time),
            is_late: false,
            is_untold: false,
        }
    }

    /// Hands out the reply of a call.
    pub(super) fn give(&mut self, index: usize, reply: &[u8]) {
        self.answered += 1;
        self.bytes += reply.len();
        (self.reply)(index, reply);
    }

    /// Whether no further call is to run.
    pub(super) fn has_enough(&self) -> bool {
        self.bytes > self.enough || self.is_late || self.is_untold
    }

    pub(super) fn look_at_clock(&mut self) {
        self.is_late = self.until.is_some_and(|until| Instant::now() >= until);
    }

    /// Bytes of results that the next entry may gather.
    pub(super) fn flush_bytes(&self) -> usize {
        self.enough.saturating_sub(self.bytes).min(io::RESPONSE_FLUSH)
    }
}
