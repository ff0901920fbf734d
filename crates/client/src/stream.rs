//! What lies below a connection: a TCP or Unix socket, or the rings of a local client. Blocking,
//! with timeouts.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use crate::address::{Address, Endpoint};
use crate::client_error::ClientError;
use crate::ring_stream::RingStream;
use crate::waits::WaitBounds;

/// Either kind of socket, or rings.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Ring(Box<RingStream>),
}

impl Stream {
    /// Connects. TCP tries every address of the name, and sends small writes at once.
    pub(crate) fn connect(address: &Address, bounds: &WaitBounds) -> Result<Self, ClientError> {
        let failed = |cause: io::Error| not_connected(address, bounds, cause);
        let (host, port) = match &address.endpoint {
            Endpoint::Unix(path) => {
                let place = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
                let socket = connected(AddressFamily::UNIX, &place, address, bounds)?;
                return Ok(Self::Unix(UnixStream::from(socket)));
            }
            Endpoint::Tcp { host, port } => (host.as_str(), *port),
        };
        let nowhere = io::ErrorKind::AddrNotAvailable;
        let mut last = failed(io::Error::new(nowhere, "the name has no address"));
        for place in (host, port).to_socket_addrs().map_err(failed)? {
            let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            match connected(family, &place, address, bounds) {
                Ok(socket) => {
                    let stream = TcpStream::from(socket);
                    stream.set_nodelay(true).map_err(failed)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error @ ClientError::BrokenOff { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Bounds the wait of each read and write; `None` is no limit.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Ring(ring) => {
                ring.set_timeout(timeout);
                Ok(())
            }
        }
    }

    /// As [`Read::read`].
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
            Self::Ring(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Adds what has come to `input`, at least one byte; 0 at the end. A socket reads by way of
    /// `scratch`. Without memory the error is [`io::ErrorKind::OutOfMemory`], and what came is
    /// lost.
    pub(crate) fn read_into(
        &mut self,
        input: &mut Vec<u8>,
        scratch: &mut [u8],
    ) -> io::Result<usize> {
        if let Self::Ring(ring) = self {
            return ring.read_into(input);
        }
        let len = self.read(scratch)?;
        input.try_reserve(len)?;
        input.extend_from_slice(&scratch[..len]);
        Ok(len)
    }

    /// Whether the other side has ended the stream, by a look that doesn't wait.
    pub(crate) fn has_ended(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = match self {
            Self::Tcp(stream) => recv(stream, &mut [0; 1], flags),
            Self::Unix(stream) => recv(stream, &mut [0; 1], flags),
            Self::Ring(ring) => return ring.has_ended(),
        };
        match peeked {
            Ok((_, len)) => len == 0,
            Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }

    /// As [`Write::write`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Ring(ring) => ring.write(bytes),
        }
    }

    /// The socket beside the rings of a local client.
    pub(crate) fn ring_socket(&self) -> Option<&Arc<UnixStream>> {
        match self {
            Self::Ring(ring) => Some(ring.socket()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// A second handle of the socket.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            // A ring has one end.
            Self::Ring(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Ends the directions, for all handles.
    pub(crate) fn shutdown(&self, which: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(which),
            Self::Unix(stream) => stream.shutdown(which),
            Self::Ring(ring) => ring.socket().shutdown(which),
        }
    }
}

/// A socket that is connected to a place of this address. A server that stands still takes no
/// connection from its queue, and when that is full the system waits: here by pieces, so that the
/// bounds hold. Over TCP each piece goes on with the same attempt.
fn connected(
    family: AddressFamily,
    place: &impl SocketAddrArg,
    address: &Address,
    bounds: &WaitBounds,
) -> Result<OwnedFd, ClientError> {
    let failed = |errno: Errno| not_connected(address, bounds, errno.into());
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    set_socket_timeout(&socket, Timeout::Send, bounds.at_once()).map_err(failed)?;
    let mut begin = None;
    loop {
        let is_cut = match connect(&socket, place) {
            Ok(()) | Err(Errno::ISCONN) => return Ok(socket),
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => false,
            Err(errno) => return Err(failed(errno)),
        };
        bounds.go_on(&mut begin, is_cut, address)?;
    }
}

/// Why there is no connection, by the system's error.
fn not_connected(address: &Address, bounds: &WaitBounds, cause: io::Error) -> ClientError {
    let is_file = matches!(address.endpoint, Endpoint::Unix(_));
    let address = address.to_string();
    match (cause.kind(), bounds.timeout) {
        (io::ErrorKind::PermissionDenied, _) if is_file => ClientError::NotPermitted { address },
        (io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _) => {
            ClientError::NothingListens { address }
        }
        (io::ErrorKind::TimedOut, Some(after)) => ClientError::TimedOut { address, after },
        _ => ClientError::Unreachable { address, cause },
    }
}
