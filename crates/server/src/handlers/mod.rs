//! Commands that the server answers itself, and the parts of data commands that are about clients.

pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod config_set;
pub(crate) mod context;
pub(crate) mod functions;
pub(crate) mod info;
pub(crate) mod insistence;
pub(crate) mod introspect;
pub(crate) mod latency;
pub(crate) mod local;
pub(crate) mod payload;
pub(crate) mod route;
pub(crate) mod session;
pub(crate) mod store_host;
pub(crate) mod transaction;
pub(crate) mod usage;
pub(crate) mod views;
pub(crate) mod waiting;
