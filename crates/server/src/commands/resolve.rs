//! From a command's name to its row.
//!
//! Any thread.

use super::{Builtin, Row, Run, find, find_subcommand, of};

/// What a name means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Resolved {
    Row(Row),
    /// No such command.
    #[default]
    Unknown,
    /// No such subcommand of the container.
    UnknownSub(Row),
}

impl Resolved {
    #[inline]
    pub(crate) fn row(self) -> Option<Row> {
        match self {
            Self::Row(row) => Some(row),
            Self::Unknown | Self::UnknownSub(_) => None,
        }
    }
}

#[inline]
pub(crate) fn resolve<'a>(name: &[u8], second: impl FnOnce() -> Option<&'a [u8]>) -> Resolved {
    let Some(row) = find(name) else { return Resolved::Unknown };
    let spec = of(row);
    match spec.run {
        Run::Server(Builtin::Command) | Run::Container => match second() {
            None => Resolved::Row(row),
            Some(sub) => match find_subcommand(row, sub) {
                Some(sub) => Resolved::Row(sub),
                None => Resolved::UnknownSub(row),
            },
        },
        Run::Data(_) | Run::Server(_) => Resolved::Row(row),
    }
}

pub(crate) fn resolve_args(args: &[&[u8]]) -> Resolved {
    resolve(args.first().copied().unwrap_or_default(), || args.get(1).copied())
}
