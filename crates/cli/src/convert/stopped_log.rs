//! The log of a stopped server: which folder has it, and opening it as a start does.
//!
//! 1. Looking for it changes nothing. Its lock is held from [`StoppedLog::take`] on.
//! 2. It is the log of the arenas, by its id, or there are none.

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_log::{
    FileName, LogError, LogSettings, Meta, RealChance, RealClock, RealFolder, Storage, StoredFile,
    World, list, read_meta,
};
use nigh_server::Config;
use nigh_shm::{Domain, JOURNAL_BYTES_MIN, JournalFile};
use nigh_store::{
    Conversion, Keyspace, Left, LiveFault, LogOptions, OpenedLog, StoreError, StoreOptions,
    SyncMode, arena_of_name, left_in_log, log_of,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that says that a folder has a log.
const META: &str = "meta";

/// The folder that has the log of a tenant's data; `None` if the data has none. `named` is what the
/// user says.
pub(super) fn find(named: Option<&Path>, shm_dir: &Path, tenant: &str) -> Result<Option<PathBuf>> {
    let arenas = shm_dir.display();
    let dir = named.map_or_else(|| Config::default().text("dir").into(), Path::to_owned);
    let dir = std::path::absolute(&dir).with_context(|| format!("can't use {}", dir.display()))?;
    let is_there = dir.join(META).is_file();
    let log = dir.display();
    match log_of(shm_dir)? {
        Some(id) => {
            let id = hex(&id);
            ensure!(
                is_there,
                "the arenas in {arenas} have the log {id}, and {log} has none: name the log's folder with --dir"
            );
        }
        None if named.is_some() => {
            ensure!(is_there, "{log} has no log: name its folder with --dir, or leave --dir out");
        }
        None if !is_there || has_arenas(shm_dir, tenant) => return Ok(None),
        // After a reboot: the log alone has the data.
        None => {}
    }
    Ok(Some(dir))
}

fn has_arenas(dir: &Path, tenant: &str) -> bool {
    let names = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut tenants = names.filter_map(|name| Some(arena_of_name(name.to_str()?)?.0 == tenant));
    tenants.any(|is_its| is_its)
}

/// A log that this process holds.
pub(super) struct StoppedLog {
    dir: PathBuf,
    world: World<RealFolder>,
    meta: Meta,
}

impl StoppedLog {
    /// Takes the log in `dir`, which must be that of the arenas in `shm_dir`.
    pub(super) fn take(dir: &Path, shm_dir: &Path) -> Result<StoppedLog> {
        let shown = dir.display();
        let owner = dir.join(META).metadata().with_context(|| shown.to_string())?.uid();
        let own = rustix::process::geteuid().as_raw();
        ensure!(
            owner == own,
            "the log in {shown} belongs to user {owner}, and this is user {own}: convert it as user {owner}"
        );
        let real = RealFolder::open(dir, false).map_err(|error| match error {
            LogError::InUse { pid } => {
                anyhow!("process {pid} uses the log in {shown}: stop it first")
            }
            LogError::Io { doing, source, .. } => {
                anyhow!("the log in {shown} can't be changed: {doing} failed: {source}")
            }
            error => anyhow!("the log in {shown}: {error}"),
        })?;
        let world = World {
            storage: Arc::new(real),
            clock: Arc::new(RealClock::new()),
            chance: Arc::new(RealChance),
        };
        let meta = read_meta(&*world.storage);
        let meta = meta.map_err(|error| anyhow!("the log in {shown}: {error}"))?;
        let meta = meta.with_context(|| format!("{shown} has no log"))?;
        ensure!(meta.mark.is_none(), "{shown}: {}", LogError::IsBackup);
        if let Some(id) = log_of(shm_dir)?.filter(|id| *id != meta.id) {
            let (shm_dir, id, found) = (shm_dir.display(), hex(&id), hex(&meta.id));
            bail!(
                "the arenas in {shm_dir} have the log {id}, and {shown} has the log {found}: name the log's \
                 folder with --dir"
            );
        }
        Ok(StoppedLog { dir: dir.to_owned(), world, meta })
    }

    /// Whether the log has data that arenas may lack.
    pub(super) fn counts(&self) -> bool {
        !self.meta.chains.is_empty()
    }

    /// The data of log and arenas; `None` if there is none. Bytes of memory that no arena tells are
    /// 0.
    pub(super) fn left(&self, shm_dir: &Path, tenant: &str) -> Result<Option<Left>> {
        Ok(left_in_log(shm_dir, tenant, &self.meta)?)
    }

    /// Opens the data as a start does: then the log has all of it, and so have the arenas.
    pub(super) fn open(
        &self,
        options: &StoreOptions,
        domain: &Arc<Domain>,
    ) -> Result<(Keyspace, OpenedLog<RealFolder>, LogOptions)> {
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template("reading the log  {bytes} of {total_bytes}")?);
        let shown = bar.clone();
        let journal = JournalFile::look(&options.dir, 0).map_err(StoreError::from)?;
        let storage = &*self.world.storage;
        let listing = list(storage).map_err(|error| anyhow!("{}: {error}", self.name()))?;
        let bytes = |name: &FileName| storage.open(&name.to_string()).ok()??.len().ok();
        // As large as those that are there; one that had a long frame is larger.
        let file_bytes = listing.files.iter().filter_map(bytes).min();
        let log = LogOptions {
            shards: self.meta.chains.len().max(1),
            settings: LogSettings {
                file_bytes: file_bytes
                    .unwrap_or_else(|| Config::default().unsigned("log-file-size")),
            },
            // Nothing is written to the journals here, so those that are there will do.
            journal_bytes: journal.map_or(JOURNAL_BYTES_MIN, |it| it.info().ring_bytes),
            mode: SyncMode::EverySecond,
            boot_id: nigh_log::boot_id()?,
            progress: Arc::new(move |progress| {
                shown.set_length(progress.all_bytes);
                shown.set_position(progress.read_bytes);
            }),
        };
        let opened = Keyspace::open_with_log(options, &log, &self.world, domain);
        bar.finish_and_clear();
        let (keyspace, _, opened) = opened.map_err(|error| anyhow!(self.tell(&error)))?;
        Ok((keyspace, opened, log))
    }

    /// Writes the log of a copy. Nothing counts yet.
    pub(super) fn write(
        &self,
        (opened, log): (OpenedLog<RealFolder>, &LogOptions),
        copy: &mut Keyspace,
        now_ms: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Conversion<RealFolder>> {
        Conversion::write(opened, log, copy, now_ms, goes_on)
            .map_err(|error| anyhow!("{}; the data is as it was", self.tell(&error)))
    }

    /// Has the log of the copy count.
    pub(super) fn name_chains(&self, conversion: &mut Conversion<RealFolder>) -> Result<()> {
        conversion.name().map_err(|fault| match fault {
            LiveFault::Unchanged(error) => anyhow!("{}; the data is as it was", self.tell(&error)),
            fault => anyhow!("{}: {fault}: convert again", self.name()),
        })
    }

    fn tell(&self, error: &StoreError) -> String {
        match error {
            StoreError::Log(error) => format!("{}: {error}", self.name()),
            error => error.to_string(),
        }
    }

    fn name(&self) -> String {
        format!("the log in {}", self.dir.display())
    }
}

fn hex(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}
