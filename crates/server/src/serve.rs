//! Starting and stopping a server.
//!
//! 1. Whatever can be refused is refused before [`Server::start`] returns.
//! 2. A server that is dropped has stopped: no thread, socket or lock of it is left.
//! 3. The folder of the arenas is locked until all threads have ended that use a file in it.

use crate::config::Config;
use crate::engine::v8::V8;
use crate::engine::{self, Engine, FunctionLimits, allocator};
use crate::error::ServeError;
use crate::folder::arena_folder::Folder;
use crate::folder::cgroup::memory_limit;
use crate::folder::faults::Arenas;
use crate::folder::log_folder;
use crate::folder::room::Needs;
use crate::folder::starts::Skips;
use crate::folder::verify::compare_sums;
use crate::hop::mailbox::{DEFAULT_REQUEST_BYTES, MailSettings, Mailbox, mailboxes};
use crate::loading::{self, LoadingState};
use crate::log_threads::log_keeper::{KeeperHandle, Keeping};
use crate::log_threads::{LogThreads, ServerLog, ShardSide, retire_logged};
use crate::net::listener::Listeners;
use crate::observe::http::Page;
use crate::observe::metrics::Exporter;
use crate::pinning::pin_to_core;
use crate::signals::Watcher;
use crate::state::State;
use crate::state::checks;
use crate::state::logs::Logs;
use crate::state::seat::Seat;
use crate::state::shared::{Shared, Stop};
use crate::sync::OnDrop;
use crate::turn::shard::Shard;
use nigh_js::{Fiber, FiberJoin};
use nigh_shm::Domain;
use nigh_store::{Keyspace, LogKeeper, LogStatuses, Opened, StoreError, StoreOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

/// Threads that read arenas beside the shards: none now, room for a few.
const OTHER_PARTICIPANTS: usize = 8;
/// Most shards: what the design is meant for.
pub(crate) const MOST_SHARDS: usize = 64;
/// Descriptors of a shard: its epoll, waker and listeners.
const FILES_PER_SHARD: usize = 24;
/// Stack of the shard's thread, on which functions run: twice what they may take, since where that
/// ends V8 may compile what took as much in the process that checks sources; and 4 MiB for what
/// they call.
const SHARD_STACK_BYTES: usize = 16 << 20;
/// Descriptors that are no client connections: listeners, epoll, logs, and what libraries open.
const OWN_FILES: usize = 32;

/// A running server.
pub struct Server {
    address: Option<SocketAddr>,
    dir: PathBuf,
    shared: Arc<Shared>,
    /// The owner's, which was the first, ends last.
    shards: Vec<FiberJoin>,
    /// Until the shards have ended, if somebody watches for that.
    running: Option<mpsc::Sender<()>>,
    /// The logs' threads end behind the shards.
    logs: KeeperHandle,
    /// Until all have ended.
    folder: Option<Folder>,
    _exporter: Option<Exporter>,
}

/// What the thread of a shard needs to begin.
struct Berth {
    number: usize,
    poll: mio::Poll,
    listeners: Listeners,
    mailbox: Mailbox,
    shared: Arc<Shared>,
    domain: Arc<Domain>,
    page: Option<Arc<Page>>,
    /// Of all tenants, by number.
    keyspaces: Vec<Keyspace>,
    engines: MakeEngines,
    /// Of all shards, with `appendonly`.
    logs: Option<LogStatuses>,
    /// What it has of its own, with `appendonly`.
    log: Option<ShardSide>,
}

/// Makes the engines of a shard, on its fiber.
type MakeEngines = fn(Fiber, FunctionLimits) -> Result<Vec<Box<dyn Engine>>, ServeError>;

/// V8 alone.
fn v8(fiber: Fiber, limits: FunctionLimits) -> Result<Vec<Box<dyn Engine>>, ServeError> {
    let v8 = V8::on(fiber, limits).map_err(|error| ServeError::Functions(error.to_string()))?;
    Ok(vec![Box::new(v8)])
}

impl Server {
    /// Starts a server in threads of this process.
    ///
    /// # Errors
    /// [`ServeError`] if something it needs can't be had; nothing is left of it then.
    pub fn start(config: Config) -> Result<Self, ServeError> {
        Self::start_watched(config, v8, |_| ())
    }

    /// The same with these engines; `watch` is given its shared state before it serves anybody.
    fn start_watched(
        config: Config,
        engines: MakeEngines,
        watch: impl FnOnce(Arc<Shared>),
    ) -> Result<Self, ServeError> {
        allocator::settle();
        let shards = shard_count(&config);
        let listeners = Listeners::bind(&config, shards)?;
        let address = listeners[0].address;
        let port = address.map_or(0, |address| address.port());
        let (folder, capacity_bytes) = take_folder(&config, port, shards)?;
        let exporter = Exporter::start(&config)?;
        let file_limit = file_limit(&config, shards)?;
        let domain = Domain::new(shards + OTHER_PARTICIPANTS);
        let of = (capacity_bytes, shards);
        let loading = Arc::new(LoadingState::new(&run_id()));
        let (keyspace, log) =
            open_while_loading(&config, &folder, of, &domain, (&listeners, &loading))?;
        let keyspaces = vec![keyspace];
        // A server that is refused leaves the folder as it is, so this comes behind the arenas.
        let skips = skips_of(&config, &folder)?;
        let run_id = loading.run_id.clone();
        let (shared, (polls, wakers)) =
            shared_of(shards, &config, port, file_limit, (run_id, skips))?;
        let mut server = Self {
            address,
            dir: folder.path.clone(),
            shared: Arc::clone(&shared),
            shards: Vec::new(),
            running: None,
            logs: KeeperHandle::default(),
            folder: None,
            _exporter: None,
        };
        let arenas = Arenas::of(&keyspaces, &server.dir)?;
        assert!(shared.arenas.set(arenas).is_ok(), "a server opens its arenas once");
        let options = store_options(&config, &server.dir, capacity_bytes);
        let (keeping, sides) = spawn_logs(log, options, &config, &shared)?;
        let logs = keeping.statuses.clone();
        server.logs = KeeperHandle::spawn(keeping, &shared)?;
        watch(Arc::clone(&shared));
        let mut sides = sides.into_iter();
        let mail = MailSettings::for_shards(shards, DEFAULT_REQUEST_BYTES);
        let mailboxes = mailboxes(&mail, wakers);
        let divided = divide(keyspaces, shards);
        let parts = polls.into_iter().zip(listeners).zip(mailboxes).zip(divided);
        for (number, (((poll, listeners), mailbox), keyspaces)) in parts.enumerate() {
            // The first shard shows all the numbers.
            let page = exporter.as_ref().filter(|_| number == 0).map(|it| Arc::clone(&it.page));
            // A server that is dropped half started stops the shards that run.
            server.launch(Berth {
                number,
                poll,
                listeners,
                mailbox,
                shared: Arc::clone(&shared),
                domain: Arc::clone(&domain),
                page,
                keyspaces,
                engines,
                logs: logs.clone(),
                log: sides.next(),
            })?;
        }
        (server._exporter, server.folder) = (exporter, Some(folder));
        Ok(server)
    }

    /// Starts a shard and waits until it serves.
    fn launch(&mut self, berth: Berth) -> Result<(), ServeError> {
        let (ready, started) = mpsc::sync_channel(1);
        let name = format!("nigh-shard-{}", berth.number);
        let run = move |fiber| run_shard(berth, fiber, &ready);
        self.shards.push(Fiber::spawn(&name, SHARD_STACK_BYTES, run)?);
        started.recv().map_err(|_| self.broken())?
    }

    /// The TCP address that it listens on; `None` if it has only a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops it after the turn that it is in. The arenas stay.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    /// Waits until it stops, by SHUTDOWN or a signal.
    ///
    /// # Errors
    /// [`ServeError::Broken`] if it ended by a panic.
    pub fn wait(mut self) -> Result<(), ServeError> {
        if self.join() { Ok(()) } else { Err(self.broken()) }
    }

    fn broken(&self) -> ServeError {
        ServeError::Broken { arenas: self.shared.left().1 }
    }

    fn stop_and_join(&mut self) {
        self.shared.stop(Stop::Keep);
        self.join();
    }

    /// Waits for the shards, and for the logs behind them; false if one of them ended by a panic.
    fn join(&mut self) -> bool {
        let ended = self.shards.drain(..).map(FiberJoin::join);
        let mut all_well = ended.fold(true, |all, well| all & well);
        self.running = None;
        self.shared.backups.detach();
        all_well &= self.logs.close();
        self.shared.checks.stop();
        // The last one to go locks up.
        let folder = self.folder.take();
        let removes = self.shared.stopping() == Some(Stop::Remove) && self.shared.left().0;
        if let Some(folder) = folder.filter(|_| removes) {
            folder.remove();
        }
        all_well
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

/// Serves until SHUTDOWN, SIGTERM or SIGINT. Calls `ready` with the TCP address, if there is one,
/// when it serves.
///
/// # Errors
/// [`ServeError`] if it doesn't start, or ends by a fault of its own.
pub fn run(config: Config, ready: impl FnOnce(Option<SocketAddr>)) -> Result<(), ServeError> {
    let mut watcher = Watcher::start()?;
    let mut server = Server::start_watched(config, v8, |shared| watcher.watch(shared))?;
    server.running = watcher.running.take();
    let shared = Arc::clone(&server.shared);
    match server.local_addr() {
        Some(address) => tracing::info!(%address, dir = %server.dir.display(), "ready"),
        None => tracing::info!(dir = %server.dir.display(), "ready"),
    }
    ready(server.local_addr());
    server.wait()?;
    // Nobody ends the process while the last line is written.
    drop(watcher);
    shared.tell_end();
    Ok(())
}

/// The process that tries new sources, as [`crate::CHECK_SUBCOMMAND`] of the server's program.
///
/// # Errors
/// What the system or V8 refuses.
pub fn serve_checks() -> io::Result<()> {
    checks::serve_checks(|limits| V8::alone(limits).map_err(io::Error::other))
}

/// A shard's life: a fiber, since a function that doesn't end keeps the thread that it runs on.
fn run_shard(berth: Berth, fiber: Fiber, ready: &mpsc::SyncSender<Result<(), ServeError>>) {
    let shared = Arc::clone(&berth.shared);
    match open(berth, fiber) {
        Ok(mut shard) => {
            let _ = ready.send(Ok(()));
            // A shard that panics takes the others with it: they can't serve without it.
            let ending = OnDrop(|| shared.stop(Stop::Keep));
            let stop = shard.run();
            let closed = shard.close();
            if stop == Stop::Remove {
                shared.leave_arenas(closed);
            }
            drop(ending);
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

fn open(berth: Berth, fiber: Fiber) -> Result<Shard, ServeError> {
    let Berth { number, poll, listeners, mailbox, shared, domain, page, keyspaces, .. } = berth;
    let config = shared.config();
    pin_to_core(&config, number, shared.shards())?;
    let engines = (berth.engines)(fiber, engine::limits(&config))?;
    let logs = Logs::of(berth.logs, number, berth.log);
    let state = State::new(keyspaces, shared, logs, number, engines);
    Shard::new(state, poll, listeners, mailbox, &domain, page)
}

/// The folder of the arenas, locked, and the bytes that they may use.
fn take_folder(config: &Config, port: u16, shards: usize) -> Result<(Folder, u64), ServeError> {
    let folder = Folder::open(&config.shm_dir(port))?;
    folder.remove_leftover();
    let limit = memory_limit(Path::new("/"));
    let capacity_bytes =
        folder.capacity_bytes(config, Needs::of(config, shards), limit.as_ref())?;
    folder.warn_if_on_disk();
    Ok((folder, capacity_bytes))
}

/// The libraries that aren't started: none in a fresh folder.
fn skips_of(config: &Config, folder: &Folder) -> Result<Skips, ServeError> {
    let refused = |cause| ServeError::folder(&folder.path, cause);
    let skips = Skips::open(&folder.path).map_err(refused)?;
    if config.flag("fresh") {
        skips.forget_all();
    }
    Ok(skips)
}

/// Starts the logs' threads, if there is a log. What the keeper begins with; and by shard, what
/// that has of its log.
fn spawn_logs(
    log: Option<ServerLog>,
    options: StoreOptions,
    config: &Config,
    shared: &Arc<Shared>,
) -> Result<(Keeping, Vec<ShardSide>), ServeError> {
    let Some(log) = log else {
        let (keeper, threads) = (LogKeeper::off(), LogThreads::default());
        return Ok((Keeping { keeper, threads, statuses: None, options }, Vec::new()));
    };
    let statuses = log.statuses();
    let (threads, sides, live) = log.spawn(shared)?;
    let keeper = LogKeeper::of_start(live, Arc::clone(&statuses), config.sync_mode());
    Ok((Keeping { keeper, threads, statuses: Some(statuses), options }, sides))
}

/// The parts of the keyspaces that each shard has.
fn divide(keyspaces: Vec<Keyspace>, shards: usize) -> Vec<Vec<Keyspace>> {
    let mut divided: Vec<Vec<Keyspace>> = (0..shards).map(|_| Vec::new()).collect();
    for keyspace in keyspaces {
        let parts = divided.iter_mut().zip(keyspace.divide(shards));
        parts.for_each(|(shard, part)| shard.push(part));
    }
    divided
}

/// Opens the default tenant's keyspace. With a log that may take a while: meanwhile clients are
/// told so.
fn open_while_loading(
    config: &Config,
    folder: &Folder,
    of: (u64, usize),
    domain: &Arc<Domain>,
    (listeners, loading): (&[Listeners], &Arc<LoadingState>),
) -> Result<(Keyspace, Option<ServerLog>), ServeError> {
    std::thread::scope(|scope| {
        if config.flag("appendonly") {
            scope.spawn(|| loading::serve(listeners, config, loading));
        }
        let _end = loading.end();
        open_keyspace(config, folder, of, domain, loading)
    })
}

/// Opens the default tenant's keyspace.
fn open_keyspace(
    config: &Config,
    folder: &Folder,
    (capacity_bytes, shards): (u64, usize),
    domain: &Arc<Domain>,
    loading: &Arc<LoadingState>,
) -> Result<(Keyspace, Option<ServerLog>), ServeError> {
    let options = store_options(config, &folder.path, capacity_bytes);
    if config.flag("verify") && !options.fresh {
        let refused = |cause| ServeError::folder(&folder.path, cause);
        compare_sums(&folder.path).map_err(refused)?;
    }
    let (keyspace, opened, log) = match config.flag("appendonly") {
        true => {
            let (keyspace, opened, log) =
                ServerLog::open(config, &options, shards, domain, loading)?;
            (keyspace, opened, Some(log))
        }
        false => {
            let refused = |error: StoreError| ServeError::Store(error.to_string());
            retire_logged(config, &options)?;
            let (keyspace, opened) = Keyspace::open(&options, domain).map_err(refused)?;
            (keyspace, opened, None)
        }
    };
    let log_dir = log.is_some().then(|| log_folder::path_of(config)).transpose()?;
    log_dir.iter().for_each(|dir| folder.note_log(dir));
    if log.as_ref().is_some_and(|log| log.opened.report.rebuilt > 0) && opened.data.is_none() {
        tracing::info!(partitions = options.partitions, "built the arenas from the log");
    } else {
        log_opened(&opened, &options, log_dir.as_deref(), keyspace.capacity_bytes());
    }
    if let Some(error) = &opened.manifest_error {
        let dir = options.dir.display();
        tracing::warn!(%error, "the arenas in {dir} can't be listed in a manifest: one that is missing may go unnoticed");
    }
    if keyspace.librarian().data_region().has_huge_pages() {
        tracing::info!("the arenas have huge pages");
    }
    Ok((keyspace, log))
}

fn store_options(config: &Config, folder: &Path, capacity_bytes: u64) -> StoreOptions {
    let mut options = StoreOptions::new(folder, capacity_bytes);
    options.fresh = config.flag("fresh");
    options.partitions = config.size("partitions");
    options
}

fn shard_count(config: &Config) -> usize {
    match config.size("shards") {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_SHARDS),
        shards => shards,
    }
}

/// The polls that the shards wait on, and their wakers.
type Polls = (Vec<mio::Poll>, Vec<Arc<mio::Waker>>);

/// Connections that the process's files allow.
fn file_limit(config: &Config, shards: usize) -> Result<usize, ServeError> {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    let own = OWN_FILES + shards * FILES_PER_SHARD;
    if files <= own {
        return Err(ServeError::Setting(format!(
            "{shards} shards need more than {own} open files, but the limit is {files}: \
             raise it (ulimit -n) or lower --shards"
        )));
    }
    let file_limit = files - own;
    if file_limit < config.size("maxclients") {
        tracing::warn!(file_limit, "maxclients is lowered to what the limit of open files allows");
    }
    Ok(file_limit)
}

/// The shared state of a server, and what each shard waits on.
fn shared_of(
    shards: usize,
    config: &Config,
    port: u16,
    file_limit: usize,
    (run_id, skips): (String, Skips),
) -> Result<(Arc<Shared>, Polls), ServeError> {
    let (mut polls, mut wakers, mut seats) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..shards {
        let poll = mio::Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), crate::turn::shard::WAKE)?);
        seats.push(Seat::new(Arc::clone(&waker)));
        wakers.push(waker);
        polls.push(poll);
    }
    let shared = Shared::new(seats, config.clone(), port, file_limit, run_id, skips);
    Ok((shared, (polls, wakers)))
}

fn log_opened(opened: &Opened, options: &StoreOptions, log_dir: Option<&Path>, bytes: u64) {
    let partitions = options.partitions;
    let Some(adoption) = &opened.data else {
        return tracing::info!(partitions, "created new arenas");
    };
    tracing::info!(
        partitions,
        keys = adoption.keys,
        expires = adoption.expires,
        redone_commit = adoption.redone_intent,
        continued_growth = adoption.continued_growth,
        libraries = opened.libraries,
        "adopted the arenas of an earlier server"
    );
    let wanted = options.capacity_bytes / partitions as u64 * partitions as u64;
    if bytes < wanted {
        let log = log_dir.map_or(String::new(), |dir| format!("--dir {} ", dir.display()));
        tracing::warn!(
            bytes,
            "maxmemory is lowered: the arenas were made with half as much, and reach no further. For more, stop the \
             server and convert them: `nigh convert {log}--shm-dir {} --maxmemory {wanted}`",
            options.dir.display()
        );
    }
}

/// A random name for this run, 40 hexadecimal digits as Redis's.
fn run_id() -> String {
    let mut bytes = [0u8; 20];
    // Without randomness the name is only less unique.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
