//! Why the memory of a local client is not mapped. Any thread.

use rustix::io::Errno;

/// Why the memory of a local client is not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// A ring can't have this size.
    #[error("a ring of {bytes} bytes: a power of two from {least} to {most} is possible")]
    RingBytes {
        /// The size that was asked for.
        bytes: u32,
        /// The smallest ring.
        least: u32,
        /// The biggest ring.
        most: u32,
    },
    /// The file has another size than the sizes of the rings give.
    #[error(
        "the rings' memory has {found} bytes, not {expected}: attach to a server of this version"
    )]
    Size {
        /// The size of the file.
        found: i64,
        /// What both rings and their bells take.
        expected: u64,
    },
    /// The file's size could still be changed: an access could be a fault then.
    #[error("the rings' memory has the seals {found:#x}, not all of {expected:#x}: don't trust it")]
    Unsealed {
        /// The seals of the file, as in fcntl(2).
        found: u32,
        /// Those that must be there.
        expected: u32,
    },
    /// The system refused.
    #[error("the rings' memory can't be mapped: {0}")]
    System(#[from] Errno),
}
