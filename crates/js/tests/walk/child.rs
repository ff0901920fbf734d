//! The process that runs the cases: it reads an order a line, and tells the time and memory of each
//! case.
//!
//! ```text
//! names             ->  @kind NAME … @builtin WAYS PATH … @statement WAYS TEXT … @end
//! sweep K B P       ->  @did … for slow cases of kind K, from operation B, way P on; @end
//! case FORM K B P   ->  @did …; @end
//!
//! @did FORM K B P MICROSECONDS PEAK_MIB REPLY
//! @lost             ->  the case cost the shard its thread, and the child ends
//! ```
//!
//! Before each case its name goes to the progress file, so that a death has a name.

use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;

use nigh_js::{Fiber, FunctionLimits, Runtime};

use crate::common::Bench;

/// Where a child finds the progress file.
pub(crate) const PROGRESS: &str = "NIGH_WALK_PROGRESS";
/// A case that takes less, µs, is not reported: no loop of it runs over a limit for long.
const WORTH_US: u64 = 25;
/// Most time of a preparation, ms: it stands for any number of calls that prepare.
const PREPARE_MS: u64 = 60_000;
/// How long a stopped case may go on before the process is aborted, ms. Shorter than by default,
/// which only makes the walk over what does not end shorter.
const GRACE_MS: u64 = 300;
/// A sample has one of so many cases.
const SAMPLE: usize = 256;
/// Stack of the thread on which the cases run.
const STACK_BYTES: usize = 8 << 20;
const BIG_VALUE: usize = 16 << 20;

/// One case: a form (`once`, `loop`), and the indices of kind, operation and way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) form: String,
    pub(crate) kind: usize,
    pub(crate) operation: usize,
    pub(crate) way: usize,
}

impl Case {
    pub(crate) fn new(form: &str, kind: usize, operation: usize, way: usize) -> Case {
        Case { form: form.to_owned(), kind, operation, way }
    }

    /// From the words that [`Case::text`] makes.
    pub(crate) fn parse<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<Case> {
        let form = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        Some(Case { form, kind: number()?, operation: number()?, way: number()? })
    }

    /// Whether the suite does it: the same each time, spread over all kinds, operations and ways.
    fn is_sampled(&self) -> bool {
        let mixed = self.kind * 0x9e37_79b1 + self.operation * 0x85eb_ca6b + self.way * 0xc2b2_ae35;
        (mixed >> 7).is_multiple_of(SAMPLE)
    }

    pub(crate) fn text(&self) -> String {
        format!("{} {} {} {}", self.form, self.kind, self.operation, self.way)
    }
}

/// The library of the walk.
fn library() -> String {
    let mut rows = String::new();
    for statement in statements() {
        let head = "(x, y, f, db, record) => { let k = 0, o = {}, a, b, c;";
        let once = format!("{head} {{ {statement} }} }}");
        let looped = format!("{head} for (;;) {{ try {{ {statement} }} catch {{}} }} }}");
        rows += &format!("[{statement:?}, {once}, {looped}],\n");
    }
    [
        include_str!("kinds.js"),
        include_str!("intrinsics.js"),
        &format!("const statements = [{rows}];\n"),
        include_str!("drive.js"),
    ]
    .concat()
}

fn statements() -> impl Iterator<Item = &'static str> {
    include_str!("statements.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
}

fn limits(call_ms: u64) -> FunctionLimits {
    FunctionLimits { call_ms, grace_ms: GRACE_MS, ..FunctionLimits::default() }
}

/// CPU time that a thread has used, µs. The kernel goes by its number: the clock of one that isn't
/// the caller.
struct Clock(i32);

impl Clock {
    fn here() -> Clock {
        Clock(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// None if the thread has ended.
    fn us(&self) -> Option<u64> {
        let path = format!("/proc/self/task/{}/schedstat", self.0);
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.split(' ').next()?.parse::<u64>().ok()? / 1_000)
    }
}

/// Most memory that the process has had since it was last asked, MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let peak: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak >> 10
}

struct Child {
    bench: Bench,
    progress: std::fs::File,
    /// Of each operation: in how many ways it is done, and its name.
    ways: Vec<usize>,
    labels: Vec<String>,
}

impl Child {
    fn new(fiber: Fiber) -> Child {
        let mut bench = Bench::over(Runtime::on(fiber, limits(PREPARE_MS)).unwrap());
        bench.add("t", &library());
        bench.put("big", vec![b'1'; BIG_VALUE]);
        let path = std::env::var_os(PROGRESS).unwrap();
        let progress = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        Child { bench, progress, ways: Vec::new(), labels: Vec::new() }
    }

    fn names(&mut self) -> Vec<String> {
        let reply = self.bench.call("names", &[]);
        let lines: Vec<String> = reply
            .split("\r\n")
            .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty())
            .map(str::to_owned)
            .collect();
        for line in lines.iter().filter(|line| !line.starts_with("kind ")) {
            let mut words = line.splitn(3, ' ').skip(1);
            self.ways.push(words.next().unwrap().parse().unwrap());
            self.labels.push(words.next().unwrap().to_owned());
        }
        lines
    }

    /// CPU time of the case and of another client's call behind it, µs; the reply to the case.
    fn run(&mut self, case: &Case) -> (u64, String) {
        self.progress.write_all_at(format!("{:<60}", case.text()).as_bytes(), 0).unwrap();
        let words = [case.operation, case.kind, case.way].map(|number| number.to_string());
        let args = [&*words[0], &*words[1], &*words[2]];
        self.bench.runtime.set_limits(limits(PREPARE_MS));
        let prepared = self.bench.call("prepare", &args);
        assert_eq!(prepared, ":1\r\n", "{}", case.text());
        self.bench.runtime.set_limits(limits(FunctionLimits::default().call_ms));
        let clock = Clock::here();
        let before = clock.us().unwrap();
        let reply = self.bench.call(&case.form, &args);
        let fine = self.bench.call("fine", &[]);
        // A call that V8 doesn't leave costs the shard its thread: then both that one's time counts
        // and the new one's.
        let here = Clock::here();
        let mut took = clock.us().map_or(0, |now| now - before);
        if here.0 != clock.0 {
            took += here.us().unwrap();
        }
        assert_eq!(fine, ":1\r\n", "after {}", case.text());
        if reply.starts_with('-') {
            self.bench.runtime.idle();
        }
        (took, reply.chars().take(90).collect::<String>().replace(['\r', '\n'], " "))
    }

    /// Says what a case took. A child that has lost a thread to it ends: what lingers there would
    /// count for others.
    fn report(&self, case: &Case, took: u64, reply: &str) {
        let lost = self.bench.runtime.stats().isolates_lost > 0;
        let reply = if lost { format!("(lost its thread) {reply}") } else { reply.to_owned() };
        println!("@did {} {took} {} {reply}", case.text(), peak_mib());
        if lost {
            println!("@lost");
            std::io::stdout().flush().unwrap();
            std::process::exit(0);
        }
    }

    /// All cases of a kind, each once, from an operation and way on.
    fn sweep(&mut self, first: &Case) {
        let only = std::env::var("NIGH_WALK_ONLY").ok();
        let thorough = only.is_some() || std::env::var("NIGH_WALK").is_ok_and(|walk| walk == "all");
        let mut count = 0;
        for operation in first.operation..self.ways.len() {
            if only.as_ref().is_some_and(|only| !self.labels[operation].contains(only)) {
                continue;
            }
            let begin = if operation == first.operation { first.way } else { 0 };
            for way in begin..self.ways[operation] {
                let case = Case::new("once", first.kind, operation, way);
                if !thorough && !case.is_sampled() {
                    continue;
                }
                let (took, reply) = self.run(&case);
                count += 1;
                if took >= WORTH_US {
                    self.report(&case, took, &reply);
                }
                // One way that has to be stopped tells enough of this pair.
                if !thorough && reply.starts_with('-') {
                    break;
                }
            }
        }
        println!("@count {count}");
    }
}

/// Does what standard input says until it ends, on a fiber as a shard is.
pub(crate) fn serve() {
    let on_fiber = |fiber| obey(Child::new(fiber));
    assert!(Fiber::spawn("walk", STACK_BYTES, on_fiber).unwrap().join(), "the child has panicked");
}

fn obey(mut child: Child) {
    let names = child.names();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        match words.next().unwrap() {
            "names" => names.iter().for_each(|name| println!("@{name}")),
            "sweep" => child.sweep(&Case::parse(words).unwrap()),
            "case" => {
                let case = Case::parse(words).unwrap();
                let (took, reply) = child.run(&case);
                child.report(&case, took, &reply);
            }
            other => panic!("unknown order {other}"),
        }
        println!("@end");
        std::io::stdout().flush().unwrap();
    }
}
