//! Fibers: a shard's code has a stack of its own, so that a call that V8 can't stop doesn't hold
//! it.
//!
//! ```text
//!                 carrier 1 (a thread)                          carrier 2
//! fiber's stack   turn ── enter ┐              ┌ Lost ── turn ── enter ┐     ┌ turn …
//! thread's stack                └ V8 … stuck … │ … ends, frees its     └ V8 ─┘
//!                                              │ isolate, exits
//! watchdog                                 seizes
//! ```
//!
//! The fiber runs on a *carrier*: a thread, on whose own stack V8 runs, since V8 keeps its state in
//! thread-local memory and measures its stack. While user code runs, the fiber lies in the *baton*.
//! Usually the carrier takes it from there when V8 returns, and goes on. If V8 doesn't return after
//! it was told to stop, the watchdog seizes the fiber and hands it to a new carrier; there `enter`
//! returns [`Entered::Lost`]. The old carrier keeps the isolate that its call is stuck in, gets
//! what else belongs to that one as a [`Wreck`], and frees all when V8 returns.
//!
//! Invariants
//! 1. The fiber runs on one thread at a time: who takes it from the baton (baton.rs), under its
//!    lock, has it alone. What it wrote on one carrier is seen on the next, by that lock.
//! 2. An entry into user code owns all that it points to, but for memory of the isolate: the
//!    fiber's stack and what hangs on it may change once the fiber is lost.
//! 3. User code reaches the fiber's host only while it holds the baton ([`Shared::hold`]), and only
//!    if the fiber still waits for this very entry.
//! 4. No frame of the fiber keeps an address of thread-local memory across an entry.
//! 5. At most [`LINGERING_MAX`](baton::LINGERING_MAX) carriers of a fiber linger. While they do, its
//!    runtime enters no user code (lingering.rs).

pub(crate) mod baton;
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
use crate::fiber::baton::Baton;
use crate::fiber::user_code::{Entry, Outcome};

/// Their priority: a tenth of the shard's share of the core. With less they would stay for minutes
/// on a busy one.
const LINGERING_NICE: i32 = 10;
/// Stack of a fiber, bytes: what a shard needs without V8, several times over.
const FIBER_STACK_BYTES: usize = 2 << 20;

/// What belongs to an isolate that its fiber has lost: the old carrier drops it.
pub(crate) type Wreck = Box<dyn Send>;

/// What a fiber asks its carrier to do.
enum Job {
    /// Call this on the carrier's stack; the fiber waits and is nobody else's.
    Native(NonNull<dyn FnMut()>),
    /// Run user code.
    User(u64, Entry),
}

/// What the carrier says.
enum Answer {
    Start,
    Done,
    Back(Outcome),
    Lost(Sender<Wreck>),
}

/// How an entry into user code ended.
pub(crate) enum Entered {
    Back(Outcome),
    /// It didn't: the isolate is its old carrier's from now on, who waits for the rest.
    Lost(Sender<Wreck>),
}

/// The fiber, while nothing of it runs.
struct Body(Coroutine<Answer, Job, (), DefaultStack>);

// SAFETY: what lies on the fiber's stack is used by one thread at a time (invariant 1), and none of
// it is bound to a thread but the isolate, which stays behind (`Wreck`).
unsafe impl Send for Body {}

/// What a fiber, its carriers and its watchdogs share.
pub(crate) struct Shared {
    name: String,
    stack_bytes: usize,
    baton: Mutex<Baton<Body>>,
    done: SyncSender<bool>,
}

/// Waits for a fiber's end.
pub struct Join(Receiver<bool>);

impl Join {
    /// Blocks until the fiber has ended; false if it did by a panic.
    #[must_use]
    pub fn join(self) -> bool {
        self.0.recv().unwrap_or(false)
    }
}

/// The fiber, as the code on it sees it. A [`Runtime`](crate::Runtime) that is made with it loses
/// no more than its isolate to a function that can't be stopped.
pub struct Fiber {
    yielder: NonNull<Yielder<Answer, Job>>,
    shared: Arc<Shared>,
}

impl Fiber {
    /// Starts a fiber on a new thread, which has `stack_bytes` for V8.
    ///
    /// # Errors
    /// If the system gives no thread or memory.
    pub fn spawn(
        name: &str,
        stack_bytes: usize,
        body: impl FnOnce(Fiber) + Send + 'static,
    ) -> io::Result<Join> {
        let (done, join) = mpsc::sync_channel(1);
        let baton = Mutex::default();
        let shared = Arc::new(Shared { name: name.to_owned(), stack_bytes, baton, done });
        let stack = DefaultStack::new(FIBER_STACK_BYTES)?;
        let own = Arc::clone(&shared);
        let coroutine = Coroutine::with_stack(stack, move |yielder, _: Answer| {
            body(Fiber { yielder: NonNull::from(yielder), shared: own });
        });
        // It waits for it.
        let _ = shared.carrier()?.send((Body(coroutine), None));
        Ok(Join(join))
    }

    /// Calls `f` on the carrier's stack, where V8 may run trusted code. Not to be called by `f`.
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
    pub(crate) fn enter(&self, number: u64, entry: Entry) -> Entered {
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

    pub(crate) fn shared(&self) -> &Arc<Shared> {
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

impl Shared {
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

    /// A carrier's life.
    fn execute(self: Arc<Self>, mut body: Body, mut answer: Answer) {
        let carrier = rustix::thread::gettid().as_raw_nonzero().get();
        loop {
            let resumed = catch_unwind(AssertUnwindSafe(|| body.0.resume(answer)));
            match resumed {
                Ok(CoroutineResult::Yield(Job::Native(mut call))) => {
                    // SAFETY: the fiber waits until this has been called, and keeps it so long.
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
                    // Nobody may wait for it any more.
                    let _ = self.done.try_send(ended.is_ok());
                    return;
                }
            }
        }
    }

    /// The carrier has lost the fiber, and V8 has returned: frees what it was left with.
    fn bury(&self, number: u64) {
        let grave = self.lock().grave(number);
        // Without a wreck the fiber has ended before it could leave one; what V8 has taken is lost
        // then.
        if let Some(Ok(wreck)) = grave.map(|grave| grave.recv()) {
            drop(wreck);
        }
        self.lock().buried();
    }

    /// Lets a callback of entry `number` use the fiber's host, while the result lives; `None` if
    /// the fiber is lost to it.
    pub(crate) fn hold(&self, number: u64) -> Option<impl Sized + '_> {
        let baton = self.lock();
        baton.holds(number).then_some(baton)
    }

    /// Takes the fiber from entry `number` and gives it another carrier, right after `mark`. False
    /// if the entry has ended, `stuck` says no, too many carriers linger already, or the system
    /// gives no thread.
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
        // SAFETY: no preconditions; of a thread that is gone the kernel says so, and does nothing.
        unsafe { ffi::nigh_thread_lower(old, LINGERING_NICE) };
        // It waits for it.
        let _ = carrier.send((body, Some(wreck)));
        true
    }
}
