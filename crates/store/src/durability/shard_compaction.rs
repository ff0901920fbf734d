//! The owner's part of compaction: it looks which records of a file are still the newest, and has
//! them appended again.
//!
//! ```text
//! looks ──> the key's record has this LSN? ── yes ──> Again          no: dropped
//! the last look ──> Judged ──> keys that stand on the file ──> Again ... none is left ──> Release
//! ```
//!
//! 1. A step is bounded by looks and by bytes that it copies. Values in runs aren't copied: they
//!    are held until the log's thread has written them. A turn that wrote more has more steps: a
//!    shard that is never idle looks at as much as it writes, or the log would grow for ever.
//! 2. An order has the journal's tail at the look. Nothing is published between the two.
//! 3. A file whose record is bad in memory stays. Behind the order that says so, nothing of the
//!    file is looked at, so nothing of it is ordered. If the file has the record's right bytes, the
//!    log's thread sends them; then it sends what comes from that change on.
//!
//! The shard's thread. Rules: docs/formats/log.md, Compaction.

use crate::durability::looks::{Arenas, Files, Walked};
use crate::durability::orders::{AgainRecord, BadRecord, LogOrder, LookBatch, MetChange, Ordered};
use crate::durability::shard_base::{BASE_FILES, BaseWalk};
use nigh_shm::{Effect, Standing, StreamChange};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

/// Looks of a step: some 100 microseconds of cache misses.
const LOOKS_PER_STEP: usize = 256;
/// Looks whose memory is asked for together.
const LOOKS_AHEAD: usize = 32;
/// Bytes that a step copies, about.
const BYTES_PER_STEP: usize = 128 << 10;
/// For so many bytes that the journal took since the last turn there is a step more. A change has
/// some 64 at least: that is two looks or more for each.
const JOURNALED_PER_STEP: u64 = 8 << 10;
/// Steps of a turn. Turns are bounded too: the looks of one take about as long as its writes.
const STEPS_MOST: u64 = 32;

/// The second part of a file: keys that stand on it.
struct Pass {
    files: Files,
    ends: Vec<(u32, u64)>,
    left: VecDeque<(u32, Box<[u8]>)>,
}

/// Compaction at one shard.
pub struct ShardCompaction {
    looks: Receiver<LookBatch>,
    orders: SyncSender<LogOrder>,
    batch: Option<(LookBatch, usize)>,
    pass: Option<Pass>,
    base: Option<BaseWalk>,
    /// A record was bad: batches are passed over until one has its right bytes.
    halted: bool,
    /// Orders that found no room: the next step's first.
    waiting: VecDeque<(Files, LogOrder)>,
    /// The journal's tail in the last turn.
    tail: u64,
}

impl ShardCompaction {
    /// That of a shard whose log's thread asks for these looks and takes these orders.
    #[must_use]
    pub fn new(looks: Receiver<LookBatch>, orders: SyncSender<LogOrder>) -> ShardCompaction {
        let (batch, pass, base, waiting) = (None, None, None, VecDeque::new());
        ShardCompaction { looks, orders, batch, pass, base, halted: false, waiting, tail: 0 }
    }

    /// Has all records of these streams, each with its last LSN now, appended to a chain that
    /// begins now.
    pub(crate) fn begin_base(&mut self, streams: Vec<(u32, u64)>) {
        self.base = Some(BaseWalk::new(streams));
    }

    /// What is due in a turn; `tail` is the journal's. Whether there is more to do.
    pub(crate) fn turn(&mut self, tail: u64, arenas: &mut dyn Arenas) -> bool {
        let journaled = tail.saturating_sub(std::mem::replace(&mut self.tail, tail));
        let steps = (1 + journaled / JOURNALED_PER_STEP).min(STEPS_MOST);
        (0..steps).all(|_| self.step(tail, arenas))
    }

    /// A bounded step.
    fn step(&mut self, tail: u64, arenas: &mut dyn Arenas) -> bool {
        while let Some((files, order)) = self.waiting.pop_front() {
            let order =
                if order.tail == tail { order } else { renewed(files, order, tail, arenas) };
            match self.orders.try_send(order) {
                Ok(()) => {}
                Err(TrySendError::Full(order)) => {
                    self.waiting.push_front((files, order));
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        if self.batch.is_none()
            && self.pass.is_none()
            && let Ok(batch) = self.looks.try_recv()
        {
            batch.placed.iter().for_each(|placed| arenas.placed(placed));
            if let Some(right) = &batch.right {
                self.halted = false;
                self.order(tail, BASE_FILES, Ordered::Mended(arenas.mend(right)));
                return true;
            }
            if self.halted {
                return true;
            }
            self.batch = Some((batch, 0));
        }
        let mut step = Step { tail, again: Vec::new(), bytes: 0, bad: None };
        if self.base.is_some() {
            self.walk(&mut step, arenas);
        } else if self.batch.is_some() {
            self.look(&mut step, arenas);
        } else if self.pass.is_some() {
            self.pass(&mut step, arenas);
        } else {
            return false;
        }
        true
    }

    /// Appends some of a base's records.
    fn walk(&mut self, step: &mut Step, arenas: &mut dyn Arenas) {
        let Some(base) = &mut self.base else { return };
        let mut is_over = false;
        for _ in 0..LOOKS_PER_STEP {
            if step.bytes >= BYTES_PER_STEP || step.bad.is_some() {
                break;
            }
            match base.next_key() {
                Some((stream, key)) => {
                    step.take(stream, &key, None, arenas.standing(BASE_FILES, stream, &key, None));
                }
                None => match base.look(arenas) {
                    Walked::More => {}
                    Walked::AllOver => {
                        is_over = true;
                        break;
                    }
                    Walked::Bad(key) => step.take_bad(&key, None),
                },
            }
        }
        let went_well = self.order_again(step, BASE_FILES);
        if is_over && went_well {
            self.order(step.tail, BASE_FILES, Ordered::BaseEnds);
        }
        if is_over || !went_well {
            self.base = None;
        }
    }

    /// Looks at some changes of the batch.
    fn look(&mut self, step: &mut Step, arenas: &mut dyn Arenas) {
        let Some((batch, done)) = &mut self.batch else { return };
        let files = Files { victim: batch.file, newest: batch.newest };
        for (n, (look, key)) in batch.looks_from(*done).take(LOOKS_PER_STEP).enumerate() {
            if step.bytes >= BYTES_PER_STEP || step.bad.is_some() {
                break;
            }
            if n.is_multiple_of(LOOKS_AHEAD) {
                let ahead = batch.looks_from(*done).take(LOOKS_AHEAD);
                arenas.ask_for(&mut ahead.map(|(look, key)| (look.stream, key)));
            }
            *done += 1;
            let (stream, lsn) = (look.stream, look.lsn);
            let change = MetChange { stream, lsn, frame: batch.frame };
            let standing = arenas.standing(files, stream, key, Some(lsn));
            step.take(stream, key, Some(change), standing);
        }
        let is_done = *done == batch.looks.len();
        let ends = if is_done { batch.ends.take() } else { None };
        if is_done || step.bad.is_some() {
            self.batch = None;
        }
        if self.order_again(step, files)
            && let Some(ends) = ends
        {
            self.order(step.tail, files, Ordered::Judged(files.victim));
            self.pass = Some(Pass { files, ends, left: VecDeque::new() });
        }
    }

    /// Appends some of the keys that stand on the file.
    fn pass(&mut self, step: &mut Step, arenas: &mut dyn Arenas) {
        let Some(pass) = &mut self.pass else { return };
        if pass.left.is_empty() {
            for (stream, lsn) in &pass.ends {
                let keys = arenas.rooted_in(pass.files.victim, *stream, *lsn);
                pass.left.extend(keys.into_iter().map(|key| (*stream, key)));
            }
        }
        let (files, is_over) = (pass.files, pass.left.is_empty());
        for _ in 0..LOOKS_PER_STEP {
            if step.bytes >= BYTES_PER_STEP || step.bad.is_some() {
                break;
            }
            let Some((stream, key)) = pass.left.pop_front() else { break };
            step.take(stream, &key, None, arenas.standing(files, stream, &key, None));
        }
        let went_well = self.order_again(step, files);
        if is_over || !went_well {
            self.pass = None;
        }
        if is_over && went_well {
            self.order(step.tail, files, Ordered::Release(files.victim));
        }
    }

    /// Orders what a step has found; false if the file must stay.
    fn order_again(&mut self, step: &mut Step, files: Files) -> bool {
        if !step.again.is_empty() {
            let again = std::mem::take(&mut step.again);
            self.order(step.tail, files, Ordered::Again(again));
        }
        let Some(bad) = step.bad.take() else { return true };
        self.halted = true;
        self.order(step.tail, files, Ordered::Stays(bad));
        false
    }

    fn order(&mut self, tail: u64, files: Files, what: Ordered) {
        let order = LogOrder { tail, what };
        if !self.waiting.is_empty() {
            return self.waiting.push_back((files, order));
        }
        if let Err(TrySendError::Full(order)) = self.orders.try_send(order) {
            self.waiting.push_back((files, order));
        }
    }
}

/// An order that found no room, as it is now: what came meanwhile may be in the log already, so the
/// versions of before mustn't come behind it. A record that has gone bad since isn't mended: which
/// change asked for it isn't known any more, so compaction stops.
fn renewed(files: Files, order: LogOrder, tail: u64, arenas: &mut dyn Arenas) -> LogOrder {
    let Ordered::Again(records) = order.what else { return LogOrder { tail, ..order } };
    let mut step = Step { tail, again: Vec::new(), bytes: 0, bad: None };
    for AgainRecord { stream, lsn, record, .. } in records {
        let change = StreamChange { lsn, effect: Effect::Put, payload: &record, rest: &[] };
        if let Ok(Some(key)) = change.key() {
            step.take(stream, key, None, arenas.standing(files, stream, key, None));
        }
    }
    let what = step.bad.map_or(Ordered::Again(step.again), Ordered::Stays);
    LogOrder { tail, what }
}

/// What a step has found.
struct Step {
    tail: u64,
    again: Vec<AgainRecord>,
    bytes: usize,
    bad: Option<BadRecord>,
}

impl Step {
    /// Notes that the record of a key is bad, and which change it was asked for by.
    fn take_bad(&mut self, key: &[u8], change: Option<MetChange>) {
        self.bad = Some(BadRecord { key: String::from_utf8_lossy(key).into_owned(), change });
    }

    /// Takes what stands of a key, asked for by this change.
    fn take(&mut self, stream: u32, key: &[u8], change: Option<MetChange>, standing: Standing) {
        match standing {
            Standing::Other => {}
            Standing::Bad => self.take_bad(key, change),
            Standing::Whole(it) => {
                self.bytes += it.record.len();
                let (lsn, record, value) = (it.lsn, it.record, it.value);
                self.again.push(AgainRecord { stream, lsn, record, value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::orders::{Look, Placed, RightBytes};
    use nigh_shm::{LineWalk, MendError, StandingRecord};
    use std::sync::mpsc::sync_channel;

    /// All keys are there; one may be bad.
    struct OneBad(bool);

    impl Arenas for OneBad {
        fn standing(&mut self, _: Files, _: u32, key: &[u8], lsn: Option<u64>) -> Standing {
            let (lsn, record) = (lsn.expect("asked for by a change"), key.to_vec());
            match key {
                b"bad" if self.0 => Standing::Bad,
                _ => Standing::Whole(StandingRecord { lsn, is_based: false, record, value: None }),
            }
        }
        fn ask_for(&self, _: &mut dyn Iterator<Item = (u32, &[u8])>) {}
        fn mend(&mut self, _: &RightBytes) -> Result<bool, MendError> {
            self.0 = false;
            Ok(true)
        }
        fn placed(&mut self, _: &Placed) {}
        fn rooted_in(&self, _: u64, _: u32, _: u64) -> Vec<Box<[u8]>> {
            Vec::new()
        }
        fn walk(
            &self,
            _: u32,
            _: &mut LineWalk,
            _: u32,
            _: &mut VecDeque<(u32, Box<[u8]>)>,
        ) -> Walked {
            Walked::AllOver
        }
    }

    fn batch(frame: u64, words: &[&str], is_last: bool) -> LookBatch {
        let (mut looks, mut keys) = (Vec::new(), Vec::new());
        for (lsn, word) in (frame + 1..).zip(words) {
            keys.extend_from_slice(word.as_bytes());
            looks.push(Look { stream: 256, lsn, key_end: keys.len() });
        }
        let (placed, ends) = (Vec::new(), is_last.then(Vec::new));
        LookBatch { file: 3, frame, newest: 9, placed, looks, keys, ends, right: None }
    }

    fn told(order: LogOrder) -> String {
        match order.what {
            Ordered::Again(all) => {
                let all = all.iter().map(|it| String::from_utf8_lossy(&it.record));
                all.fold("again".to_owned(), |text, key| text + " " + &key)
            }
            Ordered::Stays(bad) => format!("stays {:?}", bad.change.map(|it| (it.lsn, it.frame))),
            Ordered::Mended(done) => format!("mended {done:?}"),
            Ordered::Judged(file) => format!("judged {file}"),
            Ordered::Release(file) => format!("release {file}"),
            _ => "other".to_owned(),
        }
    }

    /// Between a bad record and its right bytes the log's thread gets no order of the file: what
    /// was looked at then would be appended twice, and the file could go.
    #[test]
    fn behind_a_bad_record_nothing_is_ordered_until_it_is_mended() {
        let (batches, looks) = sync_channel(8);
        let (orders, ordered) = sync_channel(8);
        let (mut shard, mut arenas) = (ShardCompaction::new(looks, orders), OneBad(true));
        let mut run = |sent: Vec<LookBatch>| {
            sent.into_iter().for_each(|batch| batches.send(batch).expect("the shard is there"));
            while shard.step(0, &mut arenas) {}
            ordered.try_iter().map(told).collect::<Vec<_>>()
        };
        let first = run(vec![batch(100, &["a", "bad", "b"], false), batch(200, &["c"], true)]);
        assert_eq!(first, ["again a", "stays Some((102, 100))"]);
        assert!(run(vec![batch(300, &["d"], true)]).is_empty());
        let right = Some(RightBytes { stream: 256, lsn: 102, payload: Vec::new() });
        let second = run(vec![
            LookBatch { right, ..batch(0, &[], false) },
            batch(101, &["bad", "b"], false),
            batch(200, &["c"], true),
        ]);
        let expected = ["mended Ok(true)", "again bad b", "again c", "judged 3", "release 3"];
        assert_eq!(second, expected);
    }

    /// A turn that wrote much looks at as much, or the log of a shard that is never idle grows.
    #[test]
    fn a_turn_looks_at_as_much_as_it_wrote() {
        let (batches, looks) = sync_channel(8);
        let (orders, ordered) = sync_channel(64);
        let (mut shard, mut arenas) = (ShardCompaction::new(looks, orders), OneBad(false));
        let mut looked = |tail: u64| {
            assert!(shard.turn(tail, &mut arenas), "there is more");
            let orders = ordered.try_iter().map(|order| match order.what {
                Ordered::Again(all) => all.len(),
                _ => 0,
            });
            orders.sum::<usize>()
        };
        for _ in 0..4 {
            batches.send(batch(100, &["key"; 2_000], false)).expect("the shard is there");
        }
        assert_eq!(looked(0), LOOKS_PER_STEP);
        // A change of 64 bytes is a short one.
        assert!(looked(2_000 * 64) >= 2_000);
        assert_eq!(looked(2_000 * 64), LOOKS_PER_STEP);
    }
}
