//! WATCH: whether a key was written, or its time came, since a connection watched it.
//!
//! Thread: the shard that owns the store.

use nigh_shm::layout::is_over;

use crate::partition::store::Store;
use crate::partition::watches::WatchToken;
use crate::turn::Turn;

impl Store {
    /// Watches a key from now on. A key whose time is over counts as missing.
    pub fn watch(&mut self, key: &[u8], turn: &Turn<'_>) -> WatchToken {
        let existed = self.find(self.reader.hash(key), key, turn).is_some();
        self.watches.watch(key, existed)
    }

    /// Stops watching.
    ///
    /// # Panics
    ///
    /// If the token is another store's.
    pub fn unwatch(&mut self, token: WatchToken) {
        self.watches.unwatch(token);
    }

    /// True if the key was written, or its time came, since it was watched.
    #[must_use]
    pub fn watch_dirty(&self, token: &WatchToken, turn: &Turn<'_>) -> bool {
        let key = token.key();
        self.watches.is_touched(token)
            || token.existed()
                && self
                    .look(self.reader.hash(key), key, turn)
                    .is_none_or(|record| is_over(record.expiry_ms(), turn.now_ms))
    }
}
