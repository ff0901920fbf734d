//! The files of a store, which stay when it is closed, until they are removed.
//!
//! 1. Only the one who knows that nobody needs them removes them: a log has all that they have and
//!    what its journals name in them, or there is no log.
//!
//! Thread: any; it is plain data.

use crate::folder::manifest::Manifest;
use nigh_shm::Region;
use std::path::PathBuf;
use std::sync::Arc;

/// A store's arenas and their folder.
pub(crate) struct ArenaFiles {
    pub(crate) dir: PathBuf,
    pub(crate) arenas: Vec<PathBuf>,
}

/// What is left of a store that was closed. Dropped, the files stay for the next one.
pub struct ClosedArenas {
    pub(crate) files: ArenaFiles,
    pub(crate) region: Arc<Region>,
}

impl ClosedArenas {
    /// Removes the arenas if that is possible, and the directory if it is empty then.
    pub fn remove(self) {
        let ClosedArenas { files, region } = self;
        let _ = Manifest::remove(&files.dir);
        // The server ends anyway. The next one adopts or replaces arenas that stay.
        for arena in &files.arenas {
            let removed = std::fs::remove_file(arena).is_ok();
            let is_its_own = std::path::absolute(arena).is_ok_and(|it| it == region.path());
            if removed && is_its_own {
                region.set_over();
            }
        }
        let _ = std::fs::remove_dir(&files.dir);
    }
}
