//! What a key holds by what a writer knows, and by what a server says.

use super::load::bytes;
use nigh_client::Frame;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest life of a brief key, ms: some expire with the server's end, others under its successor.
pub(crate) const BRIEF_MS: u64 = 1500;
/// The other expiry, ms.
pub(crate) const HOUR_MS: u64 = 3_600_000;
/// Most difference of the server's clock and ours, with a turn of a busy machine, ms.
const SLACK_MS: u64 = 300;

/// Number and length of a write, from which all its bytes follow.
pub(crate) type Part = (u64, usize);

/// A key's value: parts in order, and the expiry (0: none).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) parts: Vec<Part>,
    pub(crate) expiry_ms: u64,
}

/// A server's answer about a key.
pub(crate) struct Found {
    pub(crate) data: Frame,
    /// It was read between these.
    pub(crate) read_ms: (u64, u64),
    /// `None`: it wasn't asked for, or there is no such key.
    pub(crate) expiry_ms: Option<u64>,
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_millis()).expect("before the end of time")
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.1).sum()
    }

    fn is(&self, data: &[u8]) -> bool {
        if data.len() != self.len() {
            return false;
        }
        let mut rest = data;
        self.parts.iter().all(|part| {
            let (begin, behind) = rest.split_at(part.1);
            rest = behind;
            begin == bytes(*part)
        })
    }
}

impl Found {
    /// Whether a key that should hold this may be found so. A brief one may be over, or must be if
    /// it was long ago.
    pub(crate) fn is(&self, held: &Option<Held>) -> bool {
        let (Some(held), Frame::Bulk(data)) = (held, &self.data) else {
            let may_be_over =
                |held: &Held| held.expiry_ms != 0 && held.expiry_ms < self.read_ms.1 + SLACK_MS;
            return self.data.is_null() && held.as_ref().is_none_or(may_be_over);
        };
        let is_over = held.expiry_ms != 0 && held.expiry_ms + SLACK_MS < self.read_ms.0;
        !is_over && held.is(data) && self.expiry_ms.is_none_or(|expiry| expiry == held.expiry_ms)
    }

    pub(crate) fn tell(&self) -> String {
        let bytes = self.data.bytes();
        let begin = bytes.map(|it| String::from_utf8_lossy(&it[..it.len().min(24)]).into_owned());
        format!("{:?} bytes {begin:?}, expiry {:?}", bytes.map(<[u8]>::len), self.expiry_ms)
    }
}
