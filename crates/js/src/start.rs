//! Starts libraries: compiles a module and runs its top level in a context, once to check it and again in each
//! context that its tenant gets. Belongs to the runtime's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry::{Entry, Install, Outcome};
use crate::fault::Cause;
use crate::fiber::Entered;
use crate::host::{Host, Level, Write};
use crate::library::Function;
use crate::lingering::{STILL_STOPPING, TOP_LEVEL};
use crate::runtime::Runtime;
use crate::tenant::Installed;
use crate::{Tenant, fault, ffi, io, lingering};

/// A library that did not start is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// One that had to be stopped waits longer, so that trying takes at most this part of the shard's time.
const RETRY_SHARE: u32 = 20;
/// Libraries of a tenant that may have to be stopped while its context is made: each costs their time limit,
/// and a start of the others. Those after the last are not tried.
const STOPS_MAX: usize = 3;
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
    /// The tenant's context, made if it has none, with its libraries; the least recently used context
    /// goes if there are too many.
    pub(crate) fn ensure_context(
        &mut self,
        tenant: Tenant,
    ) -> Result<*mut ffi::RawContext, String> {
        if self.is_crowded() {
            return Err(lingering::crowded());
        }
        let turn = self.turn;
        let state = self.state(tenant);
        state.used = turn;
        if !state.context.is_null() {
            let stuck = |library: &Installed| {
                library.broken.as_ref().is_some_and(|(_, retry)| Instant::now() >= *retry)
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
            self.isolate.free_context(context);
            reason = self.recovered(stop);
            let pause = Duration::from_millis(self.limits.load_ms) * RETRY_SHARE;
            self.mark_broken(tenant, &names[at], reason.clone(), pause);
            if stops + 1 == STOPS_MAX {
                for name in &names[at + 1..] {
                    let reason = "other libraries of this tenant took too long or too much memory";
                    self.mark_broken(tenant, name, reason.to_owned(), pause);
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
            if self.lingers(tenant, name, TOP_LEVEL) {
                self.mark_broken(tenant, name, STILL_STOPPING.to_owned(), RETRY_AFTER);
            }
            let installed = &self.state(tenant).libraries[name];
            if installed.broken.is_some() {
                continue;
            }
            let (source, first_id) = (Arc::clone(&installed.source), installed.first_id);
            match self.evaluate(tenant, context, name, &source, first_id) {
                Ok(_) => {}
                Err(Stop::Fault(reason)) => self.mark_broken(tenant, name, reason, RETRY_AFTER),
                Err(stop) => return Some((index, stop)),
            }
        }
        None
    }

    fn adopt_context(&mut self, tenant: Tenant, context: *mut ffi::RawContext) {
        self.state(tenant).context = context;
        self.alive.push(tenant.0);
    }

    fn mark_broken(&mut self, tenant: Tenant, name: &str, reason: String, pause: Duration) {
        let state = self.state(tenant);
        state.degraded = true;
        if let Some(library) = state.libraries.get_mut(name) {
            library.broken = Some((reason, Instant::now() + pause.max(RETRY_AFTER)));
        }
    }

    /// Compiles and evaluates a module in `context` under the watchdog's eye; its functions.
    pub(crate) fn evaluate(
        &mut self,
        tenant: Tenant,
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
        self.isolate.watchdog().watch.set_names(|names| {
            names.ids.clear();
            names.module = Some((state, name.into()));
        });
        self.isolate.watchdog().watch.call_ms.store(self.limits.load_ms, SeqCst);
        self.isolate.watchdog().wake();
        if let Some(starts) = &mut self.starts {
            starts.begins(name, source);
        }
        self.isolate.io.state().store(state, SeqCst); // SYNC(call-state)
        let install = Install { context, name: name.to_owned(), source: source.into(), first_id };
        let entered = self.isolate.enter(Entry::Install(Box::new(install)));
        if let Some(starts) = &mut self.starts {
            starts.ended(name);
        }
        let found = match entered {
            Entered::Back(Outcome::Installed(found)) => found,
            Entered::Back(Outcome::Ran(_)) => unreachable!("a module was to be installed"),
            Entered::Lost(grave) => {
                let stuck = (tenant, name.to_owned(), TOP_LEVEL.to_owned());
                return Err(Stop::Lost(self.lose_isolate(state, &grave, stuck)));
            }
        };
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
    pub(crate) fn recovered(&mut self, stop: Stop) -> String {
        match stop {
            Stop::Fault(reason) => reason,
            Stop::Terminated(state) => {
                let cause = self.isolate.recover(state);
                self.stopped_module(cause)
            }
            Stop::Lost(cause) => self.stopped_module(cause),
        }
    }

    fn stopped_module(&mut self, cause: Cause) -> String {
        self.count_stop(cause);
        let mut found = ffi::Fault::new();
        found.kind = ffi::FAULT_TERMINATED;
        fault::module(&found, "", cause, &self.limits)
    }
}

/// Why an evaluation did not end well.
pub(crate) enum Stop {
    Fault(String),
    /// The number of the call; `Isolate::recover` is due.
    Terminated(i32),
    /// It went with its isolate.
    Lost(Cause),
}

/// A host without its lifetime; the caller takes it out of the bridge before it ends.
pub(crate) fn erase(host: &mut dyn Host) -> std::ptr::NonNull<dyn Host> {
    let host: std::ptr::NonNull<dyn Host + '_> = host.into();
    // SAFETY: only the lifetime in the type changes.
    unsafe { std::mem::transmute::<_, std::ptr::NonNull<dyn Host>>(host) }
}
