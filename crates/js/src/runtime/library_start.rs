//! Starts libraries: compiles a module and runs its top level in a context. That is done in a
//! scratch context to check it, then in the tenant's context when it is installed, and in each
//! later one right before the first call that needs it: nobody waits for a library of somebody
//! else.
//!
//! A start has a limit of its own, that of loading. A library whose start takes longer than a call
//! may, or fails, is left alone for a while then: the calls of others wait for it during a small
//! part of the shard's time.
//!
//! Belongs to the runtime's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::caller::fcall::Tenant;
use crate::caller::host_trait::{Host, Level, Write};
use crate::error_reply::Cause;
use crate::fiber::Entered;
use crate::fiber::user_code::{Entry, Install, Outcome};
use crate::isolate::lingering;
use crate::isolate::lingering::{STILL_STOPPING, TOP_LEVEL};
use crate::library::Function;
use crate::runtime::Runtime;
use crate::{error_reply, ffi, io};

/// A library that did not start is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// One whose start takes longer than a call may is started again after so many times what it took.
const REST_SHARE: u32 = 20;

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
    /// The tenant's context, made if it has none; the least recently used context goes if there are
    /// too many.
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
            return Ok(state.context);
        }
        let arenas = state.keyspace.arenas()?;
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

    /// Starts a library in the tenant's context, or tells why not. One that has to be stopped costs
    /// that context.
    pub(crate) fn start_library(
        &mut self,
        tenant: Tenant,
        context: *mut ffi::RawContext,
        name: &str,
    ) -> Result<(), String> {
        if self.lingers(tenant, name, TOP_LEVEL) {
            return Err(STILL_STOPPING.to_owned());
        }
        let installed = &self.state(tenant).libraries[name];
        if let Some((until, reason)) = &installed.rests
            && Instant::now() < *until
        {
            return Err(reason.clone());
        }
        let (source, first_id) = (Arc::clone(&installed.source), installed.first_id);
        self.isolate.make_room(); // what others left is no time of this start
        let watch = Arc::clone(&self.isolate.watchdog().watch);
        let begun_ns = watch.cpu_ns();
        let started = self.evaluate(tenant, context, name, &source, first_id);
        let took = Duration::from_nanos(watch.cpu_ns().saturating_sub(begun_ns));
        let result = match started {
            Ok(_) => {
                self.state(tenant).has_started(name);
                Ok(())
            }
            Err(stop) => {
                if !matches!(stop, Stop::Fault(_)) {
                    self.drop_context(tenant); // its heap may be full
                }
                let reason = self.recovered(stop);
                tracing::warn!(library = name, %reason, "a library does not start");
                Err(reason)
            }
        };
        let rests =
            self.rest(took, &result).map(|(pause, reason)| (Instant::now() + pause, reason));
        if let Some(installed) = self.state(tenant).libraries.get_mut(name) {
            installed.rests = rests;
        }
        result
    }

    /// How long a library isn't started again after a start that took so long, and why.
    fn rest(&self, took: Duration, result: &Result<(), String>) -> Option<(Duration, String)> {
        let pause = took * REST_SHARE;
        let call_ms = self.limits.call_ms;
        match result {
            Err(reason) => Some((pause.max(RETRY_AFTER), reason.clone())),
            Ok(()) if took <= Duration::from_millis(call_ms) => None,
            Ok(()) => {
                let reason = format!(
                    "its last start took {} ms, more than the {call_ms} ms of a call, so the next one \
                     waits for {} ms; try again later (setting: function-time-limit-ms)",
                    took.as_millis(),
                    pause.as_millis()
                );
                Some((pause, reason))
            }
        }
    }

    /// Compiles and evaluates a module in `context` under the watchdog's eye; its functions. There
    /// is to be room: see [`crate::isolate::Isolate::make_room`].
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
            return Err(Stop::Fault(error_reply::module(&found, name, Cause::Time, &self.limits)));
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

    /// The reason of a failed evaluation; the isolate can run again. The context must be gone if
    /// the evaluation was stopped.
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
        error_reply::module(&found, "", cause, &self.limits)
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
