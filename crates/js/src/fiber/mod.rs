//! Fibers: a shard's code has a stack of its own, so that it can leave a call that V8 can't stop.
//!
//! ```text
//!                 carrier 1 (a thread)                          carrier 2
//! fiber's stack   turn ── enter ┐              ┌ Lost ── turn ── enter ┐     ┌ turn …
//! thread's stack                └ V8 … stuck … │ … ends, frees its     └ V8 ─┘
//!                                              │ isolate, exits
//! watchdog                                 seizes
//! ```
//!
//! The fiber runs on a *carrier*: a thread. V8 runs on the thread's own stack, since it keeps its
//! state in thread-local memory and measures its stack. While user code runs, the fiber is in the
//! *baton* (baton.rs). Usually the carrier takes it back when V8 returns, and goes on. If V8
//! doesn't return after a termination, the watchdog seizes the fiber and hands it to a new carrier;
//! there `enter` returns [`Entered::Lost`]. The old carrier keeps the isolate in which its call is
//! stuck, gets all else that belongs to the isolate as a [`Wreck`], and frees it when V8 returns.
//!
//! 1. The fiber runs on one thread at a time: the thread that takes it from the baton, under the
//!    baton's lock, has it alone. That lock shows the new carrier all that the fiber wrote before.
//! 2. An entry into user code owns all that it points to, except for memory of the isolate: the
//!    fiber's stack may change once the fiber is lost.
//! 3. User code reaches the fiber's host only while it holds the baton ([`FiberShared::hold`]), and
//!    only if the fiber still waits for this very entry.
//! 4. No frame of the fiber keeps an address of thread-local memory across an entry.
//! 5. At most [`LINGERING_MAX`] carriers of a fiber linger. While so many do, its runtime enters no
//!    user code (isolate/lingering.rs).
//!
//! [`Fiber`] belongs to the code on the fiber, [`FiberShared`] to any thread.

mod baton;
pub(crate) mod user_code;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::ffi;

use baton::Baton;
use user_code::{UserCode, UserOutcome};

pub(crate) use baton::{LINGERING_MAX, Wreck};

/// Nice value of a lingering carrier: a tenth of the shard's share of the core. With less it would
/// linger for minutes on a busy core.
const LINGERING_NICE: i32 = 10;
/// Stack of a fiber, bytes: several times the need of a shard without V8.
const FIBER_STACK_BYTES: usize = 2 << 20;

/// A task of the fiber for its carrier.
enum Job {
    /// Call this on the carrier's stack; the fiber waits, and no one seizes it.
    Native(NonNull<dyn FnMut()>),
    /// Run user code.
    User(u64, UserCode),
}

/// The carrier's answer to a task.
enum Answer {
    Start,
    Done,
    Back(UserOutcome),
    Lost(Sender<Wreck>),
}

/// How an entry into user code ended.
pub(crate) enum Entered {
    Back(UserOutcome),
    /// It didn't end. The isolate belongs to its old carrier from now on, which waits for the
    /// wreck.
    Lost(Sender<Wreck>),
}

/// The fiber, while nothing of it runs.
struct Body(Coroutine<Answer, Job, (), DefaultStack>);

// SAFETY: one thread at a time uses the fiber's stack (invariant 1). Of all on it, only the isolate
// is bound to a thread, and it stays behind (`Wreck`).
unsafe impl Send for Body {}

/// The part of a fiber that its carriers and watchdogs share.
pub(crate) struct FiberShared {
    name: String,
    stack_bytes: usize,
    baton: Mutex<Baton<Body>>,
    done: SyncSender<bool>,
}

/// Waits for a fiber's end.
pub struct FiberJoin(Receiver<bool>);

impl FiberJoin {
    /// Blocks until the fiber has ended; false if it did by a panic.
    #[must_use]
    pub fn join(self) -> bool {
        self.0.recv().unwrap_or(false)
    }
}

/// The fiber, for the code on it. A [`Runtime`](crate::Runtime) that is made with it loses only its
/// isolate to a function that can't be stopped.
pub struct Fiber {
    yielder: NonNull<Yielder<Answer, Job>>,
    shared: Arc<FiberShared>,
}

impl Fiber {
    /// Starts a fiber on a new thread, which has `stack_bytes` for V8.
    ///
    /// # Errors
    /// If the system has no thread or memory for it.
    pub fn spawn(
        name: &str,
        stack_bytes: usize,
        body: impl FnOnce(Fiber) + Send + 'static,
    ) -> io::Result<FiberJoin> {
        let (done, join) = mpsc::sync_channel(1);
        let baton = Mutex::default();
        let shared = Arc::new(FiberShared { name: name.to_owned(), stack_bytes, baton, done });
        let stack = DefaultStack::new(FIBER_STACK_BYTES)?;
        let own = Arc::clone(&shared);
        let coroutine = Coroutine::with_stack(stack, move |yielder, _: Answer| {
            body(Fiber { yielder: NonNull::from(yielder), shared: own });
        });
        // The carrier waits for it.
        let _ = shared.carrier()?.send((Body(coroutine), None));
        Ok(FiberJoin(join))
    }

    /// Calls `f` on the carrier's stack, where V8 may run trusted code. `f` must not call this.
    pub(crate) fn native<R>(&self, f: impl FnOnce() -> R) -> R {
        let mut f = Some(f);
        let mut result = None;
        let mut call = || {
            let f = f.take().expect("called once");
            result = Some(catch_unwind(AssertUnwindSafe(f)));
        };
        let call: &mut dyn FnMut() = &mut call;
        // SAFETY: only the lifetime in the type changes; the carrier calls it before `suspend`
        // returns.
        let call: &mut (dyn FnMut() + 'static) = unsafe { std::mem::transmute(call) };
        let _ = self.suspend(Job::Native(NonNull::from(call)));
        result.expect("the carrier has called it").unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs user code on the carrier's stack.
    pub(crate) fn enter(&self, number: u64, entry: UserCode) -> Entered {
        match self.suspend(Job::User(number, entry)) {
            Answer::Back(outcome) => Entered::Back(outcome),
            Answer::Lost(grave) => Entered::Lost(grave),
            Answer::Start | Answer::Done => unreachable!("no answer to an entry"),
        }
    }

    /// A new number for an entry.
    pub(crate) fn number(&self) -> u64 {
        self.shared.lock().number()
    }

    pub(crate) fn shared(&self) -> &Arc<FiberShared> {
        &self.shared
    }

    /// Invariant 4: a frame of its own, so that nothing is inlined around the change of threads.
    #[inline(never)]
    fn suspend(&self, job: Job) -> Answer {
        // SAFETY: the yielder lives as long as the fiber's stack, on which the caller is.
        let yielder = unsafe { self.yielder.as_ref() };
        yielder.suspend(job)
    }
}

impl FiberShared {
    fn lock(&self) -> MutexGuard<'_, Baton<Body>> {
        self.baton.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new carrier, which waits for its fiber.
    fn carrier(self: &Arc<Self>) -> io::Result<Sender<(Body, Option<Sender<Wreck>>)>> {
        let (give, take) = mpsc::channel::<(Body, Option<Sender<Wreck>>)>();
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name(self.name.clone()).stack_size(self.stack_bytes);
        builder.spawn(move || {
            if let Ok((body, grave)) = take.recv() {
                shared.execute(body, grave.map_or(Answer::Start, Answer::Lost));
            }
        })?;
        Ok(give)
    }

    /// A carrier runs the fiber, until the fiber ends or is lost.
    fn execute(self: Arc<Self>, mut body: Body, mut answer: Answer) {
        let carrier = rustix::thread::gettid().as_raw_nonzero().get();
        loop {
            let resumed = catch_unwind(AssertUnwindSafe(|| body.0.resume(answer)));
            match resumed {
                Ok(CoroutineResult::Yield(Job::Native(mut call))) => {
                    // SAFETY: the fiber waits until this call has ended, and keeps it alive.
                    let call = unsafe { call.as_mut() };
                    call();
                    answer = Answer::Done;
                }
                Ok(CoroutineResult::Yield(Job::User(number, entry))) => {
                    self.lock().lend(number, body, carrier);
                    let outcome = entry.perform();
                    let own = self.lock().regain(number);
                    let Some(own) = own else { return self.bury(number) };
                    body = own;
                    answer = Answer::Back(outcome);
                }
                ended => {
                    drop(body);
                    // `FiberJoin` may be gone.
                    let _ = self.done.try_send(ended.is_ok());
                    return;
                }
            }
        }
    }

    /// The carrier has lost the fiber, and V8 has returned: frees the wreck.
    fn bury(&self, number: u64) {
        let grave = self.lock().grave(number);
        // No wreck comes if the fiber ended before it could leave one. Then V8's memory is lost.
        if let Some(Ok(wreck)) = grave.map(|grave| grave.recv()) {
            drop(wreck);
        }
        self.lock().buried();
    }

    /// Lets a callback of entry `number` use the fiber's host while the result lives; `None` if the
    /// entry has lost the fiber.
    pub(crate) fn hold(&self, number: u64) -> Option<impl Sized + '_> {
        let baton = self.lock();
        baton.holds(number).then_some(baton)
    }

    /// Takes the fiber from entry `number`, calls `mark`, and gives the fiber another carrier.
    /// False if the entry has ended, `stuck` says no, too many carriers linger, or the system has
    /// no thread.
    pub(crate) fn seize(
        self: &Arc<Self>,
        number: u64,
        stuck: impl FnOnce() -> bool,
        mark: impl FnOnce(),
    ) -> bool {
        let mut baton = self.lock();
        if !baton.may_seize(number, stuck) {
            return false;
        }
        let Ok(carrier) = self.carrier() else { return false };
        let (wreck, grave) = mpsc::channel();
        let Some((body, old)) = baton.seize(grave) else { return false };
        mark();
        // SAFETY: no preconditions; if the thread is gone, the kernel does nothing.
        unsafe { ffi::nigh_thread_lower(old, LINGERING_NICE) };
        // The new carrier waits for it.
        let _ = carrier.send((body, Some(wreck)));
        true
    }
}
