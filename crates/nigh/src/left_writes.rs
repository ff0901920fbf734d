//! Writes that a thread leaves to the owner of their partition: flat combining.
//!
//! ```text
//! writer: a free slot, filled ── its bit is set ─┬─ the owner, before it unlocks: clears it ── done ─┬─ free
//!                                                └─ the lock was free, or it took long: clears it ──┘
//! ```
//!
//! 1. A write is done once: by the thread that has cleared its bit, an owner or its writer.
//! 2. Only owners do writes of others, and what they have taken is done before they unlock. So a
//!    writer that has the lock finds its bit set, or its write done.
//! 3. The owner looks once. What is left behind that look its writer does itself.
//! 4. Slots are few and bodies short: a write that finds none, or is long, waits for the lock.
//!
//! Any thread; an owner has the lock.

use crate::error::WriteRefusal;
use nigh_shm::Record;
use nigh_shm::layout::is_over;
use nigh_store::{KeyWrite, Store, Turn};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A bit of a word for each.
const SLOTS: usize = 64;
/// Most bytes of key and value: to copy more takes longer than most waits for the lock.
const BYTES_MOST: usize = 4096;

/// A write of this key panics, as by a fault of the store.
#[cfg(test)]
pub(crate) const PANICS: &[u8] = b"panics";

/// What writers of a partition have left.
pub(crate) struct LeftWrites {
    /// A bit for each slot whose write nobody has taken.
    left: AtomicU64,
    slots: Box<[Slot]>,
    /// Writes that owners have done for others.
    #[cfg(test)]
    pub(crate) done: AtomicU64,
}

/// On a line of its own: its writer looks at it again and again.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    is_used: AtomicBool,
    /// It was done, or withdrawn.
    has_ended: AtomicBool,
    body: Mutex<Body>,
}

#[derive(Default)]
struct Body {
    kind: LeftKind,
    key: Vec<u8>,
    value: Vec<u8>,
    expiry_ms: u64,
    done: Option<Result<bool, WriteRefusal>>,
}

#[derive(Default, Clone, Copy)]
enum LeftKind {
    #[default]
    Put,
    Delete,
    Expire,
}

/// A write that was left; withdrawn when this is dropped.
pub(crate) struct LeftWrite<'a> {
    of: &'a LeftWrites,
    number: usize,
}

thread_local! {
    /// Where this thread looks for a free slot first: threads of one database seldom meet there.
    static FIRST: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Relaxed) % SLOTS
    };
}

/// Does a write of one key in a turn. Whether the key was there; of a put, true.
pub(crate) fn write_key(
    write: &KeyWrite<'_>,
    store: &mut Store,
    turn: &Turn<'_>,
) -> Result<bool, WriteRefusal> {
    #[cfg(test)]
    assert_ne!(write.key(), PANICS, "on purpose");
    let is_there = match write {
        KeyWrite::Put { .. } => true,
        KeyWrite::Delete { key } | KeyWrite::Expire { key, .. } => live(store, key, turn).is_some(),
    };
    if is_there || matches!(write, KeyWrite::Delete { .. }) {
        store.commit_writes(std::slice::from_ref(write), turn)?;
    }
    Ok(is_there)
}

/// The record of a key that is there, as the owner sees it.
pub(crate) fn live<'p>(store: &Store, key: &[u8], turn: &Turn<'p>) -> Option<Record<'p>> {
    let record = store.reader().get(turn.pin, store.hash(key), key)?;
    (!is_over(record.expiry_ms(), turn.now_ms)).then_some(record)
}

impl Default for LeftWrites {
    fn default() -> LeftWrites {
        LeftWrites {
            left: AtomicU64::new(0),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            #[cfg(test)]
            done: AtomicU64::new(0),
        }
    }
}

impl LeftWrites {
    /// Leaves a write to the owner, if it is short and there is a slot.
    pub(crate) fn leave(&self, write: &KeyWrite<'_>) -> Option<LeftWrite<'_>> {
        let (kind, value, expiry_ms): (_, &[u8], _) = match *write {
            KeyWrite::Put { value, expiry_ms, .. } => (LeftKind::Put, value, expiry_ms),
            KeyWrite::Delete { .. } => (LeftKind::Delete, &[], 0),
            KeyWrite::Expire { expiry_ms, .. } => (LeftKind::Expire, &[], expiry_ms),
        };
        let key = write.key();
        if key.len() + value.len() > BYTES_MOST {
            return None;
        }
        let first = FIRST.with(|first| *first);
        let numbers = (0..SLOTS).map(|i| (first + i) % SLOTS);
        let takes = |slot: &Slot| !slot.is_used.load(Relaxed) && !slot.is_used.swap(true, Acquire);
        let mut free = numbers.filter(|&number| takes(&self.slots[number]));
        let number = free.next()?;
        let slot = &self.slots[number];
        slot.has_ended.store(false, Relaxed);
        {
            let mut body = slot.body();
            (body.kind, body.expiry_ms, body.done) = (kind, expiry_ms, None);
            body.key.clear();
            body.key.extend_from_slice(key);
            body.value.clear();
            body.value.extend_from_slice(value);
        }
        self.left.fetch_or(1 << number, Release);
        Some(LeftWrite { of: self, number })
    }

    /// Whether somebody has left something.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.left.load(Relaxed) != 0
    }

    /// The owner does what was left.
    pub(crate) fn do_all(&self, mut work: impl FnMut(&KeyWrite<'_>) -> Result<bool, WriteRefusal>) {
        let mut taken = self.left.swap(0, Acquire);
        while taken != 0 {
            let slot = &self.slots[taken.trailing_zeros() as usize];
            taken &= taken - 1;
            {
                let mut body = slot.body();
                let Body { kind, key, value, expiry_ms, .. } = &*body;
                let write = match kind {
                    LeftKind::Put => KeyWrite::Put { key, value, expiry_ms: *expiry_ms },
                    LeftKind::Delete => KeyWrite::Delete { key },
                    LeftKind::Expire => KeyWrite::Expire { key, expiry_ms: *expiry_ms },
                };
                let done = work(&write);
                body.done = Some(done);
            }
            slot.has_ended.store(true, Release);
            #[cfg(test)]
            self.done.fetch_add(1, Relaxed);
        }
    }
}

impl Slot {
    fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftWrite<'_> {
    fn slot(&self) -> &Slot {
        &self.of.slots[self.number]
    }

    /// What came of it, if an owner has done it.
    #[inline]
    pub(crate) fn done(&self) -> Option<Result<bool, WriteRefusal>> {
        if self.slot().has_ended.load(Acquire) { self.slot().body().done.take() } else { None }
    }

    /// Takes it back. False: an owner has taken it, and does it or has done it.
    pub(crate) fn withdraw(&self) -> bool {
        let (left, bit) = (&self.of.left, 1 << self.number);
        let is_mine = left.load(Relaxed) & bit != 0 && left.fetch_and(!bit, AcqRel) & bit != 0;
        if is_mine {
            self.slot().has_ended.store(true, Relaxed);
        }
        is_mine
    }
}

impl Drop for LeftWrite<'_> {
    fn drop(&mut self) {
        self.withdraw();
        // An owner that panics ends the database, and what it had taken stays used.
        if self.slot().has_ended.load(Acquire) {
            self.slot().is_used.store(false, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DbError;
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> KeyWrite<'a> {
        KeyWrite::Put { key, value, expiry_ms: 7 }
    }

    /// What an owner sees of each write that was left.
    fn seen(left: &LeftWrites) -> Vec<String> {
        let mut seen = Vec::new();
        left.do_all(|write| {
            seen.push(format!("{write:?}"));
            Ok(true)
        });
        seen
    }

    #[test]
    fn the_owner_does_what_was_left_and_tells_what_came_of_it() {
        let left = LeftWrites::default();
        let writes = [
            put(b"k", b"value"),
            KeyWrite::Delete { key: b"gone" },
            KeyWrite::Expire { key: b"later", expiry_ms: 9 },
        ];
        let waiting = writes.map(|write| left.leave(&write).expect("a slot"));
        assert!(left.any() && waiting.iter().all(|it| it.done().is_none()));
        let mut expected = BTreeSet::from(writes.map(|it| format!("{it:?}")));
        left.do_all(|write| {
            assert!(expected.remove(&format!("{write:?}")), "each once: {write:?}");
            match write {
                KeyWrite::Put { .. } => Err(WriteRefusal::Final(DbError::Stopped)),
                write => Ok(write.key() == b"later"),
            }
        });
        assert!(expected.is_empty() && !left.any());
        let done = waiting.each_ref().map(|it| it.done().expect("done"));
        assert!(matches!(&done[0], Err(WriteRefusal::Final(DbError::Stopped))));
        assert!(matches!(&done[1..], [Ok(false), Ok(true)]));
        assert!(waiting.iter().all(|it| !it.withdraw()), "too late");
        assert!(seen(&left).is_empty(), "nothing twice");
    }

    /// A slot that ended in any way is free again, and has nothing of the write before.
    #[test]
    fn slots_are_used_again() {
        let left = LeftWrites::default();
        for round in 0..3 * SLOTS {
            let waiting = left.leave(&put(&[b'k'; 20], &[b'v'; 500])).expect("a slot");
            if round % 3 == 0 {
                assert!(waiting.withdraw() && seen(&left).is_empty());
            }
            if round % 3 == 1 {
                assert_eq!(seen(&left).len(), 1);
            }
            drop(waiting);
            assert!(seen(&left).is_empty(), "one that was dropped is withdrawn");
        }
        let delete = KeyWrite::Delete { key: b"k" };
        let waiting = left.leave(&delete).expect("a slot");
        assert_eq!(seen(&left), [format!("{delete:?}")]);
        assert!(matches!(waiting.done(), Some(Ok(true))));
    }

    #[test]
    fn what_is_long_or_finds_no_slot_is_not_left() {
        let left = LeftWrites::default();
        assert!(left.leave(&put(&[b'k'; 100], &[b'v'; BYTES_MOST - 99])).is_none());
        let all: Vec<_> =
            (0..SLOTS).map(|_| left.leave(&put(b"k", &[b'v'; 4000])).expect("a slot")).collect();
        assert!(left.leave(&put(b"k", b"v")).is_none());
        drop(all);
        assert!(left.leave(&put(b"k", b"v")).is_some());
    }

    /// An owner that panics within a write: its writer gets no answer, and the slot isn't used by
    /// another one.
    #[test]
    fn a_write_whose_owner_panics_is_neither_done_nor_withdrawn() {
        let left = LeftWrites::default();
        let waiting = left.leave(&put(b"k", b"v")).expect("a slot");
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            left.do_all(|_| panic!("of the store"));
        }));
        assert!(unwound.is_err() && waiting.done().is_none() && !waiting.withdraw());
        drop(waiting);
        let others: Vec<_> = (1..SLOTS).map(|_| left.leave(&put(b"k", b"v"))).collect();
        assert!(others.iter().all(Option::is_some) && left.leave(&put(b"k", b"v")).is_none());
    }

    /// Writers that leave and withdraw beside owners: each write is done once, and nobody is told
    /// of another's.
    #[test]
    fn each_write_is_done_once() {
        const WRITES: u32 = 20_000;
        let (left, owners) = (LeftWrites::default(), Mutex::new(()));
        let done: [AtomicU32; 3] = Default::default();
        let number = |key: &[u8]| usize::from(key[0] - b'0');
        std::thread::scope(|scope| {
            for writer in 0..done.len() {
                let (left, owners, done) = (&left, &owners, &done);
                scope.spawn(move || {
                    let key = [b'0' + u8::try_from(writer).expect("few")];
                    for n in 0..WRITES {
                        let waiting = left.leave(&put(&key, &n.to_le_bytes())).expect("a slot");
                        loop {
                            if let Some(done) = waiting.done() {
                                let own = done.is_ok_and(|is_own| is_own == (n % 2 == 0));
                                assert!(own, "the answer of this write");
                                break;
                            }
                            let Ok(_lock) = owners.try_lock() else {
                                std::thread::yield_now();
                                continue;
                            };
                            let is_mine = waiting.withdraw();
                            if is_mine {
                                done[writer].fetch_add(1, Relaxed);
                            }
                            left.do_all(|write| {
                                let KeyWrite::Put { key, value, .. } = write else { panic!() };
                                done[number(key)].fetch_add(1, Relaxed);
                                let n = u32::from_le_bytes((*value).try_into().expect("4 bytes"));
                                Ok(n % 2 == 0)
                            });
                            if is_mine {
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert!(done.iter().all(|it| it.load(Relaxed) == WRITES), "{done:?}");
    }
}
