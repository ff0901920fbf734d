//! A worker: it applies the events that come to their sessions, and keeps nothing itself.
//!
//! ```text
//! event ──> WATCH ─ read the session (Nigh: from memory) ─ apply ─ MULTI SET EXEC ──> answer
//!                        ^ another worker has changed it meanwhile │ └ it was applied before: answer
//!                        └─────────────────────────────────────────┘
//! ```
//!
//! 1. All state is in the store. A worker can be killed at any moment; another one reads where it
//!    stopped.
//! 2. An update counts only if the session is as it was read. So a worker that was taken for dead,
//!    or whose last write comes late, overwrites nothing.
//! 3. A worker that gets no reply doesn't know whether its update has happened. It answers nothing,
//!    and ends; the next worker reads what is there, and the event's number tells.
//! 4. It attaches once: a WATCH holds until the EXEC behind it, or the worker ends.

use crate::session::{Event, Session, Step, key};
use crate::wire::{Answer, FRAME_BYTES};
use anyhow::{Context, Result, bail, ensure};
use nigh_client::{Address, Client, ClientOptions, LocalUse};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Most tries at one update: each fails only if another worker has changed the session meanwhile,
/// and a session has one worker, but for moments.
const TRIES: u32 = 100;

/// Serves the driver at the other end of standard input, until it hangs up.
pub(crate) fn run(server: &Address, local: LocalUse) -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    let mut socket = UnixStream::from(socket);
    let options = ClientOptions { local, attach_once: true, ..ClientOptions::default() };
    let mut client = Client::connect_with(server, options)?;
    let mut events = BufReader::new(socket.try_clone()?);
    let mut answers = Answer::Ready.to_frame().to_vec();
    let mut value = Vec::new();
    loop {
        if events.buffer().len() < FRAME_BYTES {
            // What is done is told before the worker waits.
            socket.write_all(&answers).context("the driver is gone")?;
            answers.clear();
        }
        let mut frame = [0; FRAME_BYTES];
        match events.read_exact(&mut frame) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error).context("can't read events"),
        }
        let event = Event::of_frame(&frame)?;
        let begin = Instant::now();
        let step = update(&mut client, &event, &mut value)?;
        let took_ns = u64::try_from(begin.elapsed().as_nanos())?;
        let Event { session, seq, .. } = event;
        answers.extend_from_slice(&Answer::Of { session, seq, step, took_ns }.to_frame());
    }
}

/// Applies an event to its session, whoever else does so meanwhile.
fn update(client: &mut Client, event: &Event, value: &mut Vec<u8>) -> Result<Step> {
    let key = key(event.session);
    for _ in 0..TRIES {
        let mut session = match read_watched(client, key.as_bytes(), value)? {
            true => Session::read(value)?,
            false => Session::default(),
        };
        let step = session.apply(event);
        if step != Step::Done {
            client.call(&[b"UNWATCH"])?;
            return Ok(step);
        }
        if write_watched(client, key.as_bytes(), &session)? {
            return Ok(Step::Done);
        }
    }
    bail!("{key} was changed by others {TRIES} times in a row")
}

/// Reads a session that is watched from before. Whether it is there.
fn read_watched(client: &mut Client, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
    let watch: [&[u8]; 2] = [b"WATCH", key];
    if client.is_local() {
        let reply = client.call(&watch)?;
        ensure!(reply.error().is_none(), "WATCH was refused: {reply:?}");
        return Ok(client.get_into(key, value)?);
    }
    // By requests both go together.
    let replies = client.pipeline([watch, [b"GET", key]])?;
    let refused = replies.iter().find(|reply| reply.error().is_some());
    ensure!(refused.is_none(), "a session can't be read: {refused:?}");
    let found = replies[1].bytes();
    value.clear();
    value.extend_from_slice(found.unwrap_or_default());
    Ok(found.is_some())
}

/// Writes a session if it is as it was read. Whether it was.
fn write_watched(client: &mut Client, key: &[u8], session: &Session) -> Result<bool> {
    let text = session.to_string();
    let requests: [&[&[u8]]; 3] = [&[b"MULTI"], &[b"SET", key, text.as_bytes()], &[b"EXEC"]];
    let replies = client.pipeline(requests)?;
    let ran = &replies[2];
    if ran.is_null() {
        return Ok(false);
    }
    let is_set = ran.elements().is_some_and(|it| it.len() == 1 && it[0].error().is_none());
    ensure!(is_set, "a session can't be written: {replies:?}");
    Ok(true)
}
