//! A walk over all builtins of V8, and over the syntax that touches sizes. A case is one call with
//! the default limits, which applies a builtin or a statement to large values of one kind, as
//! receiver and as arguments, once or in an endless loop. The next call, of another client, must be
//! answered within the time limit and 50 ms, and the process must go on.
//!
//! `intrinsics.js` finds all functions that user code reaches, so no list of them is kept by hand.
//! The values are in `kinds.js`, the statements in `statements.txt`, the ways to call in
//! `drive.js`. Cases run in child processes: so a case that ends its process is a finding with a
//! name. Time is CPU time of the shard's thread. A case that takes too long is repeated alone,
//! twice, and the least counts. A child that ends says why.
//!
//! The suite runs all cases that were ever found (`found.txt`).
//!
//! ```text
//! NIGH_WALK=all cargo test -p nigh-js --test walk -- --nocapture     all cases, and loops of the slow ones: hours
//! NIGH_WALK_KINDS=10..20 …                                           the same of some kinds of values: in parts
//! NIGH_WALK=sample …                                                 one of SAMPLE of all cases
//! NIGH_WALK=record …                                                 the same, and says what to add to found.txt
//! NIGH_WALK_ONLY=Array.prototype …                                   all cases of operations with this in their name
//! ```
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::print_stdout, reason = "children answer there, and the walk reports")]

mod child;
#[path = "../js/common/mod.rs"]
mod common;
mod parent;

use child::Case;
use nigh_js::FunctionLimits;
use parent::{Done, Names, Worker, share, slowest_by_key};

/// Time behind the limit, µs, in which the shard has to answer another client.
const GRACE_US: u64 = 50_000;
/// Most memory of the process, MiB, while a case runs. Heap and buffers may have 256 each, a call
/// that is being stopped for its heap some more, and the test's own values are in it.
const PEAK_MIB: u64 = 1_500;
/// A case that takes less once, µs, is not done in a loop.
const LOOPED_US: u64 = 200;
/// Cases of a group that are done again before the group is believed to be fine.
const AGAIN_MAX: usize = 3;

/// Operations that are known to take too long, as `form operation`. This list only shrinks: if one
/// of them is stopped in time, the test fails. Each has a case in `found.txt`.
const KNOWN_OPEN: &str = include_str!("known_open.txt");

#[test]
#[ignore = "the walk starts it"]
fn child_of_the_walk() {
    child::serve();
}

fn bound_us() -> u64 {
    FunctionLimits::default().call_ms * 1_000 + GRACE_US
}

fn is_over(done: &Done) -> bool {
    done.took_us.is_none_or(|took| took > bound_us()) || done.peak_mib > PEAK_MIB
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The cases of `found.txt`: `form | operation | kind | way`.
fn found(names: &Names) -> Vec<Case> {
    let index = |all: &[String], name: &str| {
        all.iter().position(|other| other == name).unwrap_or_else(|| panic!("found.txt: no {name}"))
    };
    let case = |line: &str| {
        let parts: Vec<&str> = line.split(" ¦ ").collect();
        let [form, operation, kind, way] = parts[..] else { panic!("found.txt: {line}") };
        let (kind, operation) = (index(&names.kinds, kind), index(&names.operations, operation));
        Case::new(form, kind, operation, way.parse().unwrap())
    };
    let mut cases: Vec<Case> = lines(include_str!("found.txt")).map(case).collect();
    cases.sort_by_key(|case| (case.kind, case.operation, case.way));
    cases
}

fn order(case: &Case) -> String {
    format!("case {}", case.text())
}

/// The slowest case of each group that is not stopped, in an endless loop.
fn loops(names: &Names, done: &[Done], thorough: bool) -> Vec<Case> {
    let each = if thorough { 6 } else { 1 };
    let mut looped = Vec::new();
    for group in slowest_by_key(names, done).values() {
        let worth = |one: &&Done| {
            one.case.form == "once"
                && !one.reply.starts_with('-')
                && one.took_us.is_some_and(|took| (LOOPED_US..=bound_us()).contains(&took))
        };
        for one in group.iter().filter(worth).take(each) {
            looped.push(Case { form: "loop".into(), ..one.case.clone() });
        }
    }
    looped.sort_by_key(|case| (case.kind, case.operation, case.way));
    looped
}

/// The time of a case alone: the least of two runs, each in a process of its own.
fn alone(case: &Case) -> Done {
    let once = || Worker::new().done(&order(case), &mut 0).0.pop().expect("a case or a death");
    let (first, second) = (once(), once());
    let took = |done: &Done| done.took_us.unwrap_or(u64::MAX);
    if took(&first) <= took(&second) { first } else { second }
}

/// For each group the case that is over the bound, when it is done alone too.
fn confirmed(names: &Names, done: &[Done], known: &[&str]) -> Vec<Done> {
    let mut over = Vec::new();
    for (key, group) in slowest_by_key(names, done) {
        let suspects: Vec<&Done> = group.iter().filter(|one| is_over(one)).collect();
        // A known operation needs no proof.
        if known.contains(&&*key) {
            over.extend(suspects.first().map(|&one| one.clone()));
            continue;
        }
        over.extend(suspects.iter().take(AGAIN_MAX).map(|one| alone(&one.case)).find(is_over));
    }
    over
}

fn print(names: &Names, done: &Done) {
    let took = done.took_us.map_or("-".into(), |took| format!("{:.1}", took as f64 / 1_000.0));
    println!("{took:>8} ms {:>5} MiB  {}: {}", done.peak_mib, names.label(&done.case), done.reply);
}

/// The kinds that `NIGH_WALK_KINDS` asks for, by number; else all.
fn part(kinds: usize) -> std::ops::Range<usize> {
    let Ok(asked) = std::env::var("NIGH_WALK_KINDS") else { return 0..kinds };
    let part =
        asked.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let part = part.map(|part: std::ops::Range<usize>| part.start..part.end.min(kinds));
    part.filter(|part| !part.is_empty()).expect("NIGH_WALK_KINDS is like 10..20, some of all kinds")
}

/// All cases that `mode` asks for, and their number.
fn walk(names: &Names, mode: &str, filtered: bool) -> (Vec<Done>, u64) {
    let mut cases = 0;
    let mut done = Vec::new();
    if !filtered {
        let orders: Vec<String> = found(names).iter().map(order).collect();
        cases += orders.len() as u64;
        done.extend(share(orders, |_| None, &mut 0));
    }
    if mode.is_empty() && !filtered {
        return (done, cases);
    }
    let kinds = part(names.kinds.len());
    let orders = kinds.map(|kind| format!("sweep once {kind} 0 0")).collect();
    let behind = |case: &Case| {
        let (kind, next) = (case.kind, case.operation + 1);
        (next < names.operations.len()).then(|| format!("sweep once {kind} {next} 0"))
    };
    let swept = share(orders, behind, &mut cases);
    let looped = loops(names, &swept, mode == "all" || filtered);
    cases += looped.len() as u64;
    done.extend(swept);
    done.extend(share(looped.iter().map(order).collect(), |_| None, &mut 0));
    (done, cases)
}

#[test]
fn no_builtin_keeps_a_shard_beyond_its_limit() {
    // After a call of any builtin with any large value, the next client has its answer soon after
    // the limit.
    let names = Names::ask();
    let mode = std::env::var("NIGH_WALK").unwrap_or_default();
    let filtered = std::env::var_os("NIGH_WALK_ONLY").is_some();
    let (mut done, cases) = walk(&names, &mode, filtered);
    let known: Vec<&str> = lines(KNOWN_OPEN).collect();
    if mode == "record" {
        let groups = slowest_by_key(&names, &done);
        let first = groups.values().map(|group| &group[0]).filter(|one| is_over(one));
        first.for_each(|one| println!("record {}", names.line(&one.case)));
        return;
    }
    let over = confirmed(&names, &done, &known);
    let lost = done.iter().filter(|one| one.reply.starts_with("(lost")).count();
    println!(
        "{} builtins and {} statements, {} kinds of values, {cases} cases; {lost} cost their shard a \
         thread, {} groups get through; the slowest:",
        names.builtins,
        names.operations.len() - names.builtins,
        names.kinds.len(),
        over.len()
    );
    done.sort_by_key(|one| std::cmp::Reverse(one.took_us.unwrap_or(u64::MAX)));
    done.iter().take(10).for_each(|one| print(&names, one));
    over.iter().for_each(|one| println!("gets through: {}", names.line(&one.case)));
    let keys: Vec<String> = over.iter().map(|one| names.key(&one.case)).collect();
    let new: Vec<&String> = keys.iter().filter(|key| !known.contains(&key.as_str())).collect();
    assert!(new.is_empty(), "these get through: {new:#?}");
    let healed: Vec<&&str> = known.iter().filter(|key| !keys.iter().any(|k| k == *key)).collect();
    assert!(
        filtered || healed.is_empty(),
        "take from known_open.txt what is held off: {healed:#?}"
    );
}
