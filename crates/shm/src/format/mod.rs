//! The bytes of an arena: where each stands, what a record says, and how both are read and written.
//!
//! Everything here works on shared words; nothing here knows whose memory they are.

pub(crate) mod format_fault;
pub(crate) mod generation;
pub(crate) mod hash;
pub(crate) mod head;
pub(crate) mod header_info;
pub mod layout;
pub(crate) mod record;
pub(crate) mod regular_file;
pub(crate) mod sum;
pub(crate) mod words;
