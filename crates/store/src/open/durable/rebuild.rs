//! Building arenas from the chains of the log, as far as these go.
//!
//! One thread for each chain.

use crate::error::StoreError;
use crate::open::durable::ahead::ChangesAhead;
use crate::open::durable::building::Building;
use crate::open::durable::log_options::ReplayProgress;
use crate::open::durable::streams_of::Stream;
use nigh_log::{LogRecovery, ReplayedFrame, Storage};
use nigh_shm::Domain;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Builds the arenas of a chain's streams, as far as the log goes.
pub(super) fn replay_chain<S: Storage>(
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
pub(super) fn by_chain(streams: Vec<Stream>, chains: usize) -> Vec<Vec<Stream>> {
    let mut all: Vec<Vec<Stream>> = (0..chains).map(|_| Vec::new()).collect();
    for stream in streams {
        let shard = stream.shard(chains);
        all[shard].push(stream);
    }
    all
}
