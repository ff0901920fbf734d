//! Reads the replies to batches, in a thread of its own, so that the server can always send.
//!
//! ```text
//! writer ── batch ──> queue (bounded) ── batch ──> this thread <── replies ── server
//! ```
//!
//! 1. Each command has one reply, in order; so a refused command's key is found in its batch.
//! 2. A refusal that would meet every write (OOM, MISCONF, LOADING …) ends everything: the socket
//!    is shut, so that the writer doesn't wait on. One that is about a single command is counted.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nigh_client::RawStream;
use nigh_resp::decode::Replies;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;

use super::TargetError;
use crate::left_out::{LeftOut, shown};

/// Most bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Codes of refusals that are about one command, not about the server's state.
const SINGLE: [&[u8]; 3] = [b"ERR", b"WRONGTYPE", b"CROSSSLOT"];

/// Commands that were sent together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Where each command begins.
    pub(super) starts: Vec<usize>,
    /// Gets the reply to the one command of the batch; then a refusal is the asker's affair.
    pub(super) answer: Option<SyncSender<Frame>>,
}

/// What the thread tells.
#[derive(Default)]
pub(super) struct Told {
    pub(super) has_failed: AtomicBool,
    /// Commands that were accepted.
    pub(super) accepted: AtomicU64,
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    failure: Option<TargetError>,
    refused: LeftOut,
}

impl Told {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fail(&self, error: TargetError) {
        self.news().failure.get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    pub(super) fn failure(&self) -> Option<TargetError> {
        self.news().failure.clone()
    }

    pub(super) fn take_refused(&self) -> LeftOut {
        std::mem::take(&mut self.news().refused)
    }
}

/// The thread's state.
pub(super) struct ReplyReader {
    pub(super) stream: RawStream,
    pub(super) address: String,
    pub(super) told: Arc<Told>,
    replies: Replies,
    input: Vec<u8>,
    scratch: Box<[u8]>,
}

impl ReplyReader {
    pub(super) fn new(stream: RawStream, address: String, told: Arc<Told>) -> Self {
        let scratch = vec![0; READ_BYTES].into_boxed_slice();
        let replies = Replies::new(Limits::replies());
        Self { stream, address, told, replies, input: Vec::new(), scratch }
    }

    /// Reads the replies to all batches, until the queue ends or something fails.
    pub(super) fn run(mut self, queue: &Receiver<Arc<Batch>>) {
        while let Ok(batch) = queue.recv() {
            if let Err(error) = self.answer(&batch) {
                self.told.fail(error);
                self.stream.shutdown();
                return;
            }
        }
    }

    fn answer(&mut self, batch: &Batch) -> Result<(), TargetError> {
        let mut accepted = 0;
        let outcome = batch.starts.iter().try_for_each(|start| {
            let frame = self.receive()?;
            if let Some(answer) = &batch.answer {
                let _ = answer.send(frame); // nobody waits any more: it has failed
                return Ok(());
            }
            match frame.error() {
                None => accepted += 1,
                Some(reply) => {
                    self.refused(reply, batch.bytes.get(*start..).unwrap_or_default())?
                }
            }
            Ok(())
        });
        self.told.accepted.fetch_add(accepted, Ordering::Relaxed);
        outcome
    }

    fn refused(&self, reply: &[u8], command: &[u8]) -> Result<(), TargetError> {
        let key = second_word(command);
        let code = reply.split(|byte| *byte == b' ').next().unwrap_or_default();
        let reply = reply.escape_ascii().to_string();
        if SINGLE.contains(&code) {
            self.told.news().refused.add(&format!("refused by the server ({reply})"), key);
            return Ok(());
        }
        Err(TargetError::Refused { address: self.address.clone(), reply, key: shown(key) })
    }

    fn receive(&mut self) -> Result<Frame, TargetError> {
        loop {
            let decoded = self.replies.decode(&self.input).map_err(|cause| {
                TargetError::Failed { address: self.address.clone(), cause: cause.to_string() }
            })?;
            match decoded {
                Some(Frame::Push(_)) => {}
                Some(frame) => return Ok(frame.without_attributes()),
                None => self.read().map_err(|cause| TargetError::of(&self.address, &cause))?,
            }
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.input.drain(..self.replies.consume());
        match self.stream.read(&mut self.scratch) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.input.extend_from_slice(&self.scratch[..len]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The second word of a request that this crate has encoded: its key. It may be cut off.
fn second_word(request: &[u8]) -> &[u8] {
    fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, behind) = rest.split_at(end);
        *rest = &behind[1..];
        line.strip_suffix(b"\r")
    }
    fn key(request: &[u8]) -> Option<&[u8]> {
        let mut rest = request;
        line(&mut rest)?; // the count
        line(&mut rest)?; // the name's length
        line(&mut rest)?; // the name
        let len = std::str::from_utf8(line(&mut rest)?.strip_prefix(b"$")?).ok()?;
        rest.get(..len.parse::<usize>().ok()?.min(rest.len()))
    }
    key(request).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key is found in what an encoder wrote, and its absence doesn't matter.
    #[test]
    fn the_key_of_a_request_is_found() {
        let mut bytes = Vec::new();
        nigh_resp::encode::request(&mut bytes, [&b"SET"[..], b"a\r\nb", b"v"]);
        assert_eq!(second_word(&bytes), b"a\r\nb");
        assert_eq!(second_word(b"*1\r\n$8\r\nFLUSHALL\r\n"), b"");
        assert_eq!(second_word(b""), b"");
    }
}
