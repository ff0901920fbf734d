//! The log thread's part of a base that is written while the server serves: what it withholds until
//! the chain counts, and the sync before that.
//!
//! 1. A record whose value is bad in memory, and a disk without room, end the base.
//! 2. What has to be synced before the base may count is all that was in the journal when the
//!    keeper asked: all other bases' walks had ended then.
//!
//! One thread.

use crate::durability::base_stage::LogStage;
use crate::durability::log_sink::LogStop;
use crate::durability::log_status::LogHealth;
use crate::durability::log_thread::LogThread;
use nigh_log::Storage;

impl<S: Storage> LogThread<S> {
    /// Says which entries were written, unless a chain counts that doesn't have them.
    pub(super) fn tell_written(&mut self) {
        if !self.sink.writer.has_open_frame() {
            self.framed = self.reader.position();
        }
        if !self.sink.status.heals() {
            self.reader.written(self.framed);
        }
    }

    /// All records were taken: the owner's last order.
    pub(super) fn base_walked(&mut self) {
        if self.base.is_on {
            self.sink.status.set_stage(LogStage::Walked);
        }
    }

    /// What the keeper of the log wants of a base. Whether there is more to do at once. Behind the
    /// write of a pass.
    pub(super) fn look_at_base(&mut self) -> Result<bool, LogStop> {
        if !self.base.is_on {
            return Ok(false);
        }
        match self.sink.status.stage() {
            LogStage::Counts => {
                self.base_counts();
                Ok(true)
            }
            LogStage::Syncs => {
                let tail = self.reader.tail();
                let target = *self.base.target.get_or_insert(tail);
                if self.reader.position() < target {
                    return Ok(true);
                }
                self.sink.wait_sync()?;
                self.sink.begin_sync()?;
                self.sink.wait_sync()?;
                self.base.target = None;
                self.sink.status.set_stage(LogStage::Synced);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Meta names the chain, and that counts: all that was withheld is told.
    fn base_counts(&mut self) {
        self.base.is_on = false;
        let writer = &mut self.sink.writer;
        writer.named();
        (self.newest_told, self.room_for) = (writer.newest_file(), 0);
        let generation = writer.chain().generation;
        self.note_begun_files();
        self.reader.file().set_generation(generation);
        self.sink.status.tell_health(LogHealth::Well, String::new());
        self.tell_written();
        self.sink.tell_durable();
        (self.sink.wake_shards)();
    }
}
