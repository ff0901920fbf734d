//! Debian's memcached: a process of it, and a client that speaks its text protocol.
//!
//! Invariants:
//! 1. Dropping [`Memcached`] ends the process and removes its folder.
//! 2. The client takes whole replies, and refuses all others than those it asked for.

use super::content::{Content, Key, Sets};
use super::store::{Store, TOGETHER};
use crate::interrupt;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time that it takes to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether it listens.
const POLL: Duration = Duration::from_millis(10);
/// Memory for a key, bytes: more than a record of 16 and 100 takes, whatever its class.
const BYTES_OF_KEY: u64 = 256;

/// A running memcached.
pub(super) struct Memcached {
    process: Child,
    folder: TempDir,
}

impl Memcached {
    /// Starts the program behind the words of `prefix`, with room for the content.
    pub(super) fn start(program: &str, prefix: &[String], content: Content) -> Result<Memcached> {
        let folder = tempfile::Builder::new().prefix("nigh-memcached-").tempdir()?;
        let each = BYTES_OF_KEY + 2 * content.value_bytes as u64;
        let mib = (content.keys * each / (1 << 20) + 64).to_string();
        let mut words = prefix.to_vec();
        words.push(program.to_owned());
        let (name, more) = words.split_first().context("no program")?;
        // As root it wants to be told as whom it runs; as another user it ignores that.
        let process = Command::new(name)
            .args(more)
            .args(["-t", "1", "-u", "root", "-m", &mib, "-s"])
            .arg(folder.path().join("socket"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let mut server = Memcached { process, folder };
        let begin = Instant::now();
        while UnixStream::connect(server.path()).is_err() {
            interrupt::check()?;
            if let Some(status) = server.process.try_wait()? {
                bail!("{program} didn't start ({status})");
            }
            ensure!(begin.elapsed() < PATIENCE, "{program} doesn't listen");
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Result<MemcachedClient> {
        let stream = UnixStream::connect(self.path())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let input = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        Ok(MemcachedClient { stream, input, request: Vec::new(), line: Vec::new() })
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection.
pub(super) struct MemcachedClient {
    stream: UnixStream,
    input: BufReader<UnixStream>,
    request: Vec<u8>,
    line: Vec<u8>,
}

impl MemcachedClient {
    /// Sends what was put together.
    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    fn add_set(&mut self, key: &Key, value: &[u8]) {
        self.request.extend_from_slice(b"set ");
        self.request.extend_from_slice(key);
        let _ = write!(self.request, " 0 0 {}\r\n", value.len());
        self.request.extend_from_slice(value);
        self.request.extend_from_slice(b"\r\n");
    }

    /// A line of a reply, without its end.
    fn next_line(&mut self) -> Result<&[u8]> {
        self.line.clear();
        self.input.read_until(b'\n', &mut self.line)?;
        match self.line.strip_suffix(b"\r\n") {
            Some(line) => Ok(line),
            None => bail!("memcached ended the connection"),
        }
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<()> {
        let line = self.next_line()?;
        let (said, wanted_text) = (String::from_utf8_lossy(line), String::from_utf8_lossy(wanted));
        ensure!(line == wanted, "memcached said {said:?}, not {wanted_text:?}");
        Ok(())
    }

    /// The next value of a reply to `get`, into the buffer; its key, or `None` at the reply's end.
    fn next_value(&mut self, value: &mut Vec<u8>) -> Result<Option<Key>> {
        let line = self.next_line()?;
        if line == b"END" {
            return Ok(None);
        }
        // VALUE <key> <flags> <bytes>
        let mut words = line.split(|byte| *byte == b' ');
        let is_value = words.next() == Some(b"VALUE");
        let key: Option<Key> = words.next().and_then(|key| key.try_into().ok());
        let bytes = words.nth(1).and_then(|bytes| str::from_utf8(bytes).ok()?.parse().ok());
        let (true, Some(key), Some(bytes)) = (is_value, key, bytes) else {
            bail!("memcached said {:?}", String::from_utf8_lossy(line));
        };
        value.resize(bytes, 0);
        self.input.read_exact(value)?;
        let mut end = [0; 2];
        self.input.read_exact(&mut end)?;
        ensure!(end == *b"\r\n", "memcached sent a value without an end");
        Ok(Some(key))
    }
}

impl Store for MemcachedClient {
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<bool> {
        self.request.extend_from_slice(b"get ");
        self.request.extend_from_slice(key);
        self.request.extend_from_slice(b"\r\n");
        self.send()?;
        match self.next_value(value)? {
            None => Ok(false),
            Some(_) => self.expect(b"END").map(|()| true),
        }
    }

    fn get_all(
        &mut self,
        keys: &[Key; TOGETHER],
        mut see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        self.request.extend_from_slice(b"get");
        for key in keys {
            self.request.push(b' ');
            self.request.extend_from_slice(key);
        }
        self.request.extend_from_slice(b"\r\n");
        self.send()?;
        // A key that isn't there has no line.
        let (mut value, mut at) = (Vec::new(), 0);
        while let Some(found) = self.next_value(&mut value)? {
            while at < TOGETHER && keys[at] != found {
                see(at, None)?;
                at += 1;
            }
            ensure!(at < TOGETHER, "memcached sent a key that nobody asked for");
            see(at, Some(&value))?;
            at += 1;
        }
        (at..TOGETHER).try_for_each(|at| see(at, None))
    }

    fn set(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.add_set(key, value);
        self.send()?;
        self.expect(b"STORED")
    }

    fn set_all(&mut self, sets: &Sets) -> Result<()> {
        /// Requests between two reads of replies: neither side's socket is ever full.
        const PIECE: usize = 256;
        let mut waiting = 0;
        for (key, value) in sets.pairs() {
            self.add_set(key, value);
            waiting += 1;
            if waiting == PIECE {
                self.send()?;
                (0..waiting).try_for_each(|_| self.expect(b"STORED"))?;
                waiting = 0;
            }
        }
        self.send()?;
        (0..waiting).try_for_each(|_| self.expect(b"STORED"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::KEY_BYTES;
    use super::*;

    /// A client whose server says this.
    fn hearing(said: &[u8]) -> (MemcachedClient, UnixStream) {
        let (stream, mut server) = UnixStream::pair().expect("a pair");
        server.write_all(said).expect("room");
        let input = BufReader::new(stream.try_clone().expect("a copy"));
        (MemcachedClient { stream, input, request: Vec::new(), line: Vec::new() }, server)
    }

    fn key(last: u8) -> Key {
        let mut key = [b'k'; KEY_BYTES];
        key[KEY_BYTES - 1] = last;
        key
    }

    /// Values come by their keys, and keys without a value are shown as such; other replies are
    /// errors.
    #[test]
    fn replies_are_read_whole_and_others_refused() {
        let keys: [Key; TOGETHER] =
            std::array::from_fn(|at| key(b'a' + u8::try_from(at).expect("few")));
        let said =
            "VALUE kkkkkkkkkkkkkkkb 0 3\r\nEN\r\r\nVALUE kkkkkkkkkkkkkkkd 0 0\r\n\r\nEND\r\n";
        let (mut client, _server) = hearing(said.as_bytes());
        let mut seen = Vec::new();
        let see = |at, value: Option<&[u8]>| {
            seen.push((at, value.map(<[u8]>::to_vec)));
            Ok(())
        };
        client.get_all(&keys, see).expect("a reply");
        assert_eq!(seen.len(), TOGETHER);
        let there: Vec<_> = seen.iter().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(there, [&(1, Some(b"EN\r".to_vec())), &(3, Some(Vec::new()))]);
        let (mut client, _server) = hearing(b"END\r\nSTORED\r\nSERVER_ERROR out of memory\r\n");
        assert!(!client.get(&key(b'a'), &mut Vec::new()).expect("a reply"));
        client.set(&key(b'a'), b"v").expect("stored");
        let error = client.set(&key(b'a'), b"v").expect_err("refused").to_string();
        assert!(error.contains("out of memory"), "{error}");
        let (mut client, server) = hearing(b"VALUE kkkkkkkkkkkkkkka 0 9\r\nabc");
        drop(server);
        assert!(client.get(&key(b'a'), &mut Vec::new()).is_err(), "half a value");
    }
}
