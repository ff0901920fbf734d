//! Who is measured: stores on core 0, each with a client on core 1.
//!
//! Invariant: a contestant that isn't measured is named, with the reason.

use super::content::Content;
use super::helper::Helper;
use super::measure;
use super::memcached::{Memcached, MemcachedClient};
use super::options::Args;
use super::rows::Figures;
use super::store::ByClient;
use crate::child::ServerProcess;
use crate::machine;
use anyhow::{Context, Result};
use nigh_client::{Address, LocalUse};
use std::time::Duration;

/// Names, as heads of columns.
pub(super) const LOCAL: &str = "Nigh, local";
pub(super) const LMDB: &str = "LMDB";
pub(super) const PYTHON: &str = "Nigh, local, Python";
pub(super) const NODE: &str = "Nigh, local, Node.js";

/// What is measured in one go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Reads,
    Writes,
}

/// One of them.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    /// How it is asked, and its version.
    pub(super) about: String,
    /// It reads Nigh's memory: another client writes meanwhile.
    pub(super) is_local: bool,
    way: Way,
}

enum Way {
    Client(Box<ByClient>),
    Memcached(MemcachedClient),
    Helper(Helper),
}

impl Contestant {
    /// The figures of a part.
    pub(super) fn measure(
        &mut self,
        part: Part,
        content: Content,
        slice: Duration,
    ) -> Result<Figures> {
        match (&mut self.way, part) {
            (Way::Client(store), Part::Reads) => measure::reads(&mut **store, content, slice),
            (Way::Client(store), Part::Writes) => measure::writes(&mut **store, content, slice),
            (Way::Memcached(store), Part::Reads) => measure::reads(store, content, slice),
            (Way::Memcached(store), Part::Writes) => measure::writes(store, content, slice),
            (Way::Helper(helper), Part::Reads) => helper.ask("reads"),
            (Way::Helper(helper), Part::Writes) => helper.ask("writes"),
        }
        .with_context(|| format!("{} can't be measured", self.name))
    }
}

/// The servers and all contestants.
pub(super) struct Field {
    pub(super) contestants: Vec<Contestant>,
    /// Names of those that aren't measured, and why.
    pub(super) missing: Vec<(&'static str, String)>,
    pub(super) nigh: ServerProcess,
    _redis: Option<ServerProcess>,
    _memcached: Option<Memcached>,
}

impl Field {
    /// Starts what the arguments name, and fills it.
    pub(super) fn start(args: &Args, content: Content, slice: Duration) -> Result<Field> {
        let nigh = start_nigh(args)?;
        let local = Address::unix(nigh.directory().join("sock"));
        let mut field = Field {
            contestants: Vec::new(),
            missing: Vec::new(),
            nigh,
            _redis: None,
            _memcached: None,
        };
        let mut store = ByClient::connect(&local, LocalUse::Required)?;
        measure::fill(&mut store, content)?;
        field.add(LOCAL, "this crate's client, attached".into(), true, Way::Client(store.into()));
        field.add_lmdb(args, content, slice)?;
        field.add_redis(args, content)?;
        field.add_memcached(args, content)?;
        field.add_client("Nigh, Unix socket", &local, "the same client, not attached".into())?;
        for (name, command) in [(PYTHON, &args.python), (NODE, &args.node)] {
            let socket = field.nigh.directory().join("sock");
            let mut arguments = arguments(content, slice);
            arguments.push(("--socket", socket.display().to_string()));
            let prefix = pinned(args.client_core);
            let helper = command
                .as_ref()
                .map(|command| Helper::start(&prefix, command, &arguments))
                .transpose()?;
            let option = if name == PYTHON { "--python" } else { "--node" };
            field.add_helper(name, helper, true, option);
        }
        Ok(field)
    }

    fn add(&mut self, name: &'static str, about: String, is_local: bool, way: Way) {
        self.contestants.push(Contestant { name, about, is_local, way });
    }

    fn add_client(&mut self, name: &'static str, at: &Address, about: String) -> Result<()> {
        let store = ByClient::connect(at, LocalUse::Never)?;
        self.add(name, about, false, Way::Client(store.into()));
        Ok(())
    }

    fn add_helper(
        &mut self,
        name: &'static str,
        helper: Option<Helper>,
        is_local: bool,
        option: &str,
    ) {
        match helper {
            Some(helper) => self.add(name, helper.ready.clone(), is_local, Way::Helper(helper)),
            None => self.missing.push((name, format!("{option} names no command"))),
        }
    }

    /// In a process of its own, which has a writer too.
    fn add_lmdb(&mut self, args: &Args, content: Content, slice: Duration) -> Result<()> {
        let mut arguments = arguments(content, slice);
        arguments.push(("--reader-core", args.client_core.to_string()));
        arguments.push(("--writer-core", args.server_core.to_string()));
        arguments.push(("--writer", (!args.no_writer).to_string()));
        let start = |command: &String| Helper::start(&[], command, &arguments);
        let helper = args.lmdb.as_ref().map(start).transpose()?;
        self.add_helper(LMDB, helper, false, "--lmdb");
        Ok(())
    }

    fn add_redis(&mut self, args: &Args, content: Content) -> Result<()> {
        const NAMES: [&str; 2] = ["Redis, Unix socket", "Redis, TCP"];
        let Some(program) = &args.redis else {
            let missing = NAMES.map(|name| (name, "--redis names no program".to_owned()));
            self.missing.extend(missing);
            return Ok(());
        };
        let mut words = pinned(args.server_core);
        words.push(program.clone());
        let flags = "--port {port} --unixsocket {dir}/sock --appendonly no --save";
        let mut flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
        flags.push(String::new());
        let redis = ServerProcess::start(&words, &flags, None).context("Redis doesn't start")?;
        let version = machine::version(program.as_ref(), "v=").unwrap_or_default();
        let unix = Address::unix(redis.directory().join("sock"));
        measure::fill(&mut ByClient::connect(&unix, LocalUse::Never)?, content)?;
        for (name, at) in NAMES.into_iter().zip([&unix, redis.address()]) {
            self.add_client(name, at, format!("Redis {version}, by the same client"))?;
        }
        self._redis = Some(redis);
        Ok(())
    }

    fn add_memcached(&mut self, args: &Args, content: Content) -> Result<()> {
        const NAME: &str = "memcached, Unix socket";
        let Some(program) = &args.memcached else {
            self.missing.push((NAME, "--memcached names no program".to_owned()));
            return Ok(());
        };
        let server = Memcached::start(program, &pinned(args.server_core), content)?;
        let version = machine::version(program.as_ref(), "").unwrap_or_default();
        let mut store = server.connect()?;
        measure::fill(&mut store, content)?;
        let about = format!("memcached {version}, one thread, by its text protocol");
        self.add(NAME, about, false, Way::Memcached(store));
        self._memcached = Some(server);
        Ok(())
    }
}

fn start_nigh(args: &Args) -> Result<ServerProcess> {
    let partitions = args.partitions.to_string();
    // Records, overwritten ones, and the index.
    let memory = (args.keys * (args.value_size as u64 + 128) * 3 + (64 << 20)).to_string();
    let flags = [
        "--unixsocket",
        "{dir}/sock",
        "--appendonly",
        "no",
        "--shards",
        "1",
        "--partitions",
        &partitions,
        "--maxmemory",
        &memory,
    ];
    let prefix = pinned(args.server_core);
    ServerProcess::nigh(&args.program.path()?, &prefix, &flags.map(str::to_owned))
}

/// The words that bind a program to a core, if it has one.
fn pinned(core: i32) -> Vec<String> {
    match u32::try_from(core) {
        Ok(core) => vec!["taskset".to_owned(), "-c".to_owned(), core.to_string()],
        Err(_) => Vec::new(),
    }
}

/// What each helper is told.
fn arguments(content: Content, slice: Duration) -> Vec<(&'static str, String)> {
    vec![
        ("--keys", content.keys.to_string()),
        ("--value-size", content.value_bytes.to_string()),
        ("--seconds", slice.as_secs_f64().to_string()),
    ]
}
