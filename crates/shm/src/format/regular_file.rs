//! Opening a file of somebody else's folder to look at it.
//!
//! 1. Whatever has the name, opening it neither waits, as that of a pipe does, nor touches a
//!    device.
//!
//! Any thread.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file read-only, for a look at it.
///
/// # Errors
/// If it isn't there, is no regular file, or the system refuses.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    // Another may have taken the name meanwhile.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JournalFile, edition1, header_of, journal_path, verify};

    /// A pipe with the name of an arena, or of a journal, held a look at it for ever.
    #[test]
    fn a_pipe_is_refused_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let (arena, journal) = (dir.path().join("a"), journal_path(dir.path(), 0));
        for path in [&arena, &journal] {
            let pipe = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, pipe, 0o600.into(), 0).expect("a pipe");
        }
        let refused = [
            header_of(&arena).map(drop).map_err(|error| error.to_string()),
            verify(&arena).map(drop).map_err(|error| error.to_string()),
            edition1::version_of(&arena).map(drop).map_err(|error| error.to_string()),
            JournalFile::look(dir.path(), 0).map(drop).map_err(|error| error.to_string()),
        ];
        for refused in refused {
            let error = refused.expect_err("it is no file");
            assert!(error.contains("it is no regular file"), "{error}");
        }
        let gone = open_regular(&dir.path().join("none")).expect_err("it isn't there");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
