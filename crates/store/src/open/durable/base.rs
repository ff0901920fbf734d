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
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::open::durable::arenas::StartStream;
use crate::open::durable::log_options::LogOptions;
use crate::open::durable::rest::StartStreams;
use nigh_log::{
    Chain, ChangeKind, LogWriter, Meta, MetaFault, NewChange, NewCommit, Storage, World, list,
    remove_unnamed, save_meta,
};

/// Writes a base for all shards; returns the writers, by shard. `breaks` is told of the generation
/// if it isn't known whether that counts.
pub(super) fn write_base<S: Storage>(
    world: &World<S>,
    meta: &mut Meta,
    streams: &mut StartStreams,
    log: &LogOptions,
    clock_ms: u64,
    breaks: &dyn Fn(u64),
) -> Result<Vec<LogWriter<S>>, StoreError> {
    let generation = next_generation(world, meta)?;
    let shards = u32::try_from(log.shards).expect("at most 64 shards");
    let mut writers = Vec::new();
    for shard in 0..shards {
        let chain = Chain { generation, shard, shards };
        let is_of = |it: &&mut StartStream| it.stream.shard(log.shards) == shard as usize;
        let mut of_shard: Vec<&mut StartStream> = streams.values_mut().filter(is_of).collect();
        let lasts: Vec<(u32, u64)> =
            of_shard.iter().map(|it| (it.stream.number, it.last_lsn())).collect();
        let mut writer =
            LogWriter::begin_chain(world, meta, chain, &lasts, log.settings, clock_ms)?;
        for it in &mut of_shard {
            append_all(&mut writer, it)?;
        }
        writer.write(true)?;
        writer.sync()?;
        writers.push(writer);
    }
    name_chains(world, meta, generation, shards).map_err(|fault| {
        if matches!(fault, MetaFault::InDoubt(_)) {
            breaks(generation);
        }
        of_fault(fault)
    })?;
    writers.iter_mut().for_each(LogWriter::named);
    remove_unnamed(&*world.storage, &list(&*world.storage)?, meta)?;
    Ok(writers)
}

/// A generation that no chain has; that counts before a file of it is made.
pub(super) fn next_generation<S: Storage>(
    world: &World<S>,
    meta: &mut Meta,
) -> Result<u64, StoreError> {
    let generation = meta.next_generation;
    meta.next_generation += 1;
    save(world, meta)?;
    Ok(generation)
}

/// The chains of all shards in a generation.
pub(super) fn chains_of(generation: u64, shards: u32) -> impl Iterator<Item = Chain> {
    (0..shards).map(move |shard| Chain { generation, shard, shards })
}

/// Has the chains of a generation count, and no others.
pub(super) fn name_chains<S: Storage>(
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

pub(super) fn of_fault(fault: MetaFault) -> StoreError {
    match fault {
        MetaFault::Unchanged(error) | MetaFault::InDoubt(error) => error.into(),
    }
}

/// Appends all records of an arena.
fn append_all<S: Storage>(
    writer: &mut LogWriter<S>,
    it: &mut StartStream,
) -> Result<(), StoreError> {
    let stream = it.stream.number;
    let arena = it.writer.as_mut().expect("each stream has its arena by now");
    arena.each_record(&mut |lsn, payload| {
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
