//! What a shard's poll has to do with local clients: their sockets carry wake-ups, and their
//! processes may end.
//!
//! The shard's thread.

use crate::net::connection::Connection;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::AsRawFd;

/// What the token of a client's process has more than that of its socket.
const PROCESS: usize = 1 << 62;

/// The token of a connection's socket, by that of its socket or its client's process; and whether
/// it is the process's.
pub(super) fn socket_of(Token(token): Token) -> (usize, bool) {
    (token & !PROCESS, token & PROCESS != 0)
}

/// Reports the end of a local client's process; does nothing for another connection.
pub(super) fn watch_process(
    connection: &Connection,
    registry: &Registry,
    token: Token,
) -> io::Result<()> {
    match connection.local.as_ref().and_then(|local| local.process()) {
        Some(process) => {
            let token = Token(token.0 | PROCESS);
            registry.register(&mut SourceFd(&process.as_raw_fd()), token, Interest::READABLE)
        }
        None => Ok(()),
    }
}

/// Reports nothing any more, so that another shard can.
pub(super) fn forget_process(connection: &Connection, registry: &Registry) -> io::Result<()> {
    match connection.local.as_ref().and_then(|local| local.process()) {
        Some(process) => registry.deregister(&mut SourceFd(&process.as_raw_fd())),
        None => Ok(()),
    }
}
