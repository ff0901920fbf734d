//! Writes all strings of a running server as RESP commands.
//!
//! ```text
//! SCAN ─> page of keys ─> PEXPIRETIME, GET, PEXPIRETIME of each ─> SET key value [PXAT ms]
//! ```
//!
//! 1. It isn't one moment: the guarantee is SCAN's. Each key that is there from begin to end comes
//!    at least once, with a value that it had meanwhile.
//! 2. Value and expiry belong together: the expiry was the same before and behind the value's
//!    reading, or the key is read again, at last in a transaction.
//! 3. Memory: a page of keys and one value.

use std::io::{self, Write};

use nigh_client::{ClientError, Connection, Frame};

use crate::left_out::LeftOut;

/// Keys of a page.
const PAGE_KEYS: &str = "1000";

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output can't be written.
    #[error("can't write: {0}")]
    Write(#[from] io::Error),
    /// The server refused a command, or answered something else than was asked for.
    #[error("{address} answered {command} by {reply}")]
    Answer {
        /// The server.
        address: String,
        /// The command.
        command: &'static str,
        /// Its reply.
        reply: String,
    },
}

/// What was exported.
#[derive(Clone, Debug, Default)]
pub struct Exported {
    /// Commands written: one for each key. (A key that SCAN gives twice comes twice.)
    pub keys: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Keys that went between SCAN and the reading.
    pub gone: u64,
    /// Keys of other types, if the server has such.
    pub left_out: LeftOut,
}

/// What was read of a key.
enum Look {
    /// Value, and expiry in Unix ms.
    There(Vec<u8>, Option<i64>),
    /// No string.
    OtherType,
    /// The key isn't there.
    Gone,
    /// It changed meanwhile.
    Unsure,
}

/// Exports all strings. `progress` is told what was written, after each page.
///
/// # Errors
/// An [`ExportError`]; what was written before is no whole export.
pub fn export(
    connection: &mut Connection,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(&Exported),
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let mut line = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply =
            connection.call([b"SCAN".as_slice(), &cursor, b"COUNT", PAGE_KEYS.as_bytes()])?;
        let Some((next, keys)) = page_of(&reply) else {
            return Err(wrong(connection, "SCAN", &reply));
        };
        cursor = next.to_vec();
        let mut unsure = Vec::new();
        look_at(connection, &keys, &mut |key, look| {
            if matches!(look, Look::Unsure) {
                unsure.push(key.to_vec());
                return Ok(());
            }
            write_key(key, &look, out, &mut line, &mut exported)
        })?;
        for key in unsure {
            let look = look_at_once(connection, &key)?;
            write_key(&key, &look, out, &mut line, &mut exported)?;
        }
        progress(&exported);
        if cursor == b"0" {
            return Ok(exported);
        }
    }
}

fn page_of(reply: &Frame) -> Option<(&[u8], Vec<&[u8]>)> {
    let [next, page] = reply.elements()? else { return None };
    let keys = page.elements()?.iter().map(Frame::bytes).collect::<Option<Vec<_>>>()?;
    Some((next.bytes()?, keys))
}

fn wrong(connection: &Connection, command: &'static str, reply: &Frame) -> ExportError {
    let reply = match reply.error() {
        Some(text) => text.escape_ascii().to_string(),
        None => format!("{reply:?}").chars().take(200).collect(),
    };
    ExportError::Answer { address: connection.address().to_string(), command, reply }
}

/// Reads keys in a pipeline, and hands out each as its replies come.
fn look_at(
    connection: &mut Connection,
    keys: &[&[u8]],
    each: &mut impl FnMut(&[u8], Look) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let commands = keys.iter().flat_map(|key| {
        [[b"PEXPIRETIME".as_slice(), key], [b"GET".as_slice(), key], [b"PEXPIRETIME", key]]
    });
    let (mut replies, mut at) = (Vec::with_capacity(3), 0);
    let mut outcome = Ok(());
    let mut odd = None;
    connection.pipeline_each(commands, |frame| {
        replies.push(frame);
        if replies.len() < 3 {
            return;
        }
        let (behind, value, before) = (replies.pop(), replies.pop(), replies.pop());
        let key = keys.get(at).copied().unwrap_or_default();
        at += 1;
        if outcome.is_err() || odd.is_some() {
            return;
        }
        match [before, value, behind].map(|frame| frame.unwrap_or(Frame::Null)) {
            [Frame::Integer(before), value, Frame::Integer(behind)] => {
                match look_of(before, value, behind) {
                    Ok(look) => outcome = each(key, look),
                    Err(reply) => odd = Some(reply),
                }
            }
            [other, ..] => odd = Some(other),
        }
    })?;
    match odd {
        Some(reply) => Err(wrong(connection, "GET or PEXPIRETIME", &reply)),
        None => outcome,
    }
}

/// Puts the replies together; an `Err` has a reply that isn't one.
fn look_of(before: i64, value: Frame, behind: i64) -> Result<Look, Frame> {
    Ok(match value {
        Frame::Bulk(value) if before == behind && before != -2 => {
            Look::There(value, (before >= 0).then_some(before))
        }
        Frame::Bulk(_) => Look::Unsure,
        Frame::Null if behind == -2 => Look::Gone,
        Frame::Null => Look::Unsure,
        other if other.error().is_some_and(|text| text.starts_with(b"WRONGTYPE")) => {
            Look::OtherType
        }
        other => return Err(other),
    })
}

/// Reads one key in a transaction.
fn look_at_once(connection: &mut Connection, key: &[u8]) -> Result<Look, ExportError> {
    let commands: [&[&[u8]]; 4] = [&[b"MULTI"], &[b"GET", key], &[b"PEXPIRETIME", key], &[b"EXEC"]];
    let mut replies = connection.pipeline(commands)?;
    let Some(Frame::Array(pair)) = replies.pop() else {
        let reply = replies.pop().unwrap_or(Frame::Null);
        return Err(wrong(connection, "EXEC", &reply));
    };
    match <[Frame; 2]>::try_from(pair) {
        Ok([Frame::Null, Frame::Integer(-2)]) => Ok(Look::Gone),
        Ok([value, Frame::Integer(expiry)]) => {
            look_of(expiry, value, expiry).map_err(|reply| wrong(connection, "GET", &reply))
        }
        _ => Err(wrong(connection, "EXEC", &Frame::Null)),
    }
}

fn write_key(
    key: &[u8],
    look: &Look,
    out: &mut dyn Write,
    line: &mut Vec<u8>,
    exported: &mut Exported,
) -> Result<(), ExportError> {
    let (value, expiry) = match look {
        Look::There(value, expiry) => (value, expiry),
        Look::OtherType => {
            exported.left_out.add("keys that are no strings", key);
            return Ok(());
        }
        Look::Gone | Look::Unsure => {
            exported.gone += 1;
            return Ok(());
        }
    };
    line.clear();
    nigh_resp::encode::array(line, if expiry.is_some() { 5 } else { 3 });
    nigh_resp::encode::bulk(line, b"SET");
    nigh_resp::encode::bulk(line, key);
    nigh_resp::encode::bulk_header(line, value.len());
    let head = line.len();
    line.extend_from_slice(nigh_resp::encode::CRLF);
    if let Some(expiry) = expiry {
        nigh_resp::encode::bulk(line, b"PXAT");
        nigh_resp::encode::bulk_integer(line, *expiry);
    }
    out.write_all(&line[..head])?;
    out.write_all(value)?;
    out.write_all(&line[head..])?;
    exported.keys += 1;
    exported.bytes += (line.len() + value.len()) as u64;
    Ok(())
}
