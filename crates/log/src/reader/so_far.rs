//! What was read of a chain so far, and whether a frame goes on with it.
//!
//! 1. A stream's LSNs have no gaps. A BEGIN's table says what the frames before it gave.
//! 2. Changes of dropped tenants are passed over, also by these checks.
//! 3. `oldest` never falls.
//!
//! No I/O; one thread at a time.

use crate::error::LogError;
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::{FrameBody, StreamRow};
use crate::format::meta::Meta;
use crate::format::names::FileName;
use std::collections::BTreeMap;

/// What was read of a chain so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadSoFar {
    /// The last LSN of each stream, but for dropped tenants.
    pub(crate) last: BTreeMap<u32, u64>,
    /// The oldest file that counts, by the last frame.
    pub(crate) oldest: u64,
    /// A BEGIN was read, so that all streams are known.
    begun: bool,
    /// The tenant that was found in meta last.
    found: Option<u32>,
}

impl ReadSoFar {
    /// Each stream's last LSN.
    pub(crate) fn lasts(&self) -> Vec<(u32, u64)> {
        self.last.iter().map(|(&stream, &lsn)| (stream, lsn)).collect()
    }

    /// Takes the next frame. With `meta`, each stream's tenant must have a line there.
    ///
    /// # Errors
    /// `Gap` or `Body`.
    pub(crate) fn take(
        &mut self,
        meta: Option<&Meta>,
        name: &FileName,
        header: &FrameHeader,
        body: &FrameBody<'_>,
    ) -> Result<(), LogError> {
        let position = header.at.position;
        let wrong = |what: String| LogError::Body { file: name.to_string(), position, what };
        if header.oldest < self.oldest {
            let text = format!("the oldest file was {}, and is {}", self.oldest, header.oldest);
            return Err(wrong(text));
        }
        let again = body.changes.iter().filter(|change| change.header.again);
        let streams = body.rows.iter().map(|row| row.stream);
        for stream in streams.chain(again.map(|change| change.header.stream)) {
            if !self.has_line(meta, stream) {
                return Err(wrong(format!("meta has no tenant {}", stream >> 8)));
            }
        }
        let skipped = |stream| meta.is_some_and(|meta| meta.is_dropped(stream));
        let rows = body.rows.iter().filter(|row| !skipped(row.stream));
        let checked = match header.kind {
            FrameKind::Begin => self.begin(meta.is_some(), rows),
            FrameKind::Changes => self.go_on(rows),
        };
        self.oldest = header.oldest;
        checked.map_err(|gap| LogError::Gap {
            file: name.to_string(),
            position,
            stream: gap.stream,
            expected: gap.expected,
            found: gap.found,
        })
    }

    fn has_line(&mut self, meta: Option<&Meta>, stream: u32) -> bool {
        let tenant = stream >> 8;
        let Some(meta) = meta.filter(|_| self.found != Some(tenant)) else {
            return true;
        };
        let found = meta.tenants.contains_key(&tenant) || meta.dropped.contains(&tenant);
        self.found = found.then_some(tenant);
        found
    }

    /// Compares a BEGIN's table. Without `meta`, streams that it has no more were dropped.
    fn begin<'r>(
        &mut self,
        complete: bool,
        rows: impl Iterator<Item = &'r StreamRow>,
    ) -> Result<(), GapFound> {
        let table: BTreeMap<u32, u64> = rows.map(|row| (row.stream, row.last)).collect();
        let before = std::mem::take(&mut self.last);
        if std::mem::replace(&mut self.begun, true) {
            let missing = before.keys().filter(|stream| complete && !table.contains_key(stream));
            for &stream in missing.chain(table.keys()) {
                let last = |map: &BTreeMap<u32, u64>| map.get(&stream).copied().unwrap_or(0);
                let (known, told) = (last(&before), last(&table));
                if known != told {
                    self.last = before;
                    return Err(GapFound { stream, expected: known + 1, found: told + 1 });
                }
            }
        }
        self.last = table;
        Ok(())
    }

    /// Takes the table of a frame of changes.
    fn go_on<'r>(&mut self, rows: impl Iterator<Item = &'r StreamRow>) -> Result<(), GapFound> {
        for &StreamRow { stream, first, last } in rows {
            let known = self.last.get(&stream).copied().or(self.begun.then_some(0));
            if known.is_some_and(|known| known + 1 != first) {
                let expected = known.unwrap_or(0) + 1;
                return Err(GapFound { stream, expected, found: first });
            }
            self.last.insert(stream, last);
        }
        Ok(())
    }
}

/// A stream that doesn't go on as expected.
struct GapFound {
    stream: u32,
    expected: u64,
    found: u64,
}
