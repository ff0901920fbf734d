//! The one place where an arena's memory meets the function runtime.
//!
//! `shm` and `js` are leaves that don't know each other, so neither can promise the other that a
//! mapping stays and holds an arena. The server, which has both, can: that promise is this module's
//! only line of unsafe code, and the crate's.
//!
//! Called by the thread that starts a shard.
#![allow(unsafe_code, reason = "this module alone; the crate denies it")]

use nigh_js::Mapping;
use nigh_shm::Region;
use std::any::Any;
use std::sync::Arc;

/// The arena of `region` as functions read it.
pub(crate) fn mapping(region: &Arc<Region>) -> Mapping {
    let keep: Arc<dyn Any + Send + Sync> = Arc::<Region>::clone(region);
    // SAFETY: a region's whole reserved address space stays mapped readable (anonymous memory
    // behind the file's end) until its last Arc is dropped, and `keep` is one; it is an arena's
    // from its creation on.
    unsafe { Mapping::new(region.base(), region.address_bytes(), keep) }
}
