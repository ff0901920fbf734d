//! Values that prove themselves. All shards and another process read them while the owner
//! overwrites, cleans, grows the index and flushes. No value may be torn, lost, or back after its
//! deletion.
//!
//! ```text
//! writers ── SET, DEL, FLUSHALL ──> server <── GET ── readers (connections at all shards)
//!    │ issued, acknowledged (number of the key's newest operation)    │
//!    └──────────────> bounds of what a read finds <───────────────────┤
//!                                             <── ForeignReader ──────┘ (this process, the arena's file)
//! ```
//!
//! The operations on a key are numbered. The number tells whether an operation is a deletion; key
//! and number tell all bytes of its value. A read must find the effect of one operation: at least
//! the newest that was acknowledged before the read began, at most the newest issued before it
//! ended.
//!
//! Other keys depend on each other, or only grow (`support::together`). At the end the server is
//! killed, and the test compares the checksum of each record that is left.
//!
//! `NIGH_SOAK_SECONDS` sets the length of the test.

use crate::support::chain::Chain;
use crate::support::together::Together;
use crate::support::{Server, folder};
use nigh_client::{Connection, Frame};
use nigh_shm::ForeignReader;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length in seconds, unless `NIGH_SOAK_SECONDS` is set.
const SECONDS: u64 = 3;
const WRITERS: usize = 3;
/// Keys of each writer: their values fill about two thirds of the arena.
const KEYS: usize = 1000;
/// Size of the arena: small enough to be overwritten many times a second.
const MAXMEMORY: &str = "32mb";
/// Values of most keys are shorter than this.
const BYTES: u64 = 8000;
/// One key in this many has a value that lies in a run.
const LARGE_EVERY: usize = 50;
const LARGE_BYTES: u64 = 150_000;
/// One operation in this many on a key deletes it.
const DELETES_EVERY: u64 = 8;
/// One operation in this many is on the keys that depend on each other.
const TOGETHER_EVERY: u64 = 8;
/// One read in this many of those keys is of a whole grown value.
const WHOLE_EVERY: u64 = 4;
/// Time between two flushes of a writer.
const FLUSH: Duration = Duration::from_millis(700);

/// No flush comes in this time before the end, so that the killed server has many records.
const NO_FLUSH: Duration = Duration::from_secs(1);
/// So much later it ends at the latest: a slow machine makes few records in that time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The operations on one key.
#[derive(Default)]
struct Known {
    issued: AtomicU64,
    acknowledged: AtomicU64,
}

/// State that writers and readers share.
struct World {
    known: Vec<Known>,
    /// By writer.
    together: Vec<Together>,
    last_flush: Instant,
    /// Keys that the other process reads at one moment.
    chain: Chain,
    /// A writer that flushes holds it for writing.
    flushing: RwLock<()>,
    stop: AtomicBool,
    reads: AtomicU64,
    reads_together: AtomicU64,
    foreign_reads: AtomicU64,
    /// Growing values that the other process read.
    foreign_grown: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

fn is_deletion(number: u64) -> bool {
    number % DELETES_EVERY == DELETES_EVERY - 1
}

fn mixed(key: usize, number: u64) -> u64 {
    let mut x = (key as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number;
    for _ in 0..2 {
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    x ^ (x >> 32)
}

fn value(key: usize, number: u64) -> Vec<u8> {
    let hash = mixed(key, number);
    let most = if key.is_multiple_of(LARGE_EVERY) { LARGE_BYTES } else { BYTES };
    let length = usize::try_from(40 + hash % most).expect("small");
    let unit = format!("{key}:{number}:{hash:016x};");
    unit.into_bytes().into_iter().cycle().take(length).collect()
}

fn name(key: usize) -> String {
    format!("soak:{key}")
}

/// Checks that a read found the effect of an operation from number `from` to number `to`.
fn check(key: usize, found: Option<&[u8]>, from: u64, to: u64, who: &str) {
    let Some(bytes) = found else {
        let missing = (from..=to).any(|number| number == 0 || is_deletion(number));
        assert!(missing, "{who}: {} is lost: {from} to {to} are all writes", name(key));
        return;
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    let number: u64 = text
        .split(':')
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{who}: {} holds {text}", name(key)));
    assert!(bytes == value(key, number), "{who}: {} is torn: {text}", name(key));
    assert!(number >= from, "{who}: {} came back: {number} after {from}", name(key));
    assert!(number <= to, "{who}: {} is from the future: {number} after {to}", name(key));
}

impl World {
    fn key(&self, random: &mut u64) -> usize {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(*random >> 33).expect("31 bits") % self.known.len()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Operations on the keys of one writer.
    fn write(&self, writer: usize, mut connection: Connection) {
        let (mut random, mut flushed, mut round) = (writer as u64 + 1, Instant::now(), 0u64);
        while !self.stopped() {
            let is_due = flushed.elapsed() > FLUSH * (2 + u32::try_from(writer).expect("few"));
            if is_due && Instant::now() < self.last_flush {
                self.flush(&mut connection);
                flushed = Instant::now();
            }
            let _writing = self.flushing.read().expect("nobody panicked");
            round += 1;
            if round.is_multiple_of(TOGETHER_EVERY) {
                self.together[writer].write(&mut connection);
            }
            let key = self.key(&mut random) / WRITERS * WRITERS + writer;
            let Some(known) = self.known.get(key) else { continue };
            let number = known.issued.load(Ordering::Relaxed) + 1;
            known.issued.store(number, Ordering::SeqCst);
            let key_name = name(key);
            let reply = if is_deletion(number) {
                connection.call(["DEL", &key_name])
            } else {
                let value = value(key, number);
                connection.call([b"SET".as_slice(), key_name.as_bytes(), &value])
            };
            let reply = reply.expect("the server is up");
            assert!(reply.error().is_none(), "{key_name}: {reply:?}");
            known.acknowledged.store(number, Ordering::SeqCst);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Deletes all keys. For each key this is the next number that is a deletion.
    fn flush(&self, connection: &mut Connection) {
        let _alone = self.flushing.write().expect("nobody panicked");
        let next = |number: u64| (number / DELETES_EVERY + 1) * DELETES_EVERY + DELETES_EVERY - 1;
        for known in &self.known {
            known.issued.store(next(known.issued.load(Ordering::Relaxed)), Ordering::SeqCst);
        }
        self.together.iter().for_each(Together::begin_anew);
        let reply = connection.call(["FLUSHALL"]).expect("the server is up");
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        for known in &self.known {
            known.acknowledged.store(known.issued.load(Ordering::Relaxed), Ordering::SeqCst);
        }
        self.together.iter().for_each(Together::began_anew);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    fn write_chain(&self, mut connection: Connection) {
        while !self.stopped() {
            let _writing = self.flushing.read().expect("nobody panicked");
            self.chain.write(&mut connection);
        }
    }

    fn read(&self, reader: usize, mut connection: Connection) {
        let (mut random, mut round) = (1000 + reader as u64, reader as u64);
        while !self.stopped() {
            round += 1;
            if round.is_multiple_of(TOGETHER_EVERY) {
                let turn = round / TOGETHER_EVERY;
                let together = &self.together[usize::try_from(turn).expect("few") % WRITERS];
                together.read(&mut connection);
                together.read_grown(&mut connection, turn.is_multiple_of(WHOLE_EVERY));
                self.reads_together.fetch_add(2, Ordering::Relaxed);
            }
            let key = self.key(&mut random);
            let from = self.known[key].acknowledged.load(Ordering::SeqCst);
            let reply = connection.call(["GET", &name(key)]).expect("the server is up");
            let to = self.known[key].issued.load(Ordering::SeqCst);
            assert!(reply.error().is_none(), "{reply:?}");
            check(key, reply.bytes(), from, to, &format!("reader {reader}"));
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read_foreign(&self, arena: &Path) {
        let reader = ForeignReader::open(arena).expect("the arena can be read");
        let (mut random, mut bytes, mut round) = (7, Vec::new(), 0usize);
        while !self.stopped() {
            round += 1;
            self.chain.read(&reader);
            if (round as u64).is_multiple_of(TOGETHER_EVERY) {
                let together = &self.together[round % WRITERS];
                let is_told = together.read_grown_outside(&reader, &mut bytes);
                self.foreign_grown.fetch_add(u64::from(is_told), Ordering::Relaxed);
            }
            let key = self.key(&mut random);
            let from = self.known[key].acknowledged.load(Ordering::SeqCst);
            let found = reader.get(name(key).as_bytes(), &mut bytes);
            let to = self.known[key].issued.load(Ordering::SeqCst);
            // With so fast an owner a reader may give up. It must not be wrong.
            let Ok(found) = found else { continue };
            check(key, found.map(|_| bytes.as_slice()), from, to, "the other process");
            self.foreign_reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_value_is_torn_lost_or_back_from_the_dead() {
    let seconds = std::env::var("NIGH_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let folder = folder();
    let server = Server::start_with(folder.path(), &["--maxmemory", MAXMEMORY, "--shards", "3"]);
    server.call(&["SET", "first", "1"]);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let world = World {
        last_flush: end - NO_FLUSH,
        known: (0..WRITERS * KEYS).map(|_| Known::default()).collect(),
        together: (0..WRITERS).map(Together::new).collect(),
        chain: Chain::default(),
        flushing: RwLock::new(()),
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        reads_together: AtomicU64::new(0),
        foreign_reads: AtomicU64::new(0),
        foreign_grown: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
    };
    let arena = folder.path().join("arenas/default.0.arena");
    // A thread that fails stops the others.
    struct StopOnDrop<'a>(&'a World);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (connection, world) = (server.connect(), &world);
            scope.spawn(move || {
                let _stop = StopOnDrop(world);
                world.write(number, connection);
            });
        }
        let (connection, chained) = (server.connect(), &world);
        scope.spawn(move || {
            let _stop = StopOnDrop(chained);
            chained.write_chain(connection);
        });
        for number in 0..4 {
            let (connection, world) = (server.connect(), &world);
            scope.spawn(move || {
                let _stop = StopOnDrop(world);
                world.read(number, connection);
            });
        }
        let (world, arena) = (&world, &arena);
        scope.spawn(move || {
            let _stop = StopOnDrop(world);
            world.read_foreign(arena);
        });
        let has_few = || {
            let size = server.call(&["DBSIZE"]);
            matches!(size, Frame::Integer(keys) if keys < KEYS as i64 / 5)
        };
        let is_short = || Instant::now() < end || Instant::now() < end + PATIENCE && has_few();
        while is_short() && !world.stopped() {
            std::thread::sleep(Duration::from_millis(20));
        }
        world.stop.store(true, Ordering::Relaxed);
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (reads, foreign) = (count(&world.reads), count(&world.foreign_reads));
    server.signal(rustix::process::Signal::KILL);
    server.ended();
    let report = nigh_shm::verify(&arena).expect("an arena");
    assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
    assert!(report.keys > KEYS as u64 / 10, "{} records to compare", report.keys);
    eprintln!(
        "{} writes, {} flushes; {reads} reads at the shards, {foreign} from outside: 0 torn, \
         0 lost, 0 back; {} of several keys and of lengths, {} of growing values from outside; {} \
         records with the right sum",
        count(&world.writes),
        count(&world.flushes),
        count(&world.reads_together),
        count(&world.foreign_grown),
        report.keys
    );
    let all = [&world.reads_together, &world.foreign_grown, &world.writes];
    let has_worked = reads > 0 && foreign > 0 && all.into_iter().all(|all| count(all) > 0);
    assert!(has_worked, "everybody has worked");
    eprintln!("from outside, at one moment: {}", world.chain.said());
}
