//! Commands that tell changes.
//!
//! Only this process writes, so the changes are those of the lines of this shell, and keys whose
//! time is over. That is why a watch doesn't hold the shell up: `watch` begins, `events` shows.

use super::arguments;
use super::session::Session;
use crate::output::Output;
use crate::render;
use anyhow::{Context, Result};
use nigh::WatchEvent;
use nigh_client::Frame;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// A change is told some milliseconds after it was made: so long `events` waits for late ones.
const LATE: Duration = Duration::from_millis(50);
/// How often a wait looks for Ctrl-C.
const STEP: Duration = Duration::from_millis(100);

/// `watch [PREFIX]`: in place of the watch before.
pub(super) fn watch(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let prefix = words.first().map_or(&b""[..], Vec::as_slice);
    session.watch = Some(session.owner()?.watch(prefix)?);
    Ok(Frame::Simple(b"OK".to_vec()))
}

/// `events [COUNT]`: those that have come; or so many, unless Ctrl-C comes before.
pub(super) fn events(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    session.owner()?;
    let watch = session.watch.as_ref().context("nothing is watched: write watch PREFIX first")?;
    let count = words.first().map(|word| arguments::count(word)).transpose()?;
    let mut shown = 0;
    session.interrupt.during(|| {
        let time = if count.is_some() { STEP } else { LATE };
        let event = watch.next_within(time)?;
        if let Some(event) = &event {
            writeln!(Output::new(), "{}", line_of(event))?;
            shown += 1;
        }
        Ok(count.map_or(event.is_none(), |count| shown == count))
    })?;
    Ok(Frame::Simple(format!("{shown} events").into()))
}

/// An event as a line.
fn line_of(event: &WatchEvent) -> String {
    let quoted = |bytes: &[u8]| render::formatted(&Frame::Bulk(bytes.to_vec()));
    let change = event.change();
    match event {
        WatchEvent::Put { key, value, expires_at, .. } => {
            let (key, value) = (quoted(key), quoted(value));
            format!("change {change}: put {key} {value}{}", left(*expires_at))
        }
        WatchEvent::Expires { key, expires_at: None, .. } => {
            format!("change {change}: {} stays for good", quoted(key))
        }
        WatchEvent::Expires { key, expires_at, .. } => {
            format!("change {change}: expire {}{}", quoted(key), left(*expires_at))
        }
        WatchEvent::Removed { key, .. } => format!("change {change}: removed {}", quoted(key)),
        WatchEvent::Lost { first, last, partition } => {
            let which = format!("changes {first} to {last} of partition {partition}");
            format!("{which} may be missing: read the keys again")
        }
        _ => format!("change {change}: all keys were removed"),
    }
}

/// How long a key stays.
fn left(expires_at: Option<SystemTime>) -> String {
    let Some(at) = expires_at else { return String::new() };
    let left = at.duration_since(SystemTime::now()).unwrap_or_default();
    format!(" for {:.1} s", left.as_secs_f64())
}
