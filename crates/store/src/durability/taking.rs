//! How the log's thread takes what is in the journal, and what the shard asks for.
//!
//! 1. An order is obeyed behind the entries that were there when it was given, and before others.
//!
//! One thread at a time.

use crate::durability::log_sink::{LogSink, LogStop};
use crate::durability::log_thread::LogThread;
use nigh_log::Storage;
use std::sync::mpsc::TryRecvError;

/// Bytes of entries in a pass: part of a millisecond. Not more than compaction may read in one, or
/// a log whose thread is never idle would grow for ever.
const PASS_BYTES: u64 = 1 << 20;

impl<S: Storage> LogThread<S> {
    /// Takes what the shard asks for, to be done in its place.
    pub(super) fn take_orders(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.ahead.push_back(order),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.sink.status.close(),
            }
        }
    }

    /// Takes entries and orders, each in its place, as many as a pass may have. Whether an order
    /// was obeyed.
    pub(super) fn take_all(&mut self) -> Result<bool, LogStop> {
        let most = self.reader.position() + PASS_BYTES;
        let newest = self.sink.writer.newest_file();
        let mut ordered = false;
        loop {
            // In this order: an order that was given before the tail rose is here then, and has its
            // place before what is behind.
            let tail = self.reader.tail();
            self.take_orders();
            let end = self.ahead.front().map_or(tail, |order| order.tail.min(tail));
            let begun = |sink: &LogSink<S>| sink.writer.newest_file() != newest;
            while self.reader.position() < end.min(most) && !begun(&self.sink) {
                self.take_entry(end)?;
            }
            if self.reader.position() < end || begun(&self.sink) {
                return Ok(ordered);
            }
            // The tail may have risen behind the look above, and the order have come since: then it
            // has its place behind entries that the next pass takes.
            let is_next = self.ahead.front().is_some_and(|order| order.tail <= end);
            let Some(order) = is_next.then(|| self.ahead.pop_front()).flatten() else {
                return Ok(ordered);
            };
            self.obey(order.what)?;
            ordered = true;
        }
    }

    /// Takes the next entry, if it ends at `end` at the latest.
    pub(super) fn take_entry(&mut self, end: u64) -> Result<(), LogStop> {
        let (from, frames_end) = (self.reader.position(), self.sink.writer.end());
        let is_seen = self.observer.as_ref().is_some_and(|observer| observer.wants_entries());
        if !is_seen && let Some(entry) = self.reader.advance_plain(end) {
            self.sink.add_plain(&entry)?;
        } else if let Some(entry) = self.reader.advance_to(end)? {
            if let Some(observer) = &mut self.observer {
                observer.see(&entry);
            }
            self.sink.add_entry(&entry)?;
        }
        if self.sink.writer.end() != frames_end {
            // This entry is in the open frame, or in the last one that was written.
            self.framed = from;
        }
        Ok(())
    }
}
