//! Walks over a server's keys.
//!
//! 1. Memory and SCAN have the same cursors, so a walk may go from one to the other.
//!
//! Any thread that has the interpreter's lock.

use crate::errors;
use crate::open_client::OpenClient;
use crate::walk::Steps;
use nigh_client::Frame;
use pyo3::prelude::*;
use std::sync::Arc;

/// The keys that match a pattern, or all.
pub(crate) struct KeyWalk {
    open: Arc<OpenClient>,
    pattern: Option<Vec<u8>>,
}

impl KeyWalk {
    pub(crate) fn new(open: Arc<OpenClient>, pattern: Option<Vec<u8>>) -> KeyWalk {
        KeyWalk { open, pattern }
    }
}

/// What the keys begin with that match a pattern, if no more is asked of them.
fn prefix_of(pattern: &[u8]) -> Option<&[u8]> {
    let prefix = pattern.strip_suffix(b"*")?;
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
    (!prefix.iter().any(is_special)).then_some(prefix)
}

impl Steps for KeyWalk {
    fn step(
        &self,
        py: Python<'_>,
        _prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> PyResult<u64> {
        let prefix = self.pattern.as_deref().map_or(Some(&b""[..]), prefix_of);
        if let Some(prefix) = prefix {
            let next = self.open.at_once(|client, _| {
                client.scan(prefix, cursor, count, |key, _| found(key, b""))
            })?;
            if let Some(next) = next {
                return Ok(next);
            }
        }
        let (at, most) = (cursor.to_string(), count.to_string());
        let mut words = vec![&b"SCAN"[..], at.as_bytes(), b"COUNT", most.as_bytes()];
        if let Some(pattern) = &self.pattern {
            words.extend([&b"MATCH"[..], pattern]);
        }
        let reply = self.open.ask(py, &words)?;
        read_step(&reply, found).ok_or_else(|| errors::unexpected(self.open.address(), "SCAN"))
    }
}

/// The next cursor of a reply to SCAN, whose keys are passed on.
fn read_step(reply: &Frame, found: &mut dyn FnMut(&[u8], &[u8])) -> Option<u64> {
    let [next, keys] = reply.elements()? else { return None };
    let next = std::str::from_utf8(next.bytes()?).ok()?.parse().ok()?;
    for key in keys.elements()? {
        found(key.bytes()?, b"");
    }
    Some(next)
}
