//! A view: a store that reads what another thread writes.
//!
//! 1. A view never writes, and never decides that a key is over: it says what it can't tell
//!    ([`Lack`]), and the owner is asked.
//! 2. What a command reads at one moment is of that moment, whichever keys it looks at.
//!
//! Thread: the shard that has the view.

use std::sync::Arc;

use nigh_shm::{Reader, Record};

use crate::eviction::hits::{Inbox, NewRings};
use crate::keyspace::PartitionNumber;
use crate::partition::halves::{Libraries, WriterHalf};
use crate::partition::store::{Counters, Lack, Store, Turn, is_over};
use crate::partition::sweep::Sweep;
use crate::partition::watches::Watches;

/// What a view of a store is made from, on whatever thread.
#[derive(Clone)]
pub struct Views {
    pub(crate) data: Reader,
    pub(crate) system: Reader,
    pub(crate) new_rings: Arc<NewRings>,
    pub(crate) place: PartitionNumber,
}

impl Store {
    /// [`Store::find`] where another thread writes: at the moment that the command reads at, if it
    /// has one. Notes what can't be told.
    pub(crate) fn find_in_view<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        let found = match &self.moment {
            Some(moment) => self
                .reader
                .get_at(turn.pin, moment, hash, key)
                .map(|found| (found, moment.clock_ms())),
            None => self.reader.get_alone(turn.pin, hash, key),
        };
        let Ok((found, clock_ms)) = found else {
            self.counters.lacks = self.counters.lacks.max(Lack::Moment);
            return None;
        };
        let record = found?;
        // The owner deletes it, if it is over by its clock too.
        if is_over(record.expiry_ms(), turn.now_ms.max(clock_ms)) {
            self.counters.lacks = Lack::Clock;
            return None;
        }
        Some(record)
    }

    /// What a view's next command reads belongs to one moment; false if there is none now.
    pub fn take_moment(&mut self, turn: &Turn<'_>) -> bool {
        self.moment = self.reader.moment(turn.pin);
        self.moment.is_some()
    }

    /// What a view's commands read each by itself again; and what they couldn't tell since the last
    /// call.
    #[inline]
    pub fn take_lack(&mut self) -> Lack {
        self.moment = None;
        std::mem::take(&mut self.counters.lacks)
    }

    /// What views of this store are made from.
    #[must_use]
    pub fn views(&self) -> Views {
        Views {
            data: self.reader.clone(),
            system: self.libraries.reader.clone(),
            new_rings: Arc::clone(&self.new_rings),
            place: self.place,
        }
    }

    /// A store that reads what another shard owns.
    #[must_use]
    pub fn view(views: Views) -> Store {
        Store {
            data: WriterHalf::elsewhere(),
            reader: views.data,
            transaction: None,
            watches: Watches::default(),
            counters: Counters::default(),
            sweep: Sweep::default(),
            tracks: false,
            tracks_reads: false,
            moment: None,
            eviction: None,
            hit_log: None,
            inbox: Inbox::new(Arc::clone(&views.new_rings)),
            new_rings: views.new_rings,
            libraries: Libraries { writer: WriterHalf::elsewhere(), reader: views.system },
            files: None,
            place: views.place,
        }
    }
}
