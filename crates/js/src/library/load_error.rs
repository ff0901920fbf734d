//! Why a library is refused. Plain data; any thread.

use thiserror::Error;

/// Why a library is refused. `Display` is the whole error reply with its code, without CR and LF.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The source does not begin with `#!<engine> name=<name>`.
    #[error("ERR Missing library metadata")]
    MissingMetadata,
    /// The first line has no end, a quote in it has none, or it has a zero byte.
    #[error("ERR Invalid library metadata")]
    InvalidLine,
    /// `#!` names no engine that Nigh has.
    #[error("ERR Engine '{engine}' not found")]
    UnknownEngine {
        /// The given engine, shortened.
        engine: String,
    },
    /// No `name=` in the first line.
    #[error("ERR Library name was not given")]
    MissingName,
    /// Something else than `name=` in the first line.
    #[error("ERR Invalid metadata value given: {value}")]
    InvalidMetadata {
        /// The given text, shortened.
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
    /// The name has more characters than a name may have.
    #[error("ERR Library names have at most {most} characters")]
    LongName {
        /// The most that there may be.
        most: usize,
    },
    /// The module exports no function.
    #[error("ERR No functions registered")]
    NoFunctions,
    /// A function of another library has the same name.
    #[error("ERR Function {function} already exists")]
    FunctionExists {
        /// The name.
        function: String,
    },
    /// Source longer than [`FunctionLimits::source_bytes`](crate::FunctionLimits::source_bytes), or
    /// not UTF-8.
    #[error("ERR library '{library}': {reason}")]
    BadSource {
        /// Name of the library.
        library: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// It can't be loaded now; later it may.
    #[error("ERR library '{library}': {reason}")]
    NotNow {
        /// Name of the library.
        library: String,
        /// What has to pass.
        reason: String,
    },
    /// It can't be loaded before the server restarts: V8 gave up in it, or in too many calls.
    #[error("ERR library '{library}': {reason}")]
    GivenUp {
        /// Name of the library.
        library: String,
        /// What V8 gave up in.
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

impl LoadError {
    /// A library that takes longer to start than `load_ms`.
    #[must_use]
    pub fn too_long(library: &str, load_ms: u64) -> LoadError {
        LoadError::Compile { library: library.to_owned(), reason: too_long_to_start(load_ms) }
    }
}

/// Why a library that needs too much time is refused.
pub(crate) fn too_long_to_start(load_ms: u64) -> String {
    format!(
        "compiling it and running its top level took longer than {load_ms} ms \
         (setting: function-load-limit-ms)"
    )
}
