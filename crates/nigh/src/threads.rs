//! Threads that stay on the least loaded cores.
//!
//! ```text
//! /proc/stat ── 100 ms ── /proc/stat        time that each core was busy between the two
//!     └──> cores that the process may use, the least busy first ──> thread 0, thread 1, …
//! ```
//!
//! 1. Only cores count that the calling thread may use: those of its container, or of `taskset`.
//! 2. No thread of [`run_pinned`] works before all of them are on their cores.
//!
//! Any thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::io;
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

/// How long the load of the cores is looked at: the kernel counts in steps of 10 ms.
const SAMPLE: Duration = Duration::from_millis(100);
/// Most threads of one call.
const THREADS_MOST: usize = 4096;
/// Where the kernel tells what its cores did.
const STAT: &str = "/proc/stat";
/// Columns of a core's line there: the times that it was idle, and idle since it waited for a disk.
const IDLE: usize = 3;
const WAITED: usize = 4;
/// The first columns add up to all time; what follows is counted in them.
const COLUMNS: usize = 8;

/// The numbers of so many cores, the least loaded first. If the calling thread may use fewer, they
/// come again in the same order.
///
/// This looks at the load for 100 milliseconds. Time that a hypervisor gave to others counts as
/// load.
///
/// ```
/// let cores = nigh::threads::least_loaded_cores(2)?;
/// assert_eq!(cores.len(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `/proc/stat` can't be read, or `count` is more than 4096.
pub fn least_loaded_cores(count: usize) -> io::Result<Vec<usize>> {
    if count > THREADS_MOST {
        let text = format!("{count} threads are more than {THREADS_MOST}: start fewer");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let before = times()?;
    std::thread::sleep(SAMPLE);
    let order = by_load(cores, &before, &times()?);
    Ok(order.iter().copied().cycle().take(count).collect())
}

/// Keeps the calling thread on a core. Threads that it starts later stay there too, also those of a
/// database that it opens: so open databases in a thread that isn't pinned.
///
/// ```
/// for core in nigh::threads::least_loaded_cores(2)? {
///     std::thread::spawn(move || {
///         nigh::threads::pin_to_core(core).expect("the core was among those that may be used");
///         // … as long as the program runs …
///     });
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// There is no such core, or the thread may not use it.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        one.set(core); // a set of none, which is refused, if the number is too high
    }
    sched_setaffinity(None, &one).map_err(|error| {
        io::Error::new(error.kind(), format!("no thread can be kept on core {core}: {error}"))
    })
}

/// Runs `work` in so many threads, each kept on one of the least loaded cores, and returns what
/// they return, in their order. `work` gets the thread's index, from 0 on, and its core. All begin
/// at once, when each is on its core.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
/// let counts = nigh::threads::run_pinned(2, |index, _core| {
///     (0..100).filter(|n| db.put(format!("{index}:{n}").as_bytes(), b"x").is_ok()).count()
/// })?;
/// assert_eq!(counts, [100, 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`least_loaded_cores`] and [`pin_to_core`], or a thread can't be started: then none has
/// worked.
///
/// # Panics
/// If `work` does.
pub fn run_pinned<T: Send>(
    threads: usize,
    work: impl Fn(usize, usize) -> T + Sync,
) -> io::Result<Vec<T>> {
    let cores = least_loaded_cores(threads)?;
    let (told, pinned) = mpsc::channel();
    // Nobody can read it before this thread lets go of it.
    let gate = RwLock::new(false);
    std::thread::scope(|scope| {
        let mut goes = gate.write().unwrap_or_else(PoisonError::into_inner);
        let begin = |index: usize, core: usize| {
            let (told, gate, work) = (told.clone(), &gate, &work);
            let named = Builder::new().name(format!("nigh-core-{core}"));
            named.spawn_scoped(scope, move || {
                // The receiver lives until all threads have told.
                let _ = told.send(pin_to_core(core));
                let goes = *gate.read().unwrap_or_else(PoisonError::into_inner);
                goes.then(|| work(index, core))
            })
        };
        let (mut handles, mut failed) = (Vec::new(), None);
        for (index, core) in cores.into_iter().enumerate() {
            match begin(index, core) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let answers: Vec<io::Result<()>> = pinned.iter().take(handles.len()).collect();
        let failed = failed.or(answers.into_iter().find_map(Result::err));
        *goes = failed.is_none();
        drop(goes);
        let results: Vec<Option<T>> = handles.into_iter().map(result_of).collect();
        match failed {
            None => Ok(results.into_iter().flatten().collect()),
            Some(error) => Err(error),
        }
    })
}

/// What a thread returned. Its panic goes on in this thread.
fn result_of<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The time that each core was busy, and all its time.
type Times = BTreeMap<usize, (u64, u64)>;

fn times() -> io::Result<Times> {
    let text = std::fs::read_to_string(STAT)
        .map_err(|error| io::Error::new(error.kind(), format!("{STAT} can't be read: {error}")))?;
    Ok(times_of(&text))
}

/// Reads the lines `cpu0 …`, `cpu1 …`; those of other things are passed over.
fn times_of(text: &str) -> Times {
    let core = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let columns: Vec<u64> = words.take(COLUMNS).map_while(|it| it.parse().ok()).collect();
        let all: u64 = columns.iter().sum();
        let idle = columns.get(IDLE)? + columns.get(WAITED)?;
        Some((number, (all - idle, all)))
    };
    text.lines().filter_map(core).collect()
}

/// These cores, the least busy between two looks first; those that are as busy by their numbers. A
/// core of which the kernel tells nothing comes last.
fn by_load(mut cores: Vec<usize>, before: &Times, after: &Times) -> Vec<usize> {
    // Thousandths of its time. A counter may go back when a core goes off and comes again.
    let load = |core: usize| {
        let ((busy_then, all_then), (busy, all)) = (before.get(&core)?, after.get(&core)?);
        let spent = all.saturating_sub(*all_then).max(1);
        Some(busy.saturating_sub(*busy_then) * 1000 / spent)
    };
    cores.sort_by_key(|core| load(*core).unwrap_or(u64::MAX));
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
cpu  300 0 300 3000 30 0 0 0 0 0
cpu0 100 0 100 1000 10 0 0 0 0 0
cpu1 100 0 100 1000 10 0 0 0 0 0
cpu2 100 0 100 1000 10 0 0 0 0 0
intr 1 2 3
";
    /// Core 0 ran a program for 6 of 10 steps. Core 1 waited for a disk, with nothing else to do.
    /// Of core 2 a hypervisor took 3.
    const AFTER: &str = "\
cpu  309 0 300 3004 37 0 0 3 0 0
cpu0 106 0 100 1004 10 0 0 0 0 0
cpu1 100 0 100 1000 20 0 0 0 0 0
cpu2 100 0 100 1007 10 0 0 3 0 0
";

    /// A core that waits for a disk has room; one from which a hypervisor takes time has less. Only
    /// the cores that may be used are told, also such as the kernel says nothing of.
    #[test]
    fn the_least_busy_core_comes_first() {
        let (before, after) = (times_of(BEFORE), times_of(AFTER));
        assert_eq!(before.len(), 3, "{before:?}");
        assert_eq!(by_load(vec![0, 1, 2], &before, &after), [1, 2, 0]);
        assert_eq!(by_load(vec![0, 2], &before, &after), [2, 0]);
        assert_eq!(by_load(vec![9, 0], &before, &after), [0, 9]);
        assert_eq!(by_load(vec![0, 1, 2], &after, &after), [0, 1, 2], "all rest");
        assert_eq!(by_load(vec![0, 1], &after, &before), [0, 1], "counters went back");
    }

    /// Lines that end early, and other files, give no core: nothing panics.
    #[test]
    fn other_lines_are_no_cores() {
        for text in ["", "cpu0", "cpu0 1 2 3", "cpux 1 2 3 4 5", "cpu0 1 2 3 x 5", "\0"] {
            assert!(times_of(text).is_empty(), "{text:?}");
        }
    }

    /// Each core that this process may use is named, and no other; they come again if more are
    /// asked for.
    #[test]
    fn each_allowed_core_is_named_once() {
        let allowed = sched_getaffinity(None).expect("a thread may ask");
        let count = allowed.count() as usize;
        let mut named = least_loaded_cores(count).expect("the kernel tells");
        let twice = least_loaded_cores(2 * count).expect("the kernel tells");
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), count);
        assert!(named.iter().all(|core| allowed.is_set(*core)));
        assert_eq!(twice[..count], twice[count..], "they come again in the same order");
        let most = least_loaded_cores(THREADS_MOST + 1).expect_err("it is too many");
        assert!(most.to_string().contains("4097 threads"), "{most}");
    }

    /// Each thread stays on its core, and threads that may use one core get that one. Results come
    /// in the order of the threads.
    #[test]
    fn threads_stay_on_their_cores() {
        let core_of = |index, core| {
            let cores = sched_getaffinity(None).expect("a thread may ask");
            assert!(cores.count() == 1 && cores.is_set(core), "not kept on {core}");
            (index, core)
        };
        let ran = run_pinned(5, core_of).expect("they run");
        assert!(ran.iter().map(|it| it.0).eq(0..5), "{ran:?}");
        let last = ran[4].1;
        let narrow = std::thread::spawn(move || {
            pin_to_core(last).expect("it was among them");
            run_pinned(2, core_of).expect("they run")
        });
        assert_eq!(narrow.join().expect("it doesn't panic"), [(0, last), (1, last)]);
        let error = pin_to_core(1023).expect_err("no machine here has so many");
        assert!(error.to_string().contains("core 1023"), "{error}");
        assert!(pin_to_core(usize::MAX).is_err());
    }

    /// A panic of one thread reaches the caller, when the others have ended.
    #[test]
    fn a_panic_reaches_the_caller() {
        let ended = std::sync::atomic::AtomicUsize::new(0);
        let call = || {
            run_pinned(3, |index, _| {
                assert_ne!(index, 1, "on purpose");
                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            })
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        assert!(panicked.is_err());
        assert_eq!(ended.into_inner(), 2);
    }
}
