//! Applies keys and commands of a source to the target, one by one.
//!
//! ```text
//! RDB key ──> keys.rs ──────┐
//! command ──> commands.rs ──┴─> Applier ─> Target
//! ```

mod applier;
mod commands;
mod keys;
mod lost;
mod moves;
mod shift;

pub(crate) use applier::{Applier, Manner};
pub(crate) use shift::bring_back_expiries;
