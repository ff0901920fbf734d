//! How a call is stopped.

pub(crate) mod agreement;
#[cfg(test)]
mod late_kill;
#[cfg(test)]
pub(crate) mod stop_models;
