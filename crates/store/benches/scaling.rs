//! Two shards against one, without a load generator on the same cores: pipelines of GETs on one
//! store and a view of it, and of SETs on two stores. Two copies of a plain loop, which share
//! nothing, run beside them.
//!
//! ```text
//! A  one thread on the first core        ── rounds of ROUND, A B A B ... ──> work per second, B / A
//! B  the same on both cores at once
//! ```
//!
//! The plain loop shows what two cores of this machine are worth. The ratio of the ratios is the
//! cost of sharing. Run: `cargo bench -p nigh-store --bench scaling`.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use nigh_shm::{Domain, Participant, Reader, Record};
use nigh_store::{Op, ReplySink, Store, StoreOptions, Turn, Views};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Keys of each store: far more than caches hold.
const KEYS: u64 = 1_000_000;
/// Bytes of a value.
const VALUE: [u8; 100] = [b'v'; 100];
/// Commands whose misses overlap, as in the server.
const WINDOW: usize = 64;
/// Length of a round.
const ROUND: Duration = Duration::from_millis(400);
/// Pairs of rounds of each kind of work.
const PAIRS: usize = 15;

/// Keeps the last bytes of replies, so that nothing is optimized away.
#[derive(Default)]
struct Sink(Vec<u8>);

impl ReplySink for Sink {
    fn ok(&mut self) {
        self.0.clear();
    }
    fn simple(&mut self, _: &str) {}
    fn error(&mut self, text: &str) {
        assert_eq!(text, nigh_store::BUSY);
    }
    fn int(&mut self, _: i64) {}
    fn bulk(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(bytes);
    }
    fn value(&mut self, _: &Reader, record: Record<'_>) {
        self.bulk(record.value());
    }
    fn null(&mut self) {
        panic!("every key is there");
    }
    fn null_array(&mut self) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
    fn set(&mut self, _: usize) {}
    fn double(&mut self, _: f64) {}
}

/// Keys as nigh-bench names them: 16 bytes.
fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let (mut rest, mut at) = (number, 15);
    while rest > 0 {
        key[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        at -= 1;
    }
    key
}

/// xorshift64: one state per thread.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// One thread's work, in windows.
trait Work: Send {
    /// Before and after a round. Other threads don't wait for one that has ended its round.
    fn begin(&mut self) {}
    fn end(&mut self) {}
    /// Works for a window; returns the number of commands.
    fn window(&mut self, random: &mut u64) -> u64;
}

/// Commands of one kind on a store, a turn a window.
struct Shard {
    store: Store,
    participant: Participant,
    op: Op,
    sink: Sink,
}

impl Work for Shard {
    fn begin(&mut self) {
        self.participant.online();
    }

    fn end(&mut self) {
        self.participant.offline();
    }

    fn window(&mut self, random: &mut u64) -> u64 {
        let mut done = 0;
        {
            let pin = self.participant.pin();
            let turn = Turn { now_ms: 1, pin: &pin, random: 1 };
            let keys: [[u8; 16]; WINDOW] = std::array::from_fn(|_| key(next(random) % KEYS));
            let hashes = keys.map(|key| self.store.hash(&key));
            Store::prefetch(hashes.iter().map(|hash| (&self.store, *hash)));
            for (key, hash) in keys.iter().zip(hashes) {
                let args: [&[u8]; 3] = [b"", key, &VALUE];
                let args = if self.op == Op::Get { &args[..2] } else { &args[..] };
                self.store.apply_hashed(self.op, args, hash, &turn, &mut self.sink);
                done += u64::from(self.store.take_busy().is_none());
            }
            self.store.maintain(&turn);
        }
        self.participant.quiescent();
        done
    }
}

/// Reads of an array as large as the store's data: the speed of the cores and their memory.
struct Plain(Vec<u64>);

impl Work for Plain {
    fn window(&mut self, random: &mut u64) -> u64 {
        let words = self.0.len() as u64;
        let at: [usize; WINDOW] =
            std::array::from_fn(|_| usize::try_from(next(random) % words).unwrap_or(0));
        let sum = at.iter().fold(0u64, |sum, &at| sum.wrapping_add(self.0[at]));
        std::hint::black_box(sum);
        WINDOW as u64
    }
}

/// Commands per second of these threads together, in one round.
fn round(works: &mut [Box<dyn Work>], cores: &[usize]) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(works.len() + 1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter_mut()
            .zip(cores)
            .map(|(work, core)| {
                let (stop, start) = (&stop, &start);
                scope.spawn(move || {
                    let mut one = CpuSet::new();
                    one.set(*core);
                    sched_setaffinity(None, &one).expect("the thread may run there");
                    let mut random = 0x9E37_79B9_7F4A_7C15 ^ (*core as u64 + 1);
                    work.begin();
                    start.wait();
                    let begun = Instant::now();
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        done += work.window(&mut random);
                    }
                    let seconds = begun.elapsed().as_secs_f64();
                    work.end();
                    done as f64 / seconds
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("it works")).sum()
    })
}

fn filled(dir: &std::path::Path, domain: &Arc<Domain>) -> Store {
    let options = StoreOptions::new(dir, 1 << 30);
    let (mut store, _) = Store::open(&options, domain).expect("a store");
    let mut participant = domain.join();
    let mut sink = Sink::default();
    let mut number = 0;
    while number < KEYS {
        {
            let pin = participant.pin();
            let turn = Turn { now_ms: 1, pin: &pin, random: 1 };
            store.apply(Op::Set, &[b"", &key(number), &VALUE], &turn, &mut sink);
            store.maintain(&turn);
        }
        participant.quiescent();
        // A thread of its own backs memory, and a machine with two cores may hold it up.
        number += u64::from(store.take_busy().is_none());
    }
    store
}

/// Folders of the stores, removed at the end.
struct Folders(Vec<tempfile::TempDir>);

impl Folders {
    fn add(&mut self) -> std::path::PathBuf {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = dir.path().to_owned();
        self.0.push(dir);
        path
    }
}

/// Runs A B A B ..., prints and returns the median ratio with its quartiles.
fn compare(name: &str, cores: &[usize], mut works: Vec<Box<dyn Work>>) -> f64 {
    round(&mut works, cores); // warm
    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..PAIRS {
        let one = round(&mut works[..1], cores);
        let two = round(&mut works, cores);
        rates.push((one, two));
        ratios.push(two / one);
    }
    ratios.sort_by(f64::total_cmp);
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (one, two) = rates[PAIRS / 2];
    let (low, median, high) = (ratios[PAIRS / 4], ratios[PAIRS / 2], ratios[PAIRS * 3 / 4]);
    println!(
        "{name:<34} {:>7.2} M/s one, {:>7.2} M/s two   {median:.2} x ({low:.2}-{high:.2})",
        one / 1e6,
        two / 1e6
    );
    median
}

fn main() {
    let allowed = sched_getaffinity(None).expect("a thread may ask where it runs");
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if cores.len() < 2 {
        println!("scaling: one core only, nothing to compare");
        return;
    }
    let (cores, mut folders) = (&cores[..2], Folders(Vec::new()));
    let domain = Domain::new(8);
    let plain = || Box::new(Plain((0..KEYS * 20).collect())) as Box<dyn Work>;
    let shard = |store, op| {
        let mut participant = domain.join();
        participant.offline();
        Box::new(Shard { store, participant, op, sink: Sink::default() }) as Box<dyn Work>
    };
    let base = compare("plain loop, random reads", cores, vec![plain(), plain()]);
    let owner = filled(&folders.add(), &domain);
    let views: Views = owner.views();
    let reads = vec![shard(owner, Op::Get), shard(Store::view(views), Op::Get)];
    let reads = compare("GET, owner and view of one store", cores, reads);
    let writes = (0..2).map(|_| shard(filled(&folders.add(), &domain), Op::Set)).collect();
    let writes = compare("SET, a store each", cores, writes);
    println!("of the plain loop's: GET {:.2}, SET {:.2}", reads / base, writes / base);
}
