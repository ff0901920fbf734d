//! Tests of the log as its users see it: on a simulated disk and on real files.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::print_stdout, reason = "a test says how much it has tried")]

mod backup;
mod bases;
mod bits;
mod book;
mod disk;
mod faults;
mod folder;
mod follower;
mod large;
mod machine;
mod model;
mod power;
mod real;
mod shard;
