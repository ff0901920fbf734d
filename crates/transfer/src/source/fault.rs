//! What can be wrong with a source. Each fault but that of a whole file names its offset.

use std::io;

/// The fault of a source, and where it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The system can't read on.
    #[error("reading failed at offset {offset}: {cause}")]
    Io {
        /// Bytes read before.
        offset: u64,
        /// The system's error.
        cause: io::Error,
    },
    /// The bytes end too early.
    #[error("it ends at offset {offset}, in the middle of {what}")]
    Ended {
        /// Where the bytes end.
        offset: u64,
        /// What isn't whole.
        what: &'static str,
    },
    /// Bytes that can't stand where they stand.
    #[error("damaged at offset {offset}: {what}")]
    Malformed {
        /// Where they stand.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// A type or an opcode that isn't known, so that its length isn't known either.
    #[error(
        "type {number} at offset {offset} isn't known, so what follows can't be read: was it \
         written by a newer server?"
    )]
    UnknownType {
        /// Where the number stands.
        offset: u64,
        /// The number.
        number: u8,
    },
    /// The bytes aren't those that were written.
    #[error(
        "damaged before offset {offset}: the checksum there is {expected:016x}, the bytes have \
         {found:016x}"
    )]
    Checksum {
        /// Where the checksum stands.
        offset: u64,
        /// The stored checksum.
        expected: u64,
        /// That of the bytes.
        found: u64,
    },
    /// More strings than an import keeps in mind.
    #[error(
        "more than {most} strings were changed by SETBIT and others that Nigh doesn't have, at \
         offset {offset}: run BGREWRITEAOF on the source first, so that its file has their values"
    )]
    TooManyLost {
        /// Where the command behind the last of them stands.
        offset: u64,
        /// How many there may be.
        most: usize,
    },
    /// No file of a known kind.
    #[error("it is neither an RDB file nor an AOF: its first bytes are \"{first}\"")]
    UnknownFormat {
        /// Printable form of the first bytes.
        first: String,
    },
    /// A newer format.
    #[error("RDB version {version} isn't known: the newest known are 12 of Redis and 80 of Valkey")]
    UnknownVersion {
        /// The version.
        version: String,
    },
}

impl SourceError {
    /// Whether the bytes end too early, and are right as far as they go.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}
