//! What runs beside the calls on a database: snapshots, watches, and readers in other processes.
//!
//! The rules of `boundary`, which the comments cite. Any thread.

use super::db::told_ttl;
use super::pointers::{
    bytes, folder_path, give, give_one, list, name_of, path, set, set_block, text, walk,
};
use crate::c_types::{
    nigh_bytes, nigh_db, nigh_event, nigh_event_kind, nigh_pair, nigh_reader, nigh_snapshot,
    nigh_watch,
};
use crate::fault::{Fault, answer, nigh_status};
use crate::handles::{DBS, READERS, SNAPSHOTS, WATCHES};
use crate::snapshot_steps::SnapshotSteps;
use nigh::{Db, WatchEvent, WatchPlace};
use nigh_status::{NIGH_NONE_YET, NIGH_NOT_FOUND, NIGH_OK};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks of a thread that waits: whether another one has ended the watch or the reader.
const LOOK: Duration = Duration::from_millis(100);

/// Begins a snapshot of the keys that begin with `prefix`, and their values, as they are now.
/// Writers wait for some milliseconds per million keys while it is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_snapshot_begin(
    db: nigh_db,
    prefix: *const c_void,
    prefix_len: usize,
    snapshot: Option<&mut MaybeUninit<nigh_snapshot>>,
) -> nigh_status {
    answer(|| {
        let snapshot = set("snapshot", snapshot, nigh_snapshot { id: 0 })?;
        // SAFETY: rule 1 of `boundary`.
        let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
        let (taken, name) =
            DBS.with_named(db.id, |db, name| Ok((db.snapshot_of(prefix)?, Arc::clone(name))))?;
        snapshot.id = SNAPSHOTS.add(&name, || Ok(Mutex::new(SnapshotSteps::of(taken))))?;
        Ok(NIGH_OK)
    })
}

/// The next keys of a snapshot, with their values, `count` at most, for one nigh_free of all.
/// `pairs_len` is 0 at the end, and only there. Memory that the snapshot holds back is bounded
/// (`snapshot_hold_bytes`): one that is read too slowly ends with NIGH_SNAPSHOT_TOO_OLD. Behind
/// NIGH_NO_MEMORY the next call gives what this one would have given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_snapshot_next(
    snapshot: nigh_snapshot,
    count: u32,
    pairs: Option<&mut MaybeUninit<*mut nigh_pair>>,
    pairs_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let (pairs, pairs_len) = set_block("pairs", pairs, pairs_len)?;
        SNAPSHOTS.with(snapshot.id, |snapshot| {
            let mut steps = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            steps.step(count, |found| {
                let parts = found.iter().flat_map(|(key, value)| [Some(&key[..]), Some(value)]);
                (*pairs, *pairs_len) = (give(parts)?.cast(), found.len());
                Ok(NIGH_OK)
            })
        })
    })
}

/// The place of a snapshot's moment, for one nigh_free: a watch from there tells what came later.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_snapshot_place(
    snapshot: nigh_snapshot,
    place: Option<&mut MaybeUninit<*mut c_char>>,
) -> nigh_status {
    answer(|| {
        let place = set("place", place, null_mut())?;
        SNAPSHOTS.with(snapshot.id, |snapshot| {
            let steps = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            give_text(&steps.place().to_string(), place)
        })
    })
}

/// Ends a snapshot: it holds nothing back any more.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_snapshot_end(snapshot: nigh_snapshot) -> nigh_status {
    answer(|| SNAPSHOTS.remove(snapshot.id).map(|_| NIGH_OK))
}

/// Begins to tell the changes of keys with this prefix, each once; a partition's in their order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_watch_begin(
    db: nigh_db,
    prefix: *const c_void,
    prefix_len: usize,
    watch: Option<&mut MaybeUninit<nigh_watch>>,
) -> nigh_status {
    answer(|| {
        let watch = set("watch", watch, nigh_watch { id: 0 })?;
        // SAFETY: rule 1 of `boundary`.
        let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
        let (begun, name) =
            DBS.with_named(db.id, |db, name| Ok((db.watch(prefix)?, Arc::clone(name))))?;
        watch.id = WATCHES.add(&name, || Ok(begun))?;
        Ok(NIGH_OK)
    })
}

/// The same from a place on, that nigh_watch_place or nigh_snapshot_place gave, in any process:
/// first what the log has behind it, one partition's after the other's, then what comes. It waits
/// for the disk. NIGH_CHANGES_GONE: the message has the place from which on the log has all.
/// NIGH_INVALID: it isn't a place of this database, or is behind its last change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_watch_begin_from(
    db: nigh_db,
    prefix: *const c_void,
    prefix_len: usize,
    place: *const c_char,
    watch: Option<&mut MaybeUninit<nigh_watch>>,
) -> nigh_status {
    answer(|| {
        let watch = set("watch", watch, nigh_watch { id: 0 })?;
        // SAFETY: rule 1 of `boundary`.
        let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
        // SAFETY: rule 1 of `boundary`.
        let place = unsafe { text("place", place) }?;
        let place = place.ok_or_else(|| Fault::invalid("place is NULL: give one"))?;
        let place: WatchPlace = place.parse()?;
        let (begun, name) = DBS
            .with_named(db.id, |db, name| Ok((db.watch_from(prefix, &place)?, Arc::clone(name))))?;
        watch.id = WATCHES.add(&name, || Ok(begun))?;
        Ok(NIGH_OK)
    })
}

/// The next change: NIGH_OK, and `event`, whose `block` is for nigh_free; or NIGH_NONE_YET, if none
/// comes within `most_ms` ms (more may follow while the log is read); or NIGH_CLOSED, if the
/// watch or the database is closed. Several threads may take from one watch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_watch_next(
    watch: nigh_watch,
    most_ms: u64,
    event: Option<&mut MaybeUninit<nigh_event>>,
) -> nigh_status {
    answer(|| {
        let event = set("event", event, no_event())?;
        let (begin, most) = (Instant::now(), Duration::from_millis(most_ms));
        loop {
            let left = most.saturating_sub(begin.elapsed());
            let (watch, name) = WATCHES.get(watch.id)?;
            let told = watch.next_within(left.min(LOOK));
            if let Some(told) = told.map_err(|error| Fault::from(error).of(&name))? {
                *event = event_of(&told)?;
                return Ok(NIGH_OK);
            }
            if left.is_zero() {
                return Ok(NIGH_NONE_YET);
            }
        }
    })
}

/// Where a watch is, behind the events that were taken: a text, for one nigh_free. A later watch
/// from there tells what this one hasn't told. It may be ahead of the disk until nigh_flush.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_watch_place(
    watch: nigh_watch,
    place: Option<&mut MaybeUninit<*mut c_char>>,
) -> nigh_status {
    answer(|| {
        let place = set("place", place, null_mut())?;
        WATCHES.with(watch.id, |watch| give_text(&watch.place()?.to_string(), place))
    })
}

/// A block with a text.
fn give_text(text: &str, place: &mut *mut c_char) -> Result<nigh_status, Fault> {
    give_one(text.as_bytes(), place, &mut 0).map(|()| NIGH_OK)
}

/// Ends a watch. Threads that wait there get NIGH_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_watch_end(watch: nigh_watch) -> nigh_status {
    answer(|| WATCHES.remove(watch.id).map(|_| NIGH_OK))
}

fn no_event() -> nigh_event {
    let none = nigh_bytes { data: null(), len: 0 };
    let (kind, partition, change, first, expires_at_ms, block) = (0, 0, 0, 0, 0, null_mut());
    nigh_event { kind, partition, change, first, expires_at_ms, key: none, value: none, block }
}

fn event_of(told: &WatchEvent) -> Result<nigh_event, Fault> {
    let (kind, key, value, expires_at) = match told {
        WatchEvent::Put { key, value, expires_at, .. } => {
            (nigh_event_kind::NIGH_EVENT_PUT, Some(key), Some(value), *expires_at)
        }
        WatchEvent::Expires { key, expires_at, .. } => {
            (nigh_event_kind::NIGH_EVENT_EXPIRES, Some(key), None, *expires_at)
        }
        WatchEvent::Removed { key, .. } => {
            (nigh_event_kind::NIGH_EVENT_REMOVED, Some(key), None, None)
        }
        WatchEvent::Cleared { .. } => (nigh_event_kind::NIGH_EVENT_CLEARED, None, None, None),
        WatchEvent::Lost { .. } => (nigh_event_kind::NIGH_EVENT_LOST, None, None, None),
        other => {
            let message = format!("the event {other:?} isn't known: please report it");
            return Err(Fault::new(nigh_status::NIGH_FAULT, message));
        }
    };
    let given = give([key, value].into_iter().map(|part| part.map(Vec::as_slice)));
    let (kind, first, expires_at, parts) = match (given, told) {
        (Ok(parts), WatchEvent::Lost { first, .. }) => (kind, *first, None, parts),
        (Ok(parts), _) => (kind, 0, expires_at, parts),
        // There is no memory for a copy of the change: it is lost.
        (Err(_), _) => {
            let kind = nigh_event_kind::NIGH_EVENT_LOST;
            (kind, told.change(), None, give([None, None].into_iter())?)
        }
    };
    // SAFETY: `give` has made two places, and they are set.
    let places = unsafe { std::slice::from_raw_parts(parts, 2) };
    Ok(nigh_event {
        kind: kind as i32,
        partition: u32::try_from(told.partition()).unwrap_or(u32::MAX),
        change: told.change(),
        first,
        expires_at_ms: expires_at.map_or(0, unix_ms),
        key: places[0],
        value: places[1],
        block: parts.cast(),
    })
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Opens, to read, the database that another process has open with the option `shared`, or has
/// left in memory; by its folder. `memory_dir` is its owner's, if that names one, else NULL. Its
/// owner never waits for that. While nobody has it open, calls get NIGH_NOT_OPEN, and succeed again
/// later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_open(
    folder: *const c_char,
    memory_dir: *const c_char,
    reader: Option<&mut MaybeUninit<nigh_reader>>,
) -> nigh_status {
    answer(|| {
        let reader = set("reader", reader, nigh_reader { id: 0 })?;
        // SAFETY: rule 1 of `boundary`.
        let folder = unsafe { folder_path(folder) }?;
        // SAFETY: rule 1 of `boundary`.
        let memory_dir = unsafe { path(memory_dir) };
        reader.id = READERS.add(&name_of(folder), || {
            Ok(match memory_dir {
                None => Db::open_reader(folder)?,
                Some(memory_dir) => Db::open_reader_in(folder, memory_dir)?,
            })
        })?;
        Ok(NIGH_OK)
    })
}

/// Finds the value of a key, as nigh_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_get(
    reader: nigh_reader,
    key: *const c_void,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let (value, value_len) = set_block("value", value, value_len)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        READERS.with(reader.id, |reader| {
            let Some(found) = reader.get(key)? else { return Ok(NIGH_NOT_FOUND) };
            give_one(&found, value, value_len).map(|()| NIGH_OK)
        })
    })
}

/// Finds the values of several keys, as nigh_multi_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_multi_get(
    reader: nigh_reader,
    keys: *const nigh_bytes,
    keys_len: usize,
    values: Option<&mut MaybeUninit<*mut nigh_bytes>>,
) -> nigh_status {
    answer(|| {
        let values = set("values", values, null_mut())?;
        // SAFETY: rule 1 of `boundary`.
        let keys = unsafe { list("keys", "a key", keys, keys_len) }?;
        READERS.with(reader.id, |reader| {
            let found = reader.multi_get(&keys)?;
            *values = give(found.iter().map(Option::as_deref))?;
            Ok(NIGH_OK)
        })
    })
}

/// A step of a walk over the keys that begin with `prefix`, as nigh_scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_scan(
    reader: nigh_reader,
    prefix: *const c_void,
    prefix_len: usize,
    count: u32,
    cursor: Option<&mut u64>,
    pairs: Option<&mut MaybeUninit<*mut nigh_pair>>,
    pairs_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        walk(cursor, pairs, pairs_len, |at, found| {
            // SAFETY: rule 1 of `boundary`.
            let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
            READERS.with(reader.id, |reader| {
                Ok(reader.scan(prefix, at, count, |key, value| found.add(key, value))?)
            })
        })
    })
}

/// Whether a key is there: NIGH_OK, or NIGH_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_contains(
    reader: nigh_reader,
    key: *const c_void,
    key_len: usize,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        let is_there = READERS.with(reader.id, |reader| Ok(reader.contains(key)?))?;
        Ok(if is_there { NIGH_OK } else { NIGH_NOT_FOUND })
    })
}

/// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
/// it isn't there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_reader_ttl(
    reader: nigh_reader,
    key: *const c_void,
    key_len: usize,
    ttl_ms: Option<&mut MaybeUninit<u64>>,
) -> nigh_status {
    answer(|| {
        let ttl_ms = set("ttl_ms", ttl_ms, 0)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        Ok(told_ttl(READERS.with(reader.id, |reader| Ok(reader.ttl(key)?))?, ttl_ms))
    })
}

/// Waits until the database can be read, for `most_ms` milliseconds at most: then it says why it
/// can't be. It ends if the reader is closed.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_reader_wait(reader: nigh_reader, most_ms: u64) -> nigh_status {
    answer(|| {
        let (begin, most) = (Instant::now(), Duration::from_millis(most_ms));
        loop {
            let left = most.saturating_sub(begin.elapsed());
            let (found, name) = READERS.get(reader.id)?;
            let waited = found.wait(LOOK.min(left));
            match waited {
                Err(error) if error.is_passing() && left > LOOK => {}
                answer => {
                    answer.map_err(|error| Fault::from(error).of(&name))?;
                    return Ok(NIGH_OK);
                }
            }
        }
    })
}

/// Closes a reader.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_reader_close(reader: nigh_reader) -> nigh_status {
    answer(|| READERS.remove(reader.id).map(|_| NIGH_OK))
}
