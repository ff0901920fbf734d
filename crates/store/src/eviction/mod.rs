//! Which keys may go when memory is full: the policy, the use of keys, and the candidates.
//!
//! ```text
//! owner: each use ──> recency <── hits ── ring <── a sample of the hits ── views
//!                        └── age of a sampled key ──> candidates: the best go first
//! ```
//!
//! When keys go, and how many, is `making_room`'s.

pub(crate) mod candidates;
pub(crate) mod hits;
pub(crate) mod policy;
pub(crate) mod recency;
pub(crate) mod usage;
