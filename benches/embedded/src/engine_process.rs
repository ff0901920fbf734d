//! The process that has an engine: it opens a database, and then does what lines on its standard
//! input ask.
//!
//! ```text
//! conductor ── Order ──> main ── threads with a session each ──> database
//!           <── Answer ──
//! ```
//!
//! 1. Threads begin together, when all have their session; time is from the first begin to the last
//!    end.
//! 2. Each read is checked: the value is there, and is of its key.
//! 3. The process ends with the conductor, also if that is killed.

use crate::data::{Random, Shuffle, is_value_of, key, value};
use crate::engines::{Engine, Place, Session, engine_named};
use crate::protocol::{Answer, Done, HOT_PART, Kind, Order, TOGETHER, Until};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the process is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    dir: std::path::PathBuf,
    #[arg(long)]
    memory_dir: std::path::PathBuf,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    strong: bool,
    /// The opening includes a read of the first key that a fill writes.
    #[arg(long)]
    first_get: bool,
}

/// Serves until the input ends, or an order says to close.
pub(crate) fn serve(args: &EngineArgs) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let kind = engine_named(&args.name)?;
    let place = Place {
        dir: args.dir.clone(),
        memory_dir: args.memory_dir.clone(),
        keys: args.keys,
        strong: args.strong,
    };
    let shuffle = Shuffle::new(args.keys);
    let begin = Instant::now();
    let engine = (kind.open)(&place).with_context(|| format!("{} can't be opened", kind.name))?;
    if args.first_get {
        read_one(&mut *engine.session()?, shuffle.at(0))?;
    }
    answer(&Ok(Done { operations: 1, nanos: nanos(begin.elapsed()), beside: 0 }))?;
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        if matches!(order, Order::Close) {
            let begin = Instant::now();
            drop(engine);
            return answer(&Ok(Done { operations: 1, nanos: nanos(begin.elapsed()), beside: 0 }));
        }
        let done = perform(&*engine, order, shuffle);
        answer(&done.map_err(|error| format!("{}: {error:#}", kind.name)))?;
    }
    Ok(())
}

fn answer(answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What one thread did, and when.
struct Part {
    operations: u64,
    begin: Instant,
    end: Instant,
}

/// Counts operations until they are enough, or time is over.
struct Turns<'a> {
    most: u64,
    ends: &'a AtomicBool,
}

impl Turns<'_> {
    /// Calls `work` with 0, 1, 2 and so on. Returns how often.
    fn run(&self, mut work: impl FnMut(u64) -> Result<()>) -> Result<u64> {
        let mut turn = 0;
        while turn < self.most && !self.ends.load(Ordering::Relaxed) {
            work(turn)?;
            turn += 1;
        }
        Ok(turn)
    }
}

fn perform(engine: &dyn Engine, order: Order, shuffle: Shuffle) -> Result<Done> {
    match order {
        Order::Fill { sequential, from, to, threads } => {
            let work = |session: &mut dyn Session, thread: u64, turn: u64| {
                let place = from + turn * u64::from(threads) + thread;
                let n = if sequential { place } else { shuffle.at(place) };
                session.put(&key(n), &value(n))
            };
            counted(engine, to - from, threads, &work)
        }
        Order::Delete { from, to, threads } => {
            let work = |session: &mut dyn Session, thread: u64, turn: u64| {
                session.delete(&key(shuffle.at(from + turn * u64::from(threads) + thread)))
            };
            counted(engine, to - from, threads, &work)
        }
        Order::Work { kind, until, keys, threads, seed } => {
            let writers = u32::from(kind == Kind::ReadBesideWriter);
            let millis = match until {
                Until::Millis(millis) => Some(millis),
                Until::Operations(_) => None,
            };
            let each = match until {
                Until::Millis(_) => u64::MAX,
                Until::Operations(all) => all / u64::from(threads),
            };
            let run = |session: &mut dyn Session, thread: u64, ends: &AtomicBool| {
                let mut random = Random::new(seed << 16 | thread);
                let turns = Turns { most: each, ends };
                let kind = if thread < u64::from(threads) { kind } else { Kind::Overwrite };
                let done = turns.run(|turn| act(session, kind, keys, turn, &mut random))?;
                Ok(if kind == Kind::MultiGet { done * TOGETHER as u64 } else { done })
            };
            let parts = together(engine, threads + writers, millis, &run)?;
            let (own, beside) = parts.split_at(threads as usize);
            Ok(Done { beside: beside.iter().map(|part| part.operations).sum(), ..sum(own) })
        }
        Order::Close => unreachable!("the caller has closed"),
    }
}

/// One operation of a kind; 16 reads of a multi_get.
fn act(
    session: &mut dyn Session,
    kind: Kind,
    keys: u64,
    turn: u64,
    random: &mut Random,
) -> Result<()> {
    let n = random.below(keys);
    match kind {
        Kind::Read | Kind::ReadBesideWriter => read_one(session, n),
        Kind::ReadHot => read_one(session, random.below(keys.div_ceil(HOT_PART))),
        Kind::Overwrite => session.put(&key(n), &value(n)),
        Kind::Mixed if turn.is_multiple_of(2) => session.put(&key(n), &value(n)),
        Kind::Mixed => read_one(session, n),
        Kind::MultiGet => {
            let numbers: [u64; TOGETHER] = std::array::from_fn(|_| random.below(keys));
            let mut right = 0;
            session.multi_get(&numbers.map(key), &mut |at, bytes| {
                right += usize::from(is_value_of(bytes, numbers[at]));
            })?;
            ensure!(right == TOGETHER, "a multi_get gave {right} right values of {TOGETHER}");
            Ok(())
        }
    }
}

#[inline]
fn read_one(session: &mut dyn Session, n: u64) -> Result<()> {
    let mut right = false;
    let there = session.get(&key(n), &mut |bytes| right = is_value_of(bytes, n))?;
    ensure!(there, "key {n} isn't there");
    ensure!(right, "key {n} has another value");
    Ok(())
}

/// So many operations, dealt to the threads in turn.
fn counted(
    engine: &dyn Engine,
    all: u64,
    threads: u32,
    work: &(dyn Fn(&mut dyn Session, u64, u64) -> Result<()> + Sync),
) -> Result<Done> {
    let threads_long = u64::from(threads);
    let run = |session: &mut dyn Session, thread: u64, ends: &AtomicBool| {
        let most = (all + threads_long - 1).saturating_sub(thread) / threads_long;
        Turns { most, ends }.run(|turn| work(session, thread, turn))
    };
    Ok(sum(&together(engine, threads, None, &run)?))
}

type Run<'a> = dyn Fn(&mut dyn Session, u64, &AtomicBool) -> Result<u64> + Sync + 'a;

/// Has threads run at once, each with a session of its own, for some time or until they end.
fn together(
    engine: &dyn Engine,
    threads: u32,
    millis: Option<u64>,
    run: &Run<'_>,
) -> Result<Vec<Part>> {
    let (ends, ready) = (AtomicBool::new(false), Barrier::new(threads as usize + 1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(threads))
            .map(|thread| {
                let (ends, ready) = (&ends, &ready);
                scope.spawn(move || {
                    let session = engine.session();
                    ready.wait();
                    let mut session = session?;
                    let begin = Instant::now();
                    let operations = run(&mut *session, thread, ends)?;
                    Ok(Part { operations, begin, end: Instant::now() })
                })
            })
            .collect();
        ready.wait();
        if let Some(millis) = millis {
            std::thread::sleep(Duration::from_millis(millis));
            ends.store(true, Ordering::Relaxed);
        }
        threads.into_iter().map(|thread| thread.join().expect("a thread of work")).collect()
    })
}

fn sum(parts: &[Part]) -> Done {
    let begin = parts.iter().map(|part| part.begin).min();
    let end = parts.iter().map(|part| part.end).max();
    let time = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    let operations = parts.iter().map(|part| part.operations).sum();
    Done { operations, nanos: nanos(time).max(1), beside: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// Remembers which keys were written and deleted.
    #[derive(Default)]
    struct Notes(Mutex<(BTreeSet<[u8; 16]>, u64)>);

    impl Engine for Notes {
        fn session(&self) -> Result<Box<dyn Session + '_>> {
            Ok(Box::new(self))
        }
    }

    impl Session for &Notes {
        fn get(&mut self, key: &[u8; 16], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
            let n = u64::from_str_radix(std::str::from_utf8(key)?, 16)?;
            see(&value(n));
            Ok(self.0.lock().expect("a lock").0.contains(key))
        }

        fn put(&mut self, key: &[u8; 16], _value: &[u8]) -> Result<()> {
            let mut notes = self.0.lock().expect("a lock");
            notes.0.insert(*key);
            notes.1 += 1;
            Ok(())
        }

        fn delete(&mut self, key: &[u8; 16]) -> Result<()> {
            ensure!(self.0.lock().expect("a lock").0.remove(key), "it isn't there");
            Ok(())
        }
    }

    /// A fill in slices writes each key once, with any number of threads; deletes of the same
    /// places take all of them away. Reads of what isn't there are errors.
    #[test]
    fn slices_and_threads_share_the_keys_without_rest() {
        for threads in [1, 2, 3] {
            for sequential in [false, true] {
                let (notes, shuffle) = (Notes::default(), Shuffle::new(100));
                for (from, to) in [(0, 33), (33, 34), (34, 100)] {
                    let order = Order::Fill { sequential, from, to, threads };
                    let done = perform(&notes, order, shuffle).expect("a fill");
                    assert_eq!(done.operations, to - from);
                }
                let written = notes.0.lock().expect("a lock").0.len();
                assert_eq!((written, notes.0.lock().expect("a lock").1), (100, 100));
                let until = Until::Operations(60);
                let order = Order::Work { kind: Kind::Read, until, keys: 100, threads, seed: 1 };
                assert_eq!(perform(&notes, order, shuffle).expect("reads").operations, 60);
                let order = Order::Delete { from: 0, to: 100, threads };
                assert_eq!(perform(&notes, order, shuffle).expect("deletes").operations, 100);
                assert!(notes.0.lock().expect("a lock").0.is_empty());
                let order = Order::Work { kind: Kind::Read, until, keys: 100, threads, seed: 1 };
                let error = perform(&notes, order, shuffle).expect_err("nothing is there");
                assert!(error.to_string().contains("isn't there"), "{error}");
            }
        }
    }

    /// Work beside a writer goes on for the time that was said, and tells both counts.
    #[test]
    fn a_writer_beside_readers_is_counted_apart() {
        let (notes, shuffle) = (Notes::default(), Shuffle::new(10));
        let order = Order::Fill { sequential: true, from: 0, to: 10, threads: 1 };
        perform(&notes, order, shuffle).expect("a fill");
        let (kind, until) = (Kind::ReadBesideWriter, Until::Millis(30));
        let order = Order::Work { kind, until, keys: 10, threads: 1, seed: 5 };
        let begun = Instant::now();
        let done = perform(&notes, order, shuffle).expect("work");
        assert!(done.operations > 0 && done.beside > 0, "{done:?}");
        // Its own time begins later, when a busy machine lets its thread begin.
        assert!(begun.elapsed() >= Duration::from_millis(30) && done.nanos > 0, "{done:?}");
        assert_eq!(notes.0.lock().expect("a lock").1, 10 + done.beside);
    }
}
