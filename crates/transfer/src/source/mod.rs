//! Bytes that come from elsewhere, one after the other, and what can be wrong with them.

mod fault;
mod file;
mod input;

pub use fault::SourceError;
pub(crate) use file::open_file;
pub use input::Input;
