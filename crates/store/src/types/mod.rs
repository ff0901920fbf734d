//! The data types, a folder or file each.

pub(crate) mod string;
