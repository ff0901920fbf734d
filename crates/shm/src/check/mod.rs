//! Reading an arena that isn't trusted: each offset is compared with its bounds before it is used.
//!
//! The checker answers for one record or table; the survey is the walk over all that the index
//! names.

pub(crate) mod checker;
pub(crate) mod survey;
