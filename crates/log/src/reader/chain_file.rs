//! What is known of a file that counts. No I/O.

/// A file that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFile {
    /// Its number.
    pub number: u64,
    /// Its salt.
    pub salt: u64,
    /// Bytes that its frames may use, head included.
    pub file_bytes: u64,
    /// Where its last frame ends.
    pub end: u64,
    /// That frame's header sum.
    pub end_sum: u32,
    /// The table of its BEGIN: each stream's last LSN before the file.
    pub lasts: Vec<(u32, u64)>,
}
