//! Where commands have their keys, and what they do with them: the rows' key specifications.
//!
//! Named by flags, place (first argument unless said) and range. Data, read by any thread.

use super::spec::{Find, KeySpec};

pub(super) static OW_INSERT: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "OW insert", notes: "" }];
pub(super) static OW_INSERT_PAIRS: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: -1, step: 2 }, flags: "OW insert", notes: "" }];
pub(super) static OW_UPDATE: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "OW update", notes: "" }];
pub(super) static OW_UPDATE_PAIRS: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: -1, step: 2 }, flags: "OW update", notes: "" }];
pub(super) static RM_DELETE_ALL: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: -1, step: 1 }, flags: "RM delete", notes: "" }];
pub(super) static RO: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "RO", notes: "" }];
pub(super) static RO_ACCESS: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "RO access", notes: "" }];
pub(super) static RO_ACCESS_ALL: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: -1, step: 1 }, flags: "RO access", notes: "" }];
pub(super) static RO_ACCESS_AT2_COUNTED: &[KeySpec] = &[KeySpec {
    begin: 2,
    find: Find::Counted,
    flags: "RO access",
    notes: "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
}];
pub(super) static RO_ACCESS_THEN_OW_UPDATE_AT2: &[KeySpec] = &[
    KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "RO access", notes: "" },
    KeySpec { begin: 2, find: Find::Range { last: 0, step: 1 }, flags: "OW update", notes: "" },
];
pub(super) static RO_ALL: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: -1, step: 1 }, flags: "RO", notes: "" }];
pub(super) static RO_AT2: &[KeySpec] =
    &[KeySpec { begin: 2, find: Find::Range { last: 0, step: 1 }, flags: "RO", notes: "" }];
pub(super) static RW_ACCESS_DELETE: &[KeySpec] = &[KeySpec {
    begin: 1,
    find: Find::Range { last: 0, step: 1 },
    flags: "RW access delete",
    notes: "",
}];
pub(super) static RW_ACCESS_DELETE_THEN_OW_INSERT_AT2: &[KeySpec] = &[
    KeySpec {
        begin: 1,
        find: Find::Range { last: 0, step: 1 },
        flags: "RW access delete",
        notes: "",
    },
    KeySpec { begin: 2, find: Find::Range { last: 0, step: 1 }, flags: "OW insert", notes: "" },
];
pub(super) static RW_ACCESS_DELETE_THEN_OW_UPDATE_AT2: &[KeySpec] = &[
    KeySpec {
        begin: 1,
        find: Find::Range { last: 0, step: 1 },
        flags: "RW access delete",
        notes: "",
    },
    KeySpec { begin: 2, find: Find::Range { last: 0, step: 1 }, flags: "OW update", notes: "" },
];
pub(super) static RW_ACCESS_UPDATE: &[KeySpec] = &[KeySpec {
    begin: 1,
    find: Find::Range { last: 0, step: 1 },
    flags: "RW access update",
    notes: "",
}];
pub(super) static RW_ACCESS_UPDATE_AT2_COUNTED: &[KeySpec] = &[KeySpec {
    begin: 2,
    find: Find::Counted,
    flags: "RW access update",
    notes: "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
}];
pub(super) static RW_ACCESS_UPDATE_TTL: &[KeySpec] = &[KeySpec {
    begin: 1,
    find: Find::Range { last: 0, step: 1 },
    flags: "RW access update",
    notes: "RW and UPDATE because it changes the TTL",
}];
pub(super) static RW_ACCESS_UPDATE_VARIABLE_FLAGS_GET: &[KeySpec] = &[KeySpec {
    begin: 1,
    find: Find::Range { last: 0, step: 1 },
    flags: "RW access update variable_flags",
    notes: "RW and ACCESS due to the optional `GET` argument",
}];
pub(super) static RW_INSERT: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "RW insert", notes: "" }];
pub(super) static RW_UPDATE: &[KeySpec] =
    &[KeySpec { begin: 1, find: Find::Range { last: 0, step: 1 }, flags: "RW update", notes: "" }];
