//! Starts of libraries that are stopped at a chosen moment, and at any moment.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Runtime;
use super::library_start::FailedStart;
use crate::caller::fcall::Tenant;
use crate::io::Io;
use crate::stop::agreement::{self, Word, Words};
use crate::{FunctionLimits, Mapping, ffi};

/// An arena with nothing in it.
static NO_ARENA: [u64; 512] = [0; 512];

/// A live isolate and its io memory.
#[derive(Clone, Copy)]
struct Target(Io, *mut ffi::RawIsolate);
// SAFETY: used for `nigh_terminate` alone, which any thread may call.
unsafe impl Send for Target {}

impl Target {
    fn of(runtime: &Runtime) -> Target {
        Target(runtime.isolate.io, runtime.isolate.raw())
    }

    /// The running call, or 0.
    fn call(self) -> i32 {
        self.0.load(Word::State)
    }

    /// Stops the running call, as the watchdog does.
    fn stop(self, call: i32) {
        // SAFETY: a live isolate.
        agreement::stop(&self.0, call, || unsafe { ffi::nigh_terminate(self.1) });
    }
}

/// `v8::PromiseHookType::kInit`.
const PROMISE_MADE: i32 = 0;

type PromiseHook = extern "C" fn(i32, *const c_void, *const c_void);

unsafe extern "C" {
    /// `v8::Isolate::SetPromiseHook`: V8 calls the hook where it makes a promise, among others.
    #[link_name = "_ZN2v87Isolate14SetPromiseHookEPFvNS_15PromiseHookTypeENS_5LocalINS_7PromiseEEENS2_INS_5ValueEEEE"]
    fn set_promise_hook(isolate: *mut c_void, hook: PromiseHook);
}

thread_local! {
    /// The running call of this one stops where V8 makes a promise, after so many others.
    static STOPS: Cell<Option<(Target, u32)>> = const { Cell::new(None) };
}

extern "C" fn on_promise(kind: i32, _: *const c_void, _: *const c_void) {
    if kind != PROMISE_MADE {
        return;
    }
    match STOPS.take() {
        Some((target, 0)) => target.stop(target.call()),
        stops => STOPS.set(stops.map(|(target, others)| (target, others - 1))),
    }
}

/// A runtime whose watchdog stops nothing.
fn runtime() -> (Runtime, Tenant) {
    let limits = FunctionLimits { call_ms: 60_000, load_ms: 60_000, ..FunctionLimits::default() };
    let mut runtime = Runtime::new(limits).unwrap();
    // SAFETY: the words live for good; an arena of zeros is empty.
    let mapping =
        unsafe { Mapping::new(NO_ARENA.as_ptr().cast(), size_of_val(&NO_ARENA), Arc::new(())) };
    let tenant = runtime.open_tenant(mapping);
    (runtime, tenant)
}

fn library(top: &str) -> Vec<u8> {
    format!("#!js name=t\n{top}\nexport const f = () => 1;").into_bytes()
}

#[test]
fn a_start_that_is_stopped_while_v8_begins_its_module_ends_alone() {
    // V8 looks for a stop when it begins to evaluate a module, makes a promise, and looks again. If
    // the stop came in between, an assertion of V8's ended the process. For a top-level await, V8
    // makes another promise and calls its `then`, which looks too: there was a second assertion.
    let (mut runtime, tenant) = runtime();
    let target = Target::of(&runtime);
    // SAFETY: the first field of the shim's isolate is V8's.
    let inner = unsafe { *target.1.cast::<*mut c_void>() };
    // SAFETY: a live isolate, on its thread.
    unsafe { set_promise_hook(inner, on_promise) };
    let tops =
        [("", 1), ("for (;;);", 1), ("throw 1;", 1), ("await 0;", 3), ("await 0; for (;;);", 3)];
    for (top, promises) in tops {
        for others in 0..promises {
            STOPS.set(Some((target, others)));
            let error = runtime.load(tenant, &library(top)).unwrap_err().to_string();
            assert!(STOPS.take().is_none(), "{top}: V8 makes {others} promises");
            assert!(error.contains("function-load-limit-ms"), "{top}, promise {others}: {error}");
            runtime.load(tenant, &library("")).unwrap();
        }
    }
}

/// For so long, starts are stopped at random.
const ROUNDS: Duration = Duration::from_secs(1);
/// Most time between the begin of a start and its stop: a bit more than a start takes.
const STOP_AFTER_NS: u64 = 150_000;

/// Until `over`, stops the running call again and again, each time after another while.
fn stop_at_random(target: Target, over: &AtomicBool) {
    let mut random: u64 = 88_172_645_463_325_252;
    while !over.load(Ordering::Relaxed) {
        let call = target.call();
        if call == 0 {
            std::thread::yield_now();
            continue;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (begun, wait) = (Instant::now(), Duration::from_nanos(random % STOP_AFTER_NS));
        while begun.elapsed() < wait {
            std::hint::spin_loop();
        }
        target.stop(call);
        while target.call() == call && !over.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn starts_that_are_stopped_at_any_moment_end_alone() {
    // The moments of V8's compiler, of its microtasks, and of the prelude.
    let tops = [
        "",
        "for (let i = 0; i < 100; i++) ({});",
        "throw 1;",
        "await 0; await Promise.reject(1);",
        "await 0; (function f() { f(); })();",
        "let n = 1n << 20000n; n = n * n / 3n;",
        "export const g = () => 2; g.flags = { get length() { return 0; } };",
    ];
    let (mut runtime, tenant) = runtime();
    let target = Target::of(&runtime);
    let over = Arc::new(AtomicBool::new(false));
    let stopper = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || stop_at_random(target, &over))
    };
    let arena = ffi::RawArena {
        base: NO_ARENA.as_ptr().cast(),
        length: size_of_val(&NO_ARENA),
        foreign: false,
    };
    let mut context: *mut ffi::RawContext = null_mut();
    let (mut ended, mut stopped) = (0, 0);
    let begun = Instant::now();
    for top in tops.iter().cycle() {
        if begun.elapsed() > ROUNDS {
            break;
        }
        if context.is_null() {
            context = runtime.isolate.new_context(std::slice::from_ref(&arena));
        }
        match runtime.evaluate(tenant, context, "t", &library(top), 0) {
            Ok(_) | Err(FailedStart::Fault(_)) => ended += 1,
            Err(stop) => {
                runtime.isolate.free_context(std::mem::replace(&mut context, null_mut()));
                runtime.recovered(stop);
                stopped += 1;
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    stopper.join().unwrap();
    assert!(ended > 0 && stopped > 0, "{ended} ended, {stopped} stopped");
    runtime.load(tenant, &library("")).unwrap();
}
