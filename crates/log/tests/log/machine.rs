//! A server's logs: `meta`, tenants, two shards, a start, bases; and steps by chance.

use crate::book::{Book, Halt, SHARDS, SHARDS_OF_META, ShardBook, streams_of};
use crate::model::{Replica, any_commit};
use crate::shard::Shard;
use nigh_log::simulated::{SimChance, below, once_in};
use nigh_log::{
    Chance, LogError, LogRecovery, LogSettings, LogWriter, Meta, Secret, Storage, TenantLine,
    World, list, need_meta, read_meta, remove_unnamed,
};
use std::collections::{BTreeMap, BTreeSet};

/// A process that serves.
pub(crate) struct Machine<S: Storage> {
    pub(crate) world: World<S>,
    pub(crate) shards: Vec<Shard<S>>,
    pub(crate) chance: SimChance,
    pub(crate) settings: LogSettings,
    /// Shards whose chain meta doesn't name.
    pub(crate) unnamed: BTreeSet<usize>,
    /// Dropped tenants, with the file that each shard wrote then.
    pub(crate) dropped: BTreeMap<u32, Vec<u64>>,
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
        Machine::start_after(false, world, book, file_bytes, seed)
    }

    /// Starts; if a log broke before, what is there is only on disk when bases are.
    pub(crate) fn start_after(
        broken: bool,
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
        } else if broken {
            for (recovery, shard) in find_all(&machine.world, book)?.iter().zip(&book.shards) {
                replay(recovery, shard)?;
            }
            machine.base(book, (0..SHARDS).collect(), false)?;
            let listing = list(&*machine.world.storage)?;
            remove_unnamed(&*machine.world.storage, &listing, &book.named())?;
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
                for _ in 0..below(&self.chance, book.commits_before) {
                    model.commit(&any_commit(&model.keys, &self.chance));
                }
            }
        }
        self.base(book, (0..SHARDS).collect(), true)
    }

    fn recover(&mut self, book: &mut Book) -> Result<(), Halt> {
        let found = find_all(&self.world, book)?;
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
        let meta = book.named();
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

    /// Gives all queues to the writers, and syncs them.
    pub(crate) fn drain(&mut self, book: &Book) -> Result<(), Halt> {
        for _ in 0..1000 {
            let mut drained = true;
            for i in 0..self.shards.len() {
                drained &= self.pump(book, i)?;
                self.shards[i].sync()?;
            }
            if drained {
                return Ok(());
            }
        }
        Err(Halt::Wrong("the logs wait for each other".into()))
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
            550..590 => {
                self.pump(book, i)?;
                self.shards[i].sync()?;
            }
            590..680 => {
                self.pump(book, i)?;
                self.shards[i].step_beside()?;
            }
            680..720 => self.shards[i].writer.idle_frame()?,
            720..780 => drop(self.shards[i].writer.prepare()?),
            780..980 => self.compact(book, i)?,
            980..985 => self.add_tenant(book)?,
            985..990 => self.drop_tenant(book)?,
            990..992 => {
                let others = once_in(&self.chance, 2);
                let which: Vec<_> = (0..SHARDS).filter(|&j| j == i || others).collect();
                for &i in &which {
                    self.shards[i].end_beside()?;
                }
                self.base(book, which, false)?;
            }
            992..993 => self.retire(book)?,
            _ => {
                self.shards[i].end_beside()?;
                self.shards[i].writer.end_frame()?;
            }
        }
        self.tell(book)
    }

    /// A step of compaction, if there is enough to compact.
    pub(crate) fn compact(&mut self, book: &Book, i: usize) -> Result<(), LogError> {
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

    pub(crate) fn add_tenant(&mut self, book: &mut Book) -> Result<(), Halt> {
        let mut meta = self.next_meta(book);
        if meta.tenants.len() > 4 {
            return Ok(());
        }
        add_line(&mut meta);
        book.save(&self.world, meta, &[])?;
        for (i, streams) in streams_of(&book.named()).iter().enumerate() {
            for &stream in streams {
                book.shards[i].streams.entry(stream).or_default();
                self.shards[i].writer.add_stream(stream);
            }
        }
        Ok(())
    }

    pub(crate) fn drop_tenant(&mut self, book: &mut Book) -> Result<(), Halt> {
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
            (0..SHARDS_OF_META).for_each(|i| shard.forget_need(tenant << 8 | i));
        }
        Ok(())
    }

    /// The meta that counts, without the lines that may go.
    pub(crate) fn next_meta(&self, book: &Book) -> Meta {
        let mut meta = book.named();
        meta.dropped.retain(|tenant| {
            let files = self.dropped[tenant].iter().zip(&self.shards);
            files.into_iter().any(|(&file, shard)| shard.writer.oldest() <= file)
        });
        meta
    }
}

/// Compares what is there with the book, and changes nothing.
pub(crate) fn inspect<S: Storage>(world: &World<S>, book: &Book) -> Result<(), Halt> {
    let mut book = book.clone();
    book.adopt(read_meta(&*world.storage)?)?;
    need_meta(&list(&*world.storage)?, book.meta.as_ref())?;
    for (recovery, shard) in find_all(world, &mut book)?.iter().zip(&book.shards) {
        replay(recovery, shard)?;
    }
    Ok(())
}

/// Finds where the chains end, and compares that with the book, which forgets what is lost.
fn find_all<S: Storage>(world: &World<S>, book: &mut Book) -> Result<Vec<LogRecovery<S>>, Halt> {
    let meta = book.named();
    let find = |chain| LogRecovery::find(world, &meta, chain);
    let found = meta.chains.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let last = |shard: usize, stream| {
        found.get(shard).and_then(|of| of.last.get(&stream)).copied().unwrap_or(0)
    };
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
        if found.get(i).is_some_and(|of| of.clock_ms < shard.latest_clock_ms()) {
            return Err(format!("shard {i} has lost its clock word").into());
        }
    }
    Ok(found)
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
    let partitions = SHARDS_OF_META;
    let line = TenantLine { name: format!("t{number}"), partitions, seed: number };
    meta.tenants.insert(number, line);
    meta.next_tenant += 1;
}

fn pick<'a, T>(of: &'a [T], chance: &dyn Chance) -> Option<&'a T> {
    of.get(usize::try_from(below(chance, of.len() as u64)).unwrap())
}
