//! How a client connects, reads and waits. Plain data.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::remote::ConnectionOptions;

/// Whether a client reads the server's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LocalUse {
    /// If it can: over the server's Unix socket. Else everything goes by RESP.
    #[default]
    Auto,
    /// Yes: without it there is an error.
    Required,
    /// No.
    Never,
}

/// The longest [`ClientOptions::spin`] that Nigh's clients for other languages take. A client that
/// looks for its reply so long uses its core for nothing else; and only behind that does it notice
/// a server's end.
pub const SPIN_MOST: Duration = Duration::from_secs(1);

/// Options of a [`crate::Client`].
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Credentials, protocol version, name, and the longest wait for a reply.
    pub connection: ConnectionOptions,
    /// Whether it reads the server's memory.
    pub local: LocalUse,
    /// How long a call waits for a server that is away. Zero, the default: it says so at once.
    /// [`Duration::MAX`]: without an end.
    pub wait: Duration,
    /// Set by another thread, it ends the wait for a server within 100 ms, and calls wait for none
    /// any more.
    pub gives_up: Option<Arc<AtomicBool>>,
    /// Attach once: when the attachment is over, each call says so ([`crate::CallError::Over`]). By
    /// default a client attaches again by itself, also between a WATCH and its EXEC, which then
    /// changes what nobody watches.
    pub attach_once: bool,
    /// How long a call looks for its reply before it sleeps; [`SPIN_MOST`] is a sensible bound.
    /// `None`: 50 us on a machine with several cores, else not at all.
    pub spin: Option<Duration>,
    /// With `appendfsync always`: read from memory also what isn't on disk yet. By default such a
    /// read asks the server, whose reply waits for the disk.
    pub reads_unsynced: bool,
}
