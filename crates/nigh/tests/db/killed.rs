//! Children that are killed: how they ended, and what they said.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

const SIGKILL: i32 = 9;

/// What a child says on stderr. It is looked at when the child has ended.
pub(crate) struct Said(File);

impl Said {
    pub(crate) fn new() -> Said {
        Said(tempfile::tempfile().expect("a file"))
    }

    /// The child's stderr.
    pub(crate) fn stdio(&self) -> Stdio {
        Stdio::from(self.0.try_clone().expect("a descriptor"))
    }

    /// The child ran until it was killed, and no thread of it had panicked.
    pub(crate) fn assert_killed(self, status: ExitStatus) {
        let said = self.without_panic(status);
        let was_killed = status.signal() == Some(SIGKILL);
        assert!(was_killed, "it ended before it was killed: ({status}) {said}");
    }

    /// The same, or the child had done all that it was to do.
    pub(crate) fn assert_killed_or_done(self, status: ExitStatus) {
        let said = self.without_panic(status);
        let is_well = status.success() || status.signal() == Some(SIGKILL);
        assert!(is_well, "({status}) {said}");
    }

    /// What it has said so far.
    pub(crate) fn text(mut self) -> String {
        let mut said = String::new();
        self.0.rewind().expect("a file");
        self.0.read_to_string(&mut said).expect("text");
        said
    }

    fn without_panic(self, status: ExitStatus) -> String {
        let said = self.text();
        // A thread may panic while others go on.
        assert!(!said.contains("panicked"), "({status}) {said}");
        said
    }
}
