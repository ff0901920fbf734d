//! Watches the running call: stops it, tells of it, and names it when the process ends.
//!
//! | file | what it holds |
//! |---|---|
//! | `call_watch` | the state of the running call, for all of these |
//! | `process_end` | names the running function when the process ends |
//! | `watchdog` | the thread that stops calls |
//! | `handle` | asks and stops from other threads |

pub(crate) mod call_watch;
pub(crate) mod handle;
pub(crate) mod process_end;
pub(crate) mod watchdog;
