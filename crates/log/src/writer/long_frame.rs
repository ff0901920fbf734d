//! A commit that is longer than 1 MiB: a frame of its own, written in pieces.
//!
//! 1. Memory for one piece is enough, however long the commit is.
//! 2. The first block, with the header, is written last: until then there is no frame.
//!
//! The log's thread.

use crate::error::LogError;
use crate::format::frame_body::StreamRow;
use crate::format::layout::{FRAME_BYTES, frame as f, put};
use crate::format::sum::SumKey;
use crate::storage::StoredFile;
use crate::storage::aligned::{ALIGN, AlignedBytes};
use crate::writer::begun_file::BegunFile;
use crate::writer::compose::padding;
use crate::writer::frame_facts::{BodyFacts, FrameFacts};
use crate::writer::new_commit::NewCommit;

/// Bytes that are kept for the end: with them gone, pieces still begin on blocks.
const FIRST_BYTES: usize = ALIGN;
/// Bytes of a piece: long writes cost the same for each byte from here on.
const PIECE_BYTES: usize = FRAME_BYTES;

const _: () = assert!(FIRST_BYTES >= f::BYTES && FIRST_BYTES < PIECE_BYTES);

/// A frame that is being written.
struct LongFrame<'f, F> {
    file: &'f BegunFile<F>,
    /// Where the piece begins.
    position: u64,
    piece: AlignedBytes,
    /// Sum of the body before the piece.
    sum: u32,
    /// The frame's first bytes; empty until they are known.
    first: Vec<u8>,
}

impl<F: StoredFile> LongFrame<'_, F> {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        loop {
            let room = PIECE_BYTES - self.piece.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(now);
            if later.is_empty() {
                return Ok(());
            }
            self.flush()?;
            bytes = later;
        }
    }

    /// Writes the piece, but for the frame's first bytes.
    fn flush(&mut self) -> Result<(), LogError> {
        let summed = if self.first.is_empty() { f::BYTES } else { 0 };
        self.sum = SumKey::more(self.sum, self.piece.get(summed..).unwrap_or_default());
        let kept = if self.first.is_empty() { FIRST_BYTES } else { 0 };
        if kept > 0 {
            self.first.extend_from_slice(self.piece.get(..kept).expect("a piece is longer"));
        }
        let rest = self.piece.get(kept..).unwrap_or_default();
        self.file.write(self.position + kept as u64, rest)?;
        self.position += self.piece.len() as u64;
        self.piece.resize(0);
        Ok(())
    }
}

/// Writes the frame of a commit; returns its header's sum.
pub(super) fn write_long<F: StoredFile>(
    file: &BegunFile<F>,
    facts: &FrameFacts,
    commit: &NewCommit<'_>,
    body: &BodyFacts,
) -> Result<u32, LogError> {
    let mut frame = LongFrame {
        file,
        position: facts.at.position,
        piece: AlignedBytes::with_capacity(PIECE_BYTES),
        sum: facts.key.body(facts.at.position),
        first: Vec::new(),
    };
    frame.push(&[0; f::BYTES])?;
    if body.rows == 1 {
        let NewCommit { stream, first_lsn: first, .. } = *commit;
        frame.push(&StreamRow { stream, first, last: commit.last_lsn() }.encode())?;
    }
    for (header, change) in commit.headed() {
        frame.push(&header.encode())?;
        for piece in change.payload {
            frame.push(piece)?;
        }
        frame.push(padding(&header))?;
    }
    let length = facts.length(body.bytes);
    let zeros = length - body.bytes - f::BYTES as u64;
    frame.push(vec![0; usize::try_from(zeros).expect("less than a block")].as_slice())?;
    frame.flush()?;
    let (header, sum) = facts.header(body, frame.sum);
    put(&mut frame.first, 0, &header);
    file.write(facts.at.position, &frame.first)?;
    Ok(sum)
}
