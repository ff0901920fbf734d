//! The watchdog, and what the process says when it ends in a call.

pub(crate) mod process_end;
pub(crate) mod watchdog;
