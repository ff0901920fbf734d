//! Models: loom runs the shipped functions of the baton, and those of the words STATE, KILL and
//! ISSUED, in every order that the memory model allows, up to a bound of preemptions.
//!
//! A fiber enters call 1, whose time is over, and then call 2. It runs on a carrier. Once the
//! watchdog has seized it, it runs on another carrier, with the words of a new isolate.
//! [`World::stack`] stands for the fiber's stack: the number of the entry for which it waits.

use super::Baton;
use crate::stop::agreement::is_issued;
use crate::stop::stop_models::{ModelWords, look, run};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread::{self, JoinHandle};
use std::sync::mpsc;

/// Preemptions of an order: more find nothing more, and take minutes.
const PREEMPTIONS: usize = 3;

/// The fiber, while nothing of it runs.
struct Body;

struct World {
    baton: Mutex<Baton<Body>>,
    /// The number of the newest entry, for the watchdog.
    entry: AtomicU64,
    stack: UnsafeCell<u64>,
}

/// How an entry ended, for its carrier.
enum End {
    Committed(Body),
    Stopped(Body),
    Lost,
}

impl World {
    fn new() -> Arc<World> {
        let (baton, entry) = (Mutex::new(Baton::default()), AtomicU64::new(0));
        Arc::new(World { baton, entry, stack: UnsafeCell::new(0) })
    }

    /// The fiber, which runs on this thread, enters call `k`; its carrier lends it and runs V8.
    fn enter(&self, words: &ModelWords, body: Body, k: i32) -> End {
        let number = self.baton.lock().unwrap().number();
        self.entry.store(number, Ordering::SeqCst);
        // SAFETY: a model: loom fails if another thread accesses it meanwhile.
        self.stack.with_mut(|stack| unsafe { *stack = number });
        self.baton.lock().unwrap().lend(number, body, 0);
        let is_stopped = run(words, k, || _ = self.call_back(number));
        if !is_stopped {
            assert!(self.call_back(number), "call {k} commits, and its fiber is lost");
        }
        match self.baton.lock().unwrap().regain(number) {
            Some(body) if is_stopped => End::Stopped(body),
            Some(body) => End::Committed(body),
            None => End::Lost,
        }
    }

    /// A callback of entry `number`: whether it may use the fiber's host.
    fn call_back(&self, number: u64) -> bool {
        let baton = self.baton.lock().unwrap();
        let holds = baton.holds(number);
        if holds {
            // SAFETY: as above.
            let waits_for = self.stack.with(|stack| unsafe { *stack });
            assert_eq!(waits_for, number, "a call uses the host of another one");
        }
        holds
    }

    /// The watchdog looks whether call `k` is stuck. If it is, the carrier on which the fiber goes
    /// on.
    fn seize(world: &Arc<World>, words: &ModelWords, k: i32) -> Option<JoinHandle<()>> {
        let number = world.entry.load(Ordering::SeqCst);
        let mut baton = world.baton.lock().unwrap();
        if !baton.may_seize(number, || is_issued(words, k)) {
            return None;
        }
        let (_, grave) = mpsc::channel();
        let (body, _) = baton.seize(grave).expect("it may be seized");
        drop(baton);
        let world = Arc::clone(world);
        Some(thread::spawn(move || world.go_on(&ModelWords::new(), body)))
    }

    /// The fiber enters call 2, which nothing stops.
    fn go_on(&self, words: &ModelWords, body: Body) {
        let end = self.enter(words, body, 2);
        assert!(matches!(end, End::Committed(_)), "call 2 was not to be stopped");
        // SAFETY: as above.
        self.stack.with_mut(|stack| unsafe { *stack = 0 });
    }
}

#[test]
fn a_fiber_is_seized_from_the_call_that_is_stuck_or_stays_where_it_is() {
    // Call 1 was told to stop, and ends at any moment. The fiber goes on with call 2, on its
    // carrier or on a new one, never on both. Without the watchdog's second look under the lock,
    // call 2 loses its fiber. Without a comparison of entries, the old carrier takes the fiber from
    // call 2, or a callback of call 1 uses its host.
    let ends = std::sync::Arc::new(std::sync::Mutex::new([0, 0, 0]));
    let seen = std::sync::Arc::clone(&ends);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let (world, words) = (World::new(), ModelWords::new());
        let watchdog = {
            let (world, words) = (Arc::clone(&world), Arc::clone(&words));
            thread::spawn(move || {
                look(&words, 1);
                World::seize(&world, &words, 1)
            })
        };
        let end = world.enter(&words, Body, 1);
        let is_lost = matches!(end, End::Lost);
        let at = match end {
            End::Committed(body) => {
                world.go_on(&words, body);
                0
            }
            End::Stopped(body) => {
                words.recover(1);
                world.go_on(&words, body);
                1
            }
            End::Lost => {
                let mut baton = world.baton.lock().unwrap();
                assert!(baton.grave(1).is_some(), "the carrier finds its grave");
                baton.buried();
                2
            }
        };
        let carrier = watchdog.join().unwrap();
        assert_eq!(carrier.is_some(), is_lost, "one carrier goes on");
        carrier.into_iter().for_each(|carrier| carrier.join().unwrap());
        assert_eq!(world.baton.lock().unwrap().lingering, 0);
        seen.lock().unwrap()[at] += 1;
    });
    let [committed, stopped, lost] = *ends.lock().unwrap();
    assert!(committed > 0 && stopped > 0 && lost > 0, "{committed}, {stopped}, {lost}");
}
