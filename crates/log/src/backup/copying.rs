//! Copies one file of a chain.
//!
//! 1. What lies behind the file's end isn't copied: what was there before the file was prepared
//!    isn't anybody's.
//! 2. It is written in pieces, each of which is synced soon: a log on the same disk never waits
//!    for more than that.
//!
//! One thread.

use crate::backup::error::BackupError;
use crate::backup::progress::Progress;
use crate::error::LogError;
use crate::format::head::Head;
use crate::format::layout::BLOCK_BYTES;
use crate::reader::chain_file::ChainFile;
use crate::reader::log_file::{ChainKey, ReadFile};
use crate::storage::{Storage, StoredFile, write_all_at};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes between syncs.
const SYNC_BYTES: u64 = 8 << 20;

/// What is behind the end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nothing: the file has its length, and no more.
    Hole,
    /// Zeros, on the disk: the file is for a log that goes on.
    Zeros,
}

/// Copies a file into a new one of the same name. With an id, the copy's head has that.
///
/// # Errors
/// `Gone`: it isn't there any more. `Source`, `Target`, `Stopped`.
pub(super) fn copy_file<S: Storage, T: Storage>(
    from: &S,
    into: &T,
    key: &ChainKey,
    file: &ChainFile,
    id: &[u8; 16],
    behind: Behind,
    progress: &mut Progress<'_, '_>,
) -> Result<(), BackupError> {
    let source = open_same(from, key, file)?;
    let name = source.name.to_string();
    let io = |position, doing| {
        let name = name.clone();
        move |error| BackupError::Target(LogError::io(&name, position, doing, error))
    };
    let target = into.create(&name).map_err(io(0, "making"))?;
    if behind == Behind::Zeros {
        target.allocate(file.file_bytes).map_err(io(0, "setting space aside"))?;
    }
    let head = Head { log_id: *id, ..source.head }.encode(&key.secret);
    write_all_at(&target, 0, &head).map_err(io(0, "writing"))?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut position, mut unsynced) = (BLOCK_BYTES, 0);
    while position < file.end {
        let bytes =
            usize::try_from(file.end - position).map_or(PIECE_BYTES, |b| b.min(PIECE_BYTES));
        let piece = piece.get_mut(..bytes).unwrap_or_default();
        source.read(position, piece).map_err(BackupError::Source)?;
        write_all_at(&target, position, piece).map_err(io(position, "writing"))?;
        position += bytes as u64;
        unsynced += bytes as u64;
        if unsynced >= SYNC_BYTES {
            target.sync_data().map_err(io(position, "syncing"))?;
            unsynced = 0;
        }
        progress.moved(bytes as u64)?;
    }
    match behind {
        Behind::Hole if position < file.file_bytes => {
            let last = file.file_bytes - 1;
            write_all_at(&target, last, &[0]).map_err(io(last, "writing"))?;
        }
        Behind::Hole => {}
        Behind::Zeros => write_zeros(&target, position, file.file_bytes)
            .map_err(io(position, "writing zeros"))?,
    }
    target.sync_all().map_err(io(0, "syncing"))
}

fn write_zeros(file: &impl StoredFile, mut from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; PIECE_BYTES];
    while from < to {
        let bytes = usize::try_from(to - from).map_or(PIECE_BYTES, |b| b.min(PIECE_BYTES));
        write_all_at(file, from, zeros.get(..bytes).unwrap_or_default())?;
        from += bytes as u64;
    }
    Ok(())
}

/// Opens a file that was found before, unless it was prepared again since.
///
/// # Errors
/// `Gone` or `Source`.
pub(super) fn open_same<S: Storage>(
    from: &S,
    key: &ChainKey,
    file: &ChainFile,
) -> Result<ReadFile<S::File>, BackupError> {
    match ReadFile::open(from, key, file.number) {
        Ok(Some(source)) if source.head.salt == file.salt => Ok(source),
        // Its head is another one's, or is being written.
        Ok(_) | Err(LogError::Head { .. }) => Err(BackupError::Gone),
        Err(error) => Err(BackupError::Source(error)),
    }
}
