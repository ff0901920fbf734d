//! The machine's tmpfs, in which folders of memory lie.
//!
//! 1. It is for all programs, so it is no such folder itself: that is closed to all other users.
//!
//! Any thread.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The tmpfs that each Linux has.
pub const TMPFS: &str = "/dev/shm";

/// Whether a path leads to the tmpfs itself.
#[must_use]
pub fn is_tmpfs(path: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|it| (it.dev(), it.ino()));
    let (named, tmpfs) = (identity(path), identity(Path::new(TMPFS)));
    named.is_ok_and(|named| tmpfs.is_ok_and(|tmpfs| named == tmpfs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody names `/dev/shm`, as root, where nothing is yet. It was closed to all other users.
    #[test]
    fn the_tmpfs_itself_is_told_from_folders_in_it() {
        let (dir, inside) = (tempfile::tempdir(), tempfile::tempdir_in(TMPFS));
        let (dir, inside) = (dir.expect("a folder"), inside.expect("a folder"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(TMPFS, &link).expect("a link");
        assert!([Path::new(TMPFS), &inside.path().join(".."), &link].map(is_tmpfs) == [true; 3]);
        assert!([inside.path(), dir.path(), Path::new("/none")].map(is_tmpfs) == [false; 3]);
    }
}
