//! A record to be appended: a key, the parts of its value, and how they are to be stored.

use crate::format::head::RunName;
use crate::format::layout::record as r;

/// The beginning of a value, which stands in a run already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) run: RunName,
    pub(crate) len: u32,
}

/// A record to be appended.
#[derive(Clone, Copy)]
pub(crate) struct Append<'a> {
    pub(crate) hash: u32,
    pub(crate) key: &'a [u8],
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) expiry_ms: u64,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The beginning of the value, before `parts`.
    pub(crate) prefix: Option<Prefix>,
    /// The record whose value it stands on.
    pub(crate) base: Option<u32>,
    /// The value will be extended again.
    pub(crate) grows: bool,
    /// The value is to lie in a run, however short it is.
    pub(crate) in_run: bool,
    pub(crate) urgent: bool,
}

impl<'a> Append<'a> {
    pub(crate) fn string(
        hash: u32,
        key: &'a [u8],
        parts: &'a [&'a [u8]],
        expiry_ms: u64,
    ) -> Append<'a> {
        Append {
            hash,
            key,
            parts,
            expiry_ms,
            kind: r::KIND_STRING,
            flags: 0,
            prefix: None,
            base: None,
            grows: false,
            in_run: false,
            urgent: false,
        }
    }
}
