//! A folder of arenas.

pub(crate) mod edition;
pub(crate) mod look;
