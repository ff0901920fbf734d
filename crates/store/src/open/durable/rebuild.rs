//! The arenas of a start that weren't adopted: built from the chains of the log, and from the
//! journals behind them; or made new.
//!
//! 1. Until [`finish_built`] nothing is changed that another start would find.
//!
//! The thread that starts the server; a replay has a thread for each chain.

use crate::error::StoreError;
use crate::open::durable::ahead::ChangesAhead;
use crate::open::durable::arenas::StartStreams;
use crate::open::durable::building::Building;
use crate::open::durable::found::Findings;
use crate::open::durable::log_options::{LogOptions, ReplayProgress, StartReport};
use crate::open::durable::plan::Origin;
use crate::open::durable::rest::is_news;
use crate::open::durable::streams_of::Stream;
use nigh_log::{LogRecovery, ReplayedFrame, Storage};
use nigh_shm::{ArenasByStream, Domain, JournalEntry, StreamChange, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An arena that is being built, and the last LSN that it has.
type Replayed = (Building, u64);

/// The arenas of some streams that are being built.
pub(super) type ReplayedArenas = BTreeMap<u32, Replayed>;

/// Builds the arenas that weren't adopted: from the log, and from what the journals have behind it,
/// whose values are in `values`.
pub(super) fn replay_missing<S: Storage>(
    findings: &Findings<S>,
    (streams, values): (&StartStreams, &ArenasByStream),
    (log, domain): (&LogOptions, &Arc<Domain>),
    report: &mut StartReport,
) -> Result<ReplayedArenas, StoreError> {
    report.adopted = of_origin(streams, Origin::Arena).len();
    let missing = of_origin(streams, Origin::Log);
    if missing.is_empty() {
        return Ok(ReplayedArenas::new());
    }
    report.rebuilt = missing.len();
    let (built, read_bytes) = replay_chains(&findings.chains, missing, log, domain)?;
    report.replayed_bytes = read_bytes;
    let lasts = findings.chains.iter().flat_map(|chain| chain.last.clone());
    let lasts: BTreeMap<u32, u64> = lasts.collect();
    let mut whole = ReplayedArenas::new();
    for (number, mut arena) in built {
        let last = lasts.get(&number).copied().unwrap_or(0);
        let last = behind(findings, values, (number, last), &mut arena)?;
        arena.check_whole()?;
        whole.insert(number, (arena, last));
    }
    Ok(whole)
}

/// Builds arenas as far as the log goes, a thread for each chain. Returns how many bytes were read,
/// too.
fn replay_chains<S: Storage>(
    chains: &[LogRecovery<S>],
    missing: Vec<Stream>,
    log: &LogOptions,
    domain: &Arc<Domain>,
) -> Result<(BTreeMap<u32, Building>, u64), StoreError> {
    let all_bytes: u64 = chains.iter().map(LogRecovery::bytes).sum();
    let read = AtomicU64::new(0);
    let progress = &*log.progress;
    progress(ReplayProgress { read_bytes: 0, all_bytes });
    let parts = by_chain(missing, chains.len());
    let built = std::thread::scope(|scope| {
        let parts = chains.iter().zip(parts).filter(|(_, streams)| !streams.is_empty());
        let threads: Vec<_> = parts
            .map(|(chain, streams)| {
                let read = &read;
                let streams = (streams, domain);
                scope.spawn(move || replay_chain(chain, streams, progress, (read, all_bytes)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok((built.into_iter().flatten().collect(), read.into_inner()))
}

/// They get their names.
pub(super) fn finish_built(
    streams: &mut StartStreams,
    built: ReplayedArenas,
    clock_ms: u64,
    ids: [&[u8; 16]; 2],
) -> Result<(), StoreError> {
    for (number, (arena, last)) in built {
        let writer = arena.finish(last, clock_ms, ids)?;
        if let Some(it) = streams.get_mut(&number) {
            it.writer = Some(writer);
        }
    }
    Ok(())
}

/// Does again what the journals have behind the log. Returns the last LSN.
fn behind<S: Storage>(
    findings: &Findings<S>,
    values: &ArenasByStream,
    (number, mut last): (u32, u64),
    arena: &mut Building,
) -> Result<u64, StoreError> {
    for journal in findings.ours() {
        journal.each_commit(values, &mut |entry: &JournalEntry<'_>| {
            if entry.stream() != number || !is_news(entry, last, journal)? {
                return Ok(());
            }
            let changes = entry.changes().collect::<Result<Vec<StreamChange<'_>>, _>>()?;
            arena.apply(&changes, &|| format!("the journal, position {}", entry.position()))?;
            last = entry.last_lsn();
            Ok::<(), StoreError>(())
        })?;
    }
    Ok(last)
}

/// Makes the arenas that are new.
pub(super) fn make_new(streams: &mut StartStreams, domain: &Arc<Domain>) -> Result<(), StoreError> {
    for it in streams.values_mut().filter(|it| it.plan.origin == Origin::New) {
        it.writer = Some(Writer::create(&it.stream.spec, domain)?);
    }
    Ok(())
}

fn of_origin(streams: &StartStreams, origin: Origin) -> Vec<Stream> {
    let of = streams.values().filter(|it| it.plan.origin == origin);
    of.map(|it| it.stream.clone()).collect()
}

/// Builds the arenas of a chain's streams, as far as the log goes.
fn replay_chain<S: Storage>(
    chain: &LogRecovery<S>,
    (streams, domain): (Vec<Stream>, &Arc<Domain>),
    progress: &(dyn Fn(ReplayProgress) + Sync),
    (read, all_bytes): (&AtomicU64, u64),
) -> Result<BTreeMap<u32, Building>, StoreError> {
    let mut building = BTreeMap::new();
    for stream in streams {
        building.insert(stream.number, Building::begin(stream, domain)?);
    }
    let (mut refused, mut of_frames, bytes) = (None, 0, chain.bytes());
    let mut each = |frame: &ReplayedFrame<'_>| {
        of_frames += frame.bytes;
        building.values_mut().for_each(|arena| arena.expect(of_frames, bytes));
        replay_frame(&mut building, frame).map_err(|error| {
            let text = error.to_string();
            refused = Some(error);
            text
        })
    };
    let mut before = 0;
    let replayed = chain.replay_frames(&mut each, &mut |bytes| {
        let read_bytes = read.fetch_add(bytes - before, Relaxed) + bytes - before;
        before = bytes;
        progress(ReplayProgress { read_bytes, all_bytes });
    });
    match (refused, replayed) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(error.into()),
        (None, Ok(())) => Ok(building),
    }
}

/// Does the commits of a frame again.
fn replay_frame(
    building: &mut BTreeMap<u32, Building>,
    frame: &ReplayedFrame<'_>,
) -> Result<(), StoreError> {
    let place = || format!("{} of its chain", frame.at);
    let mut ahead = ChangesAhead::new(frame.changes);
    for commit in frame.commits() {
        let stream = commit.first().map(|first| first.header.stream);
        let Some(stream) = stream.filter(|stream| building.contains_key(stream)) else { continue };
        let changes = ahead.take(building, commit.len());
        let Some(arena) = building.get_mut(&stream) else { continue };
        match changes {
            Ok(changes) => arena.apply_checked(changes, &place)?,
            Err(error) => return Err(arena.refused(error, &place)),
        }
    }
    Ok(())
}

/// Which arenas of a start are built, by shard of the chains.
fn by_chain(streams: Vec<Stream>, chains: usize) -> Vec<Vec<Stream>> {
    let mut all: Vec<Vec<Stream>> = (0..chains).map(|_| Vec::new()).collect();
    for stream in streams {
        let shard = stream.shard(chains);
        all[shard].push(stream);
    }
    all
}
