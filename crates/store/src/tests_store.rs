//! A store of the smallest size, and its turns, for the tests beside the code.

use std::sync::Arc;

use nigh_shm::{ArenaFill, Domain, Participant, WriteError};
use tempfile::TempDir;

use crate::{Policy, Store, StoreOptions, Turn};

/// Bytes of the arena: segments of 64 KiB.
const CAPACITY_BYTES: u64 = 8 << 20;
/// Most turns that a write waits for memory, and most keys that fit.
const TURNS_MOST: u32 = 200_000;

pub(crate) struct SmallStore {
    pub(crate) store: Store,
    pub(crate) now_ms: u64,
    participant: Participant,
    turns: u64,
    _domain: Arc<Domain>,
    _dir: TempDir,
}

impl SmallStore {
    pub(crate) fn new() -> SmallStore {
        let domain = Domain::new(2);
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        let dir = dir.expect("a directory in /dev/shm");
        let mut options = StoreOptions::new(dir.path().join("arenas"), CAPACITY_BYTES);
        options.system_capacity_bytes = 4 << 20;
        let (store, _) = Store::open(&options, &domain).expect("the store opens");
        let participant = domain.join();
        let now_ms = 1_700_000_000_000;
        SmallStore { store, now_ms, participant, turns: 0, _domain: domain, _dir: dir }
    }

    /// Runs `f` as a part of a turn.
    pub(crate) fn turn<T>(&mut self, f: impl FnOnce(&mut Store, &Turn<'_>) -> T) -> T {
        self.turns += 1;
        let pin = self.participant.pin();
        f(&mut self.store, &Turn { now_ms: self.now_ms, pin: &pin, random: self.turns })
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&mut self) {
        self.turn(|store, turn| store.maintain(turn));
        self.participant.quiescent();
    }

    /// Writes a key, in a later turn if memory is on its way. Makes no room.
    pub(crate) fn put(
        &mut self,
        key: &str,
        bytes: usize,
        expiry_ms: u64,
    ) -> Result<(), WriteError> {
        let value = vec![b'v'; bytes];
        for _ in 0..TURNS_MOST {
            let hash = self.store.hash(key.as_bytes());
            let put = self.turn(|s, turn| s.put(hash, key.as_bytes(), &[&value], expiry_ms, turn));
            if put != Err(WriteError::Busy) {
                return put;
            }
            self.end_turn();
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        panic!("memory never comes back");
    }

    /// Writes keys with this expiry until one is refused. Returns how many there are.
    pub(crate) fn fill_up(&mut self, name: &str, value_bytes: usize, expiry_ms: u64) -> u32 {
        let is_taken = |n: &u32| self.put(&format!("{name}{n:06}"), value_bytes, expiry_ms).is_ok();
        let count = (0..TURNS_MOST).take_while(is_taken).count();
        u32::try_from(count).expect("few")
    }

    pub(crate) fn delete(&mut self, key: &str) {
        let hash = self.store.hash(key.as_bytes());
        self.turn(|store, turn| store.remove(hash, key.as_bytes(), turn)).expect("no journal");
    }

    pub(crate) fn has(&mut self, key: &str) -> bool {
        let hash = self.store.hash(key.as_bytes());
        self.turn(|store, turn| store.reader.get(turn.pin, hash, key.as_bytes()).is_some())
    }

    pub(crate) fn set(&mut self, policy: Policy) {
        self.store.set_eviction(policy, 5);
    }

    pub(crate) fn fill(&self) -> ArenaFill {
        self.store.data.fill()
    }
}
