//! The replies of an entry: from the response, as 05_encode.js writes it, to who asked. The
//! runtime's thread.

use std::sync::Arc;
use std::time::Instant;

use crate::caller::fcall::{Tenant, UNSTABLE};
use crate::caller::host_trait::{Host, Level};
use crate::error_reply;
use crate::io::{self, Io};
use crate::isolate::log_quota::Speaker;
use crate::runtime::Runtime;

// As in 05_encode.js.
const R_HEAD: usize = 16;
const R_UNTOLD: usize = 2;
const KIND_REPLY: i32 = 0;
const KIND_UNSTABLE: i32 = 2;

/// Gets each call's index and its whole RESP reply.
pub(crate) type Reply<'r> = &'r mut dyn FnMut(usize, &[u8]);

/// Which calls of a batch wait in the request, and who gets their replies.
pub(crate) struct Flight<'f> {
    pub(crate) tenant: Tenant,
    pub(crate) now_ms: u64,
    /// Index in the batch of each call in the request.
    pub(crate) entered: Vec<usize>,
    /// Overlays that haven't come to the context.
    pub(crate) overlays: usize,
    pub(crate) host: &'f mut dyn Host,
    pub(crate) reply: Reply<'f>,
    /// Calls that have their replies, the bytes of these, and how many are enough.
    pub(crate) answered: usize,
    pub(crate) bytes: usize,
    pub(crate) enough: usize,
    /// When the batch has had its time, and whether it has.
    pub(crate) until: Option<Instant>,
    pub(crate) is_late: bool,
    /// A call couldn't be told: those behind it wait until it has run.
    pub(crate) is_untold: bool,
}

impl Flight<'_> {
    /// Hands out the reply of a call.
    pub(crate) fn give(&mut self, index: usize, reply: &[u8]) {
        self.answered += 1;
        self.bytes += reply.len();
        (self.reply)(index, reply);
    }

    pub(crate) fn has_enough(&self) -> bool {
        self.bytes > self.enough || self.is_late || self.is_untold
    }

    pub(crate) fn look_at_clock(&mut self) {
        self.is_late = self.until.is_some_and(|until| Instant::now() >= until);
    }

    /// Bytes of results that one more entry may gather.
    pub(crate) fn flush_bytes(&self) -> usize {
        self.enough.saturating_sub(self.bytes).min(io::RESPONSE_FLUSH)
    }
}

/// The partitions that the response at a byte says couldn't be told.
fn untold(io: Io, at: usize) -> u64 {
    let half = |word: usize| u64::from(io.word(at / 4 + word).cast_unsigned());
    half(R_UNTOLD) | half(R_UNTOLD + 1) << 32
}

impl Runtime {
    /// Hands out the replies of `done` calls from `first` on.
    pub(crate) fn deliver(&mut self, flight: &mut Flight<'_>, first: usize, done: usize) {
        let io = self.isolate.io;
        let size = |word: i32| usize::try_from(word).unwrap_or(0);
        let mut failed = std::mem::take(&mut self.isolate.bridge().failed).into_iter().peekable();
        let mut at = io::RESPONSE_AT;
        for call in first..first + done {
            let (kind, length) = (io.word(at / 4), size(io.word(at / 4 + 1)));
            let body = at + R_HEAD;
            let mut end = body + length;
            let index = flight.entered[call];
            if kind == KIND_UNSTABLE {
                flight.is_untold = true;
                self.untold = untold(io, at);
                flight.give(index, UNSTABLE);
            } else if kind != KIND_REPLY {
                let stack_length = size(io.word(at / 4 + 2));
                let message = String::from_utf8_lossy(io.bytes(body, length));
                let stack = String::from_utf8_lossy(io.bytes(end, stack_length));
                let error = self.thrown(flight, call, &message, &stack);
                flight.give(index, &error);
                end += stack_length;
            } else if let Some((_, error)) = failed.next_if(|(failed, _)| *failed == call) {
                self.stats.errors += 1;
                flight.give(index, &error_reply::reply(&error));
            } else {
                flight.give(index, io.bytes(body, length));
            }
            at = end.next_multiple_of(8);
        }
    }

    /// The reply to a thrown error; its stack goes to the log, unless the function had its share.
    fn thrown(
        &mut self,
        flight: &mut Flight<'_>,
        call: usize,
        message: &str,
        stack: &str,
    ) -> Vec<u8> {
        self.stats.errors += 1;
        let id = self.isolate.bridge().ids[call];
        let functions = Arc::clone(&self.state(flight.tenant).functions);
        let Some(callable) = functions.by_id(id) else { return error_reply::reply(message) };
        let text = if stack.is_empty() { message } else { stack };
        let speaker = Speaker {
            tenant: flight.tenant.0,
            library: Arc::clone(&callable.library),
            function: callable.name.clone(),
        };
        if self.isolate.bridge().stacks.take(speaker, flight.now_ms) {
            let text = error_reply::without_prelude(text);
            flight.host.log(Level::Warn, &callable.library, &callable.name, &text);
        }
        error_reply::thrown(message, stack, &callable.library, &callable.name)
    }
}
