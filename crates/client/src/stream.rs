//! The socket below a connection: TCP or Unix, blocking, with timeouts.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::Endpoint;

/// Either kind of socket.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects. TCP tries every address of the name, and sends small writes at once.
    pub(crate) fn connect(endpoint: &Endpoint, timeout: Option<Duration>) -> io::Result<Self> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => return UnixStream::connect(path).map(Self::Unix),
            Endpoint::Tcp { host, port } => (host.as_str(), *port),
        };
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            let connected = match timeout {
                Some(timeout) => TcpStream::connect_timeout(&address, timeout),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::Tcp(stream));
                }
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
        }
    }

    /// As [`Read::read`].
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
        }
    }

    /// As [`Write::write_all`].
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// A second handle of the socket.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Ends the directions, for all handles.
    pub(crate) fn shutdown(&self, which: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(which),
            Self::Unix(stream) => stream.shutdown(which),
        }
    }
}
