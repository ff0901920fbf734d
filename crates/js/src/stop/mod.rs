//! How a call is stopped, and why.
//!
//! | file | what it holds |
//! |---|---|
//! | `agreement` | how a call and the watchdog agree whether the call has ended |
//! | `cause` | why a call is stopped |

pub(crate) mod agreement;
pub(crate) mod cause;
#[cfg(test)]
mod late_kill;
#[cfg(test)]
pub(crate) mod stop_models;
