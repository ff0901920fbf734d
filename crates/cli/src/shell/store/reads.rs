//! Commands that read.

use super::arguments;
use super::session::{OpenStore, Session};
use crate::output::tell;
use anyhow::Result;
use nigh::TimeToLive;
use nigh_client::Frame;

/// Keys that `scan` shows if no count is given.
const SCAN_COUNT: u32 = 20;
/// Keys of a step of a walk that only counts.
const STEP: u32 = 1000;

/// A count as a reply.
pub(super) fn integer(number: u64) -> Frame {
    Frame::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `get KEY...`: several are read at one moment.
pub(super) fn get(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let keys: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let values: Vec<Option<Vec<u8>>> = match &session.store {
        OpenStore::Owner(db) => {
            let lent = db.multi_get(&keys)?;
            lent.into_iter().map(|value| value.map(|it| it.to_vec())).collect()
        }
        OpenStore::Reader(reader) => reader.multi_get(&keys)?,
    };
    let mut replies: Vec<Frame> =
        values.into_iter().map(|value| value.map_or(Frame::Null, Frame::Bulk)).collect();
    Ok(if replies.len() == 1 { replies.remove(0) } else { Frame::Array(replies) })
}

/// `ttl KEY`.
pub(super) fn ttl(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let life = match &session.store {
        OpenStore::Owner(db) => db.ttl(&words[0])?,
        OpenStore::Reader(reader) => reader.ttl(&words[0])?,
    };
    Ok(match life {
        None => Frame::Null,
        Some(TimeToLive::Forever) => Frame::Simple(b"forever".to_vec()),
        Some(TimeToLive::Left(time)) => {
            Frame::Simple(format!("{:.3} s", time.as_secs_f64()).into())
        }
    })
}

/// A step of a walk, by the database or a reader of it.
fn scan_step(
    session: &Session,
    prefix: &[u8],
    cursor: u64,
    count: u32,
    found: impl FnMut(&[u8], &[u8]),
) -> Result<u64> {
    Ok(match &session.store {
        OpenStore::Owner(db) => db.scan(prefix, cursor, count, found)?,
        OpenStore::Reader(reader) => reader.scan(prefix, cursor, count, found)?,
    })
}

/// `scan [PREFIX] [COUNT]`: keys and values, in no order.
pub(super) fn scan(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let prefix = words.first().map_or(&b""[..], Vec::as_slice);
    let count = words.get(1).map_or(Ok(SCAN_COUNT), |word| arguments::count(word))?;
    let most = count as usize;
    let (mut pairs, mut cursor) = (Vec::new(), 0);
    loop {
        let left = u32::try_from(most - pairs.len()).unwrap_or(count);
        cursor = scan_step(session, prefix, cursor, left, |key, value| {
            pairs.push((Frame::Bulk(key.to_vec()), Frame::Bulk(value.to_vec())));
        })?;
        if cursor == 0 || pairs.len() >= most {
            break;
        }
    }
    if cursor != 0 || pairs.len() > most {
        tell!("(there are more keys: a greater COUNT shows them)");
    }
    pairs.truncate(most);
    Ok(Frame::Map(pairs))
}

/// `count [PREFIX]`.
pub(super) fn count(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let prefix = words.first().map_or(&b""[..], Vec::as_slice);
    let (mut keys, mut cursor) = (0, 0);
    loop {
        cursor = scan_step(session, prefix, cursor, STEP, |_, _| keys += 1)?;
        if cursor == 0 {
            return Ok(integer(keys));
        }
    }
}

/// `snapshot count [PREFIX]`: as of one moment.
pub(super) fn snapshot(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    if !words[0].eq_ignore_ascii_case(b"count") {
        let word = String::from_utf8_lossy(&words[0]);
        anyhow::bail!("`{word}` is nothing that is done with a snapshot: write snapshot count");
    }
    let prefix = words.get(1).map_or(&b""[..], Vec::as_slice);
    let mut snapshot = session.owner()?.snapshot_of(prefix)?;
    let (mut key, mut value, mut keys) = (Vec::new(), Vec::new(), 0);
    while snapshot.next_into(&mut key, &mut value)? {
        keys += 1;
    }
    Ok(integer(keys))
}

/// `stats`.
pub(super) fn stats(session: &mut Session, _: &[Vec<u8>]) -> Result<Frame> {
    let stats = session.owner()?.stats()?;
    let rows = [
        ("keys", stats.keys),
        ("expires", stats.expires),
        ("expired_keys", stats.expired_keys),
        ("used_bytes", stats.used_bytes),
        ("memory_bytes", stats.memory_bytes),
        ("capacity_bytes", stats.capacity_bytes),
        ("last_change", stats.last_change),
        ("durable_change", stats.durable_change),
        ("log_bytes", stats.log_bytes),
        ("syncs", stats.syncs),
    ];
    let pair = |(name, number): (&str, u64)| (Frame::Simple(name.into()), integer(number));
    Ok(Frame::Map(rows.map(pair).into()))
}
