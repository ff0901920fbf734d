//! What the system does to real servers, and what they say of it.

mod endings;
mod flips;
mod memory;
mod missing;
#[path = "../support/mod.rs"]
mod support;
