//! Watches the running call: stops it, tells of it, and names it when the process ends.
//!
//! | file | what it holds |
//! |---|---|
//! | `call_watch` | what the runtime, its watchdog, handles and callbacks share of a running call |
//! | `process_end` | names the running function when the process ends |
//! | `watchdog` | the thread that stops calls |
//! | `handle` | asks and stops from other threads |

pub(crate) mod call_watch;
pub(crate) mod handle;
pub(crate) mod process_end;
pub(crate) mod watchdog;
