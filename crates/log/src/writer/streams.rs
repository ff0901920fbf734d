//! The streams of a writer: how far each one is added, written and durable.
//!
//! 1. durable ≤ covered ≤ written ≤ added for each stream.
//! 2. `framed` has exactly the streams with fresh changes in the open frame, `unsynced` those with
//!    written changes that no sync covers, `syncing` those with changes that the sync under way
//!    covers.
//!
//! The log's thread. A commit allocates nothing: the lists keep their memory.

use crate::format::frame_body::StreamRow;

/// One stream.
#[derive(Debug, Clone, Copy)]
struct StreamState {
    stream: u32,
    /// First fresh LSN in the open frame; 0: none.
    first: u64,
    added: u64,
    written: u64,
    /// The last LSN that the last sync covers, which may be under way.
    covered: u64,
    durable: u64,
}

/// All streams of a writer.
#[derive(Debug)]
pub(super) struct StreamTable {
    /// In order of being met; a dropped stream keeps its slot, and is in `index` no more.
    slots: Vec<StreamState>,
    /// Slots by stream.
    index: Vec<(u32, usize)>,
    /// The stream that was looked up last, and its slot.
    latest: Option<(u32, usize)>,
    framed: Vec<usize>,
    unsynced: Vec<usize>,
    syncing: Vec<usize>,
}

impl StreamTable {
    /// Streams with their last LSNs, in order of streams; all counts as durable.
    pub(super) fn new(lasts: impl IntoIterator<Item = (u32, u64)>) -> StreamTable {
        let state = |(stream, last)| StreamState {
            stream,
            first: 0,
            added: last,
            written: last,
            covered: last,
            durable: last,
        };
        let slots: Vec<StreamState> = lasts.into_iter().map(state).collect();
        let index: Vec<(u32, usize)> = slots.iter().map(|slot| slot.stream).zip(0..).collect();
        assert!(index.is_sorted_by(|a, b| a.0 < b.0), "streams come in order");
        let (framed, unsynced, syncing) = (Vec::new(), Vec::new(), Vec::new());
        StreamTable { slots, index, latest: None, framed, unsynced, syncing }
    }

    /// Number of streams that count.
    pub(super) fn count(&self) -> usize {
        self.index.len()
    }

    /// Whether a stream counts.
    pub(super) fn is_there(&self, stream: u32) -> bool {
        self.found(stream).is_some()
    }

    /// A new stream; one that is there stays as it is.
    pub(super) fn add(&mut self, stream: u32) {
        if let Err(at) = self.index.binary_search_by_key(&stream, |&(stream, _)| stream) {
            self.index.insert(at, (stream, self.slots.len()));
            let (first, added, written, covered, durable) = (0, 0, 0, 0, 0);
            self.slots.push(StreamState { stream, first, added, written, covered, durable });
        }
    }

    /// A stream counts no more.
    pub(super) fn remove(&mut self, stream: u32) {
        if let Ok(at) = self.index.binary_search_by_key(&stream, |&(stream, _)| stream) {
            self.index.remove(at);
            self.latest = None;
        }
    }

    /// The slot of a stream.
    pub(super) fn slot(&mut self, stream: u32) -> Option<usize> {
        if let Some((latest, slot)) = self.latest
            && latest == stream
        {
            return Some(slot);
        }
        self.latest = Some((stream, self.found(stream)?));
        self.latest.map(|(_, slot)| slot)
    }

    /// The last LSN that was added to the stream of a slot.
    pub(super) fn last(&self, slot: usize) -> u64 {
        self.slots.get(slot).map_or(0, |state| state.added)
    }

    /// Fresh changes of a slot's stream are in the open frame.
    pub(super) fn added(&mut self, slot: usize, first: u64, last: u64) {
        let state = self.slots.get_mut(slot).expect("a slot of this table");
        state.added = last;
        if state.first == 0 {
            state.first = first;
            self.framed.push(slot);
        }
    }

    /// Number of rows that the open frame's stream table has.
    pub(super) fn framed(&self) -> usize {
        self.framed.len()
    }

    /// The same, if one more change of a slot's stream is in the frame.
    pub(super) fn framed_with(&self, slot: usize, again: bool) -> usize {
        let has_row = self.slots.get(slot).is_some_and(|state| state.first > 0);
        self.framed.len() + usize::from(!again && !has_row)
    }

    /// The rows of the open frame's stream table.
    pub(super) fn rows(&mut self) -> impl Iterator<Item = StreamRow> {
        let slots = &self.slots;
        let state = move |slot: &usize| slots.get(*slot).expect("a slot of this table");
        self.framed.sort_unstable_by_key(|slot| state(slot).stream);
        self.framed.iter().map(move |slot| {
            let StreamState { stream, first, added, .. } = *state(slot);
            StreamRow { stream, first, last: added }
        })
    }

    /// The open frame is written.
    pub(super) fn frame_written(&mut self) {
        for &slot in &self.framed {
            let state = self.slots.get_mut(slot).expect("a slot of this table");
            if state.written == state.covered {
                self.unsynced.push(slot);
            }
            (state.written, state.first) = (state.added, 0);
        }
        self.framed.clear();
    }

    /// A sync begins, which covers all that is written.
    pub(super) fn sync_begins(&mut self) {
        assert!(self.syncing.is_empty(), "one sync at a time");
        for &slot in &self.unsynced {
            let state = self.slots.get_mut(slot).expect("a slot of this table");
            state.covered = state.written;
        }
        std::mem::swap(&mut self.unsynced, &mut self.syncing);
    }

    /// It has ended: all that it covers is durable.
    pub(super) fn sync_ends(&mut self) {
        for slot in self.syncing.drain(..) {
            let state = self.slots.get_mut(slot).expect("a slot of this table");
            state.durable = state.covered;
        }
    }

    /// Each stream with the last LSN that was added, in order.
    pub(super) fn lasts(&self) -> Vec<(u32, u64)> {
        self.states().map(|state| (state.stream, state.added)).collect()
    }

    /// Last written and durable LSN of a stream; zeros if there is none.
    pub(super) fn ends(&self, stream: u32) -> (u64, u64) {
        let state = self.found(stream).and_then(|slot| self.slots.get(slot));
        state.map_or((0, 0), |state| (state.written, state.durable))
    }

    /// Stream, written and durable LSN of each stream, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.states().map(|state| (state.stream, state.written, state.durable))
    }

    fn found(&self, stream: u32) -> Option<usize> {
        let at = self.index.binary_search_by_key(&stream, |&(stream, _)| stream).ok()?;
        self.index.get(at).map(|&(_, slot)| slot)
    }

    fn states(&self) -> impl Iterator<Item = &StreamState> {
        self.index.iter().filter_map(|&(_, slot)| self.slots.get(slot))
    }
}
