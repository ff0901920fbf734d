//! The answers of OBJECT ENCODING and REFCOUNT for a string, derived from its value.
//!
//! Redis remembers how a value was made instead. After APPEND and SETRANGE a value is `raw` there,
//! and after INCRBYFLOAT `embstr` or `raw`, with one reference, even if it is an integer.
//!
//! Thread: any; it is pure.

use crate::text::arguments::integer;

/// Longest value that Redis embeds in its object.
const EMBEDDED_BYTES: usize = 44;
/// Redis keeps one object for each integer below this.
const SHARED_INTEGERS: i64 = 10_000;

/// The encoding: `int`, `embstr` or `raw`.
pub(crate) fn encoding(value: &[u8]) -> &'static [u8] {
    if integer(value).is_some() {
        b"int"
    } else if value.len() <= EMBEDDED_BYTES {
        b"embstr"
    } else {
        b"raw"
    }
}

/// The references: as many as Redis claims for an integer that it shares, else one.
pub(crate) fn references(value: &[u8]) -> i64 {
    match integer(value) {
        Some(0..SHARED_INTEGERS) => i64::from(i32::MAX),
        _ => 1,
    }
}
