//! The watched keys of a store.
//!
//! Each watched key has a number that every write of the key replaces. A token remembers the number
//! that it saw. It also remembers whether the key existed: such a key is dirty once it is gone, or
//! its time is over, whether or not a command has met and deleted it (Redis:
//! `isWatchedKeyExpired`).
//!
//! 1. A write looks nothing up while no key is watched.
//! 2. A key is here as long as a token of it is held: as many keys as connections watch.
//! 3. A removal tells nobody: a token of a key that existed finds it missing, and one of a key that
//!    didn't was told when the key came. If the key comes back, that is a write.
//!
//! Thread: the shard that owns the store.

use std::collections::HashMap;
use std::sync::Arc;

/// A key that a connection watches, and its state then. Give it back with
/// [`crate::Store::unwatch`].
#[derive(Debug)]
#[must_use = "a token that isn't given back keeps its key watched"]
pub struct WatchToken {
    key: Arc<[u8]>,
    version: u64,
    existed: bool,
}

impl WatchToken {
    /// The key, for instance to find out that it is already watched.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the key existed when it was watched.
    pub(crate) fn existed(&self) -> bool {
        self.existed
    }
}

/// The watched keys of a store.
#[derive(Default)]
pub(crate) struct Watches {
    /// By a hash of its own, with a secret: long keys that begin alike aren't compared.
    keys: HashMap<Arc<[u8]>, Watched>,
    /// Counts touches; a number is never used twice.
    clock: u64,
}

struct Watched {
    tokens: u64,
    version: u64,
}

impl Watches {
    /// Makes all tokens of `key` dirty, as it was written.
    #[inline]
    pub(crate) fn touch(&mut self, key: &[u8]) {
        if !self.keys.is_empty() {
            self.touch_watched(key);
        }
    }

    #[cold]
    fn touch_watched(&mut self, key: &[u8]) {
        if let Some(watched) = self.keys.get_mut(key) {
            self.clock += 1;
            watched.version = self.clock;
        }
    }

    /// A token of `key`, which `existed` or not.
    pub(crate) fn watch(&mut self, key: &[u8], existed: bool) -> WatchToken {
        if let Some((known, watched)) = self.keys.get_key_value(key) {
            let (known, version) = (Arc::clone(known), watched.version);
            self.keys.entry(Arc::clone(&known)).and_modify(|watched| watched.tokens += 1);
            return WatchToken { key: known, version, existed };
        }
        let key: Arc<[u8]> = key.into();
        self.clock += 1;
        let version = self.clock;
        self.keys.insert(Arc::clone(&key), Watched { tokens: 1, version });
        WatchToken { key, version, existed }
    }

    /// Takes a token back.
    ///
    /// # Panics
    ///
    /// If it is another store's.
    #[expect(clippy::needless_pass_by_value, reason = "a token is given back once")]
    pub(crate) fn unwatch(&mut self, token: WatchToken) {
        let watched = self.keys.get_mut(&token.key).expect("a token of this store");
        watched.tokens -= 1;
        if watched.tokens == 0 {
            self.keys.remove(&token.key);
        }
    }

    /// Whether the token's key was written since.
    pub(crate) fn is_touched(&self, token: &WatchToken) -> bool {
        self.keys.get(&token.key).is_none_or(|now| now.version != token.version)
    }

    /// Number of watched keys.
    pub(crate) fn len(&self) -> u64 {
        self.keys.len() as u64
    }
}
