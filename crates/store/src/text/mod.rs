//! What clients write as arguments: integers, options, patterns and decimal fractions.

pub(crate) mod arguments;
pub(crate) mod extended;
pub mod glob;
