//! The snapshot of a running server, as a replica gets it: one moment of all its data.
//!
//! ```text
//! REPLCONF capa eof ─> PSYNC ? -1 ─> +FULLRESYNC … ─> $length RDB
//!                                                  └> $EOF:mark RDB mark
//! ```
//!
//! The server makes the snapshot as for any replica; what changes behind it isn't taken.
//!
//! Source: `src/replication.c` of Redis 7.2.

use std::io::{self, Read, Write};
use std::time::Duration;

use nigh_client::{Address, ClientError, Connection, ConnectionOptions, RawStream};

use crate::fault::ImportError;
use crate::source::{Input, SourceError};

/// A server that makes a snapshot says each second or so that it is still there.
const SILENCE: Duration = Duration::from_secs(60);
/// What helps if it can't do that.
const REFUSED_HINT: &str = "; import a file of it instead, which SAVE or BGSAVE writes (of a Nigh \
                            server: what `nigh export` gives to `redis-cli --pipe`)";
/// Longest line of an answer.
const LINE_BYTES: usize = 4096;
/// Bytes of the mark behind a snapshot of unknown length.
const MARK_BYTES: usize = 40;

/// The socket of a source, whose silence is told in words.
pub(crate) struct Source(RawStream);

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::other(format!("the server was silent for {} s", SILENCE.as_secs()))
            }
            _ => error,
        })
    }
}

/// How the snapshot ends.
enum Ending {
    Length(u64),
    Mark(Vec<u8>),
}

/// A snapshot that is arriving.
pub(crate) struct Snapshot {
    ending: Ending,
}

impl Snapshot {
    /// Asks for a snapshot. The input's next byte is the RDB's first.
    pub(crate) fn ask(
        address: &Address,
        password: Option<&str>,
    ) -> Result<(Self, Input<Source>), ImportError> {
        let failed = |cause: String| ImportError::Server { name: address.to_string(), cause };
        let options = ConnectionOptions {
            password: password.filter(|_| address.password.is_none()).map(str::to_owned),
            timeout: Some(SILENCE),
            ..ConnectionOptions::default()
        };
        // Their own texts say how to start a server of ours, and name the flag of another server.
        let named = |error| match error {
            ClientError::NothingListens { address } => ImportError::NoSource { address },
            ClientError::PasswordNeeded { address } => {
                ImportError::SourcePasswordNeeded { address }
            }
            other => ImportError::Client(other),
        };
        let mut connection = Connection::connect(address, &options).map_err(named)?;
        // An old server that doesn't know it sends a length instead of a mark.
        let answer = connection.call(["REPLCONF", "capa", "eof", "capa", "psync2"])?;
        if answer.error().is_some_and(|text| text.starts_with(b"NOAUTH")) {
            return Err(ImportError::SourcePasswordNeeded { address: address.to_string() });
        }
        let mut stream = connection.into_raw();
        let mut request = Vec::new();
        nigh_resp::encode::request(&mut request, ["PSYNC", "?", "-1"]);
        stream.write_all(&request).map_err(|error| failed(error.to_string()))?;
        let mut input = Input::new(Source(stream), 0);
        let answer = line(&mut input).map_err(|error| failed(error.to_string()))?;
        if !answer.starts_with(b"+FULLRESYNC") {
            let is_unknown = answer.starts_with(b"-ERR unknown") || answer.starts_with(b"-NOPERM");
            let hint = if is_unknown { REFUSED_HINT } else { "" };
            let answer = String::from_utf8_lossy(&answer);
            let answer: String = answer.chars().filter(|it| !it.is_control()).collect();
            let answer = answer.trim_start_matches('-').trim_end();
            return Err(failed(format!(
                "it refuses PSYNC, by which replicas copy: {answer}{hint}"
            )));
        }
        let head = line(&mut input).map_err(|error| failed(error.to_string()))?;
        let Some(ending) = ending_of(&head) else {
            return Err(failed(format!("it announced no snapshot: {}", head.escape_ascii())));
        };
        input.restart_offset();
        Ok((Self { ending }, input))
    }

    /// Bytes of the snapshot, if the server knows.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self.ending {
            Ending::Length(bytes) => Some(bytes),
            Ending::Mark(_) => None,
        }
    }

    /// Looks whether the RDB, which has ended, was all of it.
    pub(crate) fn check_end(&self, input: &mut Input<Source>) -> Result<(), SourceError> {
        match &self.ending {
            Ending::Length(bytes) if *bytes == input.offset() => Ok(()),
            Ending::Length(bytes) => {
                Err(input.malformed(format!("the RDB ends, and {bytes} bytes were announced")))
            }
            Ending::Mark(mark) => {
                let found: [u8; MARK_BYTES] = input.array("the mark behind the snapshot")?;
                if found.as_slice() == mark.as_slice() {
                    return Ok(());
                }
                Err(input.malformed("the RDB ends, and another mark follows than was announced"))
            }
        }
    }
}

/// The next line that isn't empty: empty ones say that the server is still there.
fn line(input: &mut Input<Source>) -> Result<Vec<u8>, SourceError> {
    let mut line = Vec::new();
    while line.is_empty() {
        input.line(LINE_BYTES, "an answer", &mut line)?;
    }
    Ok(line)
}

fn ending_of(head: &[u8]) -> Option<Ending> {
    let rest = head.strip_prefix(b"$")?;
    if let Some(mark) = rest.strip_prefix(b"EOF:") {
        return (mark.len() == MARK_BYTES).then(|| Ending::Mark(mark.to_vec()));
    }
    std::str::from_utf8(rest).ok()?.parse().ok().map(Ending::Length)
}
