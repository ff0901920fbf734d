//! A server's logs: `meta`, tenants, two shards, a start, bases; and steps by chance.

use crate::book::ShardBook;
use crate::model::{ModelStream, Replica, any_commit};
use crate::shard::Shard;
use nigh_log::simulated::{SimChance, below, once_in};
use nigh_log::{
    Chain, Chance, LogError, LogRecovery, LogSettings, LogWriter, Meta, MetaFault, Secret, Storage,
    TenantLine, World, list, need_meta, read_meta, remove_chains, remove_unnamed, save_meta,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const SHARDS: usize = 2;

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
    /// The meta that counts; `None`: there was none yet.
    pub(crate) meta: Option<Meta>,
    /// One that may count, and the shards of which it names bases.
    trying: Option<(Meta, Vec<usize>)>,
}

impl Book {
    pub(crate) fn new() -> Book {
        Book { shards: vec![ShardBook::default(); SHARDS], ..Book::default() }
    }

    /// Power was cut.
    pub(crate) fn power_was_cut(&mut self) {
        self.shards.iter_mut().for_each(ShardBook::power_was_cut);
    }

    /// A start has read this meta.
    fn adopt(&mut self, meta: Option<Meta>) -> Result<(), String> {
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

    fn save<S: Storage>(
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
    fn named(&self) -> Meta {
        self.meta.clone().expect("a machine has one")
    }
}

/// The streams of each shard.
fn streams_of(meta: &Meta) -> Vec<BTreeSet<u32>> {
    let of = |shard: u32| meta.tenants.keys().map(move |tenant| tenant << 8 | shard).collect();
    (0..SHARDS as u32).map(of).collect()
}

/// A process that serves.
pub(crate) struct Machine<S: Storage> {
    pub(crate) world: World<S>,
    pub(crate) shards: Vec<Shard<S>>,
    pub(crate) chance: SimChance,
    settings: LogSettings,
    /// Shards whose chain meta doesn't name.
    unnamed: BTreeSet<usize>,
    /// Dropped tenants, with the file that each shard wrote then.
    dropped: BTreeMap<u32, Vec<u64>>,
    /// Bases that were named.
    pub(crate) bases: u64,
}

impl<S: Storage> Machine<S> {
    /// Starts on what is there, and compares it with the book.
    pub(crate) fn start(
        world: World<S>,
        book: &mut Book,
        file_bytes: u64,
        seed: u64,
    ) -> Result<Machine<S>, Halt> {
        let storage = &*world.storage;
        let meta = read_meta(storage)?;
        let listing = list(storage)?;
        need_meta(&listing, meta.as_ref())?;
        book.adopt(meta)?;
        let chance = SimChance::new(seed);
        if book.meta.is_none() {
            book.save(&world, first_meta(&chance), &[])?;
            book.adopt(book.meta.clone())?;
        }
        let settings = LogSettings { file_bytes };
        let (shards, unnamed) = (Vec::new(), BTreeSet::new());
        let mut machine = Machine {
            world,
            shards,
            chance,
            settings,
            unnamed,
            dropped: BTreeMap::new(),
            bases: 0,
        };
        if book.named().chains.is_empty() {
            machine.begin_new(book)?;
        } else {
            machine.recover(book)?;
            remove_unnamed(&*machine.world.storage, &listing, &book.named())?;
        }
        let written = machine.newest_files();
        let dropped = book.named().dropped.into_iter();
        machine.dropped = dropped.map(|tenant| (tenant, written.clone())).collect();
        Ok(machine)
    }

    /// A log that nothing was promised of: memory that was there before, and changes that go on
    /// while the first bases are written.
    fn begin_new(&mut self, book: &mut Book) -> Result<(), Halt> {
        let listing = list(&*self.world.storage)?;
        remove_unnamed(&*self.world.storage, &listing, &book.named())?;
        for shard in &mut book.shards {
            shard.retire();
            shard.cut(&|_| 0);
            for model in shard.streams.values_mut() {
                for _ in 0..below(&self.chance, 20) {
                    model.commit(&any_commit(&model.keys, &self.chance));
                }
            }
        }
        self.base(book, (0..SHARDS).collect(), true)
    }

    fn recover(&mut self, book: &mut Book) -> Result<(), Halt> {
        let meta = book.named();
        let find = |chain| LogRecovery::find(&self.world, &meta, chain);
        let found = meta.chains.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let last = |shard: usize, stream| found[shard].last.get(&stream).copied().unwrap_or(0);
        let any = |stream: u32| {
            let shard = (stream & 0xFF) as usize;
            let is_there = book.shards[shard].streams.contains_key(&stream);
            is_there.then(|| last(shard, stream))
        };
        for (i, shard) in book.shards.iter().enumerate() {
            shard.check(&|stream| last(i, stream)).map_err(|what| format!("shard {i}: {what}"))?;
            shard.check_needs(&|stream| last(i, stream), &any)?;
        }
        for (i, shard) in book.shards.iter_mut().enumerate() {
            shard.cut(&|stream| last(i, stream));
            if found[i].clock_ms < shard.latest_clock_ms() {
                return Err(format!("shard {i} has lost its clock word").into());
            }
        }
        for (i, recovery) in found.iter().enumerate() {
            if once_in(&self.chance, 2) {
                // Else the writer does it.
                recovery.sync_all()?;
                book.shards[i].all_durable();
            }
            replay(recovery, &book.shards[i])?;
        }
        let clock_ms = found.iter().map(|recovery| recovery.clock_ms).max().unwrap_or(0);
        let clock_ms = clock_ms.max(self.world.clock.unix_ms());
        for (recovery, shard) in found.into_iter().zip(&mut book.shards) {
            let mut writer =
                LogWriter::begin(&self.world, &meta, recovery, self.settings, clock_ms)?;
            shard.all_durable();
            shard.streams.keys().for_each(|&stream| writer.add_stream(stream));
            self.shards.push(Shard::new(writer, shard));
        }
        Ok(())
    }

    fn newest_files(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.writer.newest_file()).collect()
    }

    /// The durable LSNs of all chains that count.
    fn durable(&self) -> BTreeMap<u32, u64> {
        let streams = self.shards.iter().flat_map(|shard| shard.writer.streams());
        streams.map(|(stream, _, durable)| (stream, durable)).collect()
    }

    /// Notes what the writers have told.
    pub(crate) fn tell(&self, book: &mut Book) -> Result<(), Halt> {
        for (i, shard) in self.shards.iter().enumerate() {
            if !self.unnamed.contains(&i) {
                for (stream, written, durable) in shard.writer.streams() {
                    book.shards[i].told(stream, written, durable)?;
                }
            }
        }
        Ok(())
    }

    /// A commit by chance in any stream of a shard, perhaps made from reads of the others.
    pub(crate) fn commit(&mut self, book: &mut Book, i: usize) {
        let (own, others): (Vec<_>, Vec<_>) =
            book.shards.iter().enumerate().partition(|(j, _)| *j == i);
        let streams: Vec<u32> = own[0].1.streams.keys().copied().collect();
        let Some(&stream) = pick(&streams, &self.chance) else { return };
        let durable = self.durable();
        let mut needs = Vec::new();
        for (&of, model) in others.iter().flat_map(|(_, shard)| &shard.streams) {
            if once_in(&self.chance, 10) && durable.get(&of).copied().unwrap_or(0) < model.last {
                needs.push((of, model.last));
            }
        }
        let changes = any_commit(&book.shards[i].streams[&stream].keys, &self.chance);
        if !changes.is_empty() {
            let clock_ms = self.world.clock.unix_ms();
            self.shards[i].commit(&mut book.shards[i], stream, &changes, needs, clock_ms);
        }
    }

    /// Gives a shard's queue to its writer, as far as it goes.
    pub(crate) fn pump(&mut self, book: &Book, i: usize) -> Result<bool, LogError> {
        let durable = self.durable();
        let of = |stream: u32| durable.get(&stream).copied().unwrap_or(0);
        self.shards[i].pump(&book.shards[i], &of)
    }

    /// One step by chance.
    pub(crate) fn step(&mut self, book: &mut Book) -> Result<(), Halt> {
        let i = usize::try_from(below(&self.chance, SHARDS as u64)).unwrap();
        match below(&self.chance, 1000) {
            0..400 => self.commit(book, i),
            400..550 => {
                self.pump(book, i)?;
                let sync_follows = once_in(&self.chance, 3);
                self.shards[i].writer.write(sync_follows)?;
            }
            550..680 => {
                self.pump(book, i)?;
                self.shards[i].writer.sync()?;
            }
            680..720 => self.shards[i].writer.idle_frame()?,
            720..780 => drop(self.shards[i].writer.prepare()?),
            780..980 => self.compact(book, i)?,
            980..985 => self.add_tenant(book)?,
            985..990 => self.drop_tenant(book)?,
            990..992 => {
                let others = once_in(&self.chance, 2);
                let which = (0..SHARDS).filter(|&j| j == i || others).collect();
                self.base(book, which, false)?;
            }
            992..995 => self.retire(book)?,
            _ => drop(self.shards[i].writer.end_frame()?),
        }
        self.tell(book)
    }

    /// A step of compaction, if there is enough to compact.
    fn compact(&mut self, book: &Book, i: usize) -> Result<(), LogError> {
        let keys = book.shards[i].streams.values().flat_map(|model| model.keys.values());
        let live: u64 = keys.map(|kept| kept.value.len() as u64 + 64).sum();
        let enough = 2 * live + 4 * self.settings.file_bytes;
        let shard = &mut self.shards[i];
        for _ in 0..5 {
            if shard.compacts() || shard.writer.bytes() > enough || once_in(&self.chance, 30) {
                let bytes = usize::try_from(below(&self.chance, 8000)).unwrap();
                shard.compact(&book.shards[i], bytes)?;
            }
        }
        Ok(())
    }

    fn add_tenant(&mut self, book: &mut Book) -> Result<(), Halt> {
        let mut meta = self.next_meta(book);
        if meta.tenants.len() > 4 {
            return Ok(());
        }
        add_line(&mut meta);
        book.save(&self.world, meta, &[])?;
        for (i, streams) in streams_of(&book.named()).iter().enumerate() {
            for &stream in streams {
                book.shards[i].streams.entry(stream).or_insert_with(ModelStream::default);
                self.shards[i].writer.add_stream(stream);
            }
        }
        Ok(())
    }

    fn drop_tenant(&mut self, book: &mut Book) -> Result<(), Halt> {
        let mut meta = self.next_meta(book);
        let tenants: Vec<u32> = meta.tenants.keys().copied().collect();
        let Some(&tenant) = pick(&tenants, &self.chance).filter(|_| tenants.len() > 2) else {
            return Ok(());
        };
        meta.tenants.remove(&tenant);
        meta.dropped.insert(tenant);
        book.save(&self.world, meta, &[])?;
        self.dropped.insert(tenant, self.newest_files());
        for (i, shard) in self.shards.iter_mut().enumerate() {
            let stream = tenant << 8 | u32::try_from(i).unwrap();
            shard.drop_stream(stream);
            book.shards[i].drop_stream(stream);
        }
        for shard in &mut self.shards {
            (0..SHARDS as u32).for_each(|i| shard.forget_need(tenant << 8 | i));
        }
        Ok(())
    }

    /// The meta that counts, without the lines that may go.
    fn next_meta(&self, book: &Book) -> Meta {
        let mut meta = book.named();
        meta.dropped.retain(|tenant| {
            let files = self.dropped[tenant].iter().zip(&self.shards);
            files.into_iter().any(|(&file, shard)| shard.writer.oldest() <= file)
        });
        meta
    }

    /// The log is given up, and begun again from what is in memory, while changes go on.
    fn retire(&mut self, book: &mut Book) -> Result<(), Halt> {
        let mut meta = self.next_meta(book);
        let old = std::mem::take(&mut meta.chains);
        book.save(&self.world, meta, &[])?;
        self.shards.clear();
        let listing = list(&*self.world.storage)?;
        remove_chains(&*self.world.storage, &listing, &old)?;
        self.base(book, (0..SHARDS).collect(), true)
    }

    /// Writes bases of shards, in place of their chains; other shards join if they wait for them.
    pub(crate) fn base(
        &mut self,
        book: &mut Book,
        mut which: Vec<usize>,
        changes_go_on: bool,
    ) -> Result<(), Halt> {
        let mut meta = book.named();
        meta.next_generation += 1;
        let generation = meta.next_generation - 1;
        book.save(&self.world, meta, &[])?;
        for i in 0..self.shards.len() {
            if !which.contains(&i) {
                self.pump(book, i)?;
                self.shards[i].writer.sync()?;
                if !self.shards[i].is_drained() {
                    which.push(i);
                }
            }
        }
        self.tell(book)?;
        for i in 0..SHARDS {
            if which.contains(&i) {
                let shard = u32::try_from(i).unwrap();
                self.begin_base(book, Chain { generation, shard, shards: SHARDS as u32 })?;
            }
        }
        for &i in &which {
            self.walk(book, i, changes_go_on)?;
        }
        self.finish_bases(book, &which)?;
        self.name_bases(book, generation, &which)
    }

    fn begin_base(&mut self, book: &Book, chain: Chain) -> Result<(), Halt> {
        let i = chain.shard as usize;
        let models = book.shards[i].streams.iter();
        let lasts: Vec<(u32, u64)> = models.map(|(&stream, model)| (stream, model.last)).collect();
        let (meta, clock) = (book.named(), self.world.clock.unix_ms());
        let clock_ms = clock.max(book.shards[i].latest_clock_ms());
        let writer =
            LogWriter::begin_chain(&self.world, &meta, chain, &lasts, self.settings, clock_ms)?;
        let shard = Shard::new(writer, &book.shards[i]);
        self.unnamed.insert(i);
        if i < self.shards.len() {
            self.shards[i] = shard
        } else {
            self.shards.push(shard)
        }
        Ok(())
    }

    /// Appends each record of a shard as it is when the walk comes by.
    fn walk(&mut self, book: &mut Book, i: usize, changes_go_on: bool) -> Result<(), Halt> {
        let streams: Vec<u32> = book.shards[i].streams.keys().copied().collect();
        for (stream, key) in streams.iter().flat_map(|s| (0..=u8::MAX).map(move |key| (*s, key))) {
            let keys = &book.shards[i].streams[&stream].keys;
            if !keys.contains_key(&key) {
                continue;
            }
            self.shards[i].append_again(stream, key, keys);
            for _ in 0..if changes_go_on { below(&self.chance, 3) } else { 0 } {
                self.commit(book, i);
            }
            if once_in(&self.chance, 8) {
                self.pump(book, i)?;
            }
        }
        Ok(())
    }

    /// Appends what stands on changes before the bases, and syncs all logs.
    fn finish_bases(&mut self, book: &Book, which: &[usize]) -> Result<(), Halt> {
        for &i in which {
            while self.shards[i].append_standing(&book.shards[i], 0, 4) > 0 {}
        }
        self.drain(book)
    }

    /// Gives all queues to the writers, and syncs them.
    pub(crate) fn drain(&mut self, book: &Book) -> Result<(), Halt> {
        for _ in 0..1000 {
            let mut drained = true;
            for i in 0..self.shards.len() {
                drained &= self.pump(book, i)?;
                self.shards[i].writer.sync()?;
            }
            if drained {
                return Ok(());
            }
        }
        Err(Halt::Wrong("the logs wait for each other".into()))
    }

    fn name_bases(
        &mut self,
        book: &mut Book,
        generation: u64,
        which: &[usize],
    ) -> Result<(), Halt> {
        let mut meta = book.named();
        let shards = SHARDS as u32;
        let old = |shard: u32| meta.chains.get(shard as usize).copied();
        let chains = (0..shards).map(|shard| match old(shard) {
            Some(chain) if !which.contains(&(shard as usize)) => chain,
            _ => Chain { generation, shard, shards },
        });
        meta.chains = chains.collect();
        let mut old = book.named().chains;
        old.retain(|chain| !meta.chains.contains(chain));
        book.save(&self.world, meta, which)?;
        for &i in which {
            self.shards[i].writer.named();
            self.unnamed.remove(&i);
            self.bases += 1;
            // A base has nothing of tenants that were dropped before.
            self.dropped.values_mut().for_each(|files| files[i] = 0);
        }
        self.tell(book)?;
        let listing = list(&*self.world.storage)?;
        remove_chains(&*self.world.storage, &listing, &old)?;
        Ok(())
    }
}

/// Replays a chain, and compares it with what memory had at that LSN.
fn replay<S: Storage>(recovery: &LogRecovery<S>, book: &ShardBook) -> Result<(), Halt> {
    let mut replicas: BTreeMap<u32, Replica> = BTreeMap::new();
    recovery.replay(
        &mut |commit| {
            let stream = commit.changes.first().map_or(0, |change| change.header.stream);
            replicas.entry(stream).or_default().take(commit)
        },
        &mut |_| {},
    )?;
    for (&stream, model) in &book.streams {
        replicas.remove(&stream).unwrap_or_default().compare(stream, model)?;
    }
    match replicas.first_key_value() {
        Some((stream, _)) => Err(format!("stream {stream} was dropped, and replayed").into()),
        None => Ok(()),
    }
}

fn first_meta(chance: &dyn Chance) -> Meta {
    let bytes = || u128::from(chance.word()).wrapping_mul(0x1_0000_0001).to_le_bytes();
    let mut meta = Meta::new(bytes(), Secret(bytes()));
    (0..3).for_each(|_| add_line(&mut meta));
    meta
}

/// One more tenant.
fn add_line(meta: &mut Meta) {
    let number = meta.next_tenant;
    let partitions = SHARDS as u32;
    let line = TenantLine { name: format!("t{number}"), partitions, seed: number };
    meta.tenants.insert(number, line);
    meta.next_tenant += 1;
}

fn pick<'a, T>(of: &'a [T], chance: &dyn Chance) -> Option<&'a T> {
    of.get(usize::try_from(below(chance, of.len() as u64)).unwrap())
}
