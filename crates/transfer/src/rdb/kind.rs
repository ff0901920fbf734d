//! What a value is, whatever its encoding.

use std::fmt;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ValueKind {
    /// A string, the one type that Nigh has.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
    /// A value of a module.
    Module,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::String => "strings",
            Self::List => "lists",
            Self::Set => "sets",
            Self::SortedSet => "sorted sets",
            Self::Hash => "hashes",
            Self::Stream => "streams",
            Self::Module => "values of modules",
        })
    }
}
