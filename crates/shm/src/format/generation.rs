//! The generation of a slot: even while the slot is in use, odd while it waits to be reused.
//!
//! The arena's writer only.

use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Makes a generation the next odd or even one.
pub(crate) fn next_generation<W: SharedWords>(words: &W, at: u64, parity: u32) {
    let generation = words.load32(at, Relaxed);
    if generation & 1 != parity {
        // SYNC(generation): a reader of the slot's next bytes sees this.
        words.store32(at, generation.wrapping_add(1), Release);
    }
}
