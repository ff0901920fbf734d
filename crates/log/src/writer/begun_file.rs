//! The file that is being written. The log's thread.

use crate::error::LogError;
use crate::format::frame::FrameKind;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::FileName;
use crate::format::sum::SumKey;
use crate::position::LogPosition;
use crate::storage::{StoredFile, write_all_at};
use crate::writer::compose::begin_frame;
use crate::writer::frame_facts::{FrameEnd, FrameFacts};
use crate::writer::sync_job::{SyncEnd, SyncJob};
use std::fmt;
use std::sync::Arc;

/// A begun file, and where its next frame goes.
#[derive(Debug)]
pub(super) struct BegunFile<F> {
    /// Shared with a sync that is under way.
    pub(super) file: Arc<F>,
    pub(super) name: FileName,
    /// Bytes that frames may use.
    pub(super) file_bytes: u64,
    pub(super) key: SumKey,
    /// Where the next frame begins.
    pub(super) position: u64,
    /// Header sum of the frame before it in the chain; 0: there is none.
    pub(super) last_sum: u32,
}

/// What a file's BEGIN says.
#[derive(Debug)]
pub(super) struct FileStart<'a> {
    /// Where the file before in the chain ends; zeros: there is none.
    pub(super) predecessor: LogPosition,
    /// The header sum of its last frame.
    pub(super) before_sum: u32,
    pub(super) oldest: u64,
    /// The last LSN of each stream.
    pub(super) lasts: &'a [(u32, u64)],
    pub(super) clock_ms: u64,
    pub(super) unix_ms: u64,
}

/// Is told the number of each file whose BEGIN is on disk, before anything is written behind it.
#[derive(Default)]
pub(super) struct BegunTold(pub(super) Option<Box<dyn Fn(u64) + Send>>);

impl BegunTold {
    pub(super) fn tell(&self, file: u64) {
        self.0.iter().for_each(|told| told(file));
    }
}

impl fmt::Debug for BegunTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BegunTold").field(&self.0.is_some()).finish()
    }
}

impl<F: StoredFile> BegunFile<F> {
    /// Writes the BEGIN of a prepared file.
    pub(super) fn begin(&mut self, start: &FileStart<'_>) -> Result<(), LogError> {
        let facts = FrameFacts {
            kind: FrameKind::Begin,
            at: self.at(),
            key: self.key,
            before_sum: start.before_sum,
            watermark: start.predecessor,
            oldest: start.oldest,
            unix_ms: start.unix_ms,
            end: FrameEnd::Block,
        };
        let (frame, sum) = begin_frame(&facts, start.lasts, start.clock_ms);
        self.write(self.position, &frame)?;
        self.advance(frame.len() as u64, sum);
        Ok(())
    }

    /// Where the next frame begins.
    pub(super) fn at(&self) -> LogPosition {
        LogPosition { file: self.name.number, position: self.position }
    }

    /// Whether what was written ends on a block, so that it can be synced.
    pub(super) fn is_at_block(&self) -> bool {
        self.position.is_multiple_of(BLOCK_BYTES)
    }

    /// Whether a frame without changes has room.
    pub(super) fn has_room(&self) -> bool {
        self.position < self.file_bytes
    }

    /// Where frames with changes must end. The last block is kept for frames without: so the
    /// watermark and the oldest file can be told behind the last change too.
    pub(super) fn changes_end(&self) -> u64 {
        self.file_bytes - BLOCK_BYTES
    }

    /// Writes bytes of a frame at an offset.
    pub(super) fn write(&self, position: u64, bytes: &[u8]) -> Result<(), LogError> {
        let done = write_all_at(&*self.file, position, bytes);
        done.map_err(|source| LogError::io(&self.name.to_string(), position, "a write", source))
    }

    /// A frame of this length was written; the next one follows it.
    pub(super) fn advance(&mut self, length: u64, sum: u32) {
        self.position += length;
        self.last_sum = sum;
    }

    /// A sync of what was written.
    pub(super) fn sync_job(&self) -> SyncJob<F> {
        SyncJob::new(Arc::clone(&self.file), self.name, self.at())
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), LogError> {
        let SyncEnd { done, .. } = self.sync_job().run();
        done
    }
}
