//! The folder of the arenas: its lock, what lies in it, and what the system does to it.

pub(crate) mod arena_folder;
pub(crate) mod faults;
pub mod leftover;
pub(crate) mod starts;
pub(crate) mod verify;
