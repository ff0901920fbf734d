//! Opening and closing a store: the options, and what was found.

pub(crate) mod durable;
pub(crate) mod opening;
pub(crate) mod store_options;
