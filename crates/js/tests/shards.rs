//! Several runtimes on several threads, over one arena that another thread writes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nigh_js::{Call, Host, Level, Limits, Mapping, RunTurn, Runtime, Tenant, UNSTABLE, Write};
use nigh_shm::{ArenaSpec, Domain, Participant, Region, Writer};

struct Nobody;
impl Host for Nobody {
    fn commit(&mut self, _: &[Write<'_>]) -> Result<(), String> {
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
        let domain = Domain::new(4);
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
        let mut runtime = Runtime::new(Limits { call_ms: 1000, ..Limits::default() }).unwrap();
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
        let turn = RunTurn {
            now_ms: 1_700_000_000_000,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let call = Call { function: function.as_bytes(), ..Call::default() };
        let mut out = Vec::new();
        // From here to the announcement the participant holds what is read.
        self.runtime.run(self.tenant, &[call], turn, &mut Nobody, &mut |_, reply| {
            out = reply.to_vec();
        });
        self.participant.quiescent();
        out
    }
}

const KEYS: u32 = 2_000;

#[test]
fn runtimes_on_several_threads_read_what_another_thread_writes() {
    // Keys of all kinds are overwritten, added and deleted while the index grows and segments are reused:
    // what was there all the time is always found, whole, and nobody else's.
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
    // Pairs are committed without pause. A call reads one key of the pair, lingers, reads the other: they
    // always agree, or the call says that it found no moment, as one must that waits for a commit. Calls
    // that take the arena for their own thread's see pairs that differ.
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

/// Stops the writer even if an assertion fails.
struct Stops<'s>(&'s AtomicBool);
impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
