//! Where commands have their keys, and what they do with them: the rows' key specifications.
//!
//! Named by flags, place (first argument unless said) and range. Data, read by any thread.

use super::spec::{Find, KeySpec};

const fn range(begin: u8, last: i8, step: u8, flags: &'static str) -> KeySpec {
    KeySpec { begin, find: Find::Range { last, step }, flags, notes: "" }
}

/// One key.
const fn one(begin: u8, flags: &'static str) -> KeySpec {
    range(begin, 0, 1, flags)
}

/// A key, and each argument behind it.
const fn all(begin: u8, flags: &'static str) -> KeySpec {
    range(begin, -1, 1, flags)
}

/// A key, and each second argument behind it.
const fn pairs(begin: u8, flags: &'static str) -> KeySpec {
    range(begin, -1, 2, flags)
}

/// A number, then so many keys.
const fn counted(begin: u8, flags: &'static str) -> KeySpec {
    KeySpec { begin, find: Find::Counted, flags, notes: "" }
}

pub(super) static OW_INSERT: &[KeySpec] = &[one(1, "OW insert")];
pub(super) static OW_INSERT_PAIRS: &[KeySpec] = &[pairs(1, "OW insert")];
pub(super) static OW_UPDATE: &[KeySpec] = &[one(1, "OW update")];
pub(super) static OW_UPDATE_PAIRS: &[KeySpec] = &[pairs(1, "OW update")];
pub(super) static RM_DELETE_ALL: &[KeySpec] = &[all(1, "RM delete")];
pub(super) static RO: &[KeySpec] = &[one(1, "RO")];
pub(super) static RO_ACCESS: &[KeySpec] = &[one(1, "RO access")];
pub(super) static RO_ACCESS_ALL: &[KeySpec] = &[all(1, "RO access")];
pub(super) static RO_ACCESS_AT2_COUNTED: &[KeySpec] = &[KeySpec {
    notes: "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
    ..counted(2, "RO access")
}];
pub(super) static RO_ACCESS_THEN_OW_UPDATE_AT2: &[KeySpec] =
    &[one(1, "RO access"), one(2, "OW update")];
pub(super) static RO_ALL: &[KeySpec] = &[all(1, "RO")];
pub(super) static RO_AT2: &[KeySpec] = &[one(2, "RO")];
pub(super) static RW_ACCESS_DELETE: &[KeySpec] = &[one(1, "RW access delete")];
pub(super) static RW_ACCESS_DELETE_THEN_OW_INSERT_AT2: &[KeySpec] =
    &[one(1, "RW access delete"), one(2, "OW insert")];
pub(super) static RW_ACCESS_DELETE_THEN_OW_UPDATE_AT2: &[KeySpec] =
    &[one(1, "RW access delete"), one(2, "OW update")];
pub(super) static RW_ACCESS_UPDATE: &[KeySpec] = &[one(1, "RW access update")];
pub(super) static RW_ACCESS_UPDATE_AT2_COUNTED: &[KeySpec] = &[KeySpec {
    notes: "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
    ..counted(2, "RW access update")
}];
pub(super) static RW_ACCESS_UPDATE_TTL: &[KeySpec] =
    &[KeySpec { notes: "RW and UPDATE because it changes the TTL", ..one(1, "RW access update") }];
pub(super) static RW_ACCESS_UPDATE_VARIABLE_FLAGS_GET: &[KeySpec] = &[KeySpec {
    notes: "RW and ACCESS due to the optional `GET` argument",
    ..one(1, "RW access update variable_flags")
}];
pub(super) static RW_INSERT: &[KeySpec] = &[one(1, "RW insert")];
pub(super) static RW_UPDATE: &[KeySpec] = &[one(1, "RW update")];
