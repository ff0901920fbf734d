//! Memory of this process and of the system, in pages: what an arena's file is mapped into.

pub(crate) mod file_mapping;
pub(crate) mod fork_mark;
pub(crate) mod guarded;
pub(crate) mod hugepages;
pub(crate) mod provision;
pub(crate) mod quiet_thread;
