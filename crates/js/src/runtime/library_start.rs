//! Starts libraries: compiles a module and runs its top level in a context.
//!
//! 1. A library starts three times over: in a scratch context, which checks it; in the tenant's
//!    context when it is installed; and in each later context right before the first call that
//!    needs it. So no call waits for a library that it doesn't need.
//! 2. A start has a time limit of its own, that of loading.
//! 3. Each start has a random seed of its own, so no two of them draw the same numbers, nor does a
//!    call draw those of a start.
//! 4. A library whose exports are others than those it was loaded with doesn't start: calls know
//!    its functions by their numbers, in the order of loading.
//! 5. After a start that failed, or that took longer than a call may, the library rests. So the
//!    calls of others wait for it during a small part of the shard's time only.
//!
//! The runtime's thread.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::Runtime;
use crate::caller::fcall::Tenant;
use crate::caller::host_trait::{CallWrite, Host, Level};
use crate::fiber::Entered;
use crate::fiber::user_code::{Install, UserCode, UserOutcome};
use crate::io::results::installed_functions;
use crate::isolate::lingering::{CallName, TOP_LEVEL};
use crate::library::Function;
use crate::stop::cause::Cause;
use crate::{error_reply, ffi, io};

/// A library that failed to start may start again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A library whose start took longer than a call may can start again after so many times that time.
const REST_SHARE: u32 = 20;

/// Whether these are the same functions, with the same flags, in the same order.
fn are_alike(found: &[Function], loaded: &[Function]) -> bool {
    let is_same = |(a, b): (&Function, &Function)| a.name == b.name && a.flags().eq(b.flags());
    found.len() == loaded.len() && found.iter().zip(loaded).all(is_same)
}

/// A seed for `Math.random()` of one start. The standard library makes the keys of each hasher from
/// the system's randomness, and differently each time.
fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}

/// The host of a library that starts: its console goes to Nigh's own log.
struct NoHost;

impl Host for NoHost {
    fn commit(&mut self, _: &[CallWrite<'_>]) -> Result<(), String> {
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
    /// Starts a library in the tenant's context; or why it doesn't start. If it has to be stopped,
    /// the context is dropped.
    pub(super) fn start_library(
        &mut self,
        tenant: Tenant,
        context: *mut ffi::RawContext,
        name: &str,
    ) -> Result<(), String> {
        let installed = &self.tenants[tenant.0 as usize].libraries[name];
        if let Some(stuck) = self.lingering.stuck(tenant, name, TOP_LEVEL, &installed.source) {
            return Err(stuck.of_start().to_owned());
        }
        if let Some((until, reason)) = &installed.rests
            && Instant::now() < *until
        {
            return Err(reason.clone());
        }
        let (source, first_id) = (Arc::clone(&installed.source), installed.first_id);
        self.isolate.make_room(); // collecting the garbage of others is no time of this start
        let watch = Arc::clone(&self.isolate.watchdog().watch);
        let begun_ns = watch.cpu_ns();
        let started = self.evaluate(tenant, context, name, &source, first_id);
        let took = Duration::from_nanos(watch.cpu_ns().saturating_sub(begun_ns));
        let result = match started {
            Ok(found) if are_alike(&found, &self.state(tenant).libraries[name].functions) => {
                self.state(tenant).has_started(name);
                Ok(())
            }
            Ok(_) => {
                // They may lie under the numbers of other libraries' functions.
                self.drop_context(tenant);
                Err("it exports other functions, or other flags of them, than when it was loaded"
                    .to_owned())
            }
            Err(stop) => {
                if !matches!(stop, FailedStart::Fault(_)) {
                    self.drop_context(tenant); // the heap may be full of it
                }
                Err(self.recovered(stop))
            }
        };
        if let Err(reason) = &result {
            tracing::warn!(library = name, %reason, "a library does not start");
        }
        let rests =
            self.rest_after(took, &result).map(|(pause, reason)| (Instant::now() + pause, reason));
        if let Some(installed) = self.state(tenant).libraries.get_mut(name) {
            installed.rests = rests;
        }
        result
    }

    /// After a start that took so long: how long the library isn't started again, and why.
    fn rest_after(
        &self,
        took: Duration,
        result: &Result<(), String>,
    ) -> Option<(Duration, String)> {
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

    /// Compiles and evaluates a module in `context`, while the watchdog watches; the module's
    /// functions. The caller has called [`make_room`](crate::isolate::Isolate::make_room).
    pub(super) fn evaluate(
        &mut self,
        tenant: Tenant,
        context: *mut ffi::RawContext,
        name: &str,
        source: &[u8],
        first_id: u32,
    ) -> Result<Vec<Function>, FailedStart> {
        let state = self.isolate.take_states(1);
        let bridge = self.isolate.bridge();
        bridge.module = name.to_owned();
        let mut host = NoHost;
        bridge.lend(&mut host);
        self.isolate.io.set_word(io::OUT_DONE, 0);
        let seed_of_batch = self.isolate.io.wide(io::IN_SEED);
        self.isolate.io.set_wide(io::IN_SEED, random_seed());
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
        let source: Arc<[u8]> = source.into();
        let install =
            Install { context, name: name.to_owned(), source: Arc::clone(&source), first_id };
        let entered = self.isolate.enter(UserCode::Install(Box::new(install)));
        if let Some(starts) = &mut self.starts {
            starts.ended(name);
        }
        let found = match entered {
            Entered::Back(UserOutcome::Installed(found)) => found,
            Entered::Back(UserOutcome::Ran(_)) => unreachable!("a module was to be installed"),
            Entered::Lost(grave) => {
                let (library, function) = (name.to_owned(), TOP_LEVEL.to_owned());
                let stuck = CallName { tenant, library, function, source };
                let cause = self.lose_isolate(state, &grave, stuck);
                self.isolate.io.set_wide(io::IN_SEED, seed_of_batch);
                return Err(FailedStart::Lost(cause));
            }
        };
        self.isolate.io.set_wide(io::IN_SEED, seed_of_batch);
        let bridge = self.isolate.bridge();
        bridge.take_back();
        bridge.module.clear();
        let ended = self.isolate.settle(state);
        self.isolate.watchdog().watch.call_ms.store(self.limits.call_ms, SeqCst);
        if !ended || found.kind == ffi::FAULT_TERMINATED {
            return Err(FailedStart::Terminated(state));
        }
        self.isolate.relieve();
        if found.kind != ffi::FAULT_NONE {
            return Err(FailedStart::Fault(error_reply::module(
                &found,
                name,
                Cause::Time,
                &self.limits,
            )));
        }
        Ok(installed_functions(&self.isolate.io))
    }

    /// The reason of a failed evaluation; after this the isolate can run again. If the evaluation
    /// was stopped, its context must be gone.
    pub(super) fn recovered(&mut self, stop: FailedStart) -> String {
        match stop {
            FailedStart::Fault(reason) => reason,
            FailedStart::Terminated(state) => {
                let cause = self.isolate.recover(state);
                self.stopped_module(cause)
            }
            FailedStart::Lost(cause) => self.stopped_module(cause),
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
pub(super) enum FailedStart {
    /// The module is refused, for this reason.
    Fault(String),
    /// It was stopped under this number; `Isolate::recover` is due.
    Terminated(i32),
    /// It is stuck in an isolate that was lost.
    Lost(Cause),
}
