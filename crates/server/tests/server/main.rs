//! Servers in this process, each with a folder and a port of its own. One program, so that it is
//! linked once.
#![allow(clippy::duplicate_mod, reason = "the same stories, with one partition and with several")]

mod asked;
mod changes;
mod cleaning;
mod common;
mod eviction;
mod examples;
mod exec_memory;
mod functions;
mod held;
mod history;
mod inside;
mod journal_room;
mod limits;
mod linearizability;
mod moments;
mod partitions;
mod pipelines;
mod restart;
mod reuse;
mod scatter;
mod serialisability;
mod session;
mod shards;
mod transactions;
mod turns;
mod untold;
