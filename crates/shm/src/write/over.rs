//! An arena's file that isn't the arena any more. Any thread, while no writer has the file.

use crate::error::ArenaError;
use crate::format::header_info::header_of_file;
use crate::format::layout::{INCARNATION_OVER, header};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Tells the readers of an arena's file in other processes that it is over: it is about to be set
/// aside. No writer adopts it any more.
///
/// # Errors
/// If it is no arena, or the system refuses.
pub fn end_file(path: &Path) -> Result<(), ArenaError> {
    let failed =
        |source| ArenaError::Io { path: path.to_path_buf(), doing: "ending the file", source };
    let file = File::options().read(true).write(true).open(path).map_err(failed)?;
    header_of_file(&file, path)?;
    file.write_all_at(&INCARNATION_OVER.to_le_bytes(), header::INCARNATION).map_err(failed)
}
