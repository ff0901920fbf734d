//! A socket of the load generator or of the floor: TCP or Unix.
//!
//! Invariant: a TCP socket sends at once (`TCP_NODELAY`).

use anyhow::{Context, Result};
use nigh_client::{Address, Endpoint};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects. The socket blocks until [`Self::set_nonblocking`].
    pub(super) fn connect(address: &Address) -> Result<Self> {
        let failed = || format!("can't connect to {address}: is a server running there?");
        match &address.endpoint {
            Endpoint::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).with_context(failed)?)),
            Endpoint::Tcp { host, port } => {
                Self::tcp(TcpStream::connect((host.as_str(), *port)).with_context(failed)?)
            }
        }
    }

    /// Takes over a connected TCP socket.
    pub(super) fn tcp(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true).context("can't set TCP_NODELAY")?;
        Ok(Self::Tcp(stream))
    }

    pub(super) fn set_nonblocking(&self) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
        .context("can't make a socket non-blocking")
    }

    /// A blocking socket waits at most so long for bytes, or for room.
    pub(super) fn set_timeout(&self, longest: Duration) -> Result<()> {
        let longest = Some(longest);
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(longest).and(stream.set_write_timeout(longest))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(longest).and(stream.set_write_timeout(longest))
            }
        }
        .context("can't set a socket's timeout")
    }

    /// Reads once; `None` if no byte is there.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        })
    }

    /// Writes once; returns the number of bytes that the socket took.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = or_none(match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        });
        Ok(outcome?.unwrap_or(0))
    }
}

fn or_none(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(length) => Ok(Some(length)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
