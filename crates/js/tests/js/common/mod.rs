//! The bench of this crate's tests: a runtime, a tenant, and a host that writes to hand-made
//! arenas.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers in tests")]

mod arena;

pub(crate) use arena::{Arena, SEED};
use nigh_js::{
    Call, CallWrite, FunctionLimits, Host, Level, Library, LoadError, RunTurn, Runtime, Tenant,
};
use std::time::Duration;
use xxhash_rust::xxh32::xxh32;

/// Unix ms at which all tests run.
pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

/// Changes the arenas as another thread would.
pub(crate) type Meanwhile = Box<dyn FnMut(&mut [Arena])>;

/// A host over an [`Arena`] for each partition, which notes commits and log lines.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) commits: usize,
    /// Keys of all commits.
    pub(crate) written: Vec<String>,
    pub(crate) refuse: Option<String>,
    pub(crate) log: Vec<(Level, String, String, String)>,
    /// Runs while a call is in `db.scan`.
    pub(crate) meanwhile: Option<Meanwhile>,
}

/// The bytes that place a key: between the first '{' and the first '}' after it, unless there are
/// none.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    match key[open..].iter().position(|&byte| byte == b'}') {
        Some(length) if length > 1 => &key[open + 1..open + length],
        _ => key,
    }
}

/// Partition of a key, of so many in arenas with this seed.
pub(crate) fn partition(seed: u32, key: &[u8], partitions: usize) -> usize {
    let hash = u64::from(xxh32(tag(key), seed));
    ((hash * partitions as u64) >> 32) as usize
}

impl World {
    pub(crate) fn of(&mut self, key: &[u8]) -> &mut Arena {
        let at = partition(SEED, key, self.arenas.len());
        &mut self.arenas[at]
    }

    /// Value and expiry of a key.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<(Vec<u8>, u64)> {
        self.of(key).get(key)
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.of(key.as_bytes()).text(key)
    }
}

impl Host for World {
    fn commit(&mut self, writes: &[CallWrite<'_>]) -> Result<(), String> {
        assert!(!writes.is_empty(), "an empty write set is not committed");
        if let Some(reply) = &self.refuse {
            return Err(reply.clone());
        }
        self.commits += 1;
        for write in writes {
            let (CallWrite::Put { key, .. }
            | CallWrite::Delete { key }
            | CallWrite::Expire { key, .. }) = *write;
            self.written.push(String::from_utf8_lossy(key).into_owned());
            let arena = self.of(key);
            match *write {
                CallWrite::Put { key, value, expiry_ms } => arena.put(key, value, expiry_ms),
                CallWrite::Delete { key } => {
                    arena.delete(key);
                }
                CallWrite::Expire { key, expiry_ms } => {
                    let (value, _) = arena.get(key).expect("expires what is there");
                    arena.put(key, &value, expiry_ms);
                }
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile(&mut self.arenas);
        }
        let keys: Vec<Vec<u8>> = self
            .arenas
            .iter()
            .flat_map(Arena::keys)
            .filter(|key| key.starts_with(prefix))
            .collect();
        let end = (cursor as usize + count as usize).min(keys.len());
        keys[cursor as usize..end].iter().for_each(|key| found(key));
        if end == keys.len() { 0 } else { end as u64 }
    }

    fn log(&mut self, level: Level, library: &str, function: &str, text: &str) {
        self.log.push((level, library.into(), function.into(), text.into()));
    }
}

/// A runtime with one tenant, on one arena unless a test changes that.
pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) tenant: Tenant,
    pub(crate) world: World,
    pub(crate) now_ms: u64,
    /// Partitions whose owners stand still.
    pub(crate) still: u64,
}

/// Limits for calls in debug builds, on a machine that may stand still: tests about time say their
/// own.
pub(crate) fn patient() -> FunctionLimits {
    FunctionLimits {
        call_ms: 10_000,
        load_ms: 20_000,
        grace_ms: 20_000,
        ..FunctionLimits::default()
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(patient())
    }

    pub(crate) fn with(limits: FunctionLimits) -> Bench {
        Bench::over(Runtime::new(limits).unwrap())
    }

    pub(crate) fn over(mut runtime: Runtime) -> Bench {
        let world = World { arenas: vec![Arena::new()], ..World::default() };
        let tenant = runtime.open_tenant(world.arenas[0].mapping());
        Bench { runtime, tenant, world, now_ms: NOW_MS, still: 0 }
    }

    /// A runtime with one library, `t`, of this body.
    pub(crate) fn of(body: &str) -> Bench {
        let mut bench = Bench::new();
        bench.add("t", body);
        bench
    }

    pub(crate) fn try_add(&mut self, name: &str, body: &str) -> Result<Library, LoadError> {
        let source = format!("#!js name={name}\n{body}");
        let library = self.runtime.load(self.tenant, source.as_bytes())?;
        self.runtime.install(self.tenant, &library, source.as_bytes())?;
        Ok(library)
    }

    pub(crate) fn add(&mut self, name: &str, body: &str) -> Library {
        self.try_add(name, body).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn run(&mut self, calls: &[Call<'_>]) -> Vec<String> {
        let mut replies = Vec::new();
        let turn = RunTurn {
            now_ms: self.now_ms,
            random_seed: 42,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: self.still,
        };
        self.runtime.run(self.tenant, calls, turn, &mut self.world, &mut |index, reply| {
            assert_eq!(index, replies.len(), "replies come in order, once each");
            replies.push(String::from_utf8_lossy(reply).into_owned());
        });
        assert!(replies.len() == calls.len() || self.runtime.untold() != 0);
        replies
    }

    /// One call with arguments; the reply in RESP2.
    pub(crate) fn call(&mut self, function: &str, args: &[&str]) -> String {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let call = Call { function: function.as_bytes(), args: &args, ..Call::default() };
        self.run(&[call]).remove(0)
    }

    /// The same in RESP3.
    pub(crate) fn call3(&mut self, function: &str, args: &[&str]) -> String {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let call =
            Call { function: function.as_bytes(), args: &args, resp3: true, ..Call::default() };
        self.run(&[call]).remove(0)
    }

    pub(crate) fn put(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.world.of(key.as_bytes()).put(key.as_bytes(), value.as_ref(), 0);
    }
}

/// A call without keys and arguments.
pub(crate) fn call(function: &str) -> Call<'_> {
    Call { function: function.as_bytes(), ..Call::default() }
}
