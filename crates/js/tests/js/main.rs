//! Functions in a runtime of this process. One program, so that it is linked once. The limits of
//! calls are CPU time: stories side by side stop none of each other's calls.
//!
//! Another program: `walk`, whose children end themselves, and are measured.

mod afterwards;
mod arguments;
mod builtins;
mod calls;
mod common;
mod errors;
mod examples;
mod fiber;
mod find_model;
mod heap_stops;
mod hostile;
mod limits;
mod loading;
mod memory;
mod moment_model;
mod numbers;
mod partitions;
mod places;
mod reference;
mod replies;
mod results;
mod shards;
mod starts;
mod stops;
mod trust;
mod writes;
