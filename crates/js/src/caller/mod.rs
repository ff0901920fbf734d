//! The border to the caller of a runtime: its input, the runtime's requests, and the runtime's
//! figures. Plain data and traits; nothing here knows V8.
//!
//! | file | what it holds |
//! |---|---|
//! | `fcall` | the calls of a batch, and the turn in which they run |
//! | `function_limits` | the limits of functions |
//! | `host_trait` | the runtime's requests to the server |
//! | `runtime_stats` | counters, gauges, the running call |
//! | `tenant_arenas` | the memory that a tenant's functions read |

pub(crate) mod fcall;
pub(crate) mod function_limits;
pub(crate) mod host_trait;
pub(crate) mod runtime_stats;
pub(crate) mod tenant_arenas;
