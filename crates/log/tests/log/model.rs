//! What a store would keep: keys and values of streams, as memory has them and as a replay builds
//! them. The two are written apart from each other, each by docs/formats/log.md.

use nigh_log::simulated::{below, once_in};
use nigh_log::{Chance, ChangeKind, FramedChange, ReplayedCommit};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Keys of a stream.
pub(crate) const KEYS: u64 = 20;
/// Appending stops at so many bytes.
const VALUE_BYTES_MOST: usize = 3000;

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptValue {
    pub(crate) lsn: u64,
    pub(crate) value: Arc<[u8]>,
    /// Its newest change stood on another one.
    pub(crate) based: bool,
}

pub(crate) type Keys = BTreeMap<u8, KeptValue>;

/// A change, as its payload says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelChange {
    Put { key: u8, based: bool, value: Vec<u8> },
    Based { key: u8, source: u8, base_lsn: u64, base_bytes: u32, more: Vec<u8> },
    Gone { key: u8 },
    Clear,
}

impl ModelChange {
    pub(crate) fn kind(&self) -> ChangeKind {
        match self {
            ModelChange::Put { .. } => ChangeKind::Put,
            ModelChange::Based { .. } => ChangeKind::Based,
            ModelChange::Gone { .. } => ChangeKind::Gone,
            ModelChange::Clear => ChangeKind::Clear,
        }
    }

    /// The key, but for a CLEAR.
    pub(crate) fn key(&self) -> Option<u8> {
        match self {
            ModelChange::Put { key, .. }
            | ModelChange::Based { key, .. }
            | ModelChange::Gone { key } => Some(*key),
            ModelChange::Clear => None,
        }
    }

    pub(crate) fn payload(&self) -> Vec<u8> {
        match self {
            ModelChange::Put { key, based, value } => {
                [&[*key, u8::from(*based)], &value[..]].concat()
            }
            ModelChange::Based { key, source, base_lsn, base_bytes, more } => {
                let base = [&base_lsn.to_le_bytes()[..], &base_bytes.to_le_bytes()].concat();
                [&[*key, *source], &base[..], more].concat()
            }
            ModelChange::Gone { key } => vec![*key],
            ModelChange::Clear => Vec::new(),
        }
    }

    pub(crate) fn parse(change: &FramedChange<'_>) -> Result<ModelChange, String> {
        let wrong = || format!("LSN {} has a payload that nobody wrote", change.header.lsn);
        match (change.header.kind, change.payload) {
            (ChangeKind::Put, [key, based @ 0..=1, value @ ..]) => {
                Ok(ModelChange::Put { key: *key, based: *based == 1, value: value.to_vec() })
            }
            (ChangeKind::Based, [key, source, rest @ ..]) => {
                let (base_lsn, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
                let (base_bytes, more) = rest.split_first_chunk().ok_or_else(wrong)?;
                Ok(ModelChange::Based {
                    key: *key,
                    source: *source,
                    base_lsn: u64::from_le_bytes(*base_lsn),
                    base_bytes: u32::from_le_bytes(*base_bytes),
                    more: more.to_vec(),
                })
            }
            (ChangeKind::Gone, [key]) => Ok(ModelChange::Gone { key: *key }),
            (ChangeKind::Clear, []) => Ok(ModelChange::Clear),
            _ => Err(wrong()),
        }
    }
}

/// A stream as memory has it, and what led to it since what is durable.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelStream {
    pub(crate) keys: Keys,
    pub(crate) last: u64,
    durable: Keys,
    durable_lsn: u64,
    since: VecDeque<(u64, ModelChange)>,
}

impl ModelStream {
    /// Commits changes; returns the LSN of the first.
    pub(crate) fn commit(&mut self, changes: &[ModelChange]) -> u64 {
        let first = self.last + 1;
        for change in changes {
            self.last += 1;
            apply(&mut self.keys, self.last, change);
            self.since.push_back((self.last, change.clone()));
        }
        first
    }

    /// All up to this LSN is durable.
    pub(crate) fn fold(&mut self, lsn: u64) {
        if lsn == self.last {
            self.durable.clone_from(&self.keys);
            self.since.clear();
        }
        let over = self.since.partition_point(|(at, _)| *at <= lsn);
        for (at, change) in self.since.drain(..over) {
            apply(&mut self.durable, at, &change);
        }
        self.durable_lsn = self.durable_lsn.max(lsn);
    }

    /// Nothing is promised any more.
    pub(crate) fn retire(&mut self) {
        self.durable.clear();
        self.since.clear();
        self.durable_lsn = 0;
    }

    /// All behind this LSN was lost.
    pub(crate) fn cut(&mut self, lsn: u64) {
        assert!(self.durable_lsn <= lsn && lsn <= self.last);
        self.since.retain(|(at, _)| *at <= lsn);
        self.keys.clone_from(&self.durable);
        self.since.iter().for_each(|(at, change)| apply(&mut self.keys, *at, change));
        self.last = lsn;
    }
}

/// Memory after a change: what a change stands on is there, or it isn't made.
fn apply(keys: &mut Keys, lsn: u64, change: &ModelChange) {
    let (key, value, based) = match change {
        ModelChange::Put { key, value, based } => (key, value.as_slice().into(), *based),
        ModelChange::Based { key, source, base_lsn, base_bytes, more } => {
            let base = &keys[source];
            assert_eq!((base.lsn, base.value.len()), (*base_lsn, *base_bytes as usize));
            let value = if more.is_empty() {
                Arc::clone(&base.value)
            } else {
                [&base.value, more.as_slice()].concat().into()
            };
            (key, value, true)
        }
        ModelChange::Gone { key } => {
            keys.remove(key);
            return;
        }
        ModelChange::Clear => {
            keys.clear();
            return;
        }
    };
    keys.insert(*key, KeptValue { lsn, value, based });
}

/// Changes of one commit on these keys, of any kinds.
pub(crate) fn any_commit(keys: &Keys, chance: &dyn Chance) -> Vec<ModelChange> {
    let count = if once_in(chance, 12) { 12 } else { 1 + below(chance, 4) };
    let (mut changes, mut used) = (Vec::new(), BTreeSet::new());
    let clears = once_in(chance, 80);
    if clears {
        changes.push(ModelChange::Clear);
    }
    for _ in 0..count {
        let key = any_key(chance);
        let source = any_key(chance);
        if !used.insert(key) {
            continue;
        }
        match (below(chance, 10), keys.get(&key).filter(|_| !clears)) {
            (0..=1, Some(_)) => changes.push(ModelChange::Gone { key }),
            (2..=5, Some(kept)) if kept.value.len() < VALUE_BYTES_MOST => {
                let more = if once_in(chance, 3) { Vec::new() } else { any_bytes(chance, 200) };
                changes.push(on(key, key, kept, more));
            }
            (6, _) if !clears && !used.contains(&source) => {
                let Some(kept) = keys.get(&source) else { continue };
                used.insert(source);
                changes.push(on(key, source, kept, Vec::new()));
                changes.push(ModelChange::Gone { key: source });
            }
            _ => {
                let most = if once_in(chance, 20) { 6000 } else { 300 };
                let value = any_bytes(chance, most);
                changes.push(ModelChange::Put { key, based: false, value });
            }
        }
    }
    changes
}

/// A change of a key that stands on a source.
fn on(key: u8, source: u8, base: &KeptValue, more: Vec<u8>) -> ModelChange {
    let base_bytes = u32::try_from(base.value.len()).unwrap();
    ModelChange::Based { key, source, base_lsn: base.lsn, base_bytes, more }
}

fn any_key(chance: &dyn Chance) -> u8 {
    u8::try_from(below(chance, KEYS)).unwrap()
}

/// Bytes that look like no others.
pub(crate) fn any_bytes(chance: &dyn Chance, most: u64) -> Vec<u8> {
    let length = usize::try_from(below(chance, most)).unwrap();
    let mut bytes = vec![chance.word().to_le_bytes()[0]; length];
    let word = chance.word().to_le_bytes();
    let front = length.min(8);
    bytes[..front].copy_from_slice(&word[..front]);
    bytes
}

/// A stream as a replay builds it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replica {
    pub(crate) keys: Keys,
    /// Keys whose base wasn't there, with the LSN of the change.
    dangling: BTreeMap<u8, u64>,
    /// The last fresh LSN.
    pub(crate) last: u64,
}

impl Replica {
    /// Takes a commit: bases are looked up as they were before it.
    pub(crate) fn take(&mut self, commit: &ReplayedCommit<'_>) -> Result<(), String> {
        let before = if commit.changes.len() > 1 { Some(self.keys.clone()) } else { None };
        for change in commit.changes {
            let parsed = ModelChange::parse(change)?;
            let lsn = change.header.lsn;
            if change.header.again {
                self.again(lsn, &parsed);
                continue;
            }
            if self.last != 0 && lsn != self.last + 1 {
                return Err(format!("LSN {lsn} follows {}", self.last));
            }
            self.last = lsn;
            let before = before.as_ref().unwrap_or(&self.keys);
            let kept = match &parsed {
                ModelChange::Put { value, based, .. } => {
                    Some(KeptValue { lsn, value: value.as_slice().into(), based: *based })
                }
                ModelChange::Based { source, base_lsn, base_bytes, more, .. } => {
                    let whole = |base: &&KeptValue| {
                        (base.lsn, base.value.len()) == (*base_lsn, *base_bytes as usize)
                    };
                    before.get(source).filter(whole).map(|base| {
                        let value = [&base.value, more.as_slice()].concat().into();
                        KeptValue { lsn, value, based: true }
                    })
                }
                ModelChange::Gone { .. } | ModelChange::Clear => None,
            };
            self.set(lsn, &parsed, kept);
        }
        Ok(())
    }

    fn again(&mut self, lsn: u64, change: &ModelChange) {
        let ModelChange::Put { key, based, value } = change else { return };
        if self.keys.get(key).is_none_or(|kept| kept.lsn < lsn) {
            let kept = KeptValue { lsn, value: value.as_slice().into(), based: *based };
            self.set(lsn, change, Some(kept));
        }
    }

    fn set(&mut self, lsn: u64, change: &ModelChange, kept: Option<KeptValue>) {
        let Some(key) = change.key() else {
            self.keys.clear();
            self.dangling.clear();
            return;
        };
        self.dangling.remove(&key);
        match kept {
            Some(kept) => drop(self.keys.insert(key, kept)),
            None => {
                self.keys.remove(&key);
                if matches!(change, ModelChange::Based { .. }) {
                    self.dangling.insert(key, lsn);
                }
            }
        }
    }

    /// Compares it with a stream at its end.
    pub(crate) fn compare(&self, stream: u32, with: &ModelStream) -> Result<(), String> {
        if let Some((key, lsn)) = self.dangling.first_key_value() {
            return Err(format!("key {key} of stream {stream} stands on nothing at LSN {lsn}"));
        }
        let (is, should) = (&self.keys, &with.keys);
        if is == should {
            return Ok(());
        }
        let differs = (0..=u8::MAX).find(|key| is.get(key) != should.get(key)).unwrap();
        let of = |keys: &Keys| {
            keys.get(&differs).map(|k| (k.lsn, k.value.len(), k.based, k.value.first().copied()))
        };
        Err(format!(
            "key {differs} of stream {stream} at LSN {}: {:?} instead of {:?}",
            with.last,
            of(is),
            of(should)
        ))
    }
}
