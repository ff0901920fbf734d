//! One shard's JavaScript: the isolate, the tenants, and their contexts.
//!
//! ```text
//! run(calls) ── admission ── CallWriter ── library_start ── entering ── delivery ──> replies
//!                                          (if needed)         └── V8
//! load, install ── library_load ── library_start ── V8
//! ```
//!
//! 1. A [`Runtime`] belongs to the thread that made it, or to the fiber with which it was made.
//! 2. A tenant has at most one context, made at first use. If there are too many, the least
//!    recently used one goes.
//! 3. A call that had to be stopped costs its tenant the context; one that V8 doesn't leave costs
//!    all tenants theirs, with the isolate.
//!
//! This file has the state, its contexts, and the upkeep. Each file of this room adds something
//! that a runtime does, and calls only those above it:
//!
//! | file | what it does |
//! |---|---|
//! | `admission` | decides whether a call may run |
//! | `running_batch` | knows how far a batch has come |
//! | `delivery` | hands the results of an entry out as replies |
//! | `library_start` | compiles a library and runs its top level |
//! | `library_load` | loads, installs and removes libraries |
//! | `entering` | makes one entry into V8 for some calls |
//! | `call_batch` | runs a batch: all of the above |

mod admission;
mod call_batch;
mod delivery;
mod entering;
#[cfg(test)]
mod given_back;
#[cfg(test)]
mod libraries_in_place;
mod library_load;
mod library_start;
mod running_batch;
#[cfg(test)]
mod stopped_starts;
#[cfg(test)]
mod used_up_numbers;

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::caller::fcall::Tenant;
use crate::caller::function_limits::FunctionLimits;
use crate::caller::host_trait::Starts;
use crate::caller::runtime_stats::RuntimeStats;
use crate::caller::tenant_arenas::TenantArenas;
use crate::ffi;
use crate::fiber::{Fiber, Wreck};
use crate::guard::handle::Handle;
use crate::io;
use crate::io::call_writer::CallWriter;
use crate::isolate::lingering::{CallName, Lingering};
use crate::isolate::rest::Rest;
use crate::isolate::{Isolate, StartError, startup};
use crate::stop::cause::Cause;
use crate::tenant::TenantState;

/// Most foreground tasks of V8 that one [`Runtime::catch_up`] runs. Mostly there is none; a step of
/// a collection takes about 1 ms.
const TASKS_MAX: u32 = 16;
/// Contexts that one [`Runtime::idle`] leaves ready: for a new tenant, and for a library that is
/// loaded then.
const CONTEXTS_AHEAD: usize = 2;

/// Runs functions on this thread.
pub struct Runtime {
    pub(crate) isolate: Isolate,
    limits: FunctionLimits,
    tenants: Vec<TenantState>,
    /// Tenants that have a context.
    alive: Vec<u32>,
    /// Counts batches, to tell which context was used last.
    turn: u64,
    /// Counts contexts. With `turn`, tells whether something has run.
    contexts_made: u64,
    /// Partitions that a call of the last batch couldn't tell, a bit for each.
    untold: u64,
    rest: Rest,
    request: CallWriter,
    /// Empty; kept for its memory, which each batch uses again.
    entered: Vec<usize>,
    stats: RuntimeStats,
    starts: Option<Box<dyn Starts>>,
    lingering: Lingering,
    handle: Handle,
    _thread: PhantomData<*mut ()>,
}

impl Runtime {
    /// Makes the isolate; the first one of the process also starts V8.
    ///
    /// # Errors
    /// [`StartError`] if V8 does not start.
    pub fn new(limits: FunctionLimits) -> Result<Runtime, StartError> {
        Runtime::start(limits, None)
    }

    /// The same on a fiber: a function that can't be stopped costs it an isolate, not the process.
    ///
    /// # Errors
    /// [`StartError`] if V8 does not start.
    pub fn on(fiber: Fiber, limits: FunctionLimits) -> Result<Runtime, StartError> {
        Runtime::start(limits, Some(Rc::new(fiber)))
    }

    fn start(limits: FunctionLimits, fiber: Option<Rc<Fiber>>) -> Result<Runtime, StartError> {
        let limits = limits.clamped();
        let isolate = Isolate::new(&limits, fiber)?;
        let handle = Handle::new(Arc::clone(&isolate.watchdog().watch));
        Ok(Runtime {
            isolate,
            limits,
            tenants: Vec::new(),
            alive: Vec::new(),
            turn: 0,
            contexts_made: 0,
            untold: 0,
            rest: Rest::new(),
            request: CallWriter::default(),
            entered: Vec::new(),
            stats: RuntimeStats::default(),
            starts: None,
            lingering: Lingering::default(),
            handle,
            _thread: PhantomData,
        })
    }

    /// V8's version, for INFO and logs.
    #[must_use]
    pub fn v8_version() -> &'static str {
        startup::v8_version()
    }

    /// The limits that hold.
    #[must_use]
    pub fn limits(&self) -> &FunctionLimits {
        &self.limits
    }

    /// Changes the limits, from the next batch on.
    pub fn set_limits(&mut self, limits: FunctionLimits) {
        self.limits = limits.clamped();
        self.isolate.set_limits(&self.limits);
    }

    /// From now on, tells `starts` of each start of a library, also in a new context.
    pub fn tell_starts(&mut self, starts: Box<dyn Starts>) {
        self.starts = Some(starts);
    }

    /// Adds a tenant whose functions read `arenas`: a [`Mapping`](crate::Mapping), or one for each
    /// partition.
    pub fn open_tenant(&mut self, arenas: impl Into<TenantArenas>) -> Tenant {
        self.tenants.push(TenantState::new(arenas.into()));
        Tenant(ffi::count(self.tenants.len() - 1))
    }

    /// To be called between batches, ten times a second, with or without work: does some of the
    /// work that V8 has put off, which gives dropped contexts and garbage back.
    pub fn catch_up(&mut self) {
        if self.rest.look(self.turn + self.contexts_made) {
            self.isolate.begin_collection(self.rest.is_last());
        }
        self.isolate.idle(TASKS_MAX, 0);
    }

    /// To be called between batches when there is time: does the same work, and makes contexts
    /// ahead.
    pub fn idle(&mut self) {
        self.isolate.idle(TASKS_MAX, CONTEXTS_AHEAD);
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        let heap = self.isolate.heap();
        RuntimeStats {
            contexts: self.alive.len(),
            lingering: self.lingering.count(),
            dropped_contexts: heap.dropped_contexts,
            heap_bytes: heap.used_bytes,
            array_buffer_bytes: heap.array_buffer_bytes,
            ..self.stats.clone()
        }
    }

    /// Sets the counters to 0; gauges stay.
    pub fn reset_stats(&mut self) {
        self.stats = RuntimeStats::default();
    }

    /// A handle by which other threads see the running call, and end it.
    #[must_use]
    pub fn running(&self) -> Handle {
        self.handle.clone()
    }

    fn state(&mut self, tenant: Tenant) -> &mut TenantState {
        &mut self.tenants[tenant.0 as usize]
    }

    /// The tenant's context, made if it has none.
    fn ensure_context(&mut self, tenant: Tenant) -> Result<*mut ffi::RawContext, String> {
        if self.lingering.are_too_many() {
            return Err(self.lingering.crowded().0);
        }
        let turn = self.turn;
        let state = self.state(tenant);
        state.used = turn;
        if !state.context.is_null() {
            return Ok(state.context);
        }
        let arenas = state.arenas.raw()?;
        while self.alive.len() >= self.limits.contexts.max(1) {
            let oldest = self.alive.iter().min_by_key(|&&id| self.tenants[id as usize].used);
            let Some(&oldest) = oldest else { break };
            self.drop_context(Tenant(oldest));
        }
        let context = self.new_context(&arenas)?;
        self.state(tenant).context = context;
        self.alive.push(tenant.0);
        Ok(context)
    }

    fn new_context(&mut self, arenas: &[ffi::RawArena]) -> Result<*mut ffi::RawContext, String> {
        let context = self.isolate.new_context(arenas);
        if context.is_null() {
            return Err("V8 could not make a context".to_owned());
        }
        self.contexts_made += 1;
        Ok(context)
    }

    fn drop_context(&mut self, tenant: Tenant) {
        let context = self.state(tenant).take_context();
        if !context.is_null() {
            self.alive.retain(|&id| id != tenant.0);
            self.isolate.free_context(context);
        }
    }

    fn drop_contexts(&mut self) {
        for tenant in std::mem::take(&mut self.alive) {
            self.drop_context(Tenant(tenant));
        }
    }

    fn count_stop(&mut self, cause: Cause) {
        match cause {
            Cause::Heap | Cause::Fatal => self.stats.heap_limit_hits += 1,
            Cause::Time => self.stats.timeouts += 1,
            Cause::Order(_) => self.stats.kills += 1,
        }
    }

    /// Puts a new isolate in the place of the one that call `state` doesn't leave, and moves the
    /// request there; all contexts went with the old one. The function (or top level) isn't run
    /// again while it lingers. Returns why the call was stopped.
    fn lose_isolate(&mut self, state: i32, grave: &Sender<Wreck>, call: CallName) -> Cause {
        let keep = self.tenants.iter().flat_map(|tenant| tenant.arenas.keep()).collect();
        for tenant in std::mem::take(&mut self.alive) {
            self.tenants[tenant as usize].take_context();
        }
        let (old, end) = (self.isolate.io, self.request.end().max(io::REQUEST_AT));
        let inputs = old.bytes(io::INPUTS_AT, io::INPUTS_END - io::INPUTS_AT).to_vec();
        let request = old.bytes(io::REQUEST_AT, end - io::REQUEST_AT).to_vec();
        let (cause, fate) = self.isolate.replace(state, &self.limits, grave, keep);
        self.isolate.io.put(io::INPUTS_AT, &inputs);
        self.isolate.io.put(io::REQUEST_AT, &request);
        self.handle.follow(Arc::clone(&self.isolate.watchdog().watch));
        self.stats.isolates_lost += 1;
        self.lingering.push(call, fate);
        cause
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.drop_contexts();
    }
}
