//! A command under way: its arguments, and how it ends.
//!
//! 1. A command that is refused has changed nothing and written no reply.
//!
//! Thread: the shard that owns the store, or the view.

use nigh_shm::{Reader, WriteError};

use crate::error::WriteFault;
use crate::op::Op;
use crate::partition::store::Store;
use crate::turn::Turn;

/// A command of many keys prefetches index lines and records of so many keys. That is enough to
/// overlap cache misses, and few enough to stay cached until they are used.
pub(crate) const AHEAD: usize = 16;

/// The reason for an error reply (invariant 1).
pub(crate) enum Refusal {
    /// A fixed text.
    Text(&'static str),
    /// A text that repeats a part of the command.
    Owned(String),
    /// The arena refused.
    Write(WriteError),
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Refusal {
        Refusal::Text(text)
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Refusal {
        Refusal::Write(error)
    }
}

impl WriteFault for Refusal {
    fn is_oom(&self) -> bool {
        matches!(self, Refusal::Write(error) if error.is_oom())
    }

    fn lacks_room(&self) -> bool {
        matches!(self, Refusal::Write(error) if error.lacks_room())
    }

    fn try_again(self) -> Refusal {
        match self {
            Refusal::Write(error) => Refusal::Write(error.try_again()),
            other => other,
        }
    }
}

/// The end of a command: its reply is written, or it is refused.
pub(crate) type CommandResult = Result<(), Refusal>;

/// A command's arguments, with the hash of its first key.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 't, 'p> {
    pub(crate) op: Op,
    pub(crate) args: &'a [&'a [u8]],
    pub(crate) hash: u32,
    pub(crate) turn: &'t Turn<'p>,
}

impl<'a> Call<'a, '_, '_> {
    /// The argument at `at`. The server's command table has checked the arity.
    pub(crate) fn arg(&self, at: usize) -> &'a [u8] {
        self.args[at]
    }

    /// The first key.
    pub(crate) fn key(&self) -> &'a [u8] {
        self.args[1]
    }
}

impl Store {
    /// Hashes of up to [`AHEAD`] of the call's keys. Prefetches their lines and records, unless the
    /// call has one key, whose hash is known.
    pub(crate) fn hashes<'a>(
        &self,
        call: Call<'_, '_, '_>,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> [u32; AHEAD] {
        if call.args.len() == 2 {
            return [call.hash; AHEAD];
        }
        let mut hashes = [0; AHEAD];
        let count = keys.len();
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.reader.hash(key);
        }
        Reader::prefetch(hashes[..count].iter().map(|hash| (&self.reader, *hash)));
        hashes
    }
}

/// The refusal of an expiry that isn't positive or overflows.
pub(crate) fn invalid_expire_time(op: Op) -> Refusal {
    Refusal::Owned(format!("ERR invalid expire time in '{}' command", op.name()))
}

/// A length as the integer of a reply.
pub(crate) fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("lengths in memory fit")
}
