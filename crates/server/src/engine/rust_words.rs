//! A second engine, for tests: what [`Engine`] says is enough for one.
//!
//! A source names some of the functions that are written here, in Rust.

use super::{
    BatchEnd, Call, CallWrite, Engine, Function, FunctionLimits, Host, Library, LoadError, Loaded,
    Remote, RunTurn, RuntimeStats, Starts,
};
use crate::tenant::TenantId;
use nigh_store::{Keyspace, LogHealth, LogStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The function during which the log of the first shard breaks.
const BREAKS: &str = "breaks";
/// A library with a function that begins so can be loaded, but not when it is kept.
const BREAKABLE: &str = "breakable";

/// What a function of [`RustWords`] does: its reply without the mark in front, or an error.
type Word = fn(&Call<'_>, &mut dyn Host) -> Result<String, String>;

/// The functions there are: a library's source names some of them. Those that are called safe have
/// the flag `durable`.
const WORDS: [(&str, Word); 8] = [
    ("echo", echo),
    (BREAKS, echo),
    ("safe_echo", echo),
    ("put", put),
    ("safe_put", put),
    ("spread", spread),
    ("safe_spread", spread),
    ("count", |call, host| {
        let mut count = 0;
        host.scan(call.args[0], 0, 100, &mut |_| count += 1);
        Ok(count.to_string())
    }),
];

fn echo(call: &Call<'_>, _: &mut dyn Host) -> Result<String, String> {
    Ok(call.args.concat().escape_ascii().to_string())
}

fn put(call: &Call<'_>, host: &mut dyn Host) -> Result<String, String> {
    let writes = [CallWrite::Put { key: call.keys[0], value: call.args[0], expiry_ms: 0 }];
    host.commit(&writes).map(|()| "put".to_owned())
}

fn spread(call: &Call<'_>, host: &mut dyn Host) -> Result<String, String> {
    let (value, expiry_ms) = (call.args[0], 0);
    let put = |key| CallWrite::Put { key, value, expiry_ms };
    let writes: Vec<CallWrite<'_>> = call.keys.iter().copied().map(put).collect();
    host.commit(&writes).map(|()| "spread".to_owned())
}

/// The source of a library, and its words.
type SourceAndWords = (Vec<u8>, Vec<String>);

/// An engine whose functions are written in Rust.
#[derive(Default)]
pub(crate) struct RustWords {
    /// By tenant.
    tenants: Vec<BTreeMap<String, SourceAndWords>>,
    stats: RuntimeStats,
    /// The one that breaks.
    log: Option<Arc<LogStatus>>,
    /// So many kept libraries can't be loaded at first.
    pub(crate) put_off: usize,
    pub(crate) counts: Arc<WordCounts>,
}

/// What an engine had to do.
#[derive(Default)]
pub(crate) struct WordCounts {
    /// Sources that it was to load.
    pub(crate) loads: AtomicU64,
    /// Sources that it was to compare.
    pub(crate) looks: AtomicU64,
}

impl RustWords {
    /// The same, beside these logs.
    pub(crate) fn beside(logs: Option<&[Arc<LogStatus>]>) -> Self {
        let log = logs.and_then(|logs| logs.first().cloned());
        RustWords { log, ..RustWords::default() }
    }

    fn find(&self, tenant: TenantId, call: &Call<'_>) -> Option<Word> {
        let mut loaded = self.tenants[tenant.index()].values().flat_map(|(_, words)| words);
        loaded.find(|word| word.as_bytes() == call.function)?;
        let word = WORDS.iter().find(|(word, _)| word.as_bytes() == call.function)?;
        Some(word.1)
    }
}

impl Engine for RustWords {
    fn name(&self) -> &'static str {
        "WORDS"
    }

    fn open(&mut self, tenant: TenantId, _keyspace: &Keyspace) {
        assert_eq!(tenant.index(), self.tenants.len());
        self.tenants.push(BTreeMap::new());
    }

    fn tries(&self) -> Option<&FunctionLimits> {
        None
    }

    fn check(&mut self, _source: &[u8]) -> Loaded<()> {
        Ok(())
    }

    fn load(&mut self, _: TenantId, source: &[u8], is_kept: bool) -> Loaded<Library> {
        self.counts.loads.fetch_add(1, Relaxed);
        let source = String::from_utf8_lossy(source);
        let (first, words) = source.split_once('\n').ok_or(LoadError::InvalidLine)?;
        let name = first.split_once("name=").ok_or(LoadError::MissingName)?.1.to_owned();
        if is_kept && self.put_off > 0 {
            self.put_off -= 1;
            return Err(LoadError::NotNow { library: name, reason: "later".to_owned() });
        }
        if is_kept && words.contains(BREAKABLE) {
            return Err(LoadError::Compile { library: name, reason: "it broke".to_owned() });
        }
        let function = |word: &str| Function {
            name: word.to_owned(),
            no_writes: !["put", "spread"].iter().any(|writes| word.contains(writes)),
            allow_cross_slot_keys: word.contains("spread"),
            durable: word.contains("safe"),
            description: None,
        };
        Ok(Library { name, functions: words.split_whitespace().map(function).collect() })
    }

    fn install(&mut self, tenant: TenantId, library: &Library, source: &[u8]) -> Loaded<()> {
        let names = library.functions.iter().map(|function| function.name.clone()).collect();
        self.tenants[tenant.index()].insert(library.name.clone(), (source.to_vec(), names));
        Ok(())
    }

    fn has(&self, tenant: TenantId, library: &str, source: &[u8]) -> bool {
        self.counts.looks.fetch_add(1, Relaxed);
        self.tenants[tenant.index()].get(library).is_some_and(|(it, _)| it == source)
    }

    fn unload(&mut self, tenant: TenantId, library: Option<&str>) {
        let libraries = &mut self.tenants[tenant.index()];
        match library {
            Some(library) => _ = libraries.remove(library),
            None => libraries.clear(),
        }
    }

    fn admits(&self, tenant: TenantId, call: &Call<'_>) -> Option<bool> {
        self.find(tenant, call).map(|_| false)
    }

    fn run(
        &mut self,
        tenant: TenantId,
        calls: &[Call<'_>],
        _turn: RunTurn,
        host: &mut dyn Host,
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> BatchEnd {
        for (index, call) in calls.iter().enumerate() {
            self.stats.calls += 1;
            if let Some(log) = self.log.as_ref().filter(|_| call.function == BREAKS.as_bytes()) {
                log.tell_health(LogHealth::Broken, "it broke".to_owned());
            }
            let text = match self.find(tenant, call).map(|word| word(call, host)) {
                Some(Ok(text)) => format!("+{text}\r\n"),
                Some(Err(text)) => format!("-{text}\r\n"),
                None => "-ERR Function not found\r\n".to_owned(),
            };
            reply(index, text.as_bytes());
        }
        self.stats.batches += 1;
        BatchEnd { calls: calls.len(), untold: 0 }
    }

    fn set_limits(&mut self, _limits: FunctionLimits) {}

    fn tell_starts(&mut self, _starts: Box<dyn Starts>) {}

    fn remote(&self) -> Remote {
        Box::new(|_| None) // nobody has to wait for these functions
    }

    fn catch_up(&mut self, _sleeps: bool) {}

    fn stats(&self) -> RuntimeStats {
        self.stats.clone()
    }

    fn reset_stats(&mut self) {
        self.stats = RuntimeStats::default();
    }
}
