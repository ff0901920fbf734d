//! Death between any two stores to shared memory, and adoption afterwards.
//!
//! The test binary runs itself as a child, which writes a fixed history and dies by SIGKILL before
//! its N-th store of the part that matters; the parent adopts the arena and compares. N goes up
//! until the child lives.

use super::{Arena, directory, spec};
use crate::ArenaSpec;
use crate::failpoints::{kill_before_step, steps_left};
use crate::space::Need;
use crate::write::clean::STEP_BYTES;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tells a child what to do: `scenario path step`.
const JOB: &str = "NIGH_SHM_CRASH_JOB";
/// Longest wait for a child's first write.
const BEGUN: Duration = Duration::from_secs(60);
/// Steps that a scenario may have at most; each is tried.
const STEPS_MAX: i64 = 3000;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a child does: a history before, and the part in which it dies.
struct Scenario {
    name: &'static str,
    before: fn(&mut Arena),
    dying: fn(&mut Arena),
    /// The states that are right afterwards.
    outcomes: fn() -> Vec<Map>,
    /// Every so many steps are tried.
    stride: i64,
    /// Deaths at least that leave the adopting writer something to end.
    ended: u32,
}

fn key(i: u32) -> Vec<u8> {
    format!("key:{i}").into_bytes()
}

fn numbered(range: std::ops::Range<u32>) -> Map {
    range.map(|i| (key(i), i.to_le_bytes().to_vec())).collect()
}

fn fill(a: &mut Arena, range: std::ops::Range<u32>) {
    for i in range {
        a.put(&key(i), &i.to_le_bytes(), 0).unwrap();
    }
}

fn stage_some(a: &mut Arena) -> Vec<crate::RecordRef> {
    let mut refs = Vec::new();
    for i in [0u32, 1, 500, 501, 502] {
        let k = key(i);
        let hash = a.writer.hash(&k);
        refs.push(a.writer.stage(hash, &k, &[b"committed"], 9).unwrap());
    }
    let (k, large) = (key(3), key(700));
    refs.push(a.writer.stage_delete(a.writer.hash(&k), &k).unwrap());
    let value = vec![7; 200_000];
    refs.push(a.writer.stage(a.writer.hash(&large), &large, &[&value], 0).unwrap());
    // A key that comes twice, and one that is set and deleted.
    let (twice, hash) = (key(500), a.writer.hash(&key(500)));
    refs.push(a.writer.stage(hash, &twice, &[b"last"], 0).unwrap());
    let (gone, hash) = (key(502), a.writer.hash(&key(502)));
    refs.push(a.writer.stage_delete(hash, &gone).unwrap());
    refs
}

fn committed(mut map: Map) -> Map {
    for i in [0, 1, 501] {
        map.insert(key(i), b"committed".to_vec());
    }
    map.insert(key(500), b"last".to_vec());
    map.insert(key(700), vec![7; 200_000]);
    map.remove(&key(3));
    map
}

fn commit(a: &mut Arena, clear_first: bool) {
    let refs = stage_some(a);
    a.writer.commit(&a.me.pin(), clear_first, &refs).unwrap();
}

fn scenarios() -> [Scenario; 8] {
    [
        Scenario {
            name: "commit",
            before: |a| fill(a, 0..100),
            dying: |a| commit(a, false),
            outcomes: || vec![numbered(0..100), committed(numbered(0..100))],
            stride: 1,
            ended: 4,
        },
        Scenario {
            name: "clear-and-commit",
            before: |a| fill(a, 0..100),
            dying: |a| commit(a, true),
            outcomes: || vec![numbered(0..100), committed(Map::new())],
            stride: 1,
            ended: 4,
        },
        Scenario {
            // Without tombstones: those that are removed when it dies stay removed.
            name: "delete-together",
            before: |a| fill(a, 0..100),
            dying: |a| {
                let keys: Vec<Vec<u8>> = (0..60).map(key).collect();
                let keys: Vec<(u32, &[u8])> =
                    keys.iter().map(|key| (a.writer.hash(key), key.as_slice())).collect();
                a.writer.delete_together(&a.me.pin(), &keys);
            },
            outcomes: || (0..=60).map(|n| numbered(n..100)).collect(),
            stride: 1,
            ended: 4,
        },
        Scenario {
            // 410 keys are 80 % of the first table: the index begins to grow, and ends it.
            name: "growth",
            before: |a| fill(a, 0..409),
            dying: |a| {
                fill(a, 409..411);
                a.settle();
                assert!(!a.writer.stats().growing && a.writer.stats().index_lines == 128);
            },
            outcomes: || (409..=411).map(|n| numbered(0..n)).collect(),
            stride: 3,
            ended: 4,
        },
        Scenario {
            // A commit while the index grows, and a clear behind it.
            name: "commit-in-growth",
            before: |a| fill(a, 0..412),
            dying: |a| {
                commit(a, false);
                a.writer.clear();
            },
            outcomes: || vec![numbered(0..412), committed(numbered(0..412)), Map::new()],
            stride: 1,
            ended: 4,
        },
        Scenario {
            // A value in a run: shared by a rename, then given back.
            name: "rename-of-a-run",
            before: |a| a.put(b"from", &vec![3; 300_000], 0).unwrap(),
            dying: |a| {
                let (from, to) = (a.writer.hash(b"from"), a.writer.hash(b"to"));
                let record = a.reader.get(&a.me.pin(), from, b"from").unwrap().reference();
                let refs = [
                    a.writer.stage_delete(from, b"from").unwrap(),
                    a.writer.stage_moved_run(&a.me.pin(), record, to, b"to", 5).unwrap(),
                ];
                a.writer.commit(&a.me.pin(), false, &refs).unwrap();
                assert!(a.delete(b"to"));
                a.settle();
            },
            outcomes: || {
                let value = vec![3; 300_000];
                let one = |k: &[u8]| Map::from([(k.to_vec(), value.clone())]);
                vec![one(b"from"), one(b"to"), Map::new()]
            },
            stride: 1,
            ended: 4,
        },
        Scenario {
            // A few records of many are alive, one of them with its value in a run: they move to
            // the cold head, segments are retired, and reused for what is written next.
            name: "cleaning",
            before: |a| {
                half_dead(a, 0..120);
                a.put(b"run", &vec![4; 200_000], 0).unwrap();
                half_dead(a, 120..150);
            },
            dying: |a| clean(a, 3),
            outcomes: || {
                let mut map = left_alive(0..150);
                map.insert(b"run".to_vec(), vec![4; 200_000]);
                vec![map]
            },
            stride: 1,
            ended: 0,
        },
        Scenario {
            // The same while the index grows: entries stand in either table.
            name: "cleaning-in-growth",
            before: |a| {
                fill(a, 1000..1200);
                half_dead(a, 0..200);
                fill(a, 1200..1380);
            },
            dying: |a| {
                let mut n = 1380;
                while !a.writer.stats().growing {
                    fill(a, n..n + 1);
                    n += 1;
                }
                assert!(n < 1420);
                clean(a, 4);
            },
            outcomes: || {
                let map = |n| {
                    let mut map = left_alive(0..200);
                    map.extend(numbered(1000..n));
                    map
                };
                (1380..1420).map(map).collect()
            },
            stride: 5,
            ended: 4,
        },
    ]
}

/// Puts long values, then deletes nine of ten.
fn half_dead(a: &mut Arena, range: std::ops::Range<u32>) {
    for i in range.clone() {
        a.put(&key(i), &vec![i as u8; 6000], 0).unwrap();
    }
    for i in range.filter(|i| i % 10 != 0) {
        assert!(a.delete(&key(i)));
    }
}

fn left_alive(range: std::ops::Range<u32>) -> Map {
    range.filter(|i| i % 10 == 0).map(|i| (key(i), vec![i as u8; 6000])).collect()
}

/// Cleans all that is worth it, turns until the segments can be reused, and writes into them.
fn clean(a: &mut Arena, segments: u64) {
    while a.writer.clean(STEP_BYTES, Need::Packing) > 0 {}
    assert!(a.writer.stats().cleaner.segments >= segments, "{:?}", a.writer.stats());
    a.settle();
}

fn spec_at(path: &Path) -> ArenaSpec {
    spec(path.to_path_buf(), 16 << 20)
}

fn child(job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", "tests::crash::child_of_the_crash_tests", "--nocapture"]);
    command.env(JOB, job).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn child_of_the_crash_tests() {
    // Run by its siblings with a job; alone it has nothing to do.
    let Ok(job) = std::env::var(JOB) else { return };
    let parts: Vec<&str> = job.split(' ').collect();
    let path = PathBuf::from(parts[1]);
    let mut a = Arena::create(&spec_at(&path));
    if parts[0] == "endless" {
        write_for_ever(&mut a, &path);
    }
    let scenarios = scenarios();
    let scenario = scenarios.iter().find(|s| s.name == parts[0]).expect("a scenario");
    (scenario.before)(&mut a);
    kill_before_step(parts[2].parse().expect("a step"));
    (scenario.dying)(&mut a);
    assert!(steps_left() >= 0, "armed until the end");
    kill_before_step(-1);
}

/// Checks that what was adopted is one of the outcomes, whole, and can be written on.
/// Returns whether adoption had something to end: a commit, or growth.
fn check_adopted(path: &Path, outcomes: &[Map], step: i64) -> bool {
    let report = crate::verify(path).expect("an arena");
    assert!(report.findings.is_empty(), "step {step}: {:?}", report.findings);
    let (mut a, first) = Arena::adopt(&spec_at(path));
    let mut found = Map::new();
    a.reader.scan(&a.me.pin(), 0, u32::MAX, &mut |r| {
        found.insert(r.key().to_vec(), r.value().to_vec());
    });
    assert!(outcomes.contains(&found), "step {step}: {} keys, of no outcome", found.len());
    assert_eq!(a.writer.keys(), found.len() as u64, "step {step}");
    {
        // At once, and none is newer than what is committed.
        let pin = a.me.pin();
        let moment = a.reader.moment(&pin).expect("a moment can be taken");
        for (key, value) in &found {
            let hash = a.reader.hash(key);
            let at = a.reader.get_at(&pin, &moment, hash, key).expect("no key is newer");
            let alone = a.reader.get_alone(&pin, hash, key).expect("nor alone").0;
            let values = [at, alone].map(|record| record.map(|record| record.value()));
            assert_eq!(values, [Some(&value[..]); 2], "step {step}");
        }
    }
    assert!(found.iter().all(|(k, v)| a.get(k).as_ref() == Some(v)), "step {step}");
    for i in 0..1500u32 {
        a.put(&i.to_be_bytes(), &[1; 300], 0).unwrap();
        a.turn();
    }
    assert!(found.iter().all(|(k, v)| a.get(k).as_ref() == Some(v)), "step {step}, written on");
    let (mut a, adoption) = a.again();
    assert_eq!((adoption.keys, adoption.redone_intent), (found.len() as u64 + 1500, false));
    a.writer.clear();
    a.settle();
    let stats = a.writer.stats();
    assert!(stats.runs == 0 && stats.segments <= 1, "step {step} leaked: {stats:?}");
    first.redone_intent || first.continued_growth
}

fn die_at_every_step(name: &str) {
    let scenarios = scenarios();
    let scenario = scenarios.iter().find(|s| s.name == name).expect("a scenario");
    let (dir, outcomes) = (directory(), (scenario.outcomes)());
    let (mut deaths, mut ended) = (0, 0);
    for step in (0..STEPS_MAX).step_by(usize::try_from(scenario.stride).expect("positive")) {
        let path = dir.path().join(format!("{step}"));
        let status = child(&format!("{name} {} {step}", path.display())).status().expect("a child");
        ended += u32::from(check_adopted(&path, &outcomes, step));
        std::fs::remove_file(&path).expect("the arena");
        if status.success() {
            assert!(
                deaths > 10 && ended >= scenario.ended,
                "{name}: {deaths} deaths, {ended} ended by adoption"
            );
            return;
        }
        assert_eq!(status.signal(), Some(9), "{name}, step {step}: {status}");
        deaths += 1;
    }
    panic!("{name} has more steps than are tried");
}

#[test]
fn a_commit_killed_at_any_step_is_none_or_all() {
    // Sets, deletions, a large value, a key twice: before the intent nothing, after it everything.
    die_at_every_step("commit");
}

#[test]
fn a_clearing_commit_killed_at_any_step_is_none_or_all() {
    // FLUSHALL inside a transaction.
    die_at_every_step("clear-and-commit");
}

#[test]
fn a_deletion_without_tombstones_killed_at_any_step_leaves_the_others() {
    // 60 keys go without room for tombstones: those before the step are gone, those behind it
    // whole.
    die_at_every_step("delete-together");
}

#[test]
fn growth_killed_at_any_step_loses_no_key() {
    // The index moves to its next table; the adopting writer goes on with it.
    die_at_every_step("growth");
}

#[test]
fn a_commit_in_growth_killed_at_any_step_is_none_or_all() {
    // Both at once, and everything cleared afterwards.
    die_at_every_step("commit-in-growth");
}

#[test]
fn a_renamed_run_killed_at_any_step_has_one_name_and_does_not_leak() {
    // The run belongs to the old name, then to the new one, then to nobody.
    die_at_every_step("rename-of-a-run");
}

#[test]
fn cleaning_killed_at_any_step_loses_no_key_and_brings_none_back() {
    // A record lies in its old segment or in the cold head, and its entry names one of them.
    die_at_every_step("cleaning");
}

#[test]
fn cleaning_in_growth_killed_at_any_step_loses_no_key_and_brings_none_back() {
    // The cleaner replaces entries wherever growth has put them.
    die_at_every_step("cleaning-in-growth");
}

/// Writes numbered generations until it is killed, noting each acknowledged one in a file beside.
fn write_for_ever(a: &mut Arena, path: &Path) -> ! {
    use std::os::unix::fs::FileExt;
    let acknowledged = std::fs::File::create(path.with_extension("ack")).expect("a file");
    for n in 1u64.. {
        let value = n.to_le_bytes();
        a.put(b"single", &value, 0).expect("room");
        // Three keys that must always agree, one of them large now and then.
        let large = vec![n as u8; if n % 50 == 0 { 150_000 } else { 10 }];
        let refs: Vec<_> = (0..3u32)
            .map(|i| {
                let (k, parts) = (key(i), [&value[..], &large[..]]);
                a.writer.stage(a.writer.hash(&k), &k, &parts, 0).expect("room")
            })
            .collect();
        a.writer.commit(&a.me.pin(), false, &refs).expect("room");
        let other = (n % 5000).to_be_bytes();
        if !a.delete(&other) {
            a.put(&other, &value, 0).expect("room");
        }
        a.turn();
        acknowledged.write_at(&value, 0).expect("a note");
    }
    unreachable!("killed before")
}

#[test]
fn random_kills_lose_nothing_that_was_acknowledged() {
    // A writer at full speed is killed at random moments, from outside.
    let dir = directory();
    for round in 0..12u64 {
        let path = dir.path().join(format!("{round}"));
        let mut child = child(&format!("endless {} 0", path.display())).spawn().expect("a child");
        let begin = Instant::now();
        let has_begun = || path.with_extension("ack").metadata().is_ok_and(|it| it.len() == 8);
        while !has_begun() {
            assert!(begin.elapsed() < BEGUN, "the child acknowledges nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 23 % 90));
        child.kill().expect("SIGKILL");
        let status = child.wait().expect("its end");
        assert_eq!(status.signal(), Some(9), "round {round}: it ended before: {status}");
        let note = std::fs::read(path.with_extension("ack")).expect("it has begun");
        let least = u64::from_le_bytes(note[..8].try_into().expect("8 bytes"));
        assert!(crate::verify(&path).expect("an arena").findings.is_empty());
        let (a, _) = Arena::adopt(&spec_at(&path));
        let number =
            |k: &[u8]| a.get(k).map(|v| u64::from_le_bytes(v[..8].try_into().expect("8 bytes")));
        assert!(number(b"single") >= Some(least));
        let several: Vec<_> = (0..3).map(|i| number(&key(i))).collect();
        assert!(
            several[0] >= Some(least) && several.iter().all(|n| *n == several[0]),
            "{several:?}"
        );
    }
}
