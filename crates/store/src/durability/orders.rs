//! What a shard asks of its log's thread beside the journal's entries.
//!
//! 1. An order is done behind the entries before the journal's tail at which it was given, and
//!    before all later ones: so for each key, the log's order is that of its versions.
//!
//! Any thread.

use nigh_log::ChainEnd;
use std::sync::mpsc::SyncSender;

/// An order, and when it was given.
#[derive(Debug)]
pub struct LogOrder {
    /// The journal's tail then.
    pub tail: u64,
    /// What is to be done.
    pub what: Ordered,
}

/// What is to be done.
#[derive(Debug)]
pub enum Ordered {
    /// Records are appended again.
    Again(Vec<AgainRecord>),
    /// The owner has looked at all changes of this file.
    Judged(u64),
    /// All that this file needed has been ordered.
    Release(u64),
    /// A frame ends here and is synced; where is told.
    EndFrame(SyncSender<Result<ChainEnd, String>>),
}

/// A record as it is now, with the LSN that it has.
#[derive(Debug)]
pub struct AgainRecord {
    /// The stream.
    pub stream: u32,
    /// The record's LSN.
    pub lsn: u64,
    /// The payload of a PUT.
    pub payload: Vec<u8>,
}
