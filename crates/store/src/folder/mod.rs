//! A folder of arenas.

pub(crate) mod arena_header;
pub(crate) mod edition;
pub(crate) mod look;
pub(crate) mod manifest;
pub(crate) mod names;
