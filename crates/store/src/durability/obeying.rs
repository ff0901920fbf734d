//! How the log's thread does what it is ordered to.
//!
//! 1. A record of a file that is compacted comes again whole, or the file stays: no room, or bytes
//!    that are bad in memory, stop that file's compaction. While a base is written they end that.
//! 2. A record whose right bytes the file has is mended by its owner: see `mending`.
//!
//! One thread.

use crate::durability::log_sink::LogStop;
use crate::durability::log_status::LogHealth;
use crate::durability::log_thread::LogThread;
use crate::durability::orders::{AgainRecord, EndOrder, Ordered};
use nigh_log::{ChainMark, Storage};

/// Why a log that doesn't count yet puts no mark.
const NO_MARK: &str = "a new log is being written, which no backup can be made of yet: try again when \
    INFO's aof_rewrite_in_progress is 0";

impl<S: Storage> LogThread<S> {
    /// Does what an order says, in its place among the entries.
    pub(super) fn obey(&mut self, what: Ordered) -> Result<(), LogStop> {
        match what {
            Ordered::Again(records) => {
                records.into_iter().try_for_each(|record| self.append_again(record))?;
            }
            Ordered::Stays(bad) if self.base.is_on => {
                return Err(LogStop::BadMemory(format!("the record of key {:?}", bad.key)));
            }
            Ordered::BaseEnds => self.base_walked(),
            // A file of which something couldn't be appended stays, though the owner got on.
            Ordered::Judged(_) | Ordered::Release(_) if self.compaction.is_stopped() => {}
            Ordered::Judged(victim) => self.sink.writer.judged(victim),
            Ordered::Release(victim) => {
                self.sink.writer.release(victim);
                self.compaction.released();
            }
            Ordered::Stays(bad) => {
                let (writer, status) = (&self.sink.writer, &self.sink.status);
                self.compaction.stays(writer, status, bad, self.sink.world.clock.rising_us());
            }
            Ordered::Mended(done) => {
                let now_us = self.sink.world.clock.rising_us();
                self.compaction.mended(done, &self.sink.status, now_us);
            }
            Ordered::EndFrame(order) if self.base.is_on => {
                let _ = order.told.send(Err(NO_MARK.to_owned()));
            }
            Ordered::EndFrame(order) => self.put_mark(order)?,
        }
        Ok(())
    }

    /// Appends a record again, or says why the compaction of its file stops.
    fn append_again(&mut self, mut record: AgainRecord) -> Result<(), LogStop> {
        if self.lacks_room_for(&record) {
            let what =
                format!("a full disk has no room to move the value of change {}", record.lsn);
            self.compaction.stop(what, &self.sink.status);
            return Ok(());
        }
        let value = record.value.as_mut();
        if value.is_none_or(|value| value.compare(usize::MAX) == Some(true)) {
            self.sink.add_again(&record)?;
            if !self.base.is_on {
                self.compaction.placed(&record, self.sink.writer.newest_file());
            }
            return Ok(());
        }
        if self.base.is_on {
            return Err(LogStop::BadMemory(format!("change {}", record.lsn)));
        }
        let what = format!("the value of change {} is bad in memory", record.lsn);
        self.compaction.stop(what, &self.sink.status);
        Ok(())
    }

    /// Ends a frame at which a backup ends, and holds what the backup will read.
    fn put_mark(&mut self, order: EndOrder) -> Result<(), LogStop> {
        let EndOrder { told, hold_bytes, holder } = order;
        self.sink.wait_sync()?;
        let end = self.sink.writer.end_frame();
        if end.is_ok() {
            // What is held already reaches back further.
            if self.holders.is_empty() {
                self.sink.writer.hold(Some(self.sink.writer.oldest()));
            }
            self.holders.retain(|holder| holder.strong_count() > 0);
            self.holders.push(holder);
            self.hold_bytes = hold_bytes;
        }
        let chain = self.sink.writer.chain();
        let mark = end.as_ref().map(|&end| ChainMark { chain, end });
        // If nobody waits for it any more, the frame does no harm, and soon all is let go.
        let _ = told.send(mark.map_err(ToString::to_string));
        end?;
        self.sink.tell_durable();
        Ok(())
    }

    /// Whether a record that is to be appended again would wait for room, and all others with it.
    /// A file never goes without one.
    fn lacks_room_for(&self, record: &AgainRecord) -> bool {
        let value = record.value.as_ref().map_or(0, |value| value.bytes().len());
        let is_full = self.sink.status.health() == LogHealth::Full && !self.base.is_on;
        is_full && self.sink.writer.room() < (record.record.len() + value) as u64
    }

    /// Files that don't count may be prepared again, if nobody holds them any more, or they are
    /// more than may be held.
    pub(super) fn look_at_holders(&mut self) {
        let is_held = self.holders.iter().any(|holder| holder.strong_count() > 0);
        if is_held && self.sink.writer.held_bytes() <= self.hold_bytes {
            return;
        }
        self.sink.writer.hold(None);
        self.holders.clear();
        self.prepared = false;
    }
}
