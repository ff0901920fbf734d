//! The body of a frame: the stream table, then changes.

use crate::format::change::{ChangeHeader, ChangeKind};
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::layout::{LSN_END, change as c, frame as f, word32, word64};

/// A row of the stream table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// The stream.
    pub stream: u32,
    /// First fresh LSN here; 0 in a BEGIN.
    pub first: u64,
    /// Last fresh LSN here; in a BEGIN: the last before the file.
    pub last: u64,
}

impl StreamRow {
    /// The bytes.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; f::ROW_BYTES] {
        let mut bytes = [0; f::ROW_BYTES];
        super::layout::put(&mut bytes, 0, &self.stream.to_le_bytes());
        super::layout::put(&mut bytes, 8, &self.first.to_le_bytes());
        super::layout::put(&mut bytes, 16, &self.last.to_le_bytes());
        bytes
    }
}

/// A change as it lies in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramedChange<'a> {
    /// Its header.
    pub header: ChangeHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The parsed body of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameBody<'a> {
    /// The stream table.
    pub rows: Vec<StreamRow>,
    /// The changes, in order.
    pub changes: Vec<FramedChange<'a>>,
}

impl<'a> FrameBody<'a> {
    /// Parses the body of a valid frame: exactly the bytes that its header counts.
    ///
    /// # Errors
    /// What breaks the format.
    pub(crate) fn parse(
        header: &FrameHeader,
        body: &'a [u8],
    ) -> Result<FrameBody<'a>, &'static str> {
        let rows = rows_of(header, body)?;
        let mut rest = body.get(rows.len() * f::ROW_BYTES..).unwrap_or_default();
        let most = rest.len() / c::BYTES;
        let mut changes = Vec::with_capacity(most.min(header.changes as usize));
        for _ in 0..header.changes {
            let bytes = rest.first_chunk::<{ c::BYTES }>().ok_or("a frame has fewer changes")?;
            let header = ChangeHeader::parse(bytes)?;
            let end = c::BYTES + header.payload_bytes as usize;
            let payload = rest.get(c::BYTES..end).ok_or("a change leads out of its frame")?;
            let padding = rest.get(end..header.bytes_in_frame());
            if padding.ok_or("a change leads out of its frame")?.iter().any(|&b| b != 0) {
                return Err("a change's padding isn't zero");
            }
            rest = rest.get(header.bytes_in_frame()..).unwrap_or_default();
            changes.push(FramedChange { header, payload });
        }
        if !rest.is_empty() {
            return Err("a frame's body is longer than its changes");
        }
        let parsed = FrameBody { rows, changes };
        if header.kind == FrameKind::Changes {
            parsed.check_commits()?;
            parsed.check_rows()?;
        }
        Ok(parsed)
    }

    /// The commits, each with its changes in order.
    pub(crate) fn commits(&self) -> impl Iterator<Item = &[FramedChange<'a>]> {
        commits_of(&self.changes)
    }

    /// Commits are whole, of one stream, with LSNs that rise by one, and clear first.
    fn check_commits(&self) -> Result<(), &'static str> {
        if self.changes.last().is_some_and(|last| last.header.more) {
            return Err("a commit leads out of its frame");
        }
        for commit in self.commits() {
            let pairs = commit.iter().zip(commit.iter().skip(1));
            let one = pairs
                .map(|(a, b)| (a.header, b.header))
                .all(|(a, b)| a.stream == b.stream && a.lsn + 1 == b.lsn && !b.again);
            if !one {
                return Err("a commit's changes don't belong together");
            }
            let later = commit.iter().skip(1);
            if later.clone().any(|change| change.header.kind == ChangeKind::Clear) {
                return Err("a commit clears behind its first change");
            }
        }
        Ok(())
    }

    /// The rows are exactly of the fresh changes, each stream's without a gap.
    fn check_rows(&self) -> Result<(), &'static str> {
        let mut next: Vec<u64> = self.rows.iter().map(|row| row.first).collect();
        for change in self.changes.iter().filter(|change| !change.header.again) {
            let found = self.rows.binary_search_by_key(&change.header.stream, |row| row.stream);
            let at = found.map_err(|_| "a change's stream isn't in its frame's table")?;
            let next = next.get_mut(at).ok_or("a change's stream isn't in its frame's table")?;
            if *next != change.header.lsn {
                return Err("a frame's LSNs don't follow each other");
            }
            *next += 1;
        }
        let whole = self.rows.iter().zip(&next).all(|(row, &next)| row.last + 1 == next);
        if whole { Ok(()) } else { Err("a frame's table counts other changes than it has") }
    }
}

/// The commits of a frame's changes.
pub(crate) fn commits_of<'c, 'a>(
    changes: &'c [FramedChange<'a>],
) -> impl Iterator<Item = &'c [FramedChange<'a>]> {
    changes.chunk_by(|change, _| change.header.more)
}

fn rows_of(header: &FrameHeader, body: &[u8]) -> Result<Vec<StreamRow>, &'static str> {
    let begin = header.kind == FrameKind::Begin;
    let count = header.rows as usize;
    let bytes = count.checked_mul(f::ROW_BYTES).and_then(|bytes| body.get(..bytes));
    let (table, _) = bytes.ok_or("a frame's stream table leads out of it")?.as_chunks();
    let mut rows: Vec<StreamRow> = Vec::with_capacity(count);
    for bytes in table {
        let bytes: &[u8; f::ROW_BYTES] = bytes;
        let row = StreamRow {
            stream: word32(bytes, 0),
            first: word64(bytes, 8),
            last: word64(bytes, 16),
        };
        let lsns = if begin { row.first == 0 } else { 1 <= row.first && row.first <= row.last };
        if !lsns || row.last >= LSN_END || word32(bytes, 4) != 0 {
            return Err("a row of a frame's stream table is impossible");
        }
        if rows.last().is_some_and(|before| before.stream >= row.stream) {
            return Err("a frame's stream table isn't in order");
        }
        rows.push(row);
    }
    Ok(rows)
}
