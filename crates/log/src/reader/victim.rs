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
        CountedWalk::open(storage, key, file).map(|walk| VictimReader::of(walk, file.number))
    }

    /// Opens it again at a frame that an earlier reader has given.
    ///
    /// # Errors
    /// As of [`VictimReader::open`].
    pub fn open_at(
        storage: &S,
        key: &ChainKey,
        file: &ChainFile,
        frame: u64,
    ) -> Result<Self, LogError> {
        let walk = CountedWalk::open_at(storage, key, file, frame);
        walk.map(|walk| VictimReader::of(walk, file.number))
    }

    fn of(walk: CountedWalk<S::File>, number: u64) -> Self {
        let at = LogPosition { file: number, position: 0 };
        let (so_far, waiting) = (ReadSoFar::default(), Vec::new());
        VictimReader { walk, so_far, number, at, waiting, given: 0 }
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
        let (begin, mut end, mut bytes) = (self.given, self.given, 0);
        for change in self.waiting.iter().skip(begin) {
            bytes += change.header.bytes_in_frame();
            if bytes > max_bytes && end > begin {
                break;
            }
            end += 1;
        }
        self.given = end;
        let given = self.waiting.get(begin..end).unwrap_or_default();
        let changes = given.iter().map(|change| self.framed(change)).collect();
        Ok(Some(VictimStep { at: self.at, changes }))
    }

    /// Goes to a change of the next frame: [`VictimReader::advance`] gives it next, and those
    /// behind it. `false`: the frame hasn't it.
    ///
    /// # Errors
    /// As of [`VictimReader::advance`].
    pub fn go_to(&mut self, stream: u32, lsn: u64) -> Result<bool, LogError> {
        if !self.next_frame()? {
            return Ok(false);
        }
        let is_it = |change: &MetChange| (change.header.stream, change.header.lsn) == (stream, lsn);
        let place = self.waiting.iter().position(is_it);
        self.given = place.unwrap_or_default();
        Ok(place.is_some())
    }

    /// A change of the frame that is being given.
    fn framed(&self, change: &MetChange) -> FramedChange<'_> {
        let end = change.payload + change.header.payload_bytes as usize;
        let payload = self.walk.body().get(change.payload..end).unwrap_or_default();
        FramedChange { header: change.header, payload }
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
