//! Taking over what another process left, and reading it without doing so.

pub(crate) mod adopt;
pub(crate) mod bases;
pub mod edition1;
pub(crate) mod journal_left;
pub(crate) mod mend;
pub(crate) mod records;
pub(crate) mod replay;
pub(crate) mod verifier;
