//! A connection's socket after its greeting: bytes in both directions, for what is no request and
//! reply in turn.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::stream::Stream;

/// A socket, and the bytes that were read from it and not consumed.
pub struct RawStream {
    stream: Stream,
    before: Vec<u8>,
}

impl RawStream {
    pub(crate) fn new(stream: Stream, before: Vec<u8>) -> Self {
        Self { stream, before }
    }

    /// A second handle of the socket, which another thread may use: one reads, the other writes.
    /// What was read before stays here.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, before: Vec::new() })
    }

    /// Bounds the wait of each read and write; `None` is no limit.
    ///
    /// # Errors
    /// The socket refuses it (a timeout of zero).
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(timeout)
    }

    /// Ends both directions for all handles: a thread that waits in a read goes on.
    pub fn shutdown(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Read for RawStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.before.is_empty() {
            return self.stream.read(buf);
        }
        let len = buf.len().min(self.before.len());
        buf[..len].copy_from_slice(&self.before[..len]);
        self.before.drain(..len);
        Ok(len)
    }
}

impl Write for RawStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
