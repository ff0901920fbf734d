//! What clients were told that the logs keep, and the checks of what is left.

use crate::model::ModelStream;
use nigh_log::{LogError, Meta, MetaFault, Storage, World, save_meta};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const SHARDS: usize = 2;
/// As `meta` counts them.
pub(crate) const SHARDS_OF_META: u32 = 2;
const _: () = assert!(SHARDS == SHARDS_OF_META as usize);

/// A commit in the order of its chain.
#[derive(Debug, Clone)]
pub(crate) struct CommitMark {
    pub(crate) stream: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Streams of other chains, and LSNs that it was made from.
    pub(crate) needs: Vec<(u32, u64)>,
    pub(crate) clock_ms: u64,
}

/// One chain's streams and commits.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardBook {
    pub(crate) streams: BTreeMap<u32, ModelStream>,
    /// In order; those that are durable are gone.
    pub(crate) marks: VecDeque<CommitMark>,
    /// What was told durable.
    durable: BTreeMap<u32, u64>,
    /// What a kill can't take.
    written: BTreeMap<u32, u64>,
    /// The latest clock word that is durable.
    clock_ms: u64,
}

impl ShardBook {
    /// The latest clock word of all commits.
    pub(crate) fn latest_clock_ms(&self) -> u64 {
        let waiting = self.marks.iter().map(|mark| mark.clock_ms).max();
        waiting.unwrap_or(0).max(self.clock_ms)
    }

    /// What was told durable of a stream.
    pub(crate) fn durable(&self, stream: u32) -> u64 {
        self.durable.get(&stream).copied().unwrap_or(0)
    }

    /// A writer tells how far it is.
    pub(crate) fn told(&mut self, stream: u32, written: u64, durable: u64) -> Result<(), String> {
        let Some(model) = self.streams.get_mut(&stream) else { return Ok(()) };
        let before = self.durable.insert(stream, durable).unwrap_or(0);
        if durable < before || written < durable || model.last < written {
            let last = model.last;
            return Err(format!("stream {stream}: {before} {durable} {written} {last} don't rise"));
        }
        self.written.insert(stream, written);
        model.fold(durable);
        self.trim();
        Ok(())
    }

    fn trim(&mut self) {
        while let Some(mark) = self.marks.front() {
            if self.streams.contains_key(&mark.stream) {
                if self.durable(mark.stream) < mark.last {
                    return;
                }
                self.clock_ms = self.clock_ms.max(mark.clock_ms);
            }
            self.marks.pop_front();
        }
    }

    /// Power was cut: what was only written isn't promised any more.
    pub(crate) fn power_was_cut(&mut self) {
        self.written.clone_from(&self.durable);
    }

    /// What a start finds: nothing that was told is lost, what is left is a prefix, commits are
    /// whole.
    pub(crate) fn check(&self, last: &dyn Fn(u32) -> u64) -> Result<(), String> {
        for (&stream, model) in &self.streams {
            let (is, most) = (last(stream), model.last);
            let least = self.written.get(&stream).copied().unwrap_or(0);
            if is < least || is > most {
                let durable = self.durable(stream);
                return Err(format!(
                    "stream {stream} has LSN {is}: {least} was told, {durable} durable, {most} made"
                ));
            }
        }
        let mut lost = None;
        let streams = &self.streams;
        for mark in self.marks.iter().filter(|mark| streams.contains_key(&mark.stream)) {
            let is = last(mark.stream);
            if mark.first <= is && is < mark.last {
                return Err(format!("a commit is cut at LSN {is}: {mark:?}"));
            }
            match &lost {
                _ if is < mark.first => lost = Some(mark),
                Some(lost) => return Err(format!("{lost:?} is lost, and not {mark:?} behind it")),
                None => {}
            }
        }
        Ok(())
    }

    /// Those that are left stand on nothing that is lost.
    pub(crate) fn check_needs(
        &self,
        own: &dyn Fn(u32) -> u64,
        last: &dyn Fn(u32) -> Option<u64>,
    ) -> Result<(), String> {
        for mark in self.marks.iter().filter(|mark| mark.last <= own(mark.stream)) {
            let lost = |&&(stream, lsn): &&(u32, u64)| last(stream).is_some_and(|is| is < lsn);
            if let Some(lost) = mark.needs.iter().find(lost) {
                return Err(format!("{mark:?} is left, and {lost:?} is lost"));
            }
        }
        Ok(())
    }

    /// Forgets what is lost. What is left isn't durable yet.
    pub(crate) fn cut(&mut self, last: &dyn Fn(u32) -> u64) {
        for (&stream, model) in &mut self.streams {
            model.cut(last(stream));
            self.written.insert(stream, last(stream));
        }
        self.marks.retain(|mark| mark.last <= last(mark.stream));
    }

    /// All that is left is durable.
    pub(crate) fn all_durable(&mut self) {
        for (&stream, model) in &mut self.streams {
            model.fold(model.last);
            self.durable.insert(stream, model.last);
            self.written.insert(stream, model.last);
        }
        self.trim();
    }

    /// Nothing is promised any more.
    pub(crate) fn retire(&mut self) {
        self.durable.clear();
        self.written.clear();
        self.marks.clear();
        self.streams.values_mut().for_each(ModelStream::retire);
    }

    /// Forgets a stream.
    pub(crate) fn drop_stream(&mut self, stream: u32) {
        self.streams.remove(&stream);
        self.durable.remove(&stream);
        self.written.remove(&stream);
    }
}

/// Why a machine stopped.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The log refused.
    Log(LogError),
    /// Whether a meta counts isn't known: all logs are broken.
    InDoubt(LogError),
    /// The log did what it must not do.
    Wrong(String),
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Halt::Log(error) => write!(f, "{error}"),
            Halt::InDoubt(error) => write!(f, "meta is in doubt: {error}"),
            Halt::Wrong(what) => f.write_str(what),
        }
    }
}

impl From<LogError> for Halt {
    fn from(error: LogError) -> Halt {
        Halt::Log(error)
    }
}

impl From<String> for Halt {
    fn from(what: String) -> Halt {
        Halt::Wrong(what)
    }
}

/// What outlives a process: what its clients were told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    pub(crate) shards: Vec<ShardBook>,
    /// Commits that a stream may have in memory before its log begins.
    pub(crate) commits_before: u64,
    /// The meta that counts; `None`: there was none yet.
    pub(crate) meta: Option<Meta>,
    /// One that may count, and the shards of which it names bases.
    trying: Option<(Meta, Vec<usize>)>,
}

impl Book {
    pub(crate) fn new() -> Book {
        let shards = vec![ShardBook::default(); SHARDS];
        Book { shards, commits_before: 20, ..Book::default() }
    }

    /// Power was cut.
    pub(crate) fn power_was_cut(&mut self) {
        self.shards.iter_mut().for_each(ShardBook::power_was_cut);
    }

    /// A start has read this meta.
    pub(crate) fn adopt(&mut self, meta: Option<Meta>) -> Result<(), String> {
        let trying = self.trying.take();
        if meta != self.meta {
            let Some((new, based)) = trying.filter(|(new, _)| Some(new) == meta.as_ref()) else {
                return Err(format!("meta is {meta:?}, neither the old one nor the new one"));
            };
            self.take(new, &based);
        }
        let streams = self.meta.as_ref().map(streams_of).unwrap_or_default();
        for (shard, of_shard) in self.shards.iter_mut().zip(&streams) {
            let gone: Vec<u32> =
                shard.streams.keys().filter(|of| !of_shard.contains(of)).copied().collect();
            gone.iter().for_each(|&stream| shard.drop_stream(stream));
            for &stream in of_shard {
                shard.streams.entry(stream).or_default();
            }
        }
        Ok(())
    }

    /// This meta counts.
    fn take(&mut self, meta: Meta, based: &[usize]) {
        if meta.chains.is_empty() {
            self.shards.iter_mut().for_each(ShardBook::retire);
        }
        self.meta = Some(meta);
        based.iter().for_each(|&shard| self.shards[shard].all_durable());
    }

    pub(crate) fn save<S: Storage>(
        &mut self,
        world: &World<S>,
        meta: Meta,
        based: &[usize],
    ) -> Result<(), Halt> {
        self.trying = Some((meta.clone(), based.to_vec()));
        match save_meta(&*world.storage, &meta) {
            Ok(()) => {
                self.trying = None;
                self.take(meta, based);
                Ok(())
            }
            Err(MetaFault::Unchanged(error)) => {
                self.trying = None;
                Err(error.into())
            }
            Err(MetaFault::InDoubt(error)) => Err(Halt::InDoubt(error)),
        }
    }

    /// The meta that counts.
    pub(crate) fn named(&self) -> Meta {
        self.meta.clone().expect("a machine has one")
    }
}

/// The streams of each shard.
pub(crate) fn streams_of(meta: &Meta) -> Vec<BTreeSet<u32>> {
    let of = |shard: u32| meta.tenants.keys().map(move |tenant| tenant << 8 | shard).collect();
    (0..SHARDS_OF_META).map(of).collect()
}
