//! The data types, a folder or file each.

mod string;
