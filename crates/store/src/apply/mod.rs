//! Commands for keys of any type, and the dispatcher of all commands.
//!
//! ```text
//! Store::apply ──> dispatch ──> types: commands of one type
//!                           └─> keys, expiry, scan, object, memory
//! ```

pub(crate) mod dispatch;
pub(crate) mod expiry;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod scan;
