//! The files of a chain, and which of them count.
//!
//! ```text
//! counted ── the owner has judged it, a sync that covers all added before ends ──> leaving
//! leaving ── a frame whose `oldest` is above it is synced ──> no longer counts
//! ```
//!
//! 1. The last file is the one being written, and never leaves.
//! 2. Files leave from the oldest on, one at a time.
//!
//! The log's thread. No I/O. Shown by crates/log/models/files.py.

use crate::reader::chain_file::ChainFile;
use std::collections::VecDeque;

/// The files of a chain.
#[derive(Debug)]
pub(super) struct ChainFiles {
    /// From the oldest that counts to the one being written, whose end isn't known yet.
    counted: VecDeque<ChainFile>,
    /// They may be needed until a synced frame says that they aren't.
    leaving: Vec<ChainFile>,
    /// `oldest` of the last frame that was written, of the last one that a sync covers, and of the
    /// last one that is on disk.
    told_written: u64,
    told_covered: u64,
    told: u64,
    /// The last victim that was wholly judged; 0: none.
    judged: u64,
    victim: VictimState,
    /// Meta doesn't name the chain yet.
    unnamed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VictimState {
    None,
    /// Its changes are being looked at.
    UnderWay(u64),
    /// It leaves at the end of the next sync that begins.
    Released(u64),
    /// It leaves at the end of the sync under way.
    Covered(u64),
}

impl ChainFiles {
    /// The files that count, from the oldest on; a synced frame tells the oldest.
    pub(super) fn new(files: Vec<ChainFile>, unnamed: bool) -> ChainFiles {
        let oldest = files.first().map_or(1, |file| file.number);
        ChainFiles {
            counted: files.into(),
            leaving: Vec::new(),
            told_written: oldest,
            told_covered: oldest,
            told: oldest,
            judged: 0,
            victim: VictimState::None,
            unnamed,
        }
    }

    /// The oldest file that counts, as the next frame says it.
    pub(super) fn oldest(&self) -> u64 {
        self.counted.front().map_or(1, |file| file.number)
    }

    /// The oldest file that counts by what is on disk.
    pub(super) fn oldest_on_disk(&self) -> u64 {
        self.told
    }

    /// Whether the disk has the oldest file that counts.
    pub(super) fn all_told(&self) -> bool {
        self.told == self.oldest()
    }

    /// Whether no frame that was written has the oldest file that counts.
    pub(super) fn must_tell(&self) -> bool {
        self.told_written != self.oldest()
    }

    /// Whether a file waits for a sync to leave, or for one that tells it.
    pub(super) fn is_leaving(&self) -> bool {
        let waits = matches!(self.victim, VictimState::Released(_) | VictimState::Covered(_));
        waits || !self.all_told()
    }

    /// Bytes of the files that count by what is on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.counted.iter().chain(&self.leaving).map(|file| file.file_bytes).sum()
    }

    /// Bytes of those that were written that no frame has.
    pub(super) fn unused_bytes(&self) -> u64 {
        let written = self.counted.iter().rev().skip(1);
        written.map(|file| file.file_bytes.saturating_sub(file.end)).sum()
    }

    /// Bytes of the longest of them.
    pub(super) fn longest(&self) -> u64 {
        self.counted.iter().map(|file| file.file_bytes).max().unwrap_or(0)
    }

    /// Bytes of the oldest.
    pub(super) fn oldest_bytes(&self) -> u64 {
        self.counted.front().map_or(0, |file| file.file_bytes)
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.counted.len() + self.leaving.len()
    }

    /// The file being written ends here, by a frame with this sum.
    pub(super) fn ended(&mut self, end: u64, end_sum: u32) {
        if let Some(newest) = self.counted.back_mut() {
            (newest.end, newest.end_sum) = (end, end_sum);
        }
    }

    /// A file was begun.
    pub(super) fn begun(&mut self, file: ChainFile) {
        self.counted.push_back(file);
    }

    /// The chain counts from now on.
    pub(super) fn named(&mut self) {
        self.unnamed = false;
    }

    /// A frame with the present `oldest` was written.
    pub(super) fn frame_written(&mut self) {
        self.told_written = self.oldest();
    }

    /// A sync begins, which covers all that was added.
    pub(super) fn sync_begins(&mut self) {
        self.told_covered = self.told_written;
        if let VictimState::Released(victim) = self.victim {
            self.victim = VictimState::Covered(victim);
        }
    }

    /// It has ended; perhaps all that was added is durable. Returns the files that count no longer.
    pub(super) fn sync_ends(&mut self, is_durable: bool) -> Vec<ChainFile> {
        self.told = self.told_covered;
        let told = self.told;
        let gone = self.leaving.extract_if(.., |file| file.number < told).collect();
        if is_durable && let VictimState::Released(victim) = self.victim {
            // It was released while the sync ran, and nothing was added since: no other sync comes.
            self.victim = VictimState::Covered(victim);
        }
        self.leave();
        gone
    }

    /// A victim that needs nothing any more leaves: what was added before its release is durable.
    fn leave(&mut self) {
        if let VictimState::Covered(victim) = self.victim {
            assert_eq!(victim, self.oldest(), "the victim is the oldest file");
            self.leaving.extend(self.counted.pop_front());
            self.victim = VictimState::None;
        }
    }

    /// The next victim; from now on it is under way.
    pub(super) fn choose_victim(&mut self) -> Option<&ChainFile> {
        if self.unnamed || self.victim != VictimState::None || self.counted.len() < 2 {
            return None;
        }
        let victim = self.counted.front()?;
        self.victim = VictimState::UnderWay(victim.number);
        Some(victim)
    }

    /// The victim that is under way.
    pub(super) fn victim_under_way(&self) -> Option<&ChainFile> {
        self.counted.front().filter(|file| self.victim == VictimState::UnderWay(file.number))
    }

    /// The victim can't be opened: it is under way no more.
    pub(super) fn victim_failed(&mut self) {
        self.victim = VictimState::None;
    }

    /// The last LSN of each stream before the file behind the victim.
    pub(super) fn lasts_behind(&self, victim: u64) -> Vec<(u32, u64)> {
        assert_eq!(
            self.victim,
            VictimState::UnderWay(victim),
            "file {victim} isn't being compacted"
        );
        self.counted.get(1).map(|file| file.lasts.clone()).unwrap_or_default()
    }

    /// All changes of the victim were looked at.
    pub(super) fn judged(&mut self, victim: u64) {
        assert_eq!(
            self.victim,
            VictimState::UnderWay(victim),
            "file {victim} isn't being compacted"
        );
        self.judged = victim;
    }

    /// All that the victim needed was added; perhaps all that was added is durable.
    pub(super) fn release(&mut self, victim: u64, is_durable: bool) {
        assert_eq!(
            self.victim,
            VictimState::UnderWay(victim),
            "file {victim} isn't being compacted"
        );
        assert_eq!(self.judged, victim, "file {victim} wasn't judged");
        self.victim = VictimState::Released(victim);
        if is_durable {
            self.victim = VictimState::Covered(victim);
            self.leave();
        }
    }

    /// The lowest file that a change may lie in which has this LSN, or stands for it.
    pub(super) fn file_of(&self, stream: u32, lsn: u64) -> u64 {
        let last = |file: &ChainFile| {
            let row = file.lasts.binary_search_by_key(&stream, |&(stream, _)| stream);
            row.ok().and_then(|row| file.lasts.get(row)).map_or(0, |&(_, last)| last)
        };
        if self.unnamed && self.counted.front().is_none_or(|first| lsn <= last(first)) {
            return 0;
        }
        let unjudged = self.counted.iter().filter(|file| file.number > self.judged);
        let lowest = unjudged.map(|file| file.number).next().unwrap_or_else(|| self.oldest());
        let after = self.counted.partition_point(|file| last(file) < lsn);
        let fresh = after.checked_sub(1).and_then(|at| self.counted.get(at));
        fresh.map_or(lowest, |file| file.number.max(lowest))
    }
}
