//! A contradiction to the format: where it stands, what was expected there, and what was found.
//!
//! Any thread.

use crate::error::ArenaError;
use crate::format::head::Head;
use std::path::Path;

/// A contradiction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatFault {
    pub(crate) offset: u64,
    pub(crate) what: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl FormatFault {
    pub(crate) fn new(
        offset: u64,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> FormatFault {
        FormatFault { offset, what, expected: expected.to_string(), found: found.to_string() }
    }

    pub(crate) fn at(self, path: &Path) -> ArenaError {
        let FormatFault { offset, what, expected, found } = self;
        ArenaError::Damaged { path: path.to_path_buf(), offset, what, expected, found }
    }
}

/// Something that contradicts the format.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What.
    pub what: String,
}

impl From<&FormatFault> for Finding {
    fn from(fault: &FormatFault) -> Finding {
        let FormatFault { offset, what, expected, found } = fault;
        Finding { offset: *offset, what: format!("{what} is {found}, expected {expected}") }
    }
}

pub(crate) fn ensure(ok: bool, fault: impl FnOnce() -> FormatFault) -> Result<(), FormatFault> {
    if ok { Ok(()) } else { Err(fault()) }
}

pub(crate) fn hex(sum: u32) -> String {
    format!("{sum:08x}")
}

/// A record whose sum should be another one.
pub(crate) fn sum_fault(offset: u64, head: &Head, expected: u32) -> FormatFault {
    FormatFault::new(offset, "checksum of a record", hex(expected), hex(head.checksum))
}
