//! A local client's byte stream: two rings and two bells in memory that the server makes, and a
//! client process maps too.
//!
//! ```text
//! client: write ══ ring of requests ══> read :server
//!         read  <══ ring of replies ═══ write
//!         sleeps, is rung ◂── bell ──▸ sleeps, is rung
//! ```
//!
//! The bytes are specified in `docs/formats/local.md`, those of the rings in
//! `docs/formats/ring.md`.
//!
//! 1. The memory's size is sealed before anybody else has it, and checked before it is mapped. So
//!    no access to the mapping is ever a fault, whatever the other side does.
//! 2. Both sides know the sizes from what was said when the client attached, never from the memory.
//! 3. What the other side writes is copied out and then checked, word by word. A side that finds a
//!    fault ([`Broken`]) is told so by every further call, and closes.
//! 4. How a sleeper is woken is the caller's: by a byte on the socket that both hold.
//! 5. The memory doesn't outlive the stream, though a client keeps it: the server wipes it.
//!
//! An end belongs to one thread at a time.
//!
//! [`Broken`]: crate::ring::Broken

mod end;
mod error;
mod memory;
mod peer;
mod spec;
#[cfg(test)]
mod tests;

#[cfg(any(test, fuzzing))]
pub use end::exposed_local;
pub use end::{Awaits, LocalEnd};
pub use error::LocalError;
pub use memory::LocalMemory;
pub use peer::{SocketPeer, peer_of, refuse_descriptors};
pub use spec::{LEAST_LOCAL_BYTES, LocalSpec, MOST_LOCAL_BYTES, PROTOCOL};

use end::Side;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The server's end.
pub type LocalServerEnd = LocalEnd<LocalMemory>;
/// The client's end.
pub type LocalClientEnd = LocalEnd<LocalMemory>;

/// What the memory must be sealed against, so that its size stays and nobody can change that.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes the memory of a client, with all pages, and maps it. The descriptor is for the client.
///
/// # Errors
/// If the spec is out of bounds, or the system gives no memory or descriptor.
pub fn create(spec: LocalSpec) -> io::Result<(OwnedFd, LocalServerEnd)> {
    let bytes = spec.validate().map_err(io::Error::other)?.memory_bytes();
    let fd =
        rustix::fs::memfd_create("nigh-local", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    // Now, when a lack of memory is an error: later it would be a fault.
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    let memory = LocalMemory::map(fd.as_fd(), bytes)?;
    Ok((fd, end::over_mapping(&memory, spec, Side::Server)))
}

/// Maps the memory that a server has sent, for the client.
///
/// # Errors
/// [`LocalError`] if the sizes are out of bounds, or the file is not of this size, not sealed, or
/// can't be mapped.
pub fn attach(fd: &impl AsFd, spec: LocalSpec) -> Result<LocalClientEnd, LocalError> {
    let bytes = spec.validate()?.memory_bytes();
    let found = rustix::fs::fstat(fd)?.st_size;
    if u64::try_from(found) != Ok(bytes) {
        return Err(LocalError::Size { found, expected: bytes });
    }
    // Of what takes no seals there are none.
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
    if !seals.contains(SEALS) {
        return Err(LocalError::Unsealed { found: seals.bits(), expected: SEALS.bits() });
    }
    let memory = LocalMemory::map(fd.as_fd(), bytes)?;
    Ok(end::over_mapping(&memory, spec, Side::Client))
}
