//! Opens the files that an import reads.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file to read it. A FIFO is refused: the import would wait until somebody writes into it,
/// and what was read once is gone.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file, and an import reads it twice; an RDB may come on stdin: `-`",
        ));
    }
    File::open(path)
}
