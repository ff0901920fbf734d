//! Another process reads many keys at one moment, beside a writer at full speed: the test binary
//! runs itself as the reader.
//!
//! ```text
//! round n of the writer: a := n │ group := n, or half of it goes │ (pair := n, which expires)
//!                        │ fillers := n │ d := n, or it goes │ b := n
//! the reader, one view:  a │ some fillers │ pair │ d │ group │ b │ a
//! ```
//!
//! What `a` says tells what each filler has, but for those of this round; group and pair are of one
//! commit each; `b` is `a` or one behind. Everything goes every [`CLEAR_EVERY`] rounds. The arena
//! is nearly full, so that memory is reused and cleaned all the time. A value's bytes all follow
//! from key and round.
//!
//! `NIGH_SHM_OUTSIDE_SECONDS` makes it as long as one likes.

use super::{Arena, directory, spec};
use crate::{ArenaError, ForeignReader, TooNew, UpkeepBudget, View, WriteError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tells the child what to read.
const JOB: &str = "NIGH_SHM_OUTSIDE_JOB";
const SECONDS: &str = "NIGH_SHM_OUTSIDE_SECONDS";
const CAPACITY: u64 = 6 << 20;
/// Keys of which each pass writes all, in an order of its own; a power of two.
const FILLERS: u64 = 4096;
const FILLER_BYTES: u64 = 900;
/// Fillers that a round writes.
const PER_ROUND: u64 = 8;
const CLEAR_EVERY: u64 = 700;
const GROUP: usize = 8;
/// Fillers that a view reads, and all keys: behind the group and the fillers `a` twice, `b`, `d`,
/// the pair.
const LOOKS: usize = 40;
const KEYS: usize = LOOKS + GROUP + 6;
/// Views, and reads of single keys, at least.
const READS_MIN: u64 = 50;
/// How long the reader may take beyond its time: on a machine that does many other things.
const LATE_SECONDS: f64 = 120.0;
/// The rounds' time, Unix ms, goes on by one each. A pair comes every so many rounds, and lives so
/// long.
const PAIR_EVERY: u64 = 4;
const LIFE_MS: u64 = 1;
/// Index lines that a round searches for what is over.
const EXPIRE_LINES: u32 = 256;

/// Bytes of a value: key, round, and what follows from both.
fn value(key: &str, round: u64, bytes: u64) -> Vec<u8> {
    let unit = format!("{key}:{round};").into_bytes();
    unit.into_iter().cycle().take(usize::try_from(bytes).unwrap()).collect()
}

/// How long a value is: some of the group's lie in runs.
fn length(key: &str, round: u64) -> u64 {
    match key.as_bytes()[0] {
        b'f' => FILLER_BYTES - round % 64,
        b'g' if round.is_multiple_of(40) => 70_000 + round % 1000,
        _ => 30 + round % 100,
    }
}

fn group() -> [String; GROUP] {
    std::array::from_fn(|i| format!("g{i}"))
}

fn filler(number: u64) -> String {
    format!("f{number}")
}

/// Which filler is the one of this place in the endless row: each pass has all of them, in another
/// order.
fn filler_at(place: u64) -> u64 {
    let pass = place / FILLERS;
    (place * (2 * (pass % 50) + 77) + pass) % FILLERS
}

/// The last place before `end` at which a filler stands, from `start` on.
fn last_place(number: u64, start: u64, end: u64) -> Option<u64> {
    let passes = (start / FILLERS..=end / FILLERS).rev().take(3);
    passes.into_iter().find_map(|pass| {
        let factor = 2 * (pass % 50) + 77;
        // The inverse of an odd number by Newton's rule; five steps are enough for 12 bits.
        let inverse =
            (0..5).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
        let within = number.wrapping_sub(pass).wrapping_mul(inverse) % FILLERS;
        let place = pass * FILLERS + within;
        (start..end).contains(&place).then_some(place)
    })
}

/// The round behind the last clearing.
fn first_round(round: u64) -> u64 {
    round / CLEAR_EVERY * CLEAR_EVERY
}

/// The writer's side.
struct Story {
    a: Arena,
    expired: u32,
}

impl Story {
    fn soon(&mut self, now_ms: u64, mut write: impl FnMut(&mut Arena) -> Result<(), WriteError>) {
        while let Err(error) = write(&mut self.a) {
            assert!(error == WriteError::Busy, "{error}: {:?}", self.a.writer.stats());
            self.turn(now_ms);
            std::thread::yield_now();
        }
    }

    fn turn(&mut self, now_ms: u64) {
        self.a.writer.note_time(now_ms);
        self.a.me.quiescent();
        self.a.writer.maintain(UpkeepBudget { now_ms, ..UpkeepBudget::default() });
    }

    fn put(&mut self, key: &str, round: u64) {
        let value = value(key, round, length(key, round));
        self.soon(round, |a| a.put(key.as_bytes(), &value, 0));
    }

    /// Sets keys to this round or, if `None`, deletes them, in one commit.
    fn commit(&mut self, keys: &[(&str, Option<u64>)], round: u64, expiry_ms: u64) {
        self.soon(round, |a| {
            let mut refs = Vec::new();
            for (key, to) in keys {
                let hash = a.writer.hash(key.as_bytes());
                let staged = match to {
                    Some(round) => {
                        let value = value(key, *round, length(key, *round));
                        a.writer.stage(hash, key.as_bytes(), &[&value], expiry_ms)
                    }
                    None => a.writer.stage_delete(hash, key.as_bytes()),
                };
                refs.push(staged.inspect_err(|_| a.writer.abandon(&refs))?);
            }
            a.writer.commit(&a.me.pin(), false, &refs).inspect_err(|_| a.writer.abandon(&refs))
        });
    }

    fn round(&mut self, round: u64) {
        self.put("a", round);
        let group = group();
        let stays = |i: usize| i.is_multiple_of(2) || !round.is_multiple_of(3);
        let keys = group.iter().enumerate();
        let keys: Vec<_> = keys.map(|(i, key)| (&key[..], stays(i).then_some(round))).collect();
        self.commit(&keys, round, 0);
        if round.is_multiple_of(PAIR_EVERY) {
            self.commit(&[("p", Some(round)), ("q", Some(round))], round, round + LIFE_MS);
        }
        for place in round * PER_ROUND..(round + 1) * PER_ROUND {
            self.put(&filler(filler_at(place)), round);
        }
        if round.is_multiple_of(2) {
            self.put("d", round);
        } else {
            self.a.delete(b"d");
        }
        self.put("b", round);
        self.turn(round + 1);
        self.expired += self.a.writer.expire_step(&self.a.me.pin(), round + 1, EXPIRE_LINES).0;
        if (round + 1).is_multiple_of(CLEAR_EVERY) {
            self.a.writer.clear();
        }
    }
}

/// What one view has found of the keys, as rounds.
struct Found {
    a: [Option<u64>; 2],
    b: Option<u64>,
    d: Option<u64>,
    pair: [Option<u64>; 2],
    group: [Option<u64>; GROUP],
    fillers: Vec<(u64, Option<u64>)>,
}

fn read(view: &mut View<'_>, random: &mut u64) -> Result<Found, TooNew> {
    let mut out = Vec::new();
    let mut get = |key: &str| {
        let found = view.get(key.as_bytes(), &mut out)?;
        let Some(expiry) = found else { return Ok(None) };
        let text = String::from_utf8_lossy(&out[..out.len().min(30)]).into_owned();
        let round = text.split([':', ';']).nth(1).and_then(|n| n.parse().ok());
        let round: u64 = round.unwrap_or_else(|| panic!("{key} holds {text}"));
        assert!(out == value(key, round, length(key, round)), "{key} is torn: {text}");
        assert!(expiry == 0 || expiry == round + LIFE_MS, "{key} of {round}: {expiry}");
        Ok(Some(round))
    };
    let first = get("a")?;
    let mut fillers = Vec::new();
    for _ in 0..LOOKS {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (*random >> 33) % FILLERS;
        fillers.push((number, get(&filler(number))?));
    }
    let (pair, d) = ([get("p")?, get("q")?], get("d")?);
    let mut found = [None; GROUP];
    for (key, found) in group().iter().zip(&mut found) {
        *found = get(key)?;
    }
    Ok(Found { pair, d, group: found, b: get("b")?, a: [first, get("a")?], fillers })
}

impl Found {
    /// Whether all is of one moment. Returns the round of `a`.
    fn check(&self, clock_ms: u64) -> Option<u64> {
        let Found { a, b, d, pair, group, fillers } = self;
        assert_eq!(a[0], a[1], "a changed within a view");
        let Some(round) = a[0] else {
            let gone = b.is_none() && d.is_none() && group[0].is_none() && pair[0].is_none();
            assert!(gone && fillers.iter().all(|f| f.1.is_none()), "there without a: {b:?} {d:?}");
            return None;
        };
        let since = first_round(round);
        // Rounds that something set once a round may be of.
        let of = |found: Option<u64>| match found {
            Some(n) => n == round || n + 1 == round && n >= since,
            None => round == since,
        };
        assert!(of(*b), "b is {b:?} at {round}");
        assert!(of(group[0]) && group[0] >= *b, "the group is of {:?} at {round}", group[0]);
        for (i, found) in group.iter().enumerate() {
            let stays = i.is_multiple_of(2) || group[0].is_some_and(|n| !n.is_multiple_of(3));
            assert_eq!(*found, group[0].filter(|_| stays), "g{i} of {group:?} at {round}");
        }
        assert_eq!(pair[0], pair[1], "half of a pair at {round}");
        let newest = round / PAIR_EVERY * PAIR_EVERY;
        let is_over = newest + LIFE_MS < clock_ms;
        match pair[0] {
            Some(n) => assert!(n == newest && n >= since && !is_over, "p of {n} at {round}"),
            None => assert!(newest == round || newest < since || is_over, "no pair at {round}"),
        }
        let is_last = *b == a[0];
        // What `d` was behind a round.
        let after = |n: u64| (n.is_multiple_of(2) && n >= since).then_some(n);
        let before = || round.checked_sub(1).and_then(after);
        assert!(*d == after(round) || !is_last && *d == before(), "d is {d:?} at {round}, b {b:?}");
        for &(number, found) in fillers {
            let last = |end| last_place(number, since * PER_ROUND, end).map(|at| at / PER_ROUND);
            let (before, behind) = (last(round * PER_ROUND), last((round + 1) * PER_ROUND));
            let right = found == behind || !is_last && found == before;
            assert!(right, "f{number} is {found:?} at {round}, b {b:?}, not {before:?}");
        }
        Some(round)
    }
}

/// The reader's process. It ends when it is told to and has read enough.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn reader() {
    let Ok(path) = std::env::var(JOB) else { return };
    let (path, told) = (Path::new(&path), Path::new(&path).with_extension("end"));
    let foreign = ForeignReader::open(path).unwrap();
    let (mut random, mut newest, mut out) = (1, 0, Vec::new());
    let (mut views, mut attempts, mut given_up, mut alone) = (0u64, 0u64, 0u64, 0u64);
    let began = Instant::now();
    while views < READS_MIN || alone < READS_MIN || !told.exists() {
        let found = foreign.view(|view| {
            attempts += 1;
            Ok((read(view, &mut random)?, view.clock_ms()))
        });
        match found {
            Ok((found, clock_ms)) => {
                let round = found.check(clock_ms);
                assert!(round.is_none_or(|n| n >= newest), "{round:?} came back after {newest}");
                newest = round.unwrap_or(newest);
                views += 1;
            }
            Err(error) => {
                assert!(matches!(error, ArenaError::TooNew { .. }), "{error}");
                given_up += 1;
            }
        }
        // A single key goes by the same order of moments.
        if foreign.get(b"b", &mut out).is_ok_and(|found| found.is_some()) {
            let text = String::from_utf8_lossy(&out).into_owned();
            let b: u64 = text.split([':', ';']).nth(1).unwrap().parse().unwrap();
            assert!(b + 1 >= newest, "b is {b} alone, and a was {newest}");
            newest = newest.max(b);
            alone += 1;
        }
    }
    eprintln!(
        "{views} views of {KEYS} keys in {:?}, {alone} single reads, to round {newest}; \
         {attempts} attempts, {} too new; {given_up} gave up",
        began.elapsed(),
        attempts - views
    );
}

#[test]
fn another_process_reads_many_keys_at_one_moment() {
    // See the head of this file. The writer goes on until the reader's process has ended.
    let seconds = std::env::var(SECONDS).map_or(3.0, |text| text.parse().unwrap());
    let dir = directory();
    let path = dir.path().join("a");
    let mut story = Story { a: Arena::create(&spec(path.clone(), CAPACITY)), expired: 0 };
    let warm = FILLERS / PER_ROUND + 10;
    (0..warm).for_each(|round| story.round(round));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["tests::outside_process::reader", "--exact", "--ignored", "--nocapture"])
        .env(JOB, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (began, limit) = (Instant::now(), Duration::from_secs_f64(seconds + LATE_SECONDS));
    let (mut round, mut told) = (warm, false);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the reader never ends");
        }
        if !told && began.elapsed().as_secs_f64() > seconds && round > warm + CLEAR_EVERY {
            std::fs::write(path.with_extension("end"), []).unwrap();
            told = true;
        }
        for _ in 0..20 {
            story.round(round);
            round += 1;
        }
    };
    let (stats, expired) = (story.a.writer.stats(), story.expired);
    eprintln!(
        "{} rounds, {} changes, {} segments cleaned, {expired} keys expired in {:?}",
        round - warm,
        stats.lsn,
        stats.cleaner.segments,
        began.elapsed()
    );
    assert!(status.success(), "the reader's process: {status}");
    assert!(stats.cleaner.segments > 0 && expired > 0, "{expired} expired, {stats:?}");
}

#[test]
fn the_fillers_row_is_known_from_both_ends() {
    // What the reader computes of the row is what the writer walks along.
    let mut last = vec![None; usize::try_from(FILLERS).unwrap()];
    for place in 0..FILLERS * 60 {
        if place.is_multiple_of(997) {
            for (number, last) in last.iter().enumerate().step_by(101) {
                assert_eq!(last_place(number as u64, 0, place), *last, "f{number} before {place}");
            }
        }
        last[usize::try_from(filler_at(place)).unwrap()] = Some(place);
    }
}
