//! Which keys may go when memory is full, and when they were used.

pub(crate) mod candidates;
pub(crate) mod hits;
pub(crate) mod policy;
pub(crate) mod recency;
