//! Opening and closing a store.

pub(crate) mod opening;
pub(crate) mod store_options;
