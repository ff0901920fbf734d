//! How many local clients there are, and what became of them.
//!
//! A client counts as long as its [`Counted`] lives. So do the descriptors that the server holds
//! for it beside its socket: that of its process, and those that are to be sent to it.
//!
//! Any thread. Nothing here is touched per command.

use nigh_shm::ring::Broken;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counts of the local clients of a server.
#[derive(Debug, Default)]
pub(crate) struct LocalCounts {
    pub(crate) clients: AtomicUsize,
    /// Descriptors that are held for them, beside their sockets.
    pub(crate) files: AtomicUsize,
    /// Bytes of their rings' memory.
    pub(crate) ring_bytes: AtomicU64,
    /// Since the start, as all that follow.
    pub(crate) attached: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Clients that didn't keep the rules of their rings.
    pub(crate) broken: AtomicU64,
    /// Times that a client was woken.
    pub(crate) wakes_sent: AtomicU64,
    /// Times that a client has woken a shard.
    pub(crate) wakes_received: AtomicU64,
}

/// One of the local clients; it is counted as long as this lives.
pub(crate) struct Counted {
    pub(crate) counts: Arc<LocalCounts>,
    memory_bytes: u64,
    files: usize,
    client: u64,
    process_id: Option<i32>,
}

impl LocalCounts {
    /// Counts one more, unless there are `most`. It has so much memory and so many descriptors;
    /// client and process are for the log.
    pub(crate) fn admit(
        self: &Arc<Self>,
        most: usize,
        (memory_bytes, files): (u64, usize),
        (client, process_id): (u64, Option<i32>),
    ) -> Option<Counted> {
        if self.clients.fetch_add(1, Relaxed) >= most {
            self.clients.fetch_sub(1, Relaxed);
            return None;
        }
        self.ring_bytes.fetch_add(memory_bytes, Relaxed);
        self.files.fetch_add(files, Relaxed);
        Some(Counted { counts: Arc::clone(self), memory_bytes, files, client, process_id })
    }

    /// What is counted: its name in LOCAL STATS, and in the metrics.
    pub(crate) fn figures(&self) -> [(&'static str, &'static str, u64); 7] {
        let clients = self.clients.load(Relaxed) as u64;
        let of = |count: &AtomicU64| count.load(Relaxed);
        [
            ("clients", "nigh_local_clients", clients),
            ("ring-bytes", "nigh_local_ring_bytes", of(&self.ring_bytes)),
            ("attached", "nigh_local_attached_total", of(&self.attached)),
            ("refused", "nigh_local_refused_total", of(&self.refused)),
            ("broken", "nigh_local_broken_total", of(&self.broken)),
            ("wakes-sent", "nigh_local_wakes_sent_total", of(&self.wakes_sent)),
            ("wakes-received", "nigh_local_wakes_received_total", of(&self.wakes_received)),
        ]
    }
}

impl Counted {
    /// So many descriptors are held for it from now on.
    pub(crate) fn set_files(&mut self, files: usize) {
        self.counts.files.fetch_add(files, Relaxed);
        self.counts.files.fetch_sub(std::mem::replace(&mut self.files, files), Relaxed);
    }

    /// Counts and logs that it doesn't keep the rules.
    pub(crate) fn tell_broken(&self, broken: &Broken) {
        self.counts.broken.fetch_add(1, Relaxed);
        let Self { client, process_id, .. } = *self;
        tracing::warn!(client, process_id, "local client disconnected: {broken}");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.clients.fetch_sub(1, Relaxed);
        self.counts.ring_bytes.fetch_sub(self.memory_bytes, Relaxed);
        self.counts.files.fetch_sub(self.files, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two, as LOCAL STATS has them.
    fn told(counts: &LocalCounts) -> [(&'static str, u64); 2] {
        let [clients, bytes, ..] = counts.figures();
        [clients, bytes].map(|(name, _, value)| (name, value))
    }

    #[test]
    fn no_more_than_the_most_are_counted() {
        // Two may be there. The third is refused, until one has gone; nothing of it stays, nor of
        // its descriptors.
        let counts = Arc::new(LocalCounts::default());
        let admit = || counts.admit(2, (100, 4), (1, Some(1)));
        let files = || counts.files.load(Relaxed);
        let (first, mut second) = (admit(), admit());
        assert!(first.is_some() && second.is_some() && admit().is_none());
        assert_eq!(files(), 8);
        second.as_mut().expect("it was admitted").set_files(1);
        assert_eq!(told(&counts), [("clients", 2), ("ring-bytes", 200)]);
        assert_eq!(files(), 5);
        drop(first);
        assert_eq!(files(), 1);
        assert!(admit().is_some());
        assert_eq!(told(&counts), [("clients", 1), ("ring-bytes", 100)]);
    }
}
