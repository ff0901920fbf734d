//! The changes of one whole file, in bounded steps: for compaction.
//!
//! 1. The file is read up to the end that its successor states; a frame before it that isn't valid
//!    is [`LogError::Corrupt`], and the file must stay.
//! 2. Each step gives at least one change, so a long commit is one step.
//!
//! One thread at a time.

use crate::error::LogError;
use crate::format::change::ChangeHeader;
use crate::format::frame_body::FramedChange;
use crate::format::layout::{change as c, frame as f};
use crate::position::LogPosition;
use crate::reader::chain_file::ChainFile;
use crate::reader::counted::CountedWalk;
use crate::reader::log_file::ChainKey;
use crate::reader::so_far::ReadSoFar;
use crate::storage::Storage;

/// Some changes of a victim, in the order of the log.
#[derive(Debug)]
pub struct VictimStep<'a> {
    /// Where their frame begins.
    pub at: LogPosition,
    /// The changes. Those of a commit may be spread over steps.
    pub changes: Vec<FramedChange<'a>>,
}

/// A change of the frame that is being given.
#[derive(Debug, Clone, Copy)]
struct MetChange {
    header: ChangeHeader,
    /// Where its payload begins in the frame's body.
    payload: usize,
}

/// Reads a file that compaction wants to be rid of.
pub struct VictimReader<S: Storage> {
    walk: CountedWalk<S::File>,
    so_far: ReadSoFar,
    number: u64,
    at: LogPosition,
    waiting: Vec<MetChange>,
    given: usize,
}

impl<S: Storage> VictimReader<S> {
    /// Opens a file whose end is known.
    ///
    /// # Errors
    /// `Missing`, `Head`, `NewerVersion` or `Io`.
    pub fn open(storage: &S, key: &ChainKey, file: &ChainFile) -> Result<Self, LogError> {
        let walk = CountedWalk::open(storage, key, file)?;
        let at = LogPosition { file: file.number, position: 0 };
        let (so_far, waiting) = (ReadSoFar::default(), Vec::new());
        Ok(VictimReader { walk, so_far, number: file.number, at, waiting, given: 0 })
    }

    /// The file's number.
    #[must_use]
    pub fn file(&self) -> u64 {
        self.number
    }

    /// The next changes: some bytes in all, or one change if that is longer. Those of dropped
    /// tenants are among them. `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `Body` or `Io`: the file must stay.
    pub fn advance(&mut self, max_bytes: usize) -> Result<Option<VictimStep<'_>>, LogError> {
        while self.given == self.waiting.len() {
            if !self.next_frame()? {
                return Ok(None);
            }
        }
        let body = self.walk.body();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for change in self.waiting.iter().skip(self.given) {
            let header = change.header;
            bytes += header.bytes_in_frame();
            if bytes > max_bytes && !changes.is_empty() {
                break;
            }
            let end = change.payload + header.payload_bytes as usize;
            let payload = body.get(change.payload..end).unwrap_or_default();
            changes.push(FramedChange { header, payload });
        }
        self.given += changes.len();
        Ok(Some(VictimStep { at: self.at, changes }))
    }

    /// Reads the next frame; `false` at the end.
    fn next_frame(&mut self) -> Result<bool, LogError> {
        self.waiting.clear();
        self.given = 0;
        let Some(header) = self.walk.advance(&self.so_far)? else { return Ok(false) };
        let body = self.walk.parsed(&header)?;
        self.so_far.take(None, &self.walk.name(), &header, &body)?;
        let mut payload = body.rows.len() * f::ROW_BYTES + c::BYTES;
        for FramedChange { header, .. } in &body.changes {
            self.waiting.push(MetChange { header: *header, payload });
            payload += header.bytes_in_frame();
        }
        self.at = header.at;
        Ok(true)
    }
}
