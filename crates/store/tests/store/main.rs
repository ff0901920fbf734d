//! The store over real arenas in /dev/shm, with a clock that the tests move.

mod adoption;
mod backup;
mod commands;
mod conversions;
mod convert;
mod durable;
mod durable_starts;
mod eviction;
mod folder;
mod full;
mod functions;
mod journal;
mod keyspace;
mod lazy;
mod live;
mod machine;
mod model;
mod policies;
mod power_cuts;
mod room;
mod salvage;
mod scan;
mod slow_syncs;
mod support;
mod transactions;
mod watch;
