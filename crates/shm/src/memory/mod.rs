//! Memory of this process and of the system, in pages: what an arena's file is mapped into.

pub(crate) mod hugepages;
pub(crate) mod mapping;
pub(crate) mod provision;
