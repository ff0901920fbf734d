//! When what was written to the log is synced, by the names that Redis gives it. Any thread.

/// When the log is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// At once; replies wait for it.
    Always,
    /// A second behind the oldest change that isn't synced; nobody waits.
    EverySecond,
    /// When a file ends; the kernel writes it to the disk when it likes. While a file that was
    /// compacted is to go, or the disk is full, as `EverySecond`.
    No,
}

impl SyncMode {
    /// All of them, in the order of their codes.
    pub const ALL: [SyncMode; 3] = [SyncMode::Always, SyncMode::EverySecond, SyncMode::No];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SyncMode::Always => "always",
            SyncMode::EverySecond => "everysec",
            SyncMode::No => "no",
        }
    }

    /// The mode of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<SyncMode> {
        SyncMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
