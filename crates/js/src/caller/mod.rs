//! What the caller hands to a runtime, what the runtime asks of it, and what it tells.

pub(crate) mod fcall;
pub(crate) mod function_limits;
pub(crate) mod host_trait;
pub(crate) mod runtime_stats;
pub(crate) mod tenant_arenas;
