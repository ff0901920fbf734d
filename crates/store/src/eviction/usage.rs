//! The use of a store's keys, as far as its policy needs to know it.
//!
//! 1. Without an LRU policy, a use costs one comparison.
//! 2. An owner keeps clocks ([`Recency`]). A view logs a sample of its hits for the owner.
//!
//! Thread: the shard that owns the store, or the view.

use std::sync::Arc;

use crate::eviction::candidates::Eviction;
use crate::eviction::hits::{HitLog, Inbox, NewRings};
use crate::eviction::policy::Policy;
use crate::eviction::recency::Recency;

/// The use of a store's keys.
pub(crate) struct Usage {
    /// An LRU policy wants to know when keys are used.
    tracks: bool,
    /// Reads count as uses. They don't while commands run whose client keeps ages as they are.
    tracks_reads: bool,
    /// The owner's, if a policy evicts.
    pub(crate) eviction: Option<Box<Eviction>>,
    /// A view's, since the first LRU policy.
    hit_log: Option<Box<HitLog>>,
    /// The owner's ends of the views' logs. They outlast a policy, as the views' ends do.
    inbox: Inbox,
    new_rings: Arc<NewRings>,
}

impl Usage {
    /// No use and no policy yet. Owner and views share `new_rings`.
    pub(crate) fn new(new_rings: Arc<NewRings>) -> Usage {
        Usage {
            tracks: false,
            tracks_reads: false,
            eviction: None,
            hit_log: None,
            inbox: Inbox::new(Arc::clone(&new_rings)),
            new_rings,
        }
    }

    /// The list by which views reach the owner.
    pub(crate) fn new_rings(&self) -> Arc<NewRings> {
        Arc::clone(&self.new_rings)
    }

    /// Sets the owner's policy, and how many keys are sampled for each that goes.
    pub(crate) fn set_policy(&mut self, policy: Policy, samples: u32) {
        self.set_tracks(policy.is_lru());
        let samples = samples.max(1);
        match &mut self.eviction {
            _ if policy == Policy::NoEviction => self.eviction = None,
            Some(eviction) => eviction.set(policy, samples),
            None => self.eviction = Some(Box::new(Eviction::new(policy, samples))),
        }
    }

    /// Tells a view the owner's policy: whether hits are to be logged.
    pub(crate) fn set_view_policy(&mut self, policy: Policy) {
        self.set_tracks(policy.is_lru());
        if self.tracks && self.hit_log.is_none() {
            self.hit_log = Some(Box::new(HitLog::new(&self.new_rings)));
        }
    }

    fn set_tracks(&mut self, tracks: bool) {
        (self.tracks, self.tracks_reads) = (tracks, tracks);
    }

    /// The owner's policy.
    pub(crate) fn policy(&self) -> Policy {
        self.eviction.as_ref().map_or(Policy::NoEviction, |eviction| eviction.policy())
    }

    /// Whether keys may go.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.eviction.is_some()
    }

    /// A key is used.
    #[inline]
    pub(crate) fn touch(&mut self, hash: u32) {
        if self.tracks {
            self.touch_tracked(hash);
        }
    }

    /// A key is read.
    #[inline]
    pub(crate) fn touch_read(&mut self, hash: u32) {
        if self.tracks_reads {
            self.touch_tracked(hash);
        }
    }

    #[inline]
    fn touch_tracked(&mut self, hash: u32) {
        if let Some(eviction) = &mut self.eviction {
            if let Some(recency) = &mut eviction.recency {
                recency.touch(hash);
            }
        } else if let Some(log) = &mut self.hit_log {
            log.note(hash);
        }
    }

    /// Whether reads count as uses now.
    #[inline]
    pub(crate) fn tracks_reads(&self) -> bool {
        self.tracks_reads
    }

    /// Whether reads leave keys as old as they are from now on. Writes and TOUCH never do.
    pub(crate) fn keep_ages(&mut self, keep: bool) {
        self.tracks_reads = self.tracks && !keep;
    }

    /// Asks for the memory that [`Usage::touch`] needs.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if self.tracks
            && let Some(Eviction { recency: Some(recency), .. }) = self.eviction.as_deref()
        {
            recency.prefetch(hash);
        }
    }

    /// A key is gone.
    pub(crate) fn forget(&mut self, hash: u32) {
        if let Some(Eviction { recency: Some(recency), .. }) = self.eviction.as_deref_mut() {
            recency.forget(hash);
        }
    }

    /// How long ago a key was used, ms, if that is known here.
    pub(crate) fn idle_ms(&self, hash: u32, now_ms: u64) -> Option<u64> {
        let recency = self.eviction.as_ref()?.recency.as_ref()?;
        Some(recency.idle_ms(hash, now_ms))
    }

    /// Memory of the clocks, bytes.
    pub(crate) fn recency_bytes(&self) -> u64 {
        let recency = self.eviction.as_ref().and_then(|eviction| eviction.recency.as_ref());
        recency.map_or(0, Recency::bytes)
    }

    /// Once per turn at a view: sends the logged hits.
    pub(crate) fn send_hits(&mut self) {
        if let Some(log) = &mut self.hit_log {
            log.flush();
        }
    }

    /// Once per turn at the owner of so many keys: takes the views' hits, and maintains the clocks.
    /// Returns whether they have more to do.
    pub(crate) fn maintain(&mut self, now_ms: u64, keys: u64) -> bool {
        let Some(eviction) = &mut self.eviction else { return false };
        self.inbox.drain(eviction.recency.as_mut());
        eviction.recency.as_mut().is_some_and(|recency| recency.maintain(now_ms, keys))
    }
}
