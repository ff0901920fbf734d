//! One shard's JavaScript: the isolate, the tenants, and their libraries. How a batch runs: `batch.rs`.
//! Belongs to the thread that made it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::fault::Cause;
use crate::ffi;
use crate::host::{Host, Level, Write};
use crate::isolate::Isolate;
use crate::library::{Function, Library, LoadError};
use crate::limits::Limits;
use crate::mapping::Keyspace;
use crate::request::Request;
use crate::stats::{Handle, RuntimeStats};
use crate::tenant::{Installed, TenantState, number};
use crate::{Tenant, fault, io, snapshot, source};

/// Foreground tasks of V8 that one [`Runtime::idle`] runs.
const IDLE_TASKS_MAX: u32 = 16;
/// Contexts that one [`Runtime::idle`] leaves ready: for a new tenant, and for a library that is loaded then.
const CONTEXTS_AHEAD: usize = 2;
/// CPU time, ms, that compiling a library and its top level get even if calls get less: it happens again
/// whenever a tenant's context is made anew.
const LOAD_MS_MIN: u64 = 50;
/// A library that did not start is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Libraries of a tenant that may have to be stopped while its context is made: each costs their time limit,
/// and a start of the others. Those after the last are not tried.
const STOPS_MAX: usize = 3;
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
    alive: Vec<u32>,
    /// Counts batches, to tell which context was used last.
    pub(crate) turn: u64,
    pub(crate) request: Request,
    /// Kept for its memory: see `batch.rs`.
    pub(crate) entered: Vec<usize>,
    pub(crate) stats: RuntimeStats,
    _thread: PhantomData<*mut ()>,
}

/// Where module code's log goes when no batch runs.
pub(crate) struct NoHost;

impl Host for NoHost {
    fn commit(&mut self, _: &[Write<'_>]) -> Result<(), String> {
        Err("ERR nothing can be written now".to_owned())
    }
    fn scan(&mut self, _: &[u8], _: u64, _: u32, _: &mut dyn FnMut(&[u8])) -> u64 {
        0
    }
    fn log(&mut self, level: Level, library: &str, function: &str, text: &str) {
        tracing::info!(?level, library, function, "{text}");
    }
}

impl Runtime {
    /// Makes the isolate; the first one of the process also starts V8.
    ///
    /// # Errors
    /// [`StartError`] if V8 does not start.
    pub fn new(limits: Limits) -> Result<Runtime, StartError> {
        let limits = limits.clamped();
        let isolate = Isolate::new(&limits)?;
        Ok(Runtime {
            isolate,
            limits,
            tenants: Vec::new(),
            alive: Vec::new(),
            turn: 0,
            request: Request::default(),
            entered: Vec::new(),
            stats: RuntimeStats::default(),
            _thread: PhantomData,
        })
    }

    /// V8's version, for INFO and logs.
    #[must_use]
    pub fn v8_version() -> &'static str {
        snapshot::v8_version()
    }

    /// Changes the limits, from the next batch on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits.clamped();
        self.isolate.set_limits(&self.limits);
    }

    /// Adds a tenant whose functions read `keyspace`: a [`Mapping`](crate::Mapping), or one for each partition.
    pub fn open_tenant(&mut self, keyspace: impl Into<Keyspace>) -> Tenant {
        self.tenants.push(TenantState::new(keyspace.into()));
        Tenant(number(self.tenants.len() - 1))
    }

    /// Compiles and evaluates `source` (whole, with its first line `#!js name=…`) in a scratch context.
    /// Nothing is installed.
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
        let name = source::library_name(source)?;
        let bad = |reason| LoadError::BadSource { library: name.clone(), reason };
        let text = std::str::from_utf8(source).map_err(|error| {
            bad(format!("the source is not UTF-8 at byte {}", error.valid_up_to()))
        })?;
        let base: *const u8 = NO_ARENA.as_ptr().cast();
        let arena = ffi::Arena { base, length: size_of_val(&NO_ARENA), foreign: false };
        let context = self.new_context(&[arena]);
        let compile = |reason| LoadError::Compile { library: name.clone(), reason };
        let context = context.map_err(compile)?;
        let found = self.evaluate(context, &name, source, 0);
        // SAFETY: made above, used by nobody else.
        unsafe { ffi::nigh_context_free(context) };
        let mut functions = found.map_err(|stop| compile(self.recovered(stop)))?;
        if functions.is_empty() {
            return Err(LoadError::NoFunctions);
        }
        for function in &mut functions {
            function.description = source::description(text, &function.name);
        }
        if let Some(taken) = self.state(tenant).taken(&name, &functions) {
            return Err(LoadError::FunctionExists { function: taken.name.clone() });
        }
        Ok(Library { name, functions })
    }

    /// Makes the functions of a loaded library callable; a library of the same name is replaced.
    ///
    /// # Errors
    /// [`LoadError::FunctionExists`] if another library has a function of the same name;
    /// [`LoadError::Compile`] if it doesn't evaluate beside the tenant's other libraries. The tenant has
    /// the libraries that it had before then.
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
        let first_id = state.free_ids(number(library.functions.len()));
        let context = state.context;
        if !context.is_null()
            && let Err(stop) = self.evaluate(context, &library.name, source, first_id)
        {
            // Half of it may be there: the next call gets a fresh context.
            self.drop_context(tenant);
            let reason = self.recovered(stop);
            return Err(LoadError::Compile { library: library.name.clone(), reason });
        }
        self.remove(tenant, &library.name);
        self.state(tenant).add(library, source.into(), first_id);
        Ok(())
    }

    /// Removes a library; false if there is none of that name.
    pub fn remove(&mut self, tenant: Tenant, name: &str) -> bool {
        let state = self.state(tenant);
        let Some(old) = state.libraries.remove(name) else { return false };
        state.index();
        let context = state.context;
        if !context.is_null() {
            // SAFETY: the tenant's live context, on its thread.
            let removed = unsafe {
                ffi::nigh_module_remove(context, old.first_id, number(old.functions.len()))
            };
            if !removed {
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

    /// To be called between batches: collects garbage and makes contexts out of request time.
    pub fn idle(&mut self) {
        // SAFETY: our isolate, on its thread.
        unsafe { ffi::nigh_isolate_pump(self.isolate.raw(), IDLE_TASKS_MAX) };
        // SAFETY: as above.
        unsafe { ffi::nigh_isolate_prepare(self.isolate.raw(), CONTEXTS_AHEAD) };
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        let heap = self.isolate.heap();
        RuntimeStats {
            contexts: self.alive.len(),
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
        Handle { watch: Arc::clone(&self.isolate.watchdog().watch) }
    }

    pub(crate) fn state(&mut self, tenant: Tenant) -> &mut TenantState {
        &mut self.tenants[tenant.0 as usize]
    }

    fn new_context(&mut self, arenas: &[ffi::Arena]) -> Result<*mut ffi::RawContext, String> {
        // SAFETY: our isolate; the arenas stay readable as long as the context, by Mapping's contract.
        let context =
            unsafe { ffi::nigh_context_new(self.isolate.raw(), arenas.as_ptr(), arenas.len()) };
        if context.is_null() {
            return Err("V8 could not make a context".to_owned());
        }
        self.stats.contexts_created += 1;
        Ok(context)
    }

    /// The tenant's context, made if it has none, with its libraries; the least recently used context
    /// goes if there are too many.
    pub(crate) fn ensure_context(
        &mut self,
        tenant: Tenant,
    ) -> Result<*mut ffi::RawContext, String> {
        let turn = self.turn;
        let state = self.state(tenant);
        state.used = turn;
        if !state.context.is_null() {
            let stuck = |library: &Installed| {
                library.broken.as_ref().is_some_and(|(_, since)| since.elapsed() > RETRY_AFTER)
            };
            // With an overlay in it, on which the next call may build, it stays as it is.
            let stays = !state.degraded || state.holds_overlay;
            if stays || !state.libraries.values().any(stuck) {
                return Ok(state.context);
            }
            self.drop_context(tenant);
        }
        while self.alive.len() >= self.limits.contexts.max(1) {
            let oldest = self.alive.iter().min_by_key(|&&id| self.tenants[id as usize].used);
            let Some(&oldest) = oldest else { break };
            self.drop_context(Tenant(oldest));
        }
        self.start_libraries(tenant)
    }

    /// A context with all libraries that start. A library that fails is marked with its own reason; one that
    /// had to be stopped costs the context too, since its heap may be full, and the others start in a
    /// fresh one.
    fn start_libraries(&mut self, tenant: Tenant) -> Result<*mut ffi::RawContext, String> {
        let state = self.state(tenant);
        state.degraded = false;
        state.libraries.values_mut().for_each(|library| library.broken = None);
        let arenas = state.keyspace.arenas()?;
        let names: Vec<String> = state.libraries.keys().cloned().collect();
        let mut reason = String::new();
        for stops in 0..=STOPS_MAX {
            let context = self.new_context(&arenas)?;
            let Some((at, stop)) = self.start_each(tenant, context, &names) else {
                self.adopt_context(tenant, context);
                return Ok(context);
            };
            // SAFETY: made above, used by nobody else.
            unsafe { ffi::nigh_context_free(context) };
            reason = self.recovered(stop);
            self.mark_broken(tenant, &names[at], reason.clone());
            if stops + 1 == STOPS_MAX {
                for name in &names[at + 1..] {
                    let reason = "other libraries of this tenant took too long or too much memory";
                    self.mark_broken(tenant, name, reason.to_owned());
                }
            }
        }
        Err(format!("the libraries do not start: {reason}"))
    }

    /// Starts the libraries that are not marked as broken; the index and the stop of the first that had to
    /// be stopped.
    fn start_each(
        &mut self,
        tenant: Tenant,
        context: *mut ffi::RawContext,
        names: &[String],
    ) -> Option<(usize, Stop)> {
        for (index, name) in names.iter().enumerate() {
            let installed = &self.state(tenant).libraries[name];
            if installed.broken.is_some() {
                continue;
            }
            let (source, first_id) = (Arc::clone(&installed.source), installed.first_id);
            match self.evaluate(context, name, &source, first_id) {
                Ok(_) => {}
                Err(Stop::Fault(reason)) => self.mark_broken(tenant, name, reason),
                Err(stop @ Stop::Terminated(_)) => return Some((index, stop)),
            }
        }
        None
    }

    fn adopt_context(&mut self, tenant: Tenant, context: *mut ffi::RawContext) {
        self.state(tenant).context = context;
        self.alive.push(tenant.0);
    }

    fn mark_broken(&mut self, tenant: Tenant, name: &str, reason: String) {
        let state = self.state(tenant);
        state.degraded = true;
        if let Some(library) = state.libraries.get_mut(name) {
            library.broken = Some((reason, Instant::now()));
        }
    }

    pub(crate) fn drop_context(&mut self, tenant: Tenant) {
        let state = self.state(tenant);
        state.holds_overlay = false;
        let context = std::mem::replace(&mut state.context, std::ptr::null_mut());
        if !context.is_null() {
            self.alive.retain(|&id| id != tenant.0);
            // SAFETY: the tenant's context, of which no pointer is left; no JavaScript runs.
            unsafe { ffi::nigh_context_free(context) };
        }
    }

    /// Compiles and evaluates a module in `context` under the watchdog's eye; its functions.
    fn evaluate(
        &mut self,
        context: *mut ffi::RawContext,
        name: &str,
        source: &[u8],
        first_id: u32,
    ) -> Result<Vec<Function>, Stop> {
        use std::sync::atomic::Ordering::SeqCst;
        let state = self.isolate.take_states(1);
        let bridge = self.isolate.bridge();
        bridge.module = name.to_owned();
        let mut host = NoHost;
        if bridge.host.is_none() {
            let host: &mut dyn Host = &mut host;
            bridge.host = Some(erase(host));
        }
        self.isolate.io.set_word(io::OUT_DONE, 0);
        self.isolate.watchdog().watch.set_names(|names| names.ids.clear());
        let limit_ms = self.limits.call_ms.max(LOAD_MS_MIN);
        self.isolate.watchdog().watch.call_ms.store(limit_ms, SeqCst);
        self.isolate.watchdog().wake();
        let mut found = ffi::Fault::new();
        self.isolate.io.state().store(state, SeqCst); // SYNC(call-state)
        // SAFETY: a live context of our isolate, on its thread; the slices live during the call.
        unsafe {
            ffi::nigh_module_install(
                context,
                ffi::Slice::of(name.as_bytes()),
                ffi::Slice::of(source),
                first_id,
                &raw mut found,
            );
        }
        let bridge = self.isolate.bridge();
        bridge.host = None;
        bridge.module.clear();
        let ended = self.isolate.settle(state);
        self.isolate.watchdog().watch.call_ms.store(self.limits.call_ms, SeqCst);
        if !ended || found.kind == ffi::FAULT_TERMINATED {
            return Err(Stop::Terminated(state));
        }
        self.isolate.relieve();
        if found.kind != ffi::FAULT_NONE {
            return Err(Stop::Fault(fault::module(&found, name, Cause::Time, &self.limits)));
        }
        Ok(self.found_functions())
    }

    /// What the prelude's install() wrote: see there.
    fn found_functions(&self) -> Vec<Function> {
        let io = &self.isolate.io;
        let size = |word: i32| usize::try_from(word).unwrap_or(0);
        let mut at = io::RESPONSE_AT + 8;
        let count = size(io.word(io::RESPONSE_AT / 4));
        let mut functions = Vec::with_capacity(count.min(1000));
        for _ in 0..count {
            let flags = io.word(at / 4);
            let length = size(io.word(at / 4 + 1));
            functions.push(Function {
                name: String::from_utf8_lossy(io.bytes(at + 8, length)).into_owned(),
                no_writes: flags & 1 != 0,
                allow_cross_slot_keys: flags & 2 != 0,
                description: None,
            });
            at += 8 + length.next_multiple_of(8);
        }
        functions
    }

    /// The reason of a failed evaluation; the isolate can run again. The context must be gone if the
    /// evaluation was stopped.
    fn recovered(&mut self, stop: Stop) -> String {
        match stop {
            Stop::Fault(reason) => reason,
            Stop::Terminated(state) => {
                let cause = self.isolate.recover(state);
                self.count_stop(cause);
                let mut found = ffi::Fault::new();
                found.kind = ffi::FAULT_TERMINATED;
                let call_ms = self.limits.call_ms.max(LOAD_MS_MIN);
                fault::module(&found, "", cause, &Limits { call_ms, ..self.limits.clone() })
            }
        }
    }

    pub(crate) fn count_stop(&mut self, cause: Cause) {
        match cause {
            Cause::Heap => self.stats.heap_limit_hits += 1,
            Cause::Time => self.stats.timeouts += 1,
            Cause::Order(_) => self.stats.kills += 1,
        }
    }
}

/// Why an evaluation did not end well.
enum Stop {
    Fault(String),
    /// The number of the call; `Isolate::recover` is due.
    Terminated(i32),
}

/// A host without its lifetime; the caller takes it out of the bridge before it ends.
pub(crate) fn erase(host: &mut dyn Host) -> std::ptr::NonNull<dyn Host> {
    let host: std::ptr::NonNull<dyn Host + '_> = host.into();
    // SAFETY: only the lifetime in the type changes.
    unsafe { std::mem::transmute::<_, std::ptr::NonNull<dyn Host>>(host) }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for tenant in std::mem::take(&mut self.alive) {
            self.drop_context(Tenant(tenant));
        }
    }
}
