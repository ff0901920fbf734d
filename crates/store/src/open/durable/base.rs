//! A base: new chains with all that memory has, which take the place of those that counted.
//!
//! ```text
//! a new generation counts ── chains, each with all records of its streams, synced ── one renaming of meta
//! ```
//!
//! 1. Nobody is served meanwhile, so what the walk finds is what is there.
//! 2. Meta names the new chains only when all of them are synced; old files go behind that.
//! 3. If whether meta names them isn't known, all chains are broken: the next start writes a base
//!    again, and removes nothing before.
//! 4. A base that fails otherwise takes its files along. What one leaves that is cut off goes
//!    before the next is written, and behind the meta that has raised the generation: when that
//!    counts, no earlier renaming is in doubt, and the new generation has no files yet.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::open::durable::arenas::{StartStream, StartStreams};
use crate::open::durable::log_options::LogOptions;
use nigh_log::{
    Chain, ChangeKind, LogSettings, LogWriter, Meta, MetaFault, NewChange, NewCommit, Storage,
    World, list, remove_chains, remove_unnamed, save_meta,
};
use nigh_shm::Writer;

/// Writes a base for all shards; returns the writers, by shard. `breaks` is told of the generation
/// if it isn't known whether that counts.
pub(super) fn write_base<S: Storage>(
    world: &World<S>,
    meta: &mut Meta,
    streams: &StartStreams,
    log: &LogOptions,
    clock_ms: u64,
    breaks: &dyn Fn(u64),
) -> Result<Vec<LogWriter<S>>, StoreError> {
    let generation = next_generation(world, meta)?;
    remove_unnamed(&*world.storage, &list(&*world.storage)?, meta)?;
    let shards = u32::try_from(log.shards).expect("at most 64 shards");
    let mut writers = write_chains((world, meta), generation, streams, log, clock_ms)
        .inspect_err(|_| drop_chains(world, generation, shards))?;
    name_chains(world, meta, generation, shards).map_err(|fault| {
        match fault {
            MetaFault::Unchanged(_) => drop_chains(world, generation, shards),
            MetaFault::InDoubt(_) => breaks(generation),
        }
        of_fault(fault)
    })?;
    writers.iter_mut().for_each(LogWriter::named);
    remove_unnamed(&*world.storage, &list(&*world.storage)?, meta)?;
    Ok(writers)
}

/// Writes the chains of all shards in a generation.
fn write_chains<S: Storage>(
    (world, meta): (&World<S>, &Meta),
    generation: u64,
    streams: &StartStreams,
    log: &LogOptions,
    clock_ms: u64,
) -> Result<Vec<LogWriter<S>>, StoreError> {
    let shards = u32::try_from(log.shards).expect("at most 64 shards");
    let chains = chains_of(generation, shards).map(|chain| {
        let is_of = |it: &&StartStream| it.stream.shard(log.shards) == chain.shard as usize;
        let of_shard = streams.values().filter(is_of);
        let arenas = of_shard.map(|it| {
            let arena = it.writer.as_ref().expect("each stream has its arena by now");
            (it.stream.number, arena)
        });
        let arenas: Vec<_> = arenas.collect();
        write_chain((world, meta), chain, &arenas, (log.settings, clock_ms), &|| true)
    });
    chains.collect()
}

/// Removes the files of chains that no meta has named. What stays goes before the next base.
fn drop_chains<S: Storage>(world: &World<S>, generation: u64, shards: u32) {
    let (storage, chains) = (&*world.storage, chains_of(generation, shards).collect::<Vec<_>>());
    let _ = list(storage).and_then(|listing| remove_chains(storage, &listing, &chains));
}

/// A generation that no chain has; that counts before a file of it is made.
pub(crate) fn next_generation<S: Storage>(
    world: &World<S>,
    meta: &mut Meta,
) -> Result<u64, StoreError> {
    let generation = meta.next_generation;
    meta.next_generation += 1;
    save(world, meta)?;
    Ok(generation)
}

/// The chains of all shards in a generation.
pub(crate) fn chains_of(generation: u64, shards: u32) -> impl Iterator<Item = Chain> {
    (0..shards).map(move |shard| Chain { generation, shard, shards })
}

/// Has the chains of a generation count, and no others.
pub(crate) fn name_chains<S: Storage>(
    world: &World<S>,
    meta: &mut Meta,
    generation: u64,
    shards: u32,
) -> Result<(), MetaFault> {
    meta.chains = chains_of(generation, shards).collect();
    (meta.ends, meta.mark) = (Vec::new(), None);
    save_meta(&*world.storage, meta)
}

/// Makes a meta count.
pub(super) fn save<S: Storage>(world: &World<S>, meta: &Meta) -> Result<(), StoreError> {
    save_meta(&*world.storage, meta).map_err(of_fault)
}

pub(crate) fn of_fault(fault: MetaFault) -> StoreError {
    match fault {
        MetaFault::Unchanged(error) | MetaFault::InDoubt(error) => error.into(),
    }
}

/// Writes a new chain with all records of some arenas, in order of their streams, and syncs it. It
/// is stopped when `goes_on` says so.
pub(crate) fn write_chain<S: Storage>(
    (world, meta): (&World<S>, &Meta),
    chain: Chain,
    arenas: &[(u32, &Writer)],
    (settings, clock_ms): (LogSettings, u64),
    goes_on: &dyn Fn() -> bool,
) -> Result<LogWriter<S>, StoreError> {
    let lasts: Vec<_> = arenas.iter().map(|(stream, arena)| (*stream, arena.lsn())).collect();
    let mut writer = LogWriter::begin_chain(world, meta, chain, &lasts, settings, clock_ms)?;
    for (stream, arena) in arenas {
        append_all(&mut writer, *stream, arena, goes_on)?;
    }
    writer.write(true)?;
    writer.sync()?;
    Ok(writer)
}

/// Appends all records of an arena.
fn append_all<S: Storage>(
    writer: &mut LogWriter<S>,
    stream: u32,
    arena: &Writer,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), StoreError> {
    arena.each_record(&mut |lsn, payload| {
        if !goes_on() {
            return Err(StoreError::Stopped);
        }
        let changes = [NewChange { kind: ChangeKind::Put, payload }];
        let commit = NewCommit {
            stream,
            first_lsn: lsn,
            again: true,
            changes: &changes,
            needs: &[],
            clock_ms: 0,
        };
        writer.add(&commit, &|_| u64::MAX)?;
        Ok::<(), StoreError>(())
    })
}
