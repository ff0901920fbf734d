//! A library as it was loaded: its name and its functions; and why one is refused.
//! Plain data; any thread.

use thiserror::Error;

use crate::error_reply;

pub(crate) mod source;

/// What `FUNCTION LOAD` found in a library's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// From the first line, `#!js name=<name>`.
    pub name: String,
    /// The exported functions, in order of their names.
    pub functions: Vec<Function>,
}

impl Library {
    /// The name that a source gives in its first line.
    ///
    /// # Errors
    /// [`LoadError`] if that isn't `#!js name=<name>`.
    pub fn name_of(source: &[u8]) -> Result<String, LoadError> {
        source::library_name(source)
    }
}

/// One exported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the export.
    pub name: String,
    /// Has the flag `no-writes`.
    pub no_writes: bool,
    /// Has the flag `allow-cross-slot-keys`.
    pub allow_cross_slot_keys: bool,
    /// Text of the JSDoc comment right before the function.
    pub description: Option<String>,
}

impl Function {
    /// The flags by their names, as `FUNCTION LIST` shows them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let no_writes = self.no_writes.then_some("no-writes");
        no_writes.into_iter().chain(self.allow_cross_slot_keys.then_some("allow-cross-slot-keys"))
    }
}

impl LoadError {
    /// A library that takes longer to start than it may.
    #[must_use]
    pub fn too_long(library: &str, load_ms: u64) -> LoadError {
        LoadError::Compile {
            library: library.to_owned(),
            reason: error_reply::too_long_to_start(load_ms),
        }
    }
}

/// Why a library is refused. `Display` is the whole error reply with its code, without CR and LF.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The source does not begin with `#!<engine> name=<name>`.
    #[error("ERR Missing library metadata")]
    MissingMetadata,
    /// The first line has no end, a quote in it none, or it has a zero byte.
    #[error("ERR Invalid library metadata")]
    InvalidLine,
    /// `#!` names no engine that Nigh has.
    #[error("ERR Engine '{engine}' not found")]
    UnknownEngine {
        /// As it was given, shortened.
        engine: String,
    },
    /// No `name=` in the first line.
    #[error("ERR Library name was not given")]
    MissingName,
    /// Something else than `name=` in the first line.
    #[error("ERR Invalid metadata value given: {value}")]
    InvalidMetadata {
        /// As it was given, shortened.
        value: String,
    },
    /// `name=` twice.
    #[error("ERR Invalid metadata value, name argument was given multiple times")]
    NameTwice,
    /// The name is empty or has other characters than letters, digits and `_`.
    #[error(
        "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
    )]
    BadName,
    /// The module exports no function.
    #[error("ERR No functions registered")]
    NoFunctions,
    /// A function of another library has the same name.
    #[error("ERR Function {function} already exists")]
    FunctionExists {
        /// The name.
        function: String,
    },
    /// Source longer than [`Limits::source_bytes`](crate::Limits::source_bytes), or not UTF-8.
    #[error("ERR library '{library}': {reason}")]
    BadSource {
        /// Name of the library.
        library: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// It does not compile, its top level throws, or its flags are wrong.
    #[error("ERR Error compiling library '{library}': {reason}")]
    Compile {
        /// Name of the library.
        library: String,
        /// What is wrong, with line and column where known.
        reason: String,
    },
}
