//! A worker process, as the driver sees it.

use crate::wire::{Answer, FRAME_BYTES};
use anyhow::{Context, Result};
use nigh_client::Address;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A worker; dropping it ends it.
pub(crate) struct Peer {
    pub(crate) number: u32,
    pub(crate) socket: UnixStream,
    /// It takes events.
    pub(crate) is_ready: bool,
    pub(crate) killed_at: Option<Instant>,
    process: Child,
    /// Events that are not sent yet.
    out: Vec<u8>,
    /// A part of an answer.
    input: Vec<u8>,
}

impl Peer {
    /// Starts a worker: this program again, with one end of a socket as its standard input.
    pub(crate) fn start(number: u32, server: &Address, must_be_local: bool) -> Result<Peer> {
        let (socket, theirs) = UnixStream::pair().context("no socket for a worker")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--connect", &server.to_string()]);
        if must_be_local {
            command.arg("--local");
        }
        let process = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn();
        let process = process.context("can't start a worker")?;
        let (out, input) = (Vec::new(), Vec::new());
        Ok(Peer { number, socket, is_ready: false, killed_at: None, process, out, input })
    }

    /// Adds a frame to those that go next.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.out.extend_from_slice(frame);
    }

    /// Sends what was added. A worker that is dead is met by the next read.
    pub(crate) fn send(&mut self) -> Result<()> {
        match self.socket.write_all(&self.out) {
            Err(error) if !is_end(error.kind()) => return Err(error).context("can't send events"),
            _ => {}
        }
        self.out.clear();
        Ok(())
    }

    /// Takes the answers that are there. False if the worker has ended.
    pub(crate) fn receive(&mut self, answers: &mut Vec<Answer>) -> Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let len = match self.socket.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) if is_end(error.kind()) => 0,
            Err(error) => return Err(error).context("can't read answers"),
        };
        self.input.extend_from_slice(&bytes[..len]);
        let (frames, rest) = self.input.as_chunks::<FRAME_BYTES>();
        for frame in frames {
            answers.push(Answer::of_frame(frame)?);
        }
        self.input = rest.to_vec();
        Ok(len > 0)
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.killed_at = Some(Instant::now());
        self.process.kill().context("can't kill a worker")
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
