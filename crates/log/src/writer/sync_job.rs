//! A sync of the file being written, as a value that any thread may run, while the writer goes on.
//!
//! ```text
//! begin_sync ── SyncJob ── run, on any thread ── SyncEnd ──> end_sync: durable LSNs rise
//!      └── frames are written meanwhile; it doesn't cover them ──┘
//! ```
//!
//! 1. It covers what was written when it was begun, and no more, whenever it is run.
//! 2. One at a time: the next is begun when its end was told to the writer.
//! 3. A job that is dropped was never run: its writer begins no other.

use crate::error::LogError;
use crate::format::names::FileName;
use crate::position::LogPosition;
use crate::storage::StoredFile;
use std::sync::Arc;

/// A sync that was begun.
#[derive(Debug)]
#[must_use = "the writer waits for its end"]
pub struct SyncJob<F> {
    file: Arc<F>,
    name: FileName,
    covers: LogPosition,
}

/// How a sync ended.
#[derive(Debug)]
#[must_use = "the writer waits for it"]
pub struct SyncEnd {
    pub(super) covers: LogPosition,
    pub(super) done: Result<(), LogError>,
}

impl<F: StoredFile> SyncJob<F> {
    /// A sync of all that was written before this position, which is the end of a block.
    pub(super) fn new(file: Arc<F>, name: FileName, covers: LogPosition) -> SyncJob<F> {
        SyncJob { file, name, covers }
    }

    /// Makes durable what it covers. It blocks as long as the disk takes.
    pub fn run(self) -> SyncEnd {
        let SyncJob { file, name, covers } = self;
        let io = |source| LogError::io(&name.to_string(), covers.position, "a sync", source);
        SyncEnd { covers, done: file.sync_data().map_err(io) }
    }
}
