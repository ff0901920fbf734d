//! The state of an import: the target, the selected database, and what was counted.

use super::lost::LostStrings;
use crate::left_out::LeftOut;
use crate::target::Target;

/// How keys and commands are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The database that is imported.
    pub(crate) db: u64,
    /// Expiries are put off, and nothing is over yet.
    pub(crate) puts_off: bool,
    /// The time by which a key is over, Unix ms.
    pub(crate) now_ms: i64,
}

/// Applies a source to a target.
pub(crate) struct Applier {
    pub(crate) target: Target,
    pub(super) manner: Manner,
    /// The database that the source has selected.
    pub(super) selected: u64,
    /// What the source has and the target hasn't.
    pub(super) lost: LostStrings,
    /// Keys that were over already.
    pub(crate) over: u64,
    pub(crate) left_out: LeftOut,
    /// Expiries that were put off.
    pub(crate) put_off: u64,
}

impl Applier {
    pub(crate) fn new(target: Target, manner: Manner) -> Self {
        Self {
            target,
            manner,
            selected: 0,
            lost: LostStrings::default(),
            over: 0,
            left_out: LeftOut::default(),
            put_off: 0,
        }
    }

    /// Another file begins, with database 0.
    pub(crate) fn begin_file(&mut self) {
        self.selected = 0;
    }
}
