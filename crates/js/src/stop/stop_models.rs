//! Models: loom runs the functions of agreement.rs in every order that the memory model allows.
//!
//! [`run`] repeats the call's side in JavaScript: a plain store of STATE, and a plain load of KILL.
//! loom has no membarrier, which makes a full barrier on the call's thread wherever that thread is.
//! So the model has a barrier on each side, the call's between its two accesses. (The other two
//! places need none: after a barrier before both, the load sees KILL; with one after both, the
//! watchdog sees the store.)

use super::agreement::{Word, Words, forget, settle, stop};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicI32, Ordering, fence};
use loom::thread;

/// The words, and whether V8 has a termination, which hits the next JavaScript.
pub(crate) struct ModelWords {
    words: [AtomicI32; 3],
    terminates: AtomicBool,
    /// HEAP_HIT. Only the call's thread uses it, so loom needn't know it.
    heap_hit: std::sync::atomic::AtomicI32,
}

impl ModelWords {
    pub(crate) fn new() -> Arc<ModelWords> {
        let words = [AtomicI32::new(0), AtomicI32::new(0), AtomicI32::new(0)];
        let heap_hit = std::sync::atomic::AtomicI32::new(0);
        Arc::new(ModelWords { words, terminates: AtomicBool::new(false), heap_hit })
    }

    pub(crate) fn word(&self, word: Word) -> &AtomicI32 {
        &self.words[word as usize]
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.terminates.load(Ordering::Acquire)
    }
}

impl ModelWords {
    /// Does the same as Isolate::recover after call `k` was stopped.
    pub(crate) fn recover(&self, k: i32) {
        let is_full = self.heap_hit.swap(0, Ordering::Relaxed) == k;
        self.store(Word::State, 0);
        let is_killed = !settle(self, k);
        assert!(is_full || is_killed, "call {k} was stopped, but nothing stops it");
        assert!(self.is_hit(), "the termination is here before it is taken back");
        forget(self);
        self.terminates.store(false, Ordering::Release);
    }

    /// Does the same as OnNearHeapLimit in the shim, on the call's thread.
    fn fill_heap(&self, k: i32) {
        self.heap_hit.store(k, Ordering::Relaxed);
        self.terminates.store(true, Ordering::Release);
    }
}

impl Words for ModelWords {
    fn load(&self, word: Word) -> i32 {
        self.word(word).load(Ordering::SeqCst)
    }
    fn store(&self, word: Word, value: i32) {
        self.word(word).store(value, Ordering::SeqCst);
    }
    fn barrier(&self) -> bool {
        fence(Ordering::SeqCst);
        true
    }
    fn pause(&self) {
        thread::yield_now();
    }
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Committed,
    Stopped,
}

/// V8 runs call `k` as 06_dispatch.js does; user code sees a termination at one moment. Returns
/// whether the call was stopped.
pub(crate) fn run(shared: &ModelWords, k: i32, user_code: impl FnOnce()) -> bool {
    run_with_tail(shared, k, user_code, || ())
}

/// The same; `tail` is the code behind that moment.
fn run_with_tail(
    shared: &ModelWords,
    k: i32,
    user_code: impl FnOnce(),
    tail: impl FnOnce(),
) -> bool {
    shared.word(Word::State).store(k, Ordering::Relaxed);
    user_code();
    if shared.is_hit() {
        return true;
    }
    tail();
    shared.word(Word::State).store(0, Ordering::Relaxed);
    fence(Ordering::SeqCst); // the watchdog's
    let is_full = shared.heap_hit.load(Ordering::Relaxed) == k;
    is_full || shared.word(Word::Kill).load(Ordering::Relaxed) == k && !settle(shared, k)
}

/// Call `k` on the runtime's thread.
fn call(shared: &ModelWords, k: i32) -> End {
    if run(shared, k, || ()) {
        shared.recover(k);
        return End::Stopped;
    }
    assert!(!shared.is_hit(), "a termination hits the commit of call {k}");
    End::Committed
}

/// The watchdog finds that the time of call `k` is over.
pub(crate) fn look(shared: &ModelWords, k: i32) {
    if shared.load(Word::State) == k {
        stop(shared, k, || shared.terminates.store(true, Ordering::Release));
    }
}

#[test]
fn a_termination_hits_its_call_or_does_not_happen() {
    // The time of call 1 is over at any of its steps; call 2 follows at once. A termination would
    // hit call 2 or a commit without the watchdog's second look at STATE, without the call's wait
    // for a late kill, or without the barrier.
    let ends = std::sync::Arc::new(std::sync::Mutex::new([0, 0]));
    let seen = std::sync::Arc::clone(&ends);
    loom::model(move || {
        let shared = ModelWords::new();
        let watchdog = Arc::clone(&shared);
        let watchdog = thread::spawn(move || look(&watchdog, 1));
        let end = call(&shared, 1);
        assert_eq!(call(&shared, 2), End::Committed, "call 2 was not to be stopped");
        watchdog.join().unwrap();
        assert!(!shared.is_hit(), "a termination is left");
        assert_eq!(shared.load(Word::Kill), 0, "a kill is left");
        seen.lock().unwrap()[usize::from(end == End::Stopped)] += 1;
    });
    let [committed, stopped] = *ends.lock().unwrap();
    assert!(committed > 0 && stopped > 0, "{committed} orders committed, {stopped} stopped");
}

#[test]
fn a_call_that_fills_the_heap_by_its_last_allocation_is_stopped_itself() {
    // V8 looks for its termination no more in the call. The call's time is over too, at any of its
    // steps.
    loom::model(|| {
        let shared = ModelWords::new();
        let watchdog = Arc::clone(&shared);
        let watchdog = thread::spawn(move || look(&watchdog, 1));
        assert!(run_with_tail(&shared, 1, || (), || shared.fill_heap(1)), "its commit is hit");
        shared.recover(1);
        assert_eq!(call(&shared, 2), End::Committed, "call 2 was not to be stopped");
        watchdog.join().unwrap();
        assert!(!shared.is_hit(), "a termination is left");
    });
}

#[test]
fn a_library_that_is_evaluated_ends_as_a_call_does() {
    // Around the top level of a library, Rust stores STATE and settles it.
    loom::model(|| {
        let shared = ModelWords::new();
        let watchdog = Arc::clone(&shared);
        let watchdog = thread::spawn(move || look(&watchdog, 1));
        shared.store(Word::State, 1);
        let was_hit = shared.is_hit();
        shared.store(Word::State, 0);
        fence(Ordering::SeqCst);
        let is_free = settle(&*shared, 1);
        assert!(!(was_hit && is_free), "it was stopped");
        forget(&*shared);
        assert_eq!(shared.is_hit(), !is_free);
        shared.terminates.store(false, Ordering::Release);
        assert_eq!(call(&shared, 2), End::Committed);
        watchdog.join().unwrap();
        assert!(!shared.is_hit());
    });
}
