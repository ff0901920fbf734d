//! Taking over what another process left, and reading it without doing so.

pub(crate) mod adopt;
pub mod edition1;
pub(crate) mod verifier;
