//! What the caller of a runtime passes in, and what the runtime asks of it and tells it. Plain data
//! and traits; nothing here knows V8.
//!
//! | file | what it holds |
//! |---|---|
//! | `fcall` | the calls of a batch, and the turn in which they run |
//! | `function_limits` | what bounds functions |
//! | `host_trait` | what the runtime asks of the server |
//! | `runtime_stats` | what a runtime tells about itself |
//! | `tenant_arenas` | the memory that a tenant's functions read |

pub(crate) mod fcall;
pub(crate) mod function_limits;
pub(crate) mod host_trait;
pub(crate) mod runtime_stats;
pub(crate) mod tenant_arenas;
