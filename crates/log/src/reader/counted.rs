//! Walks over a file that counts, up to its known end: what isn't valid before it is damage.
//!
//! One thread at a time.

use crate::error::LogError;
use crate::format::frame::FrameHeader;
use crate::format::frame_body::FrameBody;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::FileName;
use crate::reader::chain_file::ChainFile;
use crate::reader::frames::FrameWalk;
use crate::reader::log_file::{ChainKey, ReadFile};
use crate::reader::so_far::ReadSoFar;
use crate::storage::{Storage, StoredFile};

/// A walk up to a known end.
pub(crate) struct CountedWalk<F> {
    walk: FrameWalk<F>,
    end: u64,
    end_sum: u32,
    /// Where the last frame begins that was given.
    last_at: u64,
}

impl<F: StoredFile> CountedWalk<F> {
    /// Opens a file that counts.
    ///
    /// # Errors
    /// `Missing`, `Head`, `NewerVersion` or `Io`.
    pub(crate) fn open<S: Storage<File = F>>(
        storage: &S,
        key: &ChainKey,
        file: &ChainFile,
    ) -> Result<CountedWalk<F>, LogError> {
        CountedWalk::open_at(storage, key, file, BLOCK_BYTES)
    }

    /// The same, from the frame on that begins at a position.
    ///
    /// # Errors
    /// As of [`CountedWalk::open`].
    pub(crate) fn open_at<S: Storage<File = F>>(
        storage: &S,
        key: &ChainKey,
        file: &ChainFile,
        position: u64,
    ) -> Result<CountedWalk<F>, LogError> {
        let name = key.name(file.number).to_string();
        let Some(opened) = ReadFile::open(storage, key, file.number)? else {
            return Err(LogError::Missing { file: name });
        };
        if opened.head.salt != file.salt || opened.head.file_bytes < file.end {
            return Err(LogError::Head { file: name, what: "it was prepared again" });
        }
        let mut walk = FrameWalk::from(opened, position, None);
        walk.set_limit(file.end);
        let (end, end_sum, last_at) = (file.end, file.end_sum, walk.position());
        Ok(CountedWalk { walk, end, end_sum, last_at })
    }

    /// The file's name.
    pub(crate) const fn name(&self) -> FileName {
        self.walk.file().name
    }

    /// Goes over the next frame; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `Body` or `Io`.
    pub(crate) fn advance(&mut self, so_far: &ReadSoFar) -> Result<Option<FrameHeader>, LogError> {
        let position = self.walk.position();
        if let Some(header) = self.walk.advance()? {
            self.last_at = position;
            return Ok(Some(header));
        }
        if position != self.end {
            return Err(self.corrupt(position, so_far));
        }
        if self.walk.before() != Some(self.end_sum) {
            return Err(self.corrupt(self.last_at, so_far));
        }
        Ok(None)
    }

    /// The body of the frame that was given last.
    pub(crate) fn body(&self) -> &[u8] {
        self.walk.body()
    }

    /// The parsed body of the frame that was given last.
    ///
    /// # Errors
    /// `Body`.
    pub(crate) fn parsed(&self, header: &FrameHeader) -> Result<FrameBody<'_>, LogError> {
        self.walk.parsed(header)
    }

    fn corrupt(&self, position: u64, so_far: &ReadSoFar) -> LogError {
        LogError::Corrupt {
            file: self.name().to_string(),
            position,
            watermark: self.walk.file().at(self.end),
            last: so_far.lasts(),
        }
    }
}
