//! Several runtimes on several threads, over one arena that another thread writes to.
//!
//! `NIGH_RACE_SECONDS` makes the race of plain loads as long as one likes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::patient;
use nigh_js::{Call, CallWrite, Host, Level, Mapping, RunTurn, Runtime, Tenant, UNSTABLE};
use nigh_shm::{ArenaSpec, Domain, Participant, Region, WriteError, Writer};

struct Nobody;
impl Host for Nobody {
    fn commit(&mut self, _: &[CallWrite<'_>]) -> Result<(), String> {
        Err("ERR nothing can be written here".to_owned())
    }
    fn scan(&mut self, _: &[u8], _: u64, _: u32, _: &mut dyn FnMut(&[u8])) -> u64 {
        0
    }
    fn log(&mut self, _: Level, _: &str, function: &str, text: &str) {
        eprintln!("{function}: {text}");
    }
}

/// A small arena, its writer, and a domain with room for a few threads.
struct Owner {
    writer: Writer,
    participant: Participant,
    domain: Arc<Domain>,
    _dir: tempfile::TempDir,
}

impl Owner {
    fn new() -> Owner {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let domain = Domain::new(8);
        let spec = ArenaSpec {
            path: dir.path().join("t.arena"),
            tenant: "t".into(),
            partition: 0,
            partitions: 1,
            seed: None,
            capacity_bytes: 16 << 20,
        };
        let writer = Writer::create(&spec, &domain).unwrap();
        let participant = domain.join();
        Owner { writer, participant, domain, _dir: dir }
    }

    fn put(&mut self, key: &str, value: &[u8]) {
        let hash = self.writer.hash(key.as_bytes());
        self.writer.put(&self.participant.pin(), hash, key.as_bytes(), &[value], 0).unwrap();
        self.turn();
    }

    /// Both keys at once.
    fn put_pair(&mut self, keys: [&str; 2], value: &[u8]) {
        let staged = keys.map(|key| {
            let hash = self.writer.hash(key.as_bytes());
            self.writer.stage(hash, key.as_bytes(), &[value], 0).unwrap()
        });
        self.writer.commit(&self.participant.pin(), false, &staged).unwrap();
        self.turn();
    }

    /// All keys at once, with this expiry, as soon as readers have left memory enough.
    fn put_all(&mut self, pairs: &[(String, Vec<u8>)], expiry_ms: u64) {
        while let Err(error) = self.try_put_all(pairs, expiry_ms) {
            assert!(matches!(error, WriteError::Busy), "{error}");
            self.turn();
            std::thread::yield_now();
        }
        self.turn();
    }

    fn try_put_all(
        &mut self,
        pairs: &[(String, Vec<u8>)],
        expiry_ms: u64,
    ) -> Result<(), WriteError> {
        let mut staged = Vec::new();
        let mut outcome = Ok(());
        for (key, value) in pairs {
            let hash = self.writer.hash(key.as_bytes());
            match self.writer.stage(hash, key.as_bytes(), &[value], expiry_ms) {
                Ok(record) => staged.push(record),
                Err(error) => outcome = Err(error),
            }
        }
        let pin = self.participant.pin();
        outcome = outcome.and_then(|()| self.writer.commit(&pin, false, &staged));
        if outcome.is_err() {
            self.writer.abandon(&staged);
        }
        outcome
    }

    fn turn(&mut self) {
        self.participant.quiescent();
        self.writer.maintain(nigh_shm::UpkeepBudget::default());
    }
}

/// One thread's runtime on the arena.
struct Shard {
    runtime: Runtime,
    tenant: Tenant,
    participant: Participant,
}

impl Shard {
    fn new(region: &Arc<Region>, domain: &Arc<Domain>, foreign: bool, source: &str) -> Shard {
        let mut runtime = Runtime::new(patient()).unwrap();
        let (base, len) = (region.base(), region.address_bytes());
        // SAFETY: the region stays mapped as long as the Arc lives, and is an arena.
        let mapping = unsafe { Mapping::new(base, len, Arc::clone(region) as _) };
        let mapping = if foreign { mapping.foreign() } else { mapping };
        let tenant = runtime.open_tenant(mapping);
        let library = runtime.load(tenant, source.as_bytes()).unwrap();
        runtime.install(tenant, &library, source.as_bytes()).unwrap();
        Shard { runtime, tenant, participant: domain.join() }
    }

    fn call(&mut self, function: &str) -> Vec<u8> {
        self.calls(&[function], 1_700_000_000_000).pop().unwrap_or_default()
    }

    /// Calls in one batch: the replies up to the first that says UNSTABLE.
    fn calls(&mut self, functions: &[&str], now_ms: u64) -> Vec<Vec<u8>> {
        let turn = RunTurn {
            now_ms,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let functions = functions.iter().map(|function| function.as_bytes());
        let calls: Vec<Call<'_>> =
            functions.map(|function| Call { function, ..Call::default() }).collect();
        let mut out = Vec::new();
        // From here to the announcement the participant holds what is read.
        self.runtime.run(self.tenant, &calls, turn, &mut Nobody, &mut |_, reply| {
            out.push(reply.to_vec());
        });
        self.participant.quiescent();
        out
    }
}

const KEYS: u32 = 2_000;

#[test]
fn runtimes_on_several_threads_read_what_another_thread_writes() {
    // Keys of all kinds are overwritten, added and deleted while the index grows and segments are
    // reused. A key that was there all the time is always found, with its own, whole value.
    let source = format!(
        "#!js name=t\n\
         export function check(db) {{ for (let i = 0; i < {KEYS}; i++) {{\n\
           for (const key of [i, 'key-number-' + i]) {{\n\
             const r = db.get(key); if (r === undefined) throw new Error('lost ' + key);\n\
             if (r.u32(0) !== i || r.u32(1) !== r.u32(2)) throw new Error('torn ' + key);\n\
           }}\n\
           const other = db.get(1000000 + i); if (other !== undefined && other.u32(0) !== i) throw new Error('wrong ' + i);\n\
         }} return 1; }}\n\
         export const stuck = () => {{ for (;;); }};"
    );
    let mut owner = Owner::new();
    let value = |i: u32, version: u32| [i, version, version].map(u32::to_le_bytes).concat();
    for i in 0..KEYS {
        owner.put(&i.to_string(), &value(i, 0));
        owner.put(&format!("key-number-{i}"), &value(i, 0));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for reader in 0..2 {
            let (region, domain) = (Arc::clone(owner.writer.region()), Arc::clone(&owner.domain));
            let (source, stop) = (&source, &stop);
            scope.spawn(move || {
                let mut shard = Shard::new(&region, &domain, false, source);
                let mut rounds = 0;
                while rounds < 20 || !stop.load(Ordering::Relaxed) {
                    let reply = shard.call("check");
                    assert_eq!(String::from_utf8_lossy(&reply), ":1\r\n");
                    rounds += 1;
                    // One runtime's watchdog stops its own call alone.
                    if rounds == 3 && reader == 0 {
                        assert!(shard.call("stuck").starts_with(b"-ERR function 'stuck' ran"));
                    }
                }
                shard.participant.offline();
            });
        }
        for version in 1..8 {
            for i in 0..KEYS {
                owner.put(&i.to_string(), &value(i, version));
                owner.put(&format!("key-number-{i}"), &value(i, version));
                let other = (1_000_000 + i).to_string();
                if (version + i) % 3 == 0 {
                    let hash = owner.writer.hash(other.as_bytes());
                    owner.writer.delete(&owner.participant.pin(), hash, other.as_bytes());
                } else {
                    owner.put(&other, &value(i, version));
                }
            }
        }
        owner.participant.offline();
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_stable_call_sees_commits_of_several_keys_whole() {
    // Pairs are committed without pause. A call reads one key of the pair, lingers, reads the
    // other: they always agree, or the call says that it found no moment, as one must that waits
    // for a commit. Calls that take the arena for their own thread's see pairs that differ.
    let source = "#!js name=t\n\
         export function pair(db) { const a = db.get('a').u32(0); let x = 0; for (let i = 0; i < 3000; i++) x += i % 7;\n\
           const b = db.get('b').u32(0); return a === b ? 'same' : 'differ'; }\n\
export function long(db) { const a = db.get('a').u32(0); while (db.get('a').u32(0) === a); return a; }";
    let mut owner = Owner::new();
    owner.put_pair(["a", "b"], &0u32.to_le_bytes());
    let (region, domain) = (Arc::clone(owner.writer.region()), Arc::clone(&owner.domain));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            for version in 1u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                owner.put_pair(["a", "b"], &version.to_le_bytes());
                if version % 4 == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            owner.participant.offline();
        });
        let _stops = Stops(stop);
        let mut stable = Shard::new(&region, &domain, true, source);
        let mut plain = Shard::new(&region, &domain, false, source);
        let (mut same, mut differ, begin) = (0, 0, Instant::now());
        // How soon a plain one meets a commit is chance.
        while same < 300 || differ == 0 && begin.elapsed() < Duration::from_secs(60) {
            plain.participant.offline();
            let reply = stable.call("pair");
            same += u32::from(reply == b"$4\r\nsame\r\n");
            assert!(reply == b"$4\r\nsame\r\n" || reply == UNSTABLE, "{reply:?}");
            stable.participant.offline();
            plain.participant.online();
            differ += u32::from(plain.call("pair") == b"$6\r\ndiffer\r\n");
            stable.participant.online();
        }
        assert!(same > 0 && differ > 0, "{same} stable ones agreed, {differ} plain ones differed");
        assert_eq!(
            String::from_utf8_lossy(&stable.call("long")),
            String::from_utf8_lossy(UNSTABLE)
        );
    });
}

/// Keys that change at once.
const GROUP: u32 = 8;
/// Words of a value.
const VALUE_WORDS: u32 = 24;
/// Keys that come and go, so that the index grows and shrinks.
const FILLERS: u32 = 1500;
/// Versions of `beat` in one of the others.
const BEATS: u32 = 8;
/// Versions between two looks of the owner's own.
const OWN_LOOKS: u32 = 32;
/// Threads that read all the time: with the owner more than small machines have cores, so the
/// system interrupts them anywhere, also between a first look and its second.
const READERS: u32 = 3;
/// Calls of `tick` in a batch.
const TICKS: usize = 252;
/// Calls after which V8 has long compiled them, and what is around them, with all its
/// optimizations.
const CALLS_WARM: u64 = 50_000;

/// `look` reads all keys, each word of them, and says of which version they are; `tick` reads one
/// key, which is so short that what happens around it, choosing a moment, is nearly all that runs.
fn looks() -> String {
    format!(
        "#!js name=t\n\
         const names = []; for (let i = 0; i < {GROUP}; i++) names.push('group-' + i);\n\
         function check(db, name, key) {{\n\
           const r = db.get(name); if (r === undefined) throw new Error('lost ' + name);\n\
           const n = r.u32(0);\n\
           for (let i = 1; i < {VALUE_WORDS}; i++) {{\n\
             const word = Math.imul(n ^ Math.imul(i + 64 * key, 0x9e3779b1), 0x85ebca6b) >>> 0;\n\
             if (r.u32(i) !== word) throw new Error('torn ' + name + ' at ' + i);\n\
           }} return n;\n\
         }}\n\
         export function look(db) {{\n\
           const last = check(db, 'last', 99);\n\
           const n = check(db, names[0], 0);\n\
           for (let i = 1; i < {GROUP}; i++) {{ const m = check(db, names[i], i); if (m !== n) throw new Error('mixed ' + n + ', ' + m); }}\n\
           const first = check(db, 'first', 98);\n\
           if (last > n || n > first || first > last + 1) throw new Error('mixed ' + last + ', ' + n + ', ' + first);\n\
           return n;\n\
         }}\n\
         export const tick = (db) => {{ const r = db.get('beat'); if (r === undefined) throw new Error('lost'); return r.u32(0); }};"
    )
}

/// A value that proves itself: each word is made from version, key and place.
fn proven(n: u32, key: u32) -> Vec<u8> {
    let word = |i: u32| (n ^ (i + 64 * key).wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
    (0..VALUE_WORDS).flat_map(|i| if i == 0 { n } else { word(i) }.to_le_bytes()).collect()
}

/// The version that a look tells, or none if it found no moment.
fn version(reply: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(reply);
    if reply == UNSTABLE {
        return None;
    }
    let digits = text.strip_prefix(':').and_then(|rest| rest.strip_suffix("\r\n"));
    Some(digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}")))
}

/// The versions that a reader saw.
#[derive(Default)]
struct Met {
    told: u64,
    untold: u64,
    newest: [u32; 2],
}

impl Met {
    /// Adds the replies to a batch of `ticks` ticks and some looks: versions of each never fall.
    fn add(&mut self, replies: &[Vec<u8>], ticks: usize) {
        for (at, reply) in replies.iter().enumerate() {
            let Some(n) = version(reply) else {
                self.untold += 1;
                continue;
            };
            let newest = &mut self.newest[usize::from(at < ticks)];
            assert!(n >= *newest, "{n} behind {newest}: moments go on");
            (*newest, self.told) = (n, self.told + 1);
        }
    }
}

/// The owner of the keys that `looks` reads.
struct Versions {
    owner: Owner,
    version: u32,
    beat: u32,
    fillers: u32,
    is_filling: bool,
}

impl Versions {
    fn new() -> Versions {
        let mut versions =
            Versions { owner: Owner::new(), version: 0, beat: 0, fillers: 0, is_filling: true };
        versions.put_group();
        versions.put_beat();
        versions
    }

    /// `first`, then the eight at once, then `last`.
    fn put_group(&mut self) {
        let n = self.version;
        let group = (0..GROUP).map(|key| (format!("group-{key}"), proven(n, key)));
        self.owner.put_all(&[("first".to_owned(), proven(n, 98))], 0);
        self.owner.put_all(&group.collect::<Vec<_>>(), 0);
        self.owner.put_all(&[("last".to_owned(), proven(n, 99))], 0);
    }

    /// `beat`, which ends with the clock of its own version, and that clock right behind it.
    fn put_beat(&mut self) {
        let clock = 1_000_000 + u64::from(self.beat);
        self.owner.put_all(&[("beat".to_owned(), proven(self.beat, 97))], clock);
        self.owner.writer.note_time(clock);
    }

    /// A filler more, or one less.
    fn put_filler(&mut self) {
        self.is_filling = if self.is_filling { self.fillers < FILLERS } else { self.fillers == 0 };
        if self.is_filling {
            self.owner.put_all(&[(format!("filler-{}", self.fillers), vec![b'f'])], 0);
            self.fillers += 1;
        } else {
            self.fillers -= 1;
            let (owner, key) = (&mut self.owner, format!("filler-{}", self.fillers));
            let hash = owner.writer.hash(key.as_bytes());
            owner.writer.delete(&owner.participant.pin(), hash, key.as_bytes());
        }
    }

    /// The next version of all.
    fn advance(&mut self) {
        self.version += 1;
        self.put_group();
        for _ in 0..BEATS {
            self.beat += 1;
            self.put_beat();
        }
        (0..4).for_each(|_| self.put_filler());
    }
}

#[test]
fn plain_loads_that_are_looked_at_twice_show_whole_records_of_one_moment() {
    // The owner writes versions at full speed, whose values prove themselves. The prelude reads
    // them by plain loads, and loads a guard again behind them. That holds only if the optimizing
    // compiler merges no two loads, moves none, and keeps none over a loop.
    // - `beat` ends with the clock of its own version, and the next version comes before the next
    //   clock. So there is no moment without it; but a committed number with a later clock, which
    //   is what one load for two would give, lacks it.
    // - `last` <= the eight <= `first` <= `last` + 1 in each moment, and nothing holds them
    //   together but that.
    // - Others come and go, so the index grows and shrinks under the probes, which must find all
    //   the same.
    // Other threads' runtimes read all the time; the owner's own reads between its writes, and sees
    // the newest. Not shown is the second look at a number's high half, which changes once in 2^32
    // writes.
    let seconds = std::env::var("NIGH_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    let (lasts, most) = (Duration::from_secs(seconds.unwrap_or(3)), Duration::from_secs(60));
    let (mut versions, source) = (Versions::new(), looks());
    let owner = &versions.owner;
    let (region, domain) = (Arc::clone(owner.writer.region()), Arc::clone(&owner.domain));
    let (stop, warm) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (stop, warm, source) = (&stop, &warm, &source);
        let stops = Stops(stop);
        let read = || {
            let _stops = Stops(stop);
            let mut shard = Shard::new(&region, &domain, true, source);
            let (mut met, mut is_warm) = (Met::default(), false);
            let mut batch = vec!["tick"; TICKS];
            batch.extend(["look"; 4]);
            while !stop.load(Ordering::Relaxed) {
                met.add(&shard.calls(&batch, 1), TICKS);
                if met.told > CALLS_WARM && !is_warm {
                    is_warm = true;
                    warm.fetch_add(1, Ordering::Relaxed);
                }
            }
            shard.participant.offline();
            met
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let mut own = Shard::new(&region, &domain, false, source);
        own.participant.offline();
        let begin = Instant::now();
        while (begin.elapsed() < lasts || warm.load(Ordering::Relaxed) < READERS)
            && begin.elapsed() < lasts.max(most)
            && !stop.load(Ordering::Relaxed)
        {
            versions.advance();
            if versions.version.is_multiple_of(OWN_LOOKS) {
                own.participant.online();
                let replies = own.calls(&["look", "tick", "look"], 1);
                own.participant.offline();
                let told: Vec<_> = replies.iter().map(|reply| version(reply)).collect();
                let newest = [versions.version, versions.beat, versions.version];
                assert_eq!(told, newest.map(Some));
            }
        }
        versions.owner.participant.offline();
        drop(stops);
        let (n, epoch) = (versions.version, versions.owner.writer.index_epoch());
        for reader in readers {
            let Met { told, untold, .. } = reader.join().unwrap();
            eprintln!("{n} versions, index epoch {epoch}: {told} calls told, {untold} not");
            assert!(told > CALLS_WARM, "{told} calls are too few for V8 to compile them well");
        }
        assert!(epoch > 10, "the index grew and shrank");
    });
}

/// Stops the writer even if an assertion fails.
struct Stops<'s>(&'s AtomicBool);
impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
