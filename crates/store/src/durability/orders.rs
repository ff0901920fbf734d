//! What a shard and its log's thread ask of each other, beside the journal's entries.
//!
//! 1. An order is done behind the entries before the journal's tail at which it was given, and
//!    before all later ones: so for each key, the log's order is that of its versions.
//!
//! Any thread.

use nigh_log::ChainMark;
use nigh_shm::{HeldValue, MendError};
use std::sync::Weak;
use std::sync::mpsc::SyncSender;

/// An order of a shard, and when it was given.
pub struct LogOrder {
    /// The journal's tail then.
    pub tail: u64,
    /// What is to be done.
    pub what: Ordered,
}

/// What is to be done.
pub enum Ordered {
    /// Records are appended again.
    Again(Vec<AgainRecord>),
    /// The owner has looked at all changes of this file.
    Judged(u64),
    /// All that this file needed has been ordered.
    Release(u64),
    /// A record that the file has is bad in memory. The owner looks at nothing more of the file
    /// before it gets the record's right bytes.
    Stays(BadRecord),
    /// The owner has put the right bytes in place of that record. False: it was replaced or removed
    /// meanwhile.
    Mended(Result<bool, MendError>),
    /// All records of a base have been ordered.
    BaseEnds,
    /// A frame ends here and is synced; where is told. What counts there is held from now on.
    EndFrame(EndOrder),
}

/// Asks where a log is.
pub struct EndOrder {
    /// Where it is told.
    pub told: SyncSender<Result<ChainMark, String>>,
    /// Most bytes of files that are held though they don't count; beyond them none is.
    pub hold_bytes: u64,
    /// They are held as long as this lasts. So letting go waits for nobody, and finds no queue
    /// full; [`LogStatus::want_sync`](crate::LogStatus::want_sync) behind it hastens it.
    pub holder: Weak<()>,
}

/// A record as it is now, with the LSN that it has.
pub struct AgainRecord {
    /// The stream.
    pub stream: u32,
    /// The record's LSN.
    pub lsn: u64,
    /// The record: a PUT's payload, or its beginning.
    pub record: Vec<u8>,
    /// The rest of the payload.
    pub value: Option<HeldValue>,
}

/// A record that is bad in memory.
#[derive(Debug)]
pub struct BadRecord {
    /// Its key.
    pub key: String,
    /// The file's change that wrote it, if that is known.
    pub change: Option<MetChange>,
}

/// A change of a file that is compacted, and where it stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetChange {
    /// The stream.
    pub stream: u32,
    /// The LSN.
    pub lsn: u64,
    /// Where its frame begins in the file.
    pub frame: u64,
}

/// The bytes that a file has of a record that is bad in memory: a PUT.
#[derive(Debug)]
pub struct RightBytes {
    /// The stream.
    pub stream: u32,
    /// The LSN.
    pub lsn: u64,
    /// The change's payload.
    pub payload: Vec<u8>,
}

/// Changes of a file that is compacted, for the owner to look at.
#[derive(Debug)]
pub struct LookBatch {
    /// The file.
    pub file: u64,
    /// Where the frame of the changes begins in it.
    pub frame: u64,
    /// The file being written: what is appended again lies in it, or behind it.
    pub newest: u64,
    /// Where long values were appended again, for files that were compacted before.
    pub placed: Vec<Placed>,
    /// The changes.
    pub looks: Vec<Look>,
    /// Their keys, one behind the other: what another thread gives back should be one piece.
    pub keys: Vec<u8>,
    /// With the last ones: the last LSN of each stream in the file, and in all before it.
    pub ends: Option<Vec<(u32, u64)>>,
    /// Instead of changes to look at: a record to mend.
    pub right: Option<RightBytes>,
}

impl LookBatch {
    /// The changes from one on, with their keys.
    pub fn looks_from(&self, first: usize) -> impl Iterator<Item = (&Look, &[u8])> + Clone {
        let before = first.checked_sub(1).and_then(|before| self.looks.get(before));
        let looks = self.looks.get(first..).unwrap_or_default();
        looks.iter().scan(before.map_or(0, |look| look.key_end), |begin, look| {
            let key = self.keys.get(*begin..look.key_end).unwrap_or_default();
            *begin = look.key_end;
            Some((look, key))
        })
    }
}

/// A long value that was appended again.
#[derive(Debug)]
pub struct Placed {
    /// The stream.
    pub stream: u32,
    /// The LSN of its record.
    pub lsn: u64,
    /// The key.
    pub key: Box<[u8]>,
    /// The file in which it lies now.
    pub file: u64,
}

/// A change of a file that is compacted: does its key's record have this number?
#[derive(Debug)]
pub struct Look {
    /// The stream.
    pub stream: u32,
    /// The LSN.
    pub lsn: u64,
    /// Where the key ends in the batch's keys. It begins where the one before ends.
    pub key_end: usize,
}
