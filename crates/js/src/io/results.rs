//! Reads results from the response part of the io memory: of calls, as 05_encode.js writes them,
//! and of an installed module, as install() in 06_dispatch.js does. The runtime's thread.

use super::{Io, RESPONSE_AT, size_of};
use crate::library::Function;

// Words and bytes of a result's head, as in 05_encode.js.
pub(super) const R_KIND: usize = 0;
pub(super) const R_LENGTH: usize = 1;
pub(super) const R_STACK: usize = 2;
pub(super) const R_UNTOLD: usize = 2;
pub(super) const R_HEAD: usize = 16;
pub(super) const KIND_REPLY: i32 = 0;
pub(super) const KIND_UNSTABLE: i32 = 2;

/// The result of one call.
pub(crate) enum EncodedResult<'i> {
    /// The whole RESP reply.
    Reply(&'i [u8]),
    /// The function threw.
    Thrown {
        /// The error's message.
        message: &'i [u8],
        /// Its stack, or nothing.
        stack: &'i [u8],
    },
    /// No attempt could tell what these partitions had, a bit for each.
    Unstable(u64),
}

impl EncodedResult<'_> {
    /// Reads the result at `at`; and where the next one begins.
    pub(crate) fn read(io: &Io, at: usize) -> (EncodedResult<'_>, usize) {
        let head = at / 4;
        let (body, length) = (at + R_HEAD, size_of(io.word(head + R_LENGTH)));
        let mut end = body + length;
        let result = match io.word(head + R_KIND) {
            KIND_REPLY => EncodedResult::Reply(io.bytes(body, length)),
            KIND_UNSTABLE => EncodedResult::Unstable(io.wide(head + R_UNTOLD)),
            _ => {
                let stack_length = size_of(io.word(head + R_STACK));
                let (message, stack) = (io.bytes(body, length), io.bytes(end, stack_length));
                end += stack_length;
                EncodedResult::Thrown { message, stack }
            }
        };
        (result, end.next_multiple_of(8))
    }
}

/// The functions of the module that was installed last.
pub(crate) fn installed_functions(io: &Io) -> Vec<Function> {
    let mut at = RESPONSE_AT + 8;
    let count = size_of(io.word(RESPONSE_AT / 4));
    let mut functions = Vec::with_capacity(count.min(1000));
    for _ in 0..count {
        let flags = io.word(at / 4);
        let length = size_of(io.word(at / 4 + 1));
        functions.push(Function {
            name: String::from_utf8_lossy(io.bytes(at + 8, length)).into_owned(),
            no_writes: flags & 1 != 0,
            allow_cross_slot_keys: flags & 2 != 0,
            durable: flags & 4 != 0,
            description: None,
        });
        at += 8 + length.next_multiple_of(8);
    }
    functions
}
