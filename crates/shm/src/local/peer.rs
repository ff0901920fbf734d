//! The process at the other end of a Unix socket, and what it may send.
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

/// The option SO_PASSRIGHTS of Linux 6.16 (`include/uapi/asm-generic/socket.h`).
const PASS_RIGHTS: libc::c_int = 83;

/// Refuses descriptors that the other end of a Unix socket sends: its `sendmsg` fails. A listening
/// socket's connections have that too. Descriptors that nobody asked for are closed by the thread
/// that reads the bytes beside them, and their close may take seconds.
///
/// # Errors
/// What the system says: before Linux 6.16, that it doesn't know the option.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<()> {
    let no: libc::c_int = 0;
    let bytes = libc::socklen_t::try_from(size_of_val(&no)).map_err(io::Error::other)?;
    // SAFETY: the system reads `bytes` bytes of `no`, which has so many and stays during the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const no).cast(),
            bytes,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
