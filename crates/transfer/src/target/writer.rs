//! Sends commands to the server that is filled.
//!
//! ```text
//! begin, word…, end ─> batch ── full ──> queue, then socket
//! a long command    ─> pieces ──────────> socket, then queue
//! ```
//!
//! 1. Memory: [`QUEUE_BATCHES`] batches of about [`BATCH_BYTES`]. A long value passes through in
//!    pieces.
//! 2. Nothing waits for ever: reads and writes have the connection's timeout. A batch is queued
//!    when its bytes are on their way, so that the reader's timeout doesn't run while the source is
//!    slow.
//!
//! One thread writes; [`super::replies`] has the other.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use nigh_client::{Connection, RawStream};
use nigh_resp::frame::Frame;

use super::TargetError;
use super::replies::{Batch, ReplyReader, Told};
use crate::left_out::{LeftOut, shown};

/// Bytes of a batch from which on it is sent.
const BATCH_BYTES: usize = 64 << 10;
/// Batches under way.
const QUEUE_BATCHES: usize = 16;
/// A command that is longer isn't gathered.
const LONG_BYTES: u64 = 64 << 10;

/// What is kept of the beginning of a long command.
const HEAD_BYTES: usize = 512;

/// The server that is filled.
pub(crate) struct Target {
    stream: RawStream,
    address: String,
    batch: Batch,
    /// The present command goes to the socket by `pieces`; `batch` keeps only its beginning.
    is_long: bool,
    /// Where the present command begins in `batch`, while it isn't whole.
    open: Option<usize>,
    pieces: Vec<u8>,
    queue: Option<SyncSender<Arc<Batch>>>,
    reader: Option<JoinHandle<()>>,
    told: Arc<Told>,
}

impl Target {
    /// Takes a connection whose requests are all answered.
    pub(crate) fn new(connection: Connection) -> Result<Self, TargetError> {
        let address = connection.address().to_string();
        let reading = connection.into_raw();
        let stream = reading.try_clone().map_err(|cause| TargetError::of(&address, &cause))?;
        let told = Arc::new(Told::default());
        let (queue, batches) = sync_channel(QUEUE_BATCHES);
        let reader = ReplyReader::new(reading, address.clone(), told.clone());
        let reader = std::thread::Builder::new()
            .name("replies".into())
            .spawn(move || reader.run(&batches))
            .map_err(|cause| TargetError::of(&address, &cause))?;
        let (queue, reader) = (Some(queue), Some(reader));
        let (batch, pieces) = (Batch::default(), Vec::new());
        let (is_long, open) = (false, None);
        Ok(Self { stream, address, batch, is_long, open, pieces, queue, reader, told })
    }

    /// Commands that were accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.told.accepted.load(Ordering::Relaxed)
    }

    /// Begins a command of `words` words with about `bytes` bytes.
    pub(crate) fn begin(&mut self, words: usize, bytes: u64) -> Result<(), TargetError> {
        if bytes > LONG_BYTES || self.batch.bytes.len() >= BATCH_BYTES {
            self.flush()?;
        }
        self.is_long = bytes > LONG_BYTES;
        self.open = Some(self.batch.bytes.len());
        self.batch.starts.push(self.batch.bytes.len());
        self.put(|out| nigh_resp::encode::array(out, words));
        Ok(())
    }

    /// A whole word of the command.
    pub(crate) fn word(&mut self, word: &[u8]) -> Result<(), TargetError> {
        self.word_of(word.len() as u64);
        self.piece(word)?;
        self.word_end();
        Ok(())
    }

    /// Begins a word of `bytes` bytes, which come in pieces.
    pub(crate) fn word_of(&mut self, bytes: u64) {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.put(|out| nigh_resp::encode::bulk_header(out, len));
    }

    /// A piece of the word.
    pub(crate) fn piece(&mut self, piece: &[u8]) -> Result<(), TargetError> {
        for part in piece.chunks(BATCH_BYTES) {
            self.put(|out| out.extend_from_slice(part));
            if self.pieces.len() >= BATCH_BYTES {
                let mut pieces = std::mem::take(&mut self.pieces);
                self.write(&pieces)?;
                pieces.clear();
                self.pieces = pieces;
            }
        }
        Ok(())
    }

    /// Ends the word.
    pub(crate) fn word_end(&mut self) {
        self.put(|out| out.extend_from_slice(nigh_resp::encode::CRLF));
    }

    /// Ends the command.
    pub(crate) fn end(&mut self) -> Result<(), TargetError> {
        self.open = None;
        if !self.is_long {
            return Ok(());
        }
        let pieces = std::mem::take(&mut self.pieces);
        self.write(&pieces)?;
        self.is_long = false;
        self.queue().map(|_| ())
    }

    /// Appends bytes of the command. Of a long one the beginning stays in the batch too: it tells
    /// the key.
    fn put(&mut self, append: impl Fn(&mut Vec<u8>)) {
        if !self.is_long {
            return append(&mut self.batch.bytes);
        }
        append(&mut self.pieces);
        if self.batch.bytes.len() < HEAD_BYTES {
            append(&mut self.batch.bytes);
        }
    }

    /// A whole command.
    pub(crate) fn command<'a>(
        &mut self,
        words: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), TargetError> {
        let bytes = words.clone().map(|word| word.len() as u64).sum();
        self.begin(words.len(), bytes)?;
        for word in words {
            self.word(word)?;
        }
        self.end()
    }

    /// A whole command, and its reply. A refusal is a reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Frame, TargetError> {
        self.flush()?;
        let (answer, answered) = sync_channel(1);
        self.batch.answer = Some(answer);
        self.command(words.iter().copied())?;
        self.flush()?;
        answered.recv().map_err(|_| self.failure())
    }

    /// The error that the server refused what was asked about a key.
    pub(crate) fn refused(&self, reply: &Frame, key: &[u8]) -> TargetError {
        let other = || format!("{reply:?}").chars().take(200).collect();
        let reply = reply.error().map_or_else(other, |text| text.escape_ascii().to_string());
        TargetError::Refused { address: self.address.clone(), reply, key: shown(key) }
    }

    /// Sends what is gathered.
    pub(crate) fn flush(&mut self) -> Result<(), TargetError> {
        if self.batch.starts.is_empty() {
            return Ok(());
        }
        let batch = self.queue()?;
        self.write(&batch.bytes)
    }

    /// Tells the reader that replies to the batch will come.
    fn queue(&mut self) -> Result<Arc<Batch>, TargetError> {
        let batch = Arc::new(std::mem::take(&mut self.batch));
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(batch.clone()).is_ok());
        if sent { Ok(batch) } else { Err(self.failure()) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        if self.told.has_failed.load(Ordering::Acquire) {
            return Err(self.failure());
        }
        self.stream.write_all(bytes).map_err(|cause| {
            // The server may have said why before it closed: the reader knows.
            self.told.failure().unwrap_or_else(|| TargetError::of(&self.address, &cause))
        })
    }

    /// What the reader has met.
    fn failure(&self) -> TargetError {
        let closed = || TargetError::Closed { address: self.address.clone() };
        self.told.failure().unwrap_or_else(closed)
    }

    /// Waits for the replies to all whole commands. Returns how many were accepted, which were
    /// refused, and what failed.
    pub(crate) fn finish(mut self) -> (u64, LeftOut, Result<(), TargetError>) {
        // A command that isn't whole has no reply. Of a long one the batch isn't queued yet.
        if let Some(begin) = self.open.take()
            && !self.is_long
        {
            self.batch.bytes.truncate(begin);
            self.batch.starts.pop();
        }
        let sent = if self.is_long { Ok(()) } else { self.flush() };
        self.queue = None;
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            self.told.fail(TargetError::Failed {
                address: self.address.clone(),
                cause: "the thread that reads replies has panicked".into(),
            });
        }
        let outcome = self.told.failure().map_or(sent, Err);
        (self.accepted(), self.told.take_refused(), outcome)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.queue = None;
        self.stream.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_client::{Address, ConnectionOptions};
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    /// A source that ends within a value ends the import at once, without a timeout too. The part
    /// was sent, and its reply awaited for ever.
    #[test]
    fn a_command_that_is_not_whole_is_neither_sent_nor_awaited() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let mut bytes = [0; 14]; // *1 $4 PING
            stream.read_exact(&mut bytes).expect("a whole command");
            stream.write_all(b"+PONG\r\n").expect("it is open");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).map(|_| rest)
        });
        let address = Address::tcp("127.0.0.1", port);
        let options = ConnectionOptions { timeout: None, ..ConnectionOptions::default() };
        let connection = Connection::connect(&address, &options).expect("it listens");
        let mut target = Target::new(connection).expect("a thread more");
        target.command([&b"PING"[..]].into_iter()).expect("it is open");
        target.begin(3, 10).expect("it is open");
        target.word(b"SET").expect("it is open");
        target.word_of(10);
        target.piece(b"short").expect("it is open");
        let (told, ended) = sync_channel(1);
        std::thread::spawn(move || told.send(target.finish()));
        let ended = ended.recv_timeout(Duration::from_secs(60));
        let (accepted, _, outcome) = ended.expect("it doesn't wait for a reply");
        outcome.expect("nothing failed");
        assert_eq!(accepted, 1);
        assert_eq!(server.join().expect("it didn't panic").unwrap_or_default(), b"");
    }
}
