//! A shard that serves: its queue to the log, its writer, and compaction by looks at memory.
//!
//! The queue is what the journal is in the server: commits, and records that are appended again, in
//! one order.

use crate::book::{CommitMark, ShardBook};
use crate::model::{Keys, ModelChange};
use nigh_log::{
    Added, ChangeKind, LogError, LogWriter, NewChange, NewCommit, Storage, SyncEnd, SyncJob,
    VictimReader,
};
use std::collections::{BTreeMap, VecDeque};

/// A commit or a record that waits for the writer.
#[derive(Debug)]
struct Queued {
    stream: u32,
    first: u64,
    again: bool,
    changes: Vec<(ChangeKind, Vec<u8>)>,
    needs: Vec<(u32, u64)>,
    clock_ms: u64,
}

#[derive(Debug)]
enum Item {
    Commit(Queued),
    /// All that the victim needed stands before.
    Release(u64),
}

/// How far a victim is.
enum Pass<S: Storage> {
    /// Its changes are looked at.
    Reading(Box<VictimReader<S>>),
    /// Keys that stand on it are appended.
    Standing(u64),
    /// What it needed is in the queue.
    Queued,
}

/// How far a sync is that runs beside.
#[derive(Debug)]
enum Beside<F> {
    Begun(SyncJob<F>),
    /// The disk is done with it; the writer doesn't know.
    Run(SyncEnd),
}

/// One shard.
pub(crate) struct Shard<S: Storage> {
    pub(crate) writer: LogWriter<S>,
    queue: VecDeque<Item>,
    /// Keys whose newest change is BASED, by stream and key, with their file's number.
    standing: BTreeMap<(u32, u8), u64>,
    pass: Option<Pass<S>>,
    beside: Option<Beside<S::File>>,
    /// Syncs that had frames written while they ran.
    pub(crate) overlapped: u64,
    /// A victim couldn't be read: it never goes, and the shard needs a base.
    pub(crate) stuck: bool,
    /// Files that compaction was done with.
    pub(crate) compacted: u64,
}

impl<S: Storage> Shard<S> {
    /// A shard whose memory was replayed: nothing is known of what its keys stand on.
    pub(crate) fn new(writer: LogWriter<S>, book: &ShardBook) -> Shard<S> {
        let mut standing = BTreeMap::new();
        for (&stream, model) in &book.streams {
            let based = model.keys.iter().filter(|(_, kept)| kept.based);
            standing.extend(based.map(|(&key, _)| ((stream, key), 0)));
        }
        let queue = VecDeque::new();
        let (pass, beside, overlapped, stuck, compacted) = (None, None, 0, false, 0);
        Shard { writer, queue, standing, pass, beside, overlapped, stuck, compacted }
    }

    /// A step of a sync that runs beside: its begin, the disk's work, or its end.
    pub(crate) fn step_beside(&mut self) -> Result<(), LogError> {
        match self.beside.take() {
            None => self.beside = self.writer.begin_sync()?.map(Beside::Begun),
            Some(Beside::Begun(job)) => self.beside = Some(Beside::Run(job.run())),
            Some(Beside::Run(end)) => {
                let written = |writer: &LogWriter<S>| {
                    let ends = writer.streams();
                    ends.map(|(_, written, durable)| written - durable).sum::<u64>()
                };
                self.writer.end_sync(end)?;
                self.overlapped += u64::from(written(&self.writer) > 0);
            }
        }
        Ok(())
    }

    /// Ends the sync that runs beside, if there is one.
    pub(crate) fn end_beside(&mut self) -> Result<(), LogError> {
        while self.beside.is_some() {
            self.step_beside()?;
        }
        Ok(())
    }

    /// All that was added is durable.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        self.end_beside()?;
        self.writer.sync()
    }

    /// Makes a commit in memory, and puts it into the queue.
    pub(crate) fn commit(
        &mut self,
        book: &mut ShardBook,
        stream: u32,
        changes: &[ModelChange],
        needs: Vec<(u32, u64)>,
        clock_ms: u64,
    ) {
        let model = book.streams.get_mut(&stream).unwrap();
        self.number(stream, changes);
        let first = model.commit(changes);
        let mark = CommitMark { stream, first, last: model.last, needs, clock_ms };
        let changes = changes.iter().map(|change| (change.kind(), change.payload())).collect();
        let needs = mark.needs.clone();
        self.queue.push_back(Item::Commit(Queued {
            stream,
            first,
            again: false,
            changes,
            needs,
            clock_ms,
        }));
        book.marks.push_back(mark);
    }

    /// The numbers of keys after these changes.
    fn number(&mut self, stream: u32, changes: &[ModelChange]) {
        for change in changes {
            match change {
                ModelChange::Clear => self.standing.retain(|(of, _), _| *of != stream),
                ModelChange::Based { key, source, base_lsn, .. } => {
                    let number = self.standing.get(&(stream, *source)).copied();
                    let number = number.unwrap_or_else(|| self.writer.file_of(stream, *base_lsn));
                    self.standing.insert((stream, *key), number);
                }
                ModelChange::Put { key, .. } | ModelChange::Gone { key } => {
                    self.standing.remove(&(stream, *key));
                }
            }
        }
    }

    /// A record as it is now goes into the queue again.
    pub(crate) fn append_again(&mut self, stream: u32, key: u8, keys: &Keys) {
        let kept = &keys[&key];
        let put = ModelChange::Put { key, based: kept.based, value: kept.value.to_vec() };
        self.queue.push_back(Item::Commit(Queued {
            stream,
            first: kept.lsn,
            again: true,
            changes: vec![(ChangeKind::Put, put.payload())],
            needs: Vec::new(),
            clock_ms: 0,
        }));
        if let Some(number) = self.standing.get_mut(&(stream, key)) {
            *number = self.writer.newest_file();
        }
    }

    /// Gives the queue to the writer; `false`: the first commit waits for another log, or for the
    /// end of a sync that runs beside.
    pub(crate) fn pump(
        &mut self,
        book: &ShardBook,
        durable: &dyn Fn(u32) -> u64,
    ) -> Result<bool, LogError> {
        while let Some(item) = self.queue.front() {
            match item {
                Item::Release(victim) => {
                    self.writer.release(*victim);
                    (self.pass, self.compacted) = (None, self.compacted + 1);
                }
                // Changes of a dropped tenant aren't written.
                Item::Commit(queued) if !book.streams.contains_key(&queued.stream) => {}
                Item::Commit(queued) => {
                    if add(&mut self.writer, queued, durable)? != Added::Taken {
                        return Ok(false);
                    }
                }
            }
            self.queue.pop_front();
        }
        Ok(true)
    }

    /// Whether the writer has all.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// A tenant's streams are forgotten.
    pub(crate) fn drop_stream(&mut self, stream: u32) {
        self.writer.drop_stream(stream);
        self.standing.retain(|(of, _), _| *of != stream);
        self.forget_need(stream);
    }

    /// Nobody waits for this stream any more.
    pub(crate) fn forget_need(&mut self, stream: u32) {
        for item in &mut self.queue {
            if let Item::Commit(queued) = item {
                queued.needs.retain(|&(of, _)| of != stream);
            }
        }
    }

    /// Whether a victim is under way.
    pub(crate) fn compacts(&self) -> bool {
        self.pass.is_some()
    }

    /// A step of compaction; begins with the next victim if there is none.
    pub(crate) fn compact(&mut self, book: &ShardBook, bytes: usize) -> Result<(), LogError> {
        match self.pass.take() {
            None => self.pass = self.writer.victim()?.map(|reader| Pass::Reading(Box::new(reader))),
            Some(Pass::Reading(mut reader)) => {
                let victim = reader.file();
                let more = self.look(book, &mut reader, bytes);
                self.stuck |= more.is_err();
                let more = more?;
                if !more {
                    self.writer.judged(victim);
                }
                self.pass = Some(if more { Pass::Reading(reader) } else { Pass::Standing(victim) });
            }
            Some(Pass::Standing(victim)) => {
                let queued = self.append_standing(book, victim, 3) == 0;
                if queued {
                    self.queue.push_back(Item::Release(victim));
                }
                self.pass = Some(if queued { Pass::Queued } else { Pass::Standing(victim) });
            }
            Some(Pass::Queued) => self.pass = Some(Pass::Queued),
        }
        Ok(())
    }

    /// Looks at some changes of the victim; `false` at its end.
    fn look(
        &mut self,
        book: &ShardBook,
        reader: &mut VictimReader<S>,
        bytes: usize,
    ) -> Result<bool, LogError> {
        let Some(step) = reader.advance(bytes)? else { return Ok(false) };
        for change in &step.changes {
            let header = change.header;
            let parsed = ModelChange::parse(change).expect("a change that was written");
            let Some(model) = book.streams.get(&header.stream) else { continue };
            let Some(key) = parsed.key() else { continue };
            if model.keys.get(&key).is_some_and(|kept| kept.lsn == header.lsn) {
                self.append_again(header.stream, key, &model.keys);
            }
        }
        Ok(true)
    }

    /// Appends some keys that stand on a file, or on an older one; returns how many.
    pub(crate) fn append_standing(&mut self, book: &ShardBook, file: u64, most: usize) -> usize {
        let old = self.standing.iter().filter(|(_, number)| **number <= file);
        let some: Vec<(u32, u8)> = old.map(|(&key, _)| key).take(most).collect();
        for &(stream, key) in &some {
            self.append_again(stream, key, &book.streams[&stream].keys);
        }
        some.len()
    }
}

fn add<S: Storage>(
    writer: &mut LogWriter<S>,
    queued: &Queued,
    durable: &dyn Fn(u32) -> u64,
) -> Result<Added, LogError> {
    let payloads: Vec<[&[u8]; 1]> =
        queued.changes.iter().map(|(_, payload)| [payload.as_slice()]).collect();
    let changes: Vec<NewChange<'_>> = queued
        .changes
        .iter()
        .zip(&payloads)
        .map(|(&(kind, _), payload)| NewChange { kind, payload })
        .collect();
    let commit = NewCommit {
        stream: queued.stream,
        first_lsn: queued.first,
        again: queued.again,
        changes: &changes,
        needs: &queued.needs,
        clock_ms: queued.clock_ms,
    };
    writer.add(&commit, durable)
}
