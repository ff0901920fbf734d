//! The data types: a file or folder for each, with the commands of that type.
//!
//! A new type is a file here, rows in `op`, and arms in `apply/dispatch`. Commands for keys of any
//! type are in `apply`.

pub(crate) mod string;
