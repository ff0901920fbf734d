//! Why expiries are put off while an AOF is applied.
//!
//! Redis expires nothing while it loads an AOF: a key whose expiry is past may get a later one by a
//! later command. A running server would remove it at once, and the later command would find
//! nothing. So each expiry is sent [`SHIFT_MS`] later, and brought back when all is applied.
//!
//! 1. Brought back are all expiries from `SHIFT_MS` on. No clock is near: that is the year 37,000.
//! 2. Keys that are over then are removed, and counted.

use std::sync::atomic::{AtomicBool, Ordering};

use nigh_client::Connection;

use crate::fault::ImportError;

/// What is added to an expiry, in ms.
pub(super) const SHIFT_MS: i64 = 1 << 50;
/// Keys of one step.
const PAGE_KEYS: &str = "1000";

/// An expiry of a source, put off.
pub(super) fn put_off(expiry_ms: i64) -> i64 {
    SHIFT_MS + expiry_ms.clamp(0, SHIFT_MS - 1)
}

/// Gives all keys their expiries, and removes those that are over at `now_ms`. Returns how many.
pub(crate) fn bring_back_expiries(
    connection: &mut Connection,
    now_ms: i64,
    stop: &AtomicBool,
) -> Result<u64, ImportError> {
    let (mut cursor, mut over) = (b"0".to_vec(), 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(ImportError::Interrupted);
        }
        let reply =
            connection.call([b"SCAN".as_slice(), &cursor, b"COUNT", PAGE_KEYS.as_bytes()])?;
        let wrong = || ImportError::Answer {
            address: connection.address().to_string(),
            command: "SCAN",
            reply: format!("{reply:?}").chars().take(200).collect(),
        };
        let [next, page] = reply.elements().ok_or_else(wrong)? else { return Err(wrong()) };
        let keys = page.elements().ok_or_else(wrong)?.iter().filter_map(|key| key.bytes());
        let keys: Vec<_> = keys.collect();
        cursor = next.bytes().ok_or_else(wrong)?.to_vec();
        let asked = keys.iter().map(|key| [b"PEXPIRETIME".as_slice(), key]);
        let expiries = connection.pipeline(asked)?;
        let mut changes = Vec::new();
        for (key, expiry) in keys.iter().zip(&expiries) {
            let Some(expiry) = expiry.integer().filter(|expiry| *expiry >= SHIFT_MS) else {
                continue;
            };
            let expiry = expiry - SHIFT_MS;
            if expiry <= now_ms {
                over += 1;
                changes.push(vec![b"DEL".to_vec(), key.to_vec()]);
            } else {
                let expiry = expiry.to_string().into_bytes();
                changes.push(vec![b"PEXPIREAT".to_vec(), key.to_vec(), expiry]);
            }
        }
        for reply in connection.pipeline(changes)? {
            if let Some(text) = reply.error() {
                return Err(ImportError::Answer {
                    address: connection.address().to_string(),
                    command: "PEXPIREAT",
                    reply: text.escape_ascii().to_string(),
                });
            }
        }
        if cursor == b"0" {
            return Ok(over);
        }
    }
}
