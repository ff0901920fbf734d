//! One shard's JavaScript: the isolate, the tenants, and their libraries. How a batch runs:
//! `batch.rs`; how a library starts: `start.rs`. Belongs to the thread that made it.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use thiserror::Error;

use crate::caller::fcall::Tenant;
use crate::caller::function_limits::Limits;
use crate::caller::host_trait::Starts;
use crate::caller::runtime_stats::{Handle, RuntimeStats};
use crate::caller::tenant_arenas::Keyspace;
use crate::error_reply::Cause;
use crate::ffi;
use crate::fiber::Fiber;
use crate::io::call_writer::Request;
use crate::isolate::Isolate;
use crate::isolate::lingering::{Lingering, STILL_STOPPING, TOP_LEVEL};
use crate::isolate::rest::Rest;
use crate::isolate::{lingering, startup};
use crate::library::source;
use crate::library::{Library, LoadError};
use crate::tenant::{TenantState, number};

mod call_batch;
mod deliver;
mod library_start;

/// Foreground tasks of V8 that one [`Runtime::catch_up`] runs: mostly there is none, and a step of
/// a collection takes about 1 ms.
const TASKS_MAX: u32 = 16;
/// Contexts that one [`Runtime::idle`] leaves ready: for a new tenant, and for a library that is
/// loaded then.
const CONTEXTS_AHEAD: usize = 2;
/// For whom a source is checked that is no tenant's.
const NOBODY: Tenant = Tenant(u32::MAX);
/// What a scratch context reads instead of an arena: the header of none.
static NO_ARENA: [u64; 512] = [0; 512];

/// Why a runtime could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// V8 refused, or the system gave no memory or thread.
    #[error("V8 does not start: {reason}")]
    V8 {
        /// What V8 or the system said.
        reason: String,
    },
}

/// Runs functions on this thread.
pub struct Runtime {
    pub(crate) isolate: Isolate,
    pub(crate) limits: Limits,
    pub(crate) tenants: Vec<TenantState>,
    /// Tenants that have a context.
    pub(crate) alive: Vec<u32>,
    /// Counts batches, to tell which context was used last.
    pub(crate) turn: u64,
    /// Partitions of which a call of the last batch couldn't be told, a bit for each.
    pub(crate) untold: u64,
    rest: Rest,
    pub(crate) request: Request,
    /// Kept for its memory: see `batch.rs`.
    pub(crate) entered: Vec<usize>,
    pub(crate) stats: RuntimeStats,
    pub(crate) starts: Option<Box<dyn Starts>>,
    /// What is stuck in isolates that were lost.
    pub(crate) lingering: Vec<Lingering>,
    pub(crate) handle: Handle,
    _thread: PhantomData<*mut ()>,
}

impl Runtime {
    /// Makes the isolate; the first one of the process also starts V8.
    ///
    /// # Errors
    /// [`StartError`] if V8 does not start.
    pub fn new(limits: Limits) -> Result<Runtime, StartError> {
        Runtime::start(limits, None)
    }

    /// The same on a fiber: a function that can't be stopped costs it an isolate, not the process.
    ///
    /// # Errors
    /// [`StartError`] if V8 does not start.
    pub fn on(fiber: Fiber, limits: Limits) -> Result<Runtime, StartError> {
        Runtime::start(limits, Some(Rc::new(fiber)))
    }

    fn start(limits: Limits, fiber: Option<Rc<Fiber>>) -> Result<Runtime, StartError> {
        let limits = limits.clamped();
        let isolate = Isolate::new(&limits, fiber)?;
        let watch = Arc::new(Mutex::new(Arc::clone(&isolate.watchdog().watch)));
        Ok(Runtime {
            isolate,
            limits,
            tenants: Vec::new(),
            alive: Vec::new(),
            turn: 0,
            untold: 0,
            rest: Rest::new(),
            request: Request::default(),
            entered: Vec::new(),
            stats: RuntimeStats::default(),
            starts: None,
            lingering: Vec::new(),
            handle: Handle { watch },
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
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the limits, from the next batch on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits.clamped();
        self.isolate.set_limits(&self.limits);
    }

    /// Tells `starts` from now on of each library that starts, also when a context is made anew.
    pub fn tell_starts(&mut self, starts: Box<dyn Starts>) {
        self.starts = Some(starts);
    }

    /// Adds a tenant whose functions read `keyspace`: a [`Mapping`](crate::Mapping), or one for
    /// each partition.
    pub fn open_tenant(&mut self, keyspace: impl Into<Keyspace>) -> Tenant {
        self.tenants.push(TenantState::new(keyspace.into()));
        Tenant(number(self.tenants.len() - 1))
    }

    /// Compiles and evaluates `source` (whole, with its first line `#!js name=…`) in a scratch
    /// context. Nothing is installed.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn load(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let most = self.limits.source_bytes;
        if source.len() > most {
            let reason = format!(
                "the source is longer than {most} bytes (setting: function-source-limit-bytes)"
            );
            return Err(LoadError::BadSource { library: source::library_name(source)?, reason });
        }
        self.load_kept(tenant, source)
    }

    /// The same for a library that was loaded before, however long it may be now.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn load_kept(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let library = self.examine(tenant, source)?;
        match self.state(tenant).taken(&library.name, &library.functions) {
            Some(taken) => Err(LoadError::FunctionExists { function: taken.name.clone() }),
            None => Ok(library),
        }
    }

    /// The same without a tenant: whether the source can be a library of any.
    ///
    /// # Errors
    /// [`LoadError`], whose text is the error reply.
    pub fn check(&mut self, source: &[u8]) -> Result<Library, LoadError> {
        self.examine(NOBODY, source)
    }

    fn examine(&mut self, tenant: Tenant, source: &[u8]) -> Result<Library, LoadError> {
        let name = source::library_name(source)?;
        let bad = |reason| LoadError::BadSource { library: name.clone(), reason };
        let text = std::str::from_utf8(source).map_err(|error| {
            bad(format!("the source is not UTF-8 at byte {}", error.valid_up_to()))
        })?;
        if self.is_crowded() {
            return Err(bad(lingering::crowded()));
        }
        if self.lingers(tenant, &name, TOP_LEVEL) {
            return Err(bad(format!("{STILL_STOPPING}; try again later")));
        }
        let base: *const u8 = NO_ARENA.as_ptr().cast();
        let arena = ffi::Arena { base, length: size_of_val(&NO_ARENA), foreign: false };
        let context = self.new_context(&[arena]);
        let compile = |reason| LoadError::Compile { library: name.clone(), reason };
        let context = context.map_err(compile)?;
        self.isolate.make_room();
        let found = self.evaluate(tenant, context, &name, source, 0);
        self.isolate.free_context(context);
        let mut functions = found.map_err(|stop| compile(self.recovered(stop)))?;
        if functions.is_empty() {
            return Err(LoadError::NoFunctions);
        }
        let mut descriptions = source::descriptions(text);
        for function in &mut functions {
            function.description = descriptions.remove(function.name.as_str());
        }
        Ok(Library { name, functions })
    }

    /// Makes the functions of a loaded library callable; a library of the same name is replaced. It
    /// is started at once. If that fails beside the tenant's other libraries, its calls say so.
    ///
    /// # Errors
    /// [`LoadError::FunctionExists`] if another library has a function of the same name. The tenant
    /// has the libraries that it had before then.
    pub fn install(
        &mut self,
        tenant: Tenant,
        library: &Library,
        source: &[u8],
    ) -> Result<(), LoadError> {
        let state = self.state(tenant);
        if let Some(taken) = state.taken(&library.name, &library.functions) {
            return Err(LoadError::FunctionExists { function: taken.name.clone() });
        }
        self.remove(tenant, &library.name);
        self.state(tenant).add(library, source.into());
        if let Ok(context) = self.ensure_context(tenant) {
            // Its calls say why not.
            let _ = self.start_library(tenant, context, &library.name);
        }
        Ok(())
    }

    /// Removes a library; false if there is none of that name.
    pub fn remove(&mut self, tenant: Tenant, name: &str) -> bool {
        let state = self.state(tenant);
        let Some(old) = state.remove(name) else { return false };
        let context = state.context;
        if !context.is_null() {
            let count = number(old.functions.len());
            if !self.isolate.remove_functions(context, old.first_id, count) {
                self.drop_context(tenant);
            }
        }
        true
    }

    /// Removes all libraries of a tenant, and what they hold in memory.
    pub fn remove_all(&mut self, tenant: Tenant) {
        self.drop_context(tenant);
        let state = self.state(tenant);
        state.libraries.clear();
        state.index();
    }

    /// To be called between batches, ten times a second, whether there is work or not: some of what
    /// V8 has put off, which gives dropped contexts and garbage back.
    pub fn catch_up(&mut self) {
        if self.rest.look(self.turn + self.stats.contexts_created) {
            self.isolate.begin_collection();
        }
        self.isolate.idle(TASKS_MAX, 0);
    }

    /// To be called between batches when there is time: the same, and makes contexts out of request
    /// time.
    pub fn idle(&mut self) {
        self.isolate.idle(TASKS_MAX, CONTEXTS_AHEAD);
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        let heap = self.isolate.heap();
        RuntimeStats {
            contexts: self.alive.len(),
            lingering: self.lingering(),
            dropped_contexts: heap.dropped_contexts,
            heap_bytes: heap.used_bytes,
            array_buffer_bytes: heap.array_buffer_bytes,
            ..self.stats.clone()
        }
    }

    /// Sets the counters to 0; gauges stay what they are.
    pub fn reset_stats(&mut self) {
        self.stats = RuntimeStats::default();
    }

    /// What other threads use to see what runs.
    #[must_use]
    pub fn running(&self) -> Handle {
        self.handle.clone()
    }

    pub(crate) fn state(&mut self, tenant: Tenant) -> &mut TenantState {
        &mut self.tenants[tenant.0 as usize]
    }

    pub(crate) fn new_context(
        &mut self,
        arenas: &[ffi::Arena],
    ) -> Result<*mut ffi::RawContext, String> {
        let context = self.isolate.new_context(arenas);
        if context.is_null() {
            return Err("V8 could not make a context".to_owned());
        }
        self.stats.contexts_created += 1;
        Ok(context)
    }

    pub(crate) fn drop_context(&mut self, tenant: Tenant) {
        let context = self.state(tenant).take_context();
        if !context.is_null() {
            self.alive.retain(|&id| id != tenant.0);
            self.isolate.free_context(context);
        }
    }

    pub(crate) fn count_stop(&mut self, cause: Cause) {
        match cause {
            Cause::Heap | Cause::Fatal => self.stats.heap_limit_hits += 1,
            Cause::Time => self.stats.timeouts += 1,
            Cause::Order(_) => self.stats.kills += 1,
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for tenant in std::mem::take(&mut self.alive) {
            self.drop_context(Tenant(tenant));
        }
    }
}
