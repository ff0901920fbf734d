//! What compaction and bases ask of the arenas that a shard owns.
//!
//! The shard's thread.

use crate::durability::orders::{Placed, RightBytes};
use nigh_shm::{LineWalk, MendError, Standing};
use std::collections::VecDeque;

/// What a step asks of the arenas.
pub(crate) trait Arenas {
    /// The record of a key, to be appended again, since these files go; with `lsn`, only if it has
    /// this number, and wasn't appended again to a later file.
    fn standing(&mut self, files: Files, stream: u32, key: &[u8], lsn: Option<u64>) -> Standing;

    /// Asks memory for what [`Self::standing`] will look at.
    fn ask_for(&self, keys: &mut dyn Iterator<Item = (u32, &[u8])>);

    /// Puts right bytes in place of those of a record. False: it isn't there any more.
    fn mend(&mut self, right: &RightBytes) -> Result<bool, MendError>;

    /// A long value was appended again.
    fn placed(&mut self, placed: &Placed);

    /// Keys of a stream of which the log needs something in a file, or before it, that ends with
    /// this LSN.
    fn rooted_in(&self, file: u64, stream: u32, lsn: u64) -> Vec<Box<[u8]>>;

    /// The keys of the next lines of a stream's index, from a place on.
    fn walk(
        &self,
        stream: u32,
        place: &mut LineWalk,
        lines: u32,
        keys: &mut VecDeque<(u32, Box<[u8]>)>,
    ) -> Walked;
}

/// How far a walk has come.
pub(crate) enum Walked {
    More,
    AllOver,
    /// To a key that its own hash doesn't find: it is bad in memory.
    Bad(Box<[u8]>),
}

/// A file that is compacted, and the one in which, or behind which, its records come again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    pub(crate) victim: u64,
    pub(crate) newest: u64,
}
