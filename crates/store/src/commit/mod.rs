//! Several writes as one: transactions, WATCH, and the write sets of functions.

pub(crate) mod transactions;
mod watching;
pub(crate) mod write_set;
