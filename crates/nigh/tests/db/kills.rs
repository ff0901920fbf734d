//! A process that writes is killed: what it was told is there, and batches are whole. A reader in
//! another process looks on all the while.
//!
//! ```text
//! child: batch or single, gone, pair ── last ── told │ SIGKILL │ the next child goes on
//! parent: reads ── each value whole, none older than one seen before, batches of one number
//! ```
//!
//! A thread's keys lie in one partition, so what it tells has one order.
//!
//! The test's own program is the child: it is started again with a test that does nothing unless it
//! is told a folder.

use crate::killed::Said;
use crate::{shared, small};
use nigh::{Db, DbReader, Options, ReaderError, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// Says how many children are killed.
const KILLS: &str = "NIGH_EMBEDDED_KILLS";
/// Names the child's folder.
const FOLDER: &str = "NIGH_KILLED_FOLDER";
/// There if the child's memory is shared.
const SHARED: &str = "NIGH_KILLED_SHARED";
/// Threads of the child.
const THREADS: u64 = 2;
/// Keys of a batch.
const BATCH_KEYS: u64 = 20;
/// Single keys of a thread.
const SINGLES: usize = 7;
/// Writes after which a child that wasn't killed ends.
const WRITES_MOST: u64 = 10_000_000;
/// Bytes of a number: the child's, and the step's.
const NUMBER_BYTES: usize = "000000 000000000".len();
/// Between tries of a reader that finds nothing to read.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the log that a start reads at most, about: it takes most of a round.
const LOG_BYTES: u64 = 16 << 20;
/// Rounds between lines that tell how far a long run is.
const ROUNDS_TOLD: u64 = 500;
/// How long what expires is there.
const BRIEF: Duration = Duration::from_millis(3);

/// Whether a step writes a batch, or a single key.
fn is_batch(n: u64) -> bool {
    n.is_multiple_of(3)
}

/// The single key that a step writes, if it does.
fn single(n: u64) -> u64 {
    n % SINGLES as u64
}

/// What a thread does to `gone` in a step: deletes it, or gives it the step's number.
fn deletes(n: u64) -> bool {
    n % 10 == 5
}

/// The value that a key has by a number: all of its bytes follow from both. Some are long.
fn value_of(key: &str, number: &str) -> Vec<u8> {
    let n: usize = number[7..].parse().expect("a number");
    let bytes = if n % 301 == 1 { 200_000 } else { NUMBER_BYTES + n * 37 % 700 };
    let unit = format!("{number} {key};").into_bytes();
    unit.into_iter().cycle().take(bytes).collect()
}

/// The number of a key's value, which is whole.
fn number_of(key: &str, value: &[u8]) -> String {
    let number = value.get(..NUMBER_BYTES).expect("a value has a number");
    let number = text(number);
    assert!(value == value_of(key, &number), "{key} is torn: {number}");
    number
}

/// What a thread's keys must have at least: the numbers of the last writes that it told of.
#[derive(Clone, Default)]
struct Least {
    singles: [Option<String>; SINGLES],
    batch: Option<String>,
}

impl Least {
    /// The thread has told of all its steps up to this one.
    fn rise(&mut self, last: &str) {
        let (round, n) = last.split_once(' ').expect("round and step");
        let n: u64 = n.parse().expect("a number");
        let number = |n: u64| format!("{round} {n:09}");
        for (key, least) in (0..).zip(&mut self.singles) {
            // A key has its turn again long before so many steps.
            let steps = (0..=n).rev().take(3 * SINGLES);
            let mut own = steps.filter(|n| !is_batch(*n) && single(*n) == key);
            *least = own.next().map(number).or(least.take());
        }
        self.batch = (0..=n).rev().find(|n| is_batch(*n)).map(number);
    }
}

/// The child: each thread writes numbers, and tells each when its writes have returned. Single keys
/// and batches in turn; each batch gives all its keys one number.
#[test]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let options = options(std::env::var_os(SHARED).is_some());
    let db = Db::open(Path::new(&folder), &options).expect("open");
    let first = db.get(b"round").expect("get");
    let first: u64 = first.map_or(0, |value| text(&value).parse().expect("a number"));
    db.put(b"round", (first + 1).to_string().as_bytes()).expect("put");
    println!("begins");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for n in 0..WRITES_MOST {
                    let number = format!("{first:06} {n:09}");
                    step(db, thread, n, &number);
                    db.put(format!("last {{{thread}}}").as_bytes(), number.as_bytes())
                        .expect("put");
                    println!("{thread} {number}");
                }
            });
        }
    });
}

/// What a thread writes in a step.
fn step(db: &Db, thread: u64, n: u64, number: &str) {
    if is_batch(n) {
        let mut batch = WriteBatch::new();
        for key in 0..BATCH_KEYS {
            batch.put(format!("batch {{{thread}}} {key}").as_bytes(), number.as_bytes());
        }
        db.write(&batch).expect("write");
    } else {
        let options = match n % 50 {
            0 => WriteOptions::strong(),
            _ => WriteOptions::new(),
        };
        let key = format!("single {{{thread}}} {}", single(n));
        db.put_with(key.as_bytes(), &value_of(&key, number), &options).expect("put");
    }
    let key = format!("gone {{{thread}}}");
    if deletes(n) {
        db.delete(key.as_bytes()).expect("delete");
    } else {
        db.put(key.as_bytes(), &value_of(&key, number)).expect("put");
    }
    if n.is_multiple_of(4) {
        // One time for both: `expires_in` would count from each put.
        let brief = WriteOptions::new().expires_at(SystemTime::now() + BRIEF);
        let mut batch = WriteBatch::new();
        for key in 0..2 {
            batch.put_with(
                format!("pair {{{thread}}} {key}").as_bytes(),
                number.as_bytes(),
                &brief,
            );
        }
        db.write(&batch).expect("write");
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).expect("text")
}

fn options(is_shared: bool) -> Options {
    if is_shared { shared() } else { small() }
}

/// Runs a child until it is killed; returns the last number that each thread told.
fn kill_one(folder: &Path, is_shared: bool, after: Duration) -> Vec<Option<String>> {
    let own = std::env::current_exe().expect("this program");
    let (mut command, said) = (Command::new(own), Said::new());
    if is_shared {
        command.env(SHARED, "1");
    }
    let mut child = command
        .args(["--exact", "kills::child_writes_until_it_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(said.stdio())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut last = vec![None; usize::try_from(THREADS).expect("few")];
    let mut lines = lines.map_while(Result::ok).skip_while(|line| !line.ends_with("begins"));
    if lines.next().is_none() {
        panic!("it doesn't open the database: {}", said.text());
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().expect("it is ours"); // SIGKILL
        child.wait().expect("it is ours")
    });
    // A line that the kill has cut is shorter, and tells nothing.
    for line in lines.filter(|line| line.len() == "0 000000 000000000".len()) {
        let (thread, number) = line.split_once(' ').expect("thread and number");
        last[thread.parse::<usize>().expect("a number")] = Some(number.to_owned());
    }
    said.assert_killed(killer.join().expect("it ends"));
    last
}

/// Tells that all is over, also if a test fails.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_was_told_is_there_after_a_kill_and_readers_see_nothing_else() {
    for partitions in [1, 2] {
        kill_and_look_on(partitions);
    }
}

#[test]
fn what_was_told_is_there_after_a_kill_that_takes_the_memory() {
    // Memory is private, and ends with the process; now and then it is shared.
    for partitions in [1, 2] {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("data");
        drop(Db::open(&folder, &small().partitions(partitions)).expect("it can be made"));
        let told = kill_all(&folder, kills(), &|round| round % 5 == 0, &|| true);
        assert!(told as u64 > kills(), "most children wrote");
    }
}

/// Rounds of a test with one number of partitions.
fn kills() -> u64 {
    std::env::var(KILLS).map_or(12, |text| text.parse::<u64>().expect("a number")) / 2
}

#[expect(clippy::print_stdout, reason = "figures of a long run")]
fn kill_and_look_on(partitions: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("data");
    drop(Db::open(&folder, &shared().partitions(partitions)).expect("it can be made"));
    let (ends, kills) = (AtomicBool::new(false), kills());
    std::thread::scope(|scope| {
        let ended = EndsOnDrop(&ends);
        let looks = scope.spawn(|| look_on(&folder, &ends));
        let told = kill_all(&folder, kills, &|_| true, &|| !looks.is_finished());
        drop(ended);
        let looks = looks.join().expect("the reader ends well");
        println!("{partitions} partitions: {told} writes told in {kills} rounds; {looks:?}");
        assert!(told as u64 > kills, "most children wrote");
        assert!(looks.moments > kills && looks.walks > 0 && looks.refused > 0, "{looks:?}");
    });
}

/// Kills children one after the other, and looks at what they have left. Returns how much they
/// told. `shares`: whether memory is shared in a round; `goes_on`: the reader does.
#[expect(clippy::print_stdout, reason = "progress of a long run")]
fn kill_all(
    folder: &Path,
    kills: u64,
    shares: &dyn Fn(u64) -> bool,
    goes_on: &dyn Fn() -> bool,
) -> usize {
    let (mut told, mut random) = (0, 1_u64);
    let mut least = vec![Least::default(); usize::try_from(THREADS).expect("few")];
    for round in 1..=kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let last = kill_one(folder, shares(round), Duration::from_millis(5 + (random >> 33) % 150));
        assert!(goes_on(), "round {round}: the reader has ended");
        told += last.iter().flatten().count();
        for (least, last) in least.iter_mut().zip(&last) {
            last.iter().for_each(|last| least.rise(last));
        }
        if round % 3 == 0 && round < kills {
            continue; // the next child goes on with what this one left
        }
        let db = Db::open(folder, &options(shares(round + 1))).expect("open");
        let get = |key: String| Some(text(&db.get(key.as_bytes()).expect("get")?));
        assert_eq!(get("round".to_owned()), Some(round.to_string()));
        for (thread, (last, least)) in last.iter().zip(&least).enumerate() {
            let has = get(format!("last {{{thread}}}"));
            assert!(has >= *last, "round {round}: told {last:?}, and {has:?} is there");
            let batch = (0..BATCH_KEYS).map(|key| get(format!("batch {{{thread}}} {key}")));
            let batch: Vec<_> = batch.collect();
            assert!(batch.iter().all(|value| *value == batch[0]), "round {round}: {batch:?}");
            // What that write told of is there too, or what replaced it; and so for each earlier.
            assert!(batch[0] >= least.batch, "round {round}: {batch:?}, told {:?}", least.batch);
            for (key, least) in least.singles.iter().enumerate() {
                let key = format!("single {{{thread}}} {key}");
                let value = db.get(key.as_bytes()).expect("get");
                let found = value.map(|value| number_of(&key, &value));
                assert!(found >= *least, "round {round}: {key} has {found:?}, told {least:?}");
            }
            let key = format!("gone {{{thread}}}");
            let gone = db.get(key.as_bytes()).expect("get").map(|it| number_of(&key, &it));
            if let Some(has) = &has {
                assert!(is_one_of_two(gone.as_deref(), has), "round {round}: {gone:?} at {has}");
            }
        }
        shorten_log(&db);
        db.close().expect("close");
        if round % ROUNDS_TOLD == 0 {
            println!("round {round} of {kills}");
        }
    }
    told
}

/// Gives compaction the syncs behind which files go: each kill cuts it off.
fn shorten_log(db: &Db) {
    for _ in 0..200 {
        if db.stats().expect("stats").log_bytes <= LOG_BYTES {
            return;
        }
        db.flush().expect("flush");
        std::thread::sleep(PAUSE);
    }
}

/// Whether `gone` is as a thread's last step has left it, or the one behind that.
fn is_one_of_two(gone: Option<&str>, last: &str) -> bool {
    let (round, n) = last.split_once(' ').expect("round and step");
    let n: u64 = n.parse().expect("a number");
    let after = |n: u64| (!deletes(n)).then(|| format!("{round} {n:09}"));
    let first_of_next = |gone: &str| gone.ends_with("000000000");
    [n, n + 1].iter().any(|n| after(*n).as_deref() == gone) || gone.is_some_and(first_of_next)
}

/// What a reader has done.
#[derive(Debug, Default)]
struct Looks {
    /// Reads of several keys at one moment.
    moments: u64,
    singles: u64,
    walks: u64,
    /// Reads that said that there is nothing to read now.
    refused: u64,
}

/// What a reader has seen of each key: the newest number.
#[derive(Default)]
struct Seen(BTreeMap<String, String>);

impl Seen {
    /// A key has a number now: not an older one than before.
    fn note(&mut self, key: &str, number: String) {
        let before = self.0.insert(key.to_owned(), number.clone());
        assert!(before.as_ref() <= Some(&number), "{key} went back from {before:?} to {number}");
    }
}

/// Reads all the while.
fn look_on(folder: &Path, ends: &AtomicBool) -> Looks {
    let (mut looks, mut seen) = (Looks::default(), Seen::default());
    let mut reader = None;
    while !ends.load(Ordering::SeqCst) {
        let now = match reader.take() {
            Some(reader) => reader,
            None => match Db::open_reader(folder) {
                Ok(reader) => reader,
                Err(ReaderError::NoDatabase { .. }) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => {
                    assert!(error.is_passing(), "{error}");
                    looks.refused += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
            },
        };
        for thread in 0..THREADS {
            if let Err(error) = look(&now, thread, &mut looks, &mut seen) {
                assert!(error.is_passing(), "{error}");
                looks.refused += 1;
                std::thread::sleep(PAUSE);
            }
        }
        // A new one now and then.
        reader = (looks.moments % 1000 != 999).then_some(now);
    }
    looks
}

fn look(
    reader: &DbReader,
    thread: u64,
    looks: &mut Looks,
    seen: &mut Seen,
) -> Result<(), ReaderError> {
    let singles: Vec<String> =
        (0..SINGLES).map(|key| format!("single {{{thread}}} {key}")).collect();
    let batch: Vec<String> =
        (0..BATCH_KEYS).map(|key| format!("batch {{{thread}}} {key}")).collect();
    let pair = [0, 1].map(|key| format!("pair {{{thread}}} {key}"));
    let last = format!("last {{{thread}}}");
    // One key after the other.
    for key in singles.iter().chain([&format!("gone {{{thread}}}")]) {
        let value = reader.get(key.as_bytes())?;
        assert!(value.is_some() || !seen.0.contains_key(key) || key.starts_with("gone"), "{key}");
        if let Some(value) = value {
            seen.note(key, number_of(key, &value));
        }
        looks.singles += 1;
    }
    // All at one moment.
    let keys: Vec<&[u8]> = [&last]
        .into_iter()
        .chain(&pair)
        .chain(&batch)
        .chain(&singles)
        .map(|it| it.as_bytes())
        .collect();
    let found = reader.multi_get(&keys)?;
    looks.moments += 1;
    let short = |at: usize| found[at].as_deref().map(text);
    let (last_has, batch_has) = (short(0), short(3));
    assert_eq!(short(1), short(2), "a batch that expires is whole");
    let whole = (3..3 + batch.len()).all(|at| short(at) == batch_has);
    assert!(whole, "a batch is of several numbers: {:?}", (3..3 + batch.len()).map(short));
    let behind = 3 + batch.len();
    let of_singles = singles.iter().zip(&found[behind..]);
    let of_singles = of_singles.filter_map(|(key, value)| Some(number_of(key, value.as_ref()?)));
    let newest = of_singles.chain(batch_has.clone()).max();
    assert!(newest >= last_has, "{last_has:?} was told, and {newest:?} is there");
    for (key, number) in [(&last, last_has), (&batch[0], batch_has), (&pair[0], short(1))] {
        assert!(number.is_some() || !seen.0.contains_key(key) || key.starts_with("pair"), "{key}");
        if let Some(number) = number {
            seen.note(key, number);
        }
    }
    // A walk now and then.
    if looks.moments.is_multiple_of(20) {
        let (mut met, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor = reader.scan(b"single", cursor, 10, |key, value| {
                let key = text(key);
                let number = number_of(&key, value);
                met.insert(key, number);
            })?;
            if cursor == 0 {
                break;
            }
        }
        for key in &singles {
            match met.get(key) {
                Some(number) => seen.note(key, number.clone()),
                None => assert!(!seen.0.contains_key(key), "a walk has missed {key}"),
            }
        }
        looks.walks += 1;
    }
    Ok(())
}
