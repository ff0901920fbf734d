//! Counts friends by MGET per level, as fast as a client can. Among the ways without a function it
//! is the fastest, so the comparison with functions is fair. It reads bodies in the input buffer
//! and builds no values.
//!
//! Invariant: it looks up the same records as `countFriends`, equally often.

use crate::graph::unpack;
use crate::stream::Stream;
use anyhow::{Context, Result, bail};
use nigh_client::Address;
use std::io::Write;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// A connection that asks for one level after the other.
pub(super) struct Levels {
    stream: Stream,
    request: Vec<u8>,
    input: Vec<u8>,
    level: Vec<u32>,
}

impl Levels {
    pub(super) fn connect(address: &Address) -> Result<Self> {
        let stream = Stream::connect(address)?;
        let (request, level) = (Vec::new(), Vec::new());
        Ok(Self { stream, request, input: vec![0; READ_BYTES], level })
    }

    /// Number of paths of length 1..depth from `node`.
    pub(super) fn count(&mut self, node: u32, depth: u32) -> Result<u64> {
        self.level.clear();
        self.level.push(node);
        let mut count = 0;
        for _ in 0..depth {
            if self.level.is_empty() {
                break;
            }
            self.ask()?;
            self.answers()?;
            count += self.level.len() as u64;
        }
        Ok(count)
    }

    /// Sends MGET for the level.
    fn ask(&mut self) -> Result<()> {
        self.request.clear();
        write!(self.request, "*{}\r\n$4\r\nMGET\r\n", self.level.len() + 1)?;
        for &node in &self.level {
            let digits = node.checked_ilog10().unwrap_or(0) + 1;
            write!(self.request, "${digits}\r\n{node}\r\n")?;
        }
        let mut sent = 0;
        while sent < self.request.len() {
            sent += self.stream.write(&self.request[sent..]).context("the server hung up")?;
        }
        Ok(())
    }

    /// Reads the values into the next level.
    fn answers(&mut self) -> Result<()> {
        let (mut have, mut at) = (0, 0);
        let mut left = None;
        self.level.clear();
        while left != Some(0) {
            if let Some((kind, number, body)) = line(&self.input[at..have])? {
                match (kind, left) {
                    (b'*', None) => {
                        left = Some(usize::try_from(number)?);
                        at += body;
                        continue;
                    }
                    (b'$', Some(values)) if number < 0 => {
                        left = Some(values - 1);
                        at += body;
                        continue;
                    }
                    (b'$', Some(values)) => {
                        let length = usize::try_from(number)?;
                        if have - at >= body + length + 2 {
                            let value = &self.input[at + body..at + body + length];
                            self.level.extend(unpack(value));
                            left = Some(values - 1);
                            at += body + length + 2;
                            continue;
                        }
                    }
                    _ => bail!("MGET was answered with {:?}", char::from(kind)),
                }
            }
            self.input.copy_within(at..have, 0);
            (have, at) = (have - at, 0);
            if self.input.len() - have < READ_BYTES / 2 {
                self.input.resize(self.input.len() * 2, 0);
            }
            match self.stream.read(&mut self.input[have..]).context("the server hung up")? {
                Some(0) => bail!("the server closed the connection"),
                read => have += read.unwrap_or(0),
            }
        }
        Ok(())
    }
}

/// The type and number of the line at the start of `bytes`, and its length. `None` if the line
/// isn't whole.
fn line(bytes: &[u8]) -> Result<Option<(u8, i64, usize)>> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[1..end])?.trim_end();
    match text.parse() {
        Ok(number) => Ok(Some((bytes[0], number, end + 1))),
        Err(_) => bail!("the server answered {}{text}", char::from(bytes[0])),
    }
}
