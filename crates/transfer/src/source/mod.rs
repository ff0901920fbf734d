//! Bytes that come from elsewhere, one after the other, and what can be wrong with them.

mod fault;
mod input;

pub use fault::SourceError;
pub use input::Input;
