//! A whole import.
//!
//! ```text
//! stdin, server:  read ───────────────────────────────> apply
//! RDB file:       survey it ──────────────────────────> apply
//! AOF:            survey all files ─> is Nigh empty? ─> apply ─> bring back expiries
//! ```
//!
//! 1. A file is read twice. Nothing is written before the first reading has found it whole.
//! 2. It ends with an error at the first fault. All that was applied before is in Nigh, and
//!    [`Imported`] tells how much.
//! 3. It may be started again: keys of an RDB replace those of the same name. An AOF that depends
//!    on what was there before needs an empty Nigh.
//! 4. It may be stopped between two writes. Expiries that are put off stay so then, and
//!    [`Imported`] tells that.

mod origin;
mod plan;
mod run;

pub use origin::{Origin, OriginError};
pub use run::{ImportOptions, Imported, Progress, import};
