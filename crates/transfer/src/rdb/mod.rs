//! RDB files: versions 1 to 12 of Redis and 80 of Valkey.
//!
//! ```text
//! "REDIS" version | aux … | select db | [expiry] type key value … | EOF | CRC64
//! ```
//!
//! Source: `src/rdb.h` and `src/rdb.c` of Redis 7.2 and Valkey 9.

mod kind;
mod lzf;
mod opcode;
mod reader;
mod strings;
mod values;

pub use kind::ValueKind;
pub(crate) use reader::restored;
pub use reader::{Entry, Found, RdbReader};
pub(crate) use strings::STRING_BYTES_MAX;
