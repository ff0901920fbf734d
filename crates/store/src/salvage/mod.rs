//! What can be saved of a damaged log, written as a log of its own: docs/formats/log.md, "Salvage".
//!
//! ```text
//! chain ── cut at its first bad frame ── keys that stand on nothing ── a chain of the copy ── meta
//! ── read back
//! ```
//!
//! 1. The damaged log is only read.
//! 2. The copy has an id and a secret of its own: no arena, journal or follower of the damaged one
//!    takes it for that. Tenants keep their numbers and seeds, and changes their LSNs.
//! 3. What stands on nothing is removed by a change behind the last that was saved: replay needs no
//!    rule for it.
//! 4. `meta` names the chains when all of them are synced: a folder without is no log.
//!
//! One thread, and nobody writes to either log.

pub(crate) mod log_salvage;
pub(crate) mod salvage_error;
