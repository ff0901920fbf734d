//! The one place where a database's memory meets the function runtime.
//!
//! `shm` and `js` don't know each other, so neither can promise the other that a mapping stays and
//! holds an arena. This crate has both, and makes that promise: the module's only line of unsafe
//! code, and the crate's. Without the feature `functions` there is none.
#![allow(unsafe_code, reason = "this module alone; the crate denies it")]

use nigh_js::Mapping;
use nigh_shm::Region;
use std::any::Any;
use std::sync::Arc;

/// The arena of `region` as functions read it.
pub(super) fn mapping(region: &Arc<Region>) -> Mapping {
    let keep: Arc<dyn Any + Send + Sync> = Arc::<Region>::clone(region);
    // SAFETY: a region's whole reserved address space stays mapped readable (anonymous memory
    // behind the file's end) until its last Arc is dropped, and `keep` is one; it is an arena's
    // from its creation on.
    unsafe { Mapping::new(region.base(), region.address_bytes(), keep) }
}
