//! The data types: a file or folder for each, with the commands of that type.
//!
//! A new type is a file here, rows in [`crate::op`] and arms in [`crate::apply::dispatch`]. Commands
//! for keys of any type are in [`crate::apply`].

pub(crate) mod string;
