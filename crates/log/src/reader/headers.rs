//! Looks for valid headers at every sector of a part of a file: they tell damage from a torn tail.
//!
//! A header is valid by its keyed sum, its file and its position, so bytes of values and of earlier
//! lives of the file never count. Bodies aren't looked at.
//!
//! Any thread.

use crate::error::LogError;
use crate::format::frame::FrameHeader;
use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES, frame as f, word64};
use crate::position::LogPosition;
use crate::reader::log_file::ReadFile;
use crate::storage::StoredFile;
use crate::storage::aligned::AlignedBytes;

/// Bytes that are read at once: whole sectors.
const PIECE_BYTES: usize = 1 << 20;
const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == SECTOR_BYTES && PIECE_BYTES.is_multiple_of(SECTOR));

/// What a valid header says. It may break the format otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenHeader {
    /// Where the frame begins.
    pub(crate) position: u64,
    /// Bytes of the frame.
    pub(crate) length: u64,
    /// Its watermark.
    pub(crate) watermark: LogPosition,
    /// Its oldest file.
    pub(crate) oldest: u64,
}

impl SeenHeader {
    /// Reads the header at a position; `None` if it isn't valid.
    fn read<F>(file: &ReadFile<F>, position: u64, bytes: &[u8; f::BYTES]) -> Option<SeenHeader>
    where
        F: StoredFile,
    {
        let at = file.at(position);
        let valid = FrameHeader::parse(bytes, &file.sums, at, file.head.file_bytes).is_some();
        let mark = (word64(bytes, f::MARK_FILE), word64(bytes, f::MARK_POSITION));
        valid.then(|| SeenHeader {
            position,
            length: word64(bytes, f::LENGTH),
            watermark: LogPosition { file: mark.0, position: mark.1 },
            oldest: word64(bytes, f::OLDEST),
        })
    }
}

/// Gives each valid header that begins at a sector from a position on, which is a sector's.
///
/// # Errors
/// `Io`.
pub(crate) fn scan_headers<F: StoredFile>(
    file: &ReadFile<F>,
    from: u64,
    each: &mut dyn FnMut(&SeenHeader),
) -> Result<(), LogError> {
    let (mut position, end) = (from, file.head.file_bytes);
    let left = usize::try_from(end.saturating_sub(from)).unwrap_or(PIECE_BYTES);
    let mut buffer = AlignedBytes::zeros(left.min(PIECE_BYTES));
    while position < end {
        // All but the first piece begin on a block, and are read past the page cache: it would make
        // a page of zeros for each block that was never written.
        let most = PIECE_BYTES as u64 - position % BLOCK_BYTES;
        let bytes = usize::try_from((end - position).min(most)).unwrap_or_default();
        let piece = buffer.get_mut(..bytes).unwrap_or_default();
        file.read(position, piece)?;
        let (sectors, _) = piece.as_chunks::<SECTOR>();
        for sector in sectors {
            let header = sector.first_chunk().filter(|_| sector.starts_with(f::MAGIC));
            if let Some(seen) = header.and_then(|bytes| SeenHeader::read(file, position, bytes)) {
                each(&seen);
            }
            position += SECTOR_BYTES;
        }
    }
    Ok(())
}

/// The valid header at a position, if there is one.
///
/// # Errors
/// `Io`.
pub(crate) fn header_at<F: StoredFile>(
    file: &ReadFile<F>,
    position: u64,
) -> Result<Option<SeenHeader>, LogError> {
    if position.saturating_add(SECTOR_BYTES) > file.head.file_bytes {
        return Ok(None);
    }
    let mut bytes = [0; f::BYTES];
    file.read(position, &mut bytes)?;
    Ok(SeenHeader::read(file, position, &bytes))
}
