//! Threads make calls by chance in a process that is killed; each one's keys are a map behind it.
//!
//! ```text
//! seed ── calls of each thread ──> child: on the database, told one by one │ SIGKILL
//!     └── the same calls on maps ──> parent: as many as were told, or one more
//! ```
//!
//! A kill leaves the journal; now and then the folder in memory goes with it, as in a power cut: a
//! flush that was told counts then, and later calls are there up to some point of each thread. (Of
//! one partition: several logs end at points of their own.)
//!
//! A long run: `NIGH_MODEL_SECONDS=600 cargo test -p nigh --test db model -- --nocapture`.

use crate::killed::Said;
use crate::model::{Call, Map, apply, call, calls};
use crate::opening::memory_of;
use crate::{all, made_with, shared, small};
use nigh::{Db, Options};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Says for how long, in seconds.
const SECONDS: &str = "NIGH_MODEL_SECONDS";
/// Name the child's folder and its seed.
const FOLDER: &str = "NIGH_MODEL_FOLDER";
const SEED: &str = "NIGH_MODEL_SEED";
/// There if the child's memory is shared.
const SHARED: &str = "NIGH_MODEL_SHARED";
/// Threads of the child, and calls of each.
const THREADS: u8 = 3;
const CALLS: usize = 300;
/// Rounds with one database.
const ROUNDS: u64 = 8;

/// The calls of all threads.
fn lists(seed: u64) -> Vec<Vec<Call>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let lists =
        proptest::collection::vec(proptest::collection::vec(calls(), CALLS), usize::from(THREADS));
    lists.new_tree(&mut runner).expect("nothing is filtered").current()
}

fn options(is_shared: bool) -> Options {
    if is_shared { shared() } else { small() }
}

/// The keys of each thread.
fn maps(db: &Db) -> Vec<Map> {
    let mut maps = vec![Map::new(); usize::from(THREADS)];
    for (key, value) in all(db) {
        maps[usize::from(key[1])].insert(key, value);
    }
    maps
}

#[test]
fn child_calls_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let seed = std::env::var(SEED).expect("it is told").parse().expect("a number");
    let lists = lists(seed);
    let options = options(std::env::var_os(SHARED).is_some());
    let db = Db::open(folder, &options).expect("open");
    let mut maps = maps(&db);
    let tell = |text: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
    };
    tell("\nbegins\n".to_owned());
    std::thread::scope(|scope| {
        for ((thread, list), map) in (0..).zip(&lists).zip(&mut maps) {
            let (db, tell) = (&db, &tell);
            scope.spawn(move || {
                for (number, it) in (1..).zip(list) {
                    call(db, map, thread, it);
                    tell(format!("{thread} {number:06}\n"));
                }
            });
        }
    });
    db.close().expect("close");
}

/// Runs a child until it is killed; returns how many calls of each thread it told.
fn killed(folder: &Path, seed: u64, is_shared: bool, after: Duration) -> Vec<usize> {
    let own = std::env::current_exe().expect("this program");
    let (mut command, said) = (Command::new(own), Said::new());
    command.args(["--exact", "model_crashes::child_calls_until_it_is_killed", "--nocapture"]);
    if is_shared {
        command.env(SHARED, "1");
    }
    let mut child = command
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(said.stdio())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map_while(Result::ok).skip_while(|line| line != "begins");
    if lines.next().is_none() {
        panic!("seed {seed}: it doesn't open the database: {}", said.text());
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().expect("it is ours"); // SIGKILL
        child.wait().expect("it is ours")
    });
    let mut told = vec![0; usize::from(THREADS)];
    // A line that the kill has cut is shorter, and tells nothing.
    for line in lines.filter(|line| line.len() == "0 000000".len()) {
        let Some((thread, number)) = line.split_once(' ') else { continue };
        if let (Ok(thread), Ok(number)) = (thread.parse::<usize>(), number.parse()) {
            told[thread] = number;
        }
    }
    said.assert_killed_or_done(killer.join().expect("it ends"));
    told
}

/// Whether a thread's keys are as behind some number of its calls from `least` to `most`; that
/// state becomes the map.
fn is_prefix(
    map: &mut Map,
    found: &Map,
    thread: u8,
    list: &[Call],
    least: usize,
    most: usize,
) -> bool {
    list[..least].iter().for_each(|it| apply(map, thread, it));
    for it in list.iter().take(most).skip(least) {
        if map == found {
            return true;
        }
        apply(map, thread, it);
    }
    map == found
}

#[test]
#[expect(clippy::print_stdout, reason = "figures of a long run")]
fn model_threads_have_their_maps_behind_kills_and_power_cuts() {
    let seconds = std::env::var(SECONDS).map_or(2.0, |text| text.parse().expect("seconds"));
    let (begin, mut rounds, mut told, mut cuts) = (Instant::now(), 0_u64, 0, 0_u64);
    // Any seed will do; the same ones each time, so that what is found is found again.
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    // A slow machine has no time for two.
    let is_over = |rounds| rounds > 1 && begin.elapsed().as_secs_f64() >= seconds;
    while !is_over(rounds) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("data");
        let partitions = [1, 3][usize::try_from(next(2)).expect("0 or 1")];
        drop(made_with(&folder, partitions));
        let mut maps = vec![Map::new(); usize::from(THREADS)];
        for _ in 0..ROUNDS {
            let (seed, is_shared) = (next(1 << 30), next(3) == 0);
            let ran = killed(&folder, seed, is_shared, Duration::from_millis(2 + next(80)));
            let is_cut = partitions == 1 && next(3) == 0;
            if is_cut && let Some(memory) = memory_of(&folder) {
                std::fs::remove_dir_all(memory).expect("it is ours");
                cuts += 1;
            }
            let db = Db::open(&folder, &options(next(3) == 0)).expect("open");
            let lists = lists(seed);
            for (thread, found) in (0..).zip(self::maps(&db)) {
                let at = usize::from(thread);
                let (list, ran) = (&lists[at], ran[at]);
                let flushed = list[..ran].iter().rposition(|it| matches!(it, Call::Flush));
                let least = if is_cut { flushed.map_or(0, |it| it + 1) } else { ran };
                let is_there = is_prefix(&mut maps[at], &found, thread, list, least, ran + 1);
                assert!(
                    is_there,
                    "seed {seed}, thread {thread}: {ran} told, {least} must be there"
                );
            }
            db.close().expect("close");
            (rounds, told) = (rounds + 1, told + ran.iter().sum::<usize>());
            if is_over(rounds) {
                break;
            }
        }
    }
    println!("{rounds} rounds, {told} calls told, {cuts} power cuts");
    // One round in six, about.
    assert!(told > 0 && (rounds < 50 || cuts > 0), "{told} told, {cuts} power cuts");
}
