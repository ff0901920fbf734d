//! The folder of the arenas: its lock, what lies in it, and what the system does to it.

pub(crate) mod arena_folder;
pub(crate) mod cgroup;
pub(crate) mod faults;
pub mod leftover;
pub(crate) mod log_folder;
pub(crate) mod room;
pub(crate) mod starts;
pub(crate) mod verify;
