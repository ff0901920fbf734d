//! What runs functions, behind a trait: the rest of the server knows neither V8 nor how many
//! engines there are.
//!
//! ```text
//! FUNCTION LOAD "#!js name=..." ──> `of_source` ──> load, install ─┐
//! FCALL ──> the engine of its library ───────────────────────────> run ──> Host: commit, scan, log
//! ```
//!
//! 1. A shard has the same engines as all others, in the same order; the first one answers for
//!    sources that name none of them.
//! 2. Each engine knows all tenants by their numbers, and shares nothing between them.
//!
//! An [`Engine`] belongs to its shard's thread, a [`Remote`] to any.

pub(crate) mod lend;
#[cfg(test)]
pub(crate) mod rust_words;
pub(crate) mod v8;

use crate::config::Config;
use crate::tenant::TenantId;
pub(crate) use nigh_js::{
    Call, CallWrite, Function, FunctionLimits, Host, Library, LoadError, Overlay, Reason, RunTurn,
    Running, RuntimeStats, Starts, UNSTABLE, allocator,
};
use nigh_store::Keyspace;

/// What comes of a source.
pub(crate) type Loaded<T> = Result<T, LoadError>;

/// Tells from another thread which call runs now, and ends it for a reason.
pub(crate) type Remote = Box<dyn Fn(Option<Reason>) -> Option<Running> + Send + Sync>;

/// How many calls of a batch have run, the first ones; and the partitions of which the last of them
/// couldn't be told, a bit for each.
pub(crate) struct BatchEnd {
    pub(crate) calls: usize,
    pub(crate) untold: u64,
}

/// Runs functions of one shard.
pub(crate) trait Engine {
    /// As FUNCTION LIST shows it; a library names it, in any case, behind its `#!`.
    fn name(&self) -> &'static str;

    /// Lets the functions of the next tenant read this shard's part of its keyspace.
    fn open(&mut self, tenant: TenantId, keyspace: &Keyspace);

    /// The limits with which new sources are tried in another process first; `None` if loading one
    /// can do no harm.
    fn tries(&self) -> Option<&FunctionLimits>;

    /// In that process: whether a source can be a library of any tenant.
    fn check(&mut self, source: &[u8]) -> Loaded<()>;

    /// What a source has as a library of a tenant, which it isn't yet. One that `is_kept` may be
    /// longer than new ones may.
    fn load(&mut self, tenant: TenantId, source: &[u8], is_kept: bool) -> Loaded<Library>;

    /// Makes the functions of a library callable, and replaces an older one of that name.
    fn install(&mut self, tenant: TenantId, library: &Library, source: &[u8]) -> Loaded<()>;

    /// Whether a tenant has a library of this name with this source.
    fn has(&self, tenant: TenantId, library: &str, source: &[u8]) -> bool;

    /// Removes a tenant's library of this name, if there is one; or all of them.
    fn unload(&mut self, tenant: TenantId, library: Option<&str>);

    /// `None` if a call would not run: [`Self::run`] answers why. Else whether the overlay of the
    /// tenant's last call is still known, so that this one brings only what is new.
    fn admits(&self, tenant: TenantId, call: &Call<'_>) -> Option<bool>;

    /// Runs calls in their order; `reply` gets each one's index and whole reply, in RESP. It may
    /// end before the last call: see [`RunTurn`] and [`UNSTABLE`].
    fn run(
        &mut self,
        tenant: TenantId,
        calls: &[Call<'_>],
        turn: RunTurn,
        host: &mut dyn Host,
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> BatchEnd;

    /// Other limits hold from the next batch on.
    fn set_limits(&mut self, limits: FunctionLimits);

    /// `starts` is told of each library that starts from now on.
    fn tell_starts(&mut self, starts: Box<dyn Starts>);

    fn remote(&self) -> Remote;

    /// To be called ten times a second, and before the shard sleeps if functions have run.
    fn catch_up(&mut self, sleeps: bool);

    fn stats(&self) -> RuntimeStats;

    fn reset_stats(&mut self);
}

/// The number of the engine that a source names; the first one has to answer for a source that
/// names none.
pub(crate) fn of_source(engines: &[Box<dyn Engine>], source: &[u8]) -> usize {
    let words = source.strip_prefix(b"#!").unwrap_or_default();
    let word = words.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let mut names = engines.iter().map(|engine| engine.name().as_bytes());
    names.position(|name| name.eq_ignore_ascii_case(word)).unwrap_or(0)
}

pub(crate) fn limits(config: &Config) -> FunctionLimits {
    let count = |name| u32::try_from(config.number(name)).unwrap_or(u32::MAX);
    FunctionLimits {
        call_ms: config.unsigned("function-time-limit-ms"),
        load_ms: config.unsigned("function-load-limit-ms"),
        heap_bytes: config.size("function-heap-limit-bytes"),
        array_buffer_bytes: config.size("function-array-buffer-limit-bytes"),
        stack_bytes: config.size("function-stack-bytes"),
        result_bytes: config.size("function-result-limit-bytes"),
        result_depth: count("function-result-depth"),
        arguments: count("function-arguments-limit"),
        argument_bytes: config.size("function-arguments-limit-bytes"),
        write_set_bytes: config.size("function-write-set-limit-bytes"),
        write_set_keys: count("function-write-set-limit-keys"),
        source_bytes: config.size("function-source-limit-bytes"),
        contexts: config.size("function-contexts"),
        grace_ms: config.unsigned("function-kill-grace-ms"),
    }
}
