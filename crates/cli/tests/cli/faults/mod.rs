//! Faults of the system under real servers, and the servers' messages about them.

mod endings;
mod flips;
mod memory;
mod missing;
