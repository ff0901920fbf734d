//! The text of arguments and values: integers, options, patterns and decimal fractions.

pub(crate) mod arguments;
pub(crate) mod extended;
pub(crate) mod glob;
