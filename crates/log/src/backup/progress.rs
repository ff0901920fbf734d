//! How far a backup or a restore is. Any thread.

use crate::backup::error::BackupError;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackupPhase {
    /// Files are found that count.
    #[default]
    Finding,
    /// Files are copied.
    Copying,
    /// The copy is read back.
    Verifying,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupProgress {
    /// What is being done.
    pub phase: BackupPhase,
    /// Bytes of this phase that are done.
    pub done_bytes: u64,
    /// Bytes that this phase has.
    pub all_bytes: u64,
    /// Bytes that an older backup had already.
    pub reused_bytes: u64,
}

/// Is asked after each piece, of so many bytes; may wait, and says whether to go on.
pub type BackupWatch<'w> = dyn FnMut(&BackupProgress, u64) -> bool + 'w;

/// Counts, and asks.
pub(super) struct Progress<'p, 'w> {
    now: BackupProgress,
    watch: &'p mut BackupWatch<'w>,
}

impl<'p, 'w> Progress<'p, 'w> {
    pub(super) fn new(watch: &'p mut BackupWatch<'w>) -> Progress<'p, 'w> {
        Progress { now: BackupProgress::default(), watch }
    }

    /// A phase begins, of so many bytes.
    pub(super) fn begin(&mut self, phase: BackupPhase, all_bytes: u64) {
        (self.now.phase, self.now.done_bytes, self.now.all_bytes) = (phase, 0, all_bytes);
        self.now.reused_bytes =
            if phase == BackupPhase::Copying { 0 } else { self.now.reused_bytes };
    }

    /// So many bytes needn't be copied.
    pub(super) fn reused(&mut self, bytes: u64) {
        self.now.reused_bytes += bytes;
        self.now.done_bytes += bytes;
    }

    /// So many bytes more are done.
    ///
    /// # Errors
    /// `Stopped`.
    pub(super) fn moved(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.now.done_bytes += bytes;
        if (self.watch)(&self.now, bytes) { Ok(()) } else { Err(BackupError::Stopped) }
    }

    pub(super) fn reused_bytes(&self) -> u64 {
        self.now.reused_bytes
    }
}
