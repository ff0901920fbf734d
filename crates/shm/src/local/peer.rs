//! The process at the other end of a Unix socket.
//!
//! Any thread.

use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process that connected a Unix socket, and its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketPeer {
    /// `None` if the process has no number here: its PID namespace is neither this process's nor
    /// below it.
    pub process: Option<Pid>,
    /// Its effective user when it connected.
    pub user_id: u32,
}

/// Asks the system for the peer of a Unix socket. rustix has no word for a process without a
/// number.
///
/// # Errors
/// What the system says, such as that this is no socket.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<SocketPeer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = libc::socklen_t::try_from(size_of_val(&found)).map_err(io::Error::other)?;
    // SAFETY: the system writes `bytes` bytes at most to `found`, which has so many and takes any;
    // both stay where they are during the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(SocketPeer { process: Pid::from_raw(found.pid), user_id: found.uid })
}
