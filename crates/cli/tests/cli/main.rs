//! The command `nigh` as users run it: each story starts the binary, mostly as a server with a
//! folder and a port of its own. One program, so that it is linked once.
//!
//! Other programs than this one: `kills`, since there a kill's load has the machine's time, and
//! `memory`, which waits until a server is at rest.

mod backup;
mod checks;
mod commands;
mod convert;
mod databases;
mod endings;
mod faults;
mod fresh;
mod graph;
mod last_sync;
mod local;
mod local_client;
mod log_disk;
mod log_folder;
mod log_shards;
mod restore;
mod runs;
mod salvage;
mod settings_kept;
mod small_journal;
mod soak;
mod starts;
mod startup;
mod support;
mod top;
mod transactions;
mod transfer;
