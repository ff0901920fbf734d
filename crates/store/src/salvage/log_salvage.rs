//! Saves what can be saved of a log into another folder.

use crate::open::durable::streams_of::{SYSTEM_NUMBER, shard_of};
use crate::salvage::salvage_error::SalvageError;
use nigh_log::{
    Added, Chain, ChangeKind, FramedChange, LogError, LogSettings, LogWriter, Meta, MetaFault,
    NewChange, NewCommit, ReplayedCommit, SalvagedChain, Secret, Storage, World, check_chain, list,
    need_meta, read_meta, salvage_chain, salvaged_commits, save_meta,
};
use nigh_shm::{BaseKeys, BaseWatch, Effect, StreamChange, tombstone_payload};
use std::collections::BTreeMap;

/// The generation of a copy's chains.
const GENERATION: u64 = 1;

/// A key that was dropped: its newest change stands on a version that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedKey {
    /// The stream.
    pub stream: u32,
    /// The key.
    pub key: Vec<u8>,
    /// LSN of that change.
    pub lsn: u64,
    /// LSN of the removal, in the copy.
    pub removed_lsn: u64,
}

/// What was saved of a shard's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedShard {
    /// The chain.
    pub chain: Chain,
    /// What was saved, and what is lost.
    pub saved: SalvagedChain,
    /// Changes in the copy, removals of dropped keys included.
    pub changes: u64,
    /// The keys that were dropped.
    pub dropped: Vec<DroppedKey>,
}

impl SalvagedShard {
    /// Whether something is lost that a start would have. A torn tail isn't.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.saved.bad.is_some() || self.saved.sum.is_none() || !self.dropped.is_empty()
    }
}

/// What was saved of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSalvage {
    /// The meta of the damaged log.
    pub meta: Meta,
    /// The copy's id.
    pub id: [u8; 16],
    /// By shard.
    pub shards: Vec<SalvagedShard>,
}

/// Saves what can be saved of a log into an empty folder, as a log with a new id.
///
/// # Errors
/// As [`SalvageError`] says; what is in the folder then is no log.
pub fn salvage_log<S: Storage, T: Storage>(
    from: &World<S>,
    into: &World<T>,
    settings: LogSettings,
) -> Result<LogSalvage, SalvageError> {
    need_empty(&*into.storage)?;
    let of_source = |error| match error {
        LogError::Meta { .. } | LogError::MetaMissing { .. } => SalvageError::NoMeta(error),
        error => SalvageError::Source(error),
    };
    let meta = read_meta(&*from.storage).map_err(of_source)?;
    let listing = list(&*from.storage).map_err(of_source)?;
    need_meta(&listing, meta.as_ref()).map_err(of_source)?;
    let meta = meta.filter(|meta| !meta.chains.is_empty()).ok_or(SalvageError::Nothing)?;
    let mut shards = Vec::new();
    for chain in &meta.chains {
        let bases = base_keys(from, &meta, chain).map_err(SalvageError::Source)?;
        let saved = checked(from, &meta, chain, &bases).map_err(SalvageError::Source)?;
        shards.push((*chain, bases, saved));
    }
    let mut copy = meta_of_copy(&meta, into);
    let clocks = shards.iter().map(|(_, _, saved)| saved.clock_ms);
    let clock_ms = clocks.fold(into.clock.unix_ms(), u64::max);
    let mut done = Vec::new();
    for (chain, bases, saved) in shards {
        let copying = Copying { meta: &meta, copy: &copy, settings, clock_ms };
        done.push(copying.copy(from, into, chain, bases, saved)?);
    }
    let generation = GENERATION;
    copy.chains = meta.chains.iter().map(|chain| Chain { generation, ..*chain }).collect();
    save(into, &copy)?;
    for shard in &done {
        read_back(into, &copy, shard)?;
    }
    Ok(LogSalvage { id: copy.id, meta, shards: done })
}

fn need_empty<T: Storage>(storage: &T) -> Result<(), SalvageError> {
    let listing = list(storage).map_err(SalvageError::Target)?;
    let files = listing.files.iter().map(ToString::to_string);
    let meta = listing.meta.then(|| "meta".to_owned());
    match files.chain(listing.new).chain(listing.others).chain(meta).next() {
        None => Ok(()),
        Some(name) => Err(SalvageError::NotEmpty { name }),
    }
}

fn meta_of_copy<T: Storage>(meta: &Meta, into: &World<T>) -> Meta {
    let random = || {
        let (a, b) = (into.chance.word(), into.chance.word());
        (u128::from(a) | u128::from(b) << 64).to_le_bytes()
    };
    Meta {
        next_generation: GENERATION + 1,
        next_tenant: meta.next_tenant,
        tenants: meta.tenants.clone(),
        ..Meta::new(random(), Secret(random()))
    }
}

fn save<T: Storage>(into: &World<T>, meta: &Meta) -> Result<(), SalvageError> {
    save_meta(&*into.storage, meta).map_err(|fault| match fault {
        MetaFault::Unchanged(error) | MetaFault::InDoubt(error) => SalvageError::Target(error),
    })
}

/// The changes of a commit as a replay has them.
fn changes_of<'a>(changes: &[FramedChange<'a>]) -> Vec<StreamChange<'a>> {
    let all = changes.iter().map(|change| StreamChange {
        lsn: change.header.lsn,
        effect: Effect::of_byte(change.header.kind.byte()).expect("as in the journal"),
        payload: change.payload,
        rest: &[],
    });
    all.collect()
}

/// The keys that others stand on, by stream.
fn base_keys<S: Storage>(
    from: &World<S>,
    meta: &Meta,
    chain: &Chain,
) -> Result<BTreeMap<u32, BaseKeys>, LogError> {
    let mut bases: BTreeMap<u32, BaseKeys> = BTreeMap::new();
    salvage_chain(from, meta, chain, &mut |commit| {
        for (framed, change) in commit.changes.iter().zip(changes_of(commit.changes)) {
            bases.entry(framed.header.stream).or_default().note(&change);
        }
        Ok(())
    })?;
    Ok(bases)
}

/// Compares all records, and cuts the chain at the first that is bad too.
fn checked<S: Storage>(
    from: &World<S>,
    meta: &Meta,
    chain: &Chain,
    bases: &BTreeMap<u32, BaseKeys>,
) -> Result<SalvagedChain, LogError> {
    let mut watches = Watches::new(bases);
    salvage_chain(from, meta, chain, &mut |commit| watches.take(commit))
}

/// What each stream's changes stand on.
struct Watches(BTreeMap<u32, BaseWatch>);

impl Watches {
    fn new(bases: &BTreeMap<u32, BaseKeys>) -> Watches {
        Watches(bases.iter().map(|(&stream, bases)| (stream, bases.clone().watch())).collect())
    }

    fn take(&mut self, commit: &ReplayedCommit<'_>) -> Result<(), String> {
        let Some(first) = commit.changes.first() else { return Ok(()) };
        let new = || BaseKeys::default().watch();
        let watch = self.0.entry(first.header.stream).or_insert_with(new);
        watch.take(&changes_of(commit.changes))
    }
}

/// A chain that is being copied.
struct Copying<'c> {
    meta: &'c Meta,
    copy: &'c Meta,
    settings: LogSettings,
    clock_ms: u64,
}

impl Copying<'_> {
    fn copy<S: Storage, T: Storage>(
        &self,
        from: &World<S>,
        into: &World<T>,
        chain: Chain,
        bases: BTreeMap<u32, BaseKeys>,
        saved: SalvagedChain,
    ) -> Result<SalvagedShard, SalvageError> {
        let mut lasts = self.lasts(&chain, &saved);
        let rows: Vec<(u32, u64)> = lasts.iter().map(|(&stream, &lsn)| (stream, lsn)).collect();
        let new = Chain { generation: GENERATION, ..chain };
        let writer =
            LogWriter::begin_chain(into, self.copy, new, &rows, self.settings, self.clock_ms);
        let mut writer = writer.map_err(SalvageError::Target)?;
        let (mut watches, mut changes, mut failed) = (Watches::new(&bases), 0, None);
        drop(bases);
        if saved.sum.is_some() {
            let given = salvaged_commits(from, self.meta, &chain, &saved, &mut |commit| {
                watches.take(commit)?;
                changes += commit.changes.len() as u64;
                append(&mut writer, &mut lasts, commit).map_err(|error| {
                    let text = error.to_string();
                    failed = Some(error);
                    text
                })
            });
            if let Some(error) = failed {
                return Err(SalvageError::Target(error));
            }
            given.map_err(SalvageError::Source)?;
        }
        let mut dropped = Vec::new();
        for (stream, watch) in watches.0 {
            for (key, lsn) in watch.into_dangling() {
                let last = lasts.entry(stream).or_default();
                *last += 1;
                let payload = tombstone_payload(&key, *last);
                let gone = [NewChange { kind: ChangeKind::Gone, payload: &[&payload] }];
                let commit = commit_of((stream, *last), false, &gone, 0);
                writer.add(&commit, &|_| u64::MAX).map_err(SalvageError::Target)?;
                dropped.push(DroppedKey { stream, key, lsn, removed_lsn: *last });
            }
        }
        changes += dropped.len() as u64;
        writer.write(true).and_then(|()| writer.close()).map_err(SalvageError::Target)?;
        Ok(SalvagedShard { chain, saved, changes, dropped })
    }

    /// The last LSNs before the copy's first change: of all streams of the shard.
    fn lasts(&self, chain: &Chain, saved: &SalvagedChain) -> BTreeMap<u32, u64> {
        let mut lasts = BTreeMap::new();
        for (&tenant, line) in &self.meta.tenants {
            let partitions = if tenant == SYSTEM_NUMBER { 1 } else { line.partitions };
            let own = (0..partitions)
                .filter(|&it| shard_of(it as usize, chain.shards as usize) == chain.shard as usize);
            lasts.extend(own.map(|partition| (tenant << 8 | partition, 0)));
        }
        lasts.extend(saved.first.iter().map(|(&stream, &lsn)| (stream, lsn)));
        lasts
    }
}

fn commit_of<'a>(
    (stream, first_lsn): (u32, u64),
    again: bool,
    changes: &'a [NewChange<'a>],
    clock_ms: u64,
) -> NewCommit<'a> {
    NewCommit { stream, first_lsn, again, changes, needs: &[], clock_ms }
}

fn append<T: Storage>(
    writer: &mut LogWriter<T>,
    lasts: &mut BTreeMap<u32, u64>,
    commit: &ReplayedCommit<'_>,
) -> Result<(), LogError> {
    let Some(first) = commit.changes.first().map(|change| change.header) else { return Ok(()) };
    let wrong = |what: &str| LogError::Refused {
        file: String::new(),
        position: commit.at.position,
        what: what.to_owned(),
    };
    let last = lasts.get_mut(&first.stream).ok_or_else(|| wrong("its stream isn't the shard's"))?;
    if first.again && first.lsn > *last {
        return Err(wrong("a record comes again with an LSN that its stream hasn't reached"));
    }
    if !first.again {
        *last = first.lsn + commit.changes.len() as u64 - 1;
    }
    let payloads: Vec<[&[u8]; 1]> = commit.changes.iter().map(|it| [it.payload]).collect();
    let changes: Vec<NewChange<'_>> = commit
        .changes
        .iter()
        .zip(&payloads)
        .map(|(change, payload)| NewChange { kind: change.header.kind, payload })
        .collect();
    let of = (first.stream, first.lsn);
    let added =
        writer.add(&commit_of(of, first.again, &changes, commit.clock_ms), &|_| u64::MAX)?;
    debug_assert_eq!(added, Added::Taken, "it needs nothing");
    Ok(())
}

/// Reads a chain of the copy, and compares it with what was written.
fn read_back<T: Storage>(
    into: &World<T>,
    copy: &Meta,
    shard: &SalvagedShard,
) -> Result<(), SalvageError> {
    let chain = Chain { generation: GENERATION, ..shard.chain };
    let not_whole = |what| SalvageError::NotWhole { what };
    let report = check_chain(into, copy, &chain, &mut |_| ());
    let report = report.map_err(|error| not_whole(error.to_string()))?;
    if report.changes != shard.changes {
        let (found, wanted) = (report.changes, shard.changes);
        return Err(not_whole(format!("shard {}: {found} changes of {wanted}", chain.shard)));
    }
    Ok(())
}
