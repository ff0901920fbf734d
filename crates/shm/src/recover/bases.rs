//! Whether the changes of a stream stand on what is there, found without an arena: for a log of
//! which a part is lost.
//!
//! ```text
//! first pass:  BASED ──> the keys that anything stands on
//! second pass: each change ──> sums compared; the versions of those keys; keys that stand on
//! nothing
//! ```
//!
//! 1. It judges as a replay does: a BASED change needs its source, as that was before the commit,
//!    with base LSN and length; else its key goes. Later changes of the key heal it.
//! 2. A change whose bytes are wrong is refused, and nothing of its commit was noted then.
//! 3. It keeps the keys that others stand on, not all keys.
//!
//! Plain data: any thread.

use crate::format::head::{HEADER_LEN, Head};
use crate::format::layout::record as r;
use crate::format::sum;
use crate::journal::layout::Effect;
use crate::journal::payload::{Payload, StreamChange};
use crate::recover::replay::{Values, checked};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The keys that changes of a stream stand on.
#[derive(Debug, Clone, Default)]
pub struct BaseKeys(HashSet<Vec<u8>>);

impl BaseKeys {
    /// Notes what a change stands on. One whose bytes are wrong is met later.
    pub fn note(&mut self, change: &StreamChange<'_>) {
        if change.effect != Effect::Based {
            return;
        }
        let Ok(it) = Payload::parse(change, false) else { return };
        let source = it.base.and_then(|base| base.source).unwrap_or(it.key);
        if !self.0.contains(source) {
            self.0.insert(source.to_vec());
        }
    }

    /// Nothing of the stream is known yet, and each change of it is about to come.
    #[must_use]
    pub fn watch(self) -> BaseWatch {
        BaseWatch { bases: self.0, versions: HashMap::new(), dangling: BTreeMap::new() }
    }
}

/// A version of a key.
#[derive(Debug, Clone, Copy)]
struct Version {
    lsn: u64,
    len: u32,
    /// The sum of the value.
    sum: u32,
}

/// What the changes of a stream stand on.
#[derive(Debug)]
pub struct BaseWatch {
    bases: HashSet<Vec<u8>>,
    /// The newest versions of those keys.
    versions: HashMap<Vec<u8>, Version>,
    /// Keys that stand on nothing, with the LSN of the change that does.
    dangling: BTreeMap<Vec<u8>, u64>,
}

impl BaseWatch {
    /// Takes the next commit.
    ///
    /// # Errors
    /// What is wrong with its bytes.
    pub fn take(&mut self, changes: &[StreamChange<'_>]) -> Result<(), String> {
        let mut found = Vec::with_capacity(changes.len());
        for change in changes {
            if change.effect == Effect::Clear {
                found.push(None);
                continue;
            }
            let it = checked(change, Values::Given).map_err(|error| error.to_string())?;
            let version = self.version(&it)?;
            found.push(Some((it.key, version)));
        }
        for (change, found) in changes.iter().zip(found) {
            match found {
                None => {
                    self.versions.clear();
                    self.dangling.clear();
                }
                Some((key, version)) => self.enter(key, change, version),
            }
        }
        Ok(())
    }

    /// The version that a change makes; `None`: it removes its key, or stands on nothing.
    fn version(&self, it: &Payload<'_>) -> Result<Option<Version>, String> {
        let Head { lsn, value_len: len, .. } = it.head;
        if it.head.is_tombstone() {
            return Ok(None);
        }
        let Some(base) = it.base else {
            let sum = it.run.map_or_else(|| sum::more(0, it.inline), |run| run.checksum);
            return Ok(Some(Version { lsn, len, sum }));
        };
        let source = self.versions.get(base.source.unwrap_or(it.key));
        let Some(source) = source.filter(|at| (at.lsn, at.len) == (base.lsn, base.len)) else {
            return Ok(None);
        };
        let sum = sum::more(source.sum, it.value);
        if it.run.is_some_and(|run| run.checksum != sum) {
            let what = "its value, with its base's, has another sum than was written";
            return Err(format!("change {lsn}: {what}"));
        }
        Ok(Some(Version { lsn, len, sum }))
    }

    fn enter(&mut self, key: &[u8], change: &StreamChange<'_>, version: Option<Version>) {
        if !self.dangling.is_empty() {
            self.dangling.remove(key);
        }
        if change.effect == Effect::Based && version.is_none() {
            self.dangling.insert(key.to_vec(), change.lsn);
        }
        if !self.bases.contains(key) {
            return;
        }
        let newer = self.versions.get(key).is_some_and(|known| known.lsn >= change.lsn);
        match version.filter(|_| !newer) {
            Some(version) => drop(self.versions.insert(key.to_vec(), version)),
            None if newer => {}
            None => drop(self.versions.remove(key)),
        }
    }

    /// The keys that stand on nothing, with the LSN of the change that does.
    #[must_use]
    pub fn into_dangling(self) -> BTreeMap<Vec<u8>, u64> {
        self.dangling
    }
}

/// The payload of a GONE: the tombstone of a key.
///
/// # Panics
/// If the key is longer than a record's may be.
#[must_use]
pub fn tombstone_payload(key: &[u8], lsn: u64) -> Vec<u8> {
    let key_len = u16::try_from(key.len()).expect("the key of a record");
    let (kind, flags) = (r::KIND_STRING, r::FLAG_TOMBSTONE);
    let head = Head { lsn, key_len, kind, flags, ..Head::EMPTY };
    let bytes = usize::try_from(head.bytes()).expect("a record fits in memory");
    let mut record = vec![0; bytes];
    record[HEADER_LEN..HEADER_LEN + key.len()].copy_from_slice(key);
    let checksum = sum::of_lent(&record[HEADER_LEN..], &head);
    record[..HEADER_LEN].copy_from_slice(&Head { checksum, ..head }.to_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_is_one_as_a_replay_takes_it() {
        for len in [0, 1, 7, 8, 9, 300, 65_535] {
            let key = vec![b'k'; len];
            let payload = tombstone_payload(&key, 42);
            let change =
                StreamChange { lsn: 42, effect: Effect::Gone, payload: &payload, rest: &[] };
            let it = checked(&change, Values::Given).expect("is right");
            assert_eq!((it.key, it.head.lsn), (&key[..], 42), "{len} bytes");
            assert_eq!(change.key(), Ok(Some(&key[..])));
        }
    }
}
