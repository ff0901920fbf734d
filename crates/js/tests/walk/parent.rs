//! Makes children run the cases, on a few threads, and gathers their reports.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::child::{Case, PROGRESS};

/// Children at a time.
const WORKERS: usize = 2;

/// The outcome of a case.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) case: Case,
    /// CPU time until another client had its answer, µs; none if the process ended.
    pub(crate) took_us: Option<u64>,
    pub(crate) peak_mib: u64,
    pub(crate) reply: String,
}

/// All operations and kinds of the walk.
pub(crate) struct Names {
    pub(crate) kinds: Vec<String>,
    /// Label of each operation: a builtin's path, or a statement.
    pub(crate) operations: Vec<String>,
    pub(crate) builtins: usize,
}

impl Names {
    pub(crate) fn ask() -> Names {
        let mut names = Names { kinds: Vec::new(), operations: Vec::new(), builtins: 0 };
        for line in Worker::new().order("names").expect("names its cases") {
            let mut words = line.splitn(3, ' ');
            match words.next() {
                Some("kind") => names.kinds.push(words.next().unwrap().to_owned()),
                Some(class @ ("builtin" | "statement")) => {
                    names.builtins += usize::from(class == "builtin");
                    names.operations.push(words.nth(1).unwrap().to_owned());
                }
                _ => {}
            }
        }
        names
    }

    /// The line of this case in the list of known operations: `form operation`.
    pub(crate) fn key(&self, case: &Case) -> String {
        format!("{} {}", case.form, self.operations[case.operation])
    }

    /// As in `found.txt`.
    pub(crate) fn line(&self, case: &Case) -> String {
        let (operation, kind) = (&self.operations[case.operation], &self.kinds[case.kind]);
        format!("{} ¦ {operation} ¦ {kind} ¦ {}", case.form, case.way)
    }

    pub(crate) fn label(&self, case: &Case) -> String {
        format!("{} | x = {} | way {}", self.key(case), self.kinds[case.kind], case.way)
    }
}

/// A child and the way to it; a new one is started when it has ended.
pub(crate) struct Worker {
    child: Option<(std::process::Child, ChildStdin, BufReader<ChildStdout>)>,
    progress: tempfile::NamedTempFile,
    /// What the child says before it ends.
    said: tempfile::NamedTempFile,
}

impl Worker {
    pub(crate) fn new() -> Worker {
        let file = || tempfile::NamedTempFile::new().unwrap();
        Worker { child: None, progress: file(), said: file() }
    }

    fn start(&mut self) -> &mut (std::process::Child, ChildStdin, BufReader<ChildStdout>) {
        self.child.get_or_insert_with(|| {
            self.said.as_file().set_len(0).unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "child_of_the_walk", "--nocapture"])
                .env(PROGRESS, self.progress.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(self.said.reopen().unwrap())
                .spawn()
                .unwrap();
            let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            (child, input, BufReader::new(output))
        })
    }

    /// Lines of the answer, without their `@`; those before it if the child ended.
    fn order(&mut self, order: &str) -> Result<Vec<String>, Vec<String>> {
        let (_, input, output) = self.start();
        let mut lines = Vec::new();
        let sent = writeln!(input, "{order}").and_then(|()| input.flush());
        for line in output.lines() {
            let Ok(line) = line else { break };
            match line.strip_prefix('@') {
                Some("end") if sent.is_ok() => return Ok(lines),
                Some(line) => lines.push(line.to_owned()),
                None => {}
            }
        }
        self.end();
        Err(lines)
    }

    pub(crate) fn end(&mut self) {
        if let Some((mut child, input, output)) = self.child.take() {
            drop((input, output));
            child.wait().unwrap();
        }
    }

    /// The outcomes of an order, a death included; and whether it came to its end.
    pub(crate) fn done(&mut self, order: &str, cases: &mut u64) -> (Vec<Done>, bool) {
        let answer = self.order(order);
        let ended = answer.is_ok();
        let mut done = Vec::new();
        for line in answer.unwrap_or_else(|lines| lines) {
            let mut words = line.split(' ');
            match words.next() {
                Some("did") => {
                    let case = Case::parse(&mut words).unwrap();
                    let mut number = || words.next().unwrap().parse().unwrap();
                    let (took_us, peak_mib) = (Some(number()), number());
                    let reply = words.collect::<Vec<_>>().join(" ");
                    done.push(Done { case, took_us, peak_mib, reply });
                }
                Some("count") => *cases += words.next().unwrap().parse::<u64>().unwrap(),
                _ => {}
            }
        }
        let lost = done.last().is_some_and(|done| done.reply.starts_with("(lost its thread)"));
        if !ended && !lost {
            let text = std::fs::read_to_string(self.progress.path()).unwrap();
            let case = Case::parse(text.split_whitespace()).expect("died before its first case");
            let said = std::fs::read_to_string(self.said.path()).unwrap();
            let why: Vec<&str> = said.lines().filter(|line| !line.is_empty()).take(3).collect();
            done.push(Done {
                case,
                took_us: None,
                peak_mib: 0,
                reply: format!("the process ended: {}", why.join(" ")),
            });
        }
        (done, ended)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Gives each order of a queue to a worker that is free; `next` says how to go on behind a death.
pub(crate) fn share(
    orders: Vec<String>,
    next: impl Fn(&Case) -> Option<String> + Sync,
    cases: &mut u64,
) -> Vec<Done> {
    let given = orders.len();
    let queue = Mutex::new(VecDeque::from(orders));
    let all = Mutex::new((Vec::new(), 0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut worker = Worker::new();
                loop {
                    let (order, left) = {
                        let mut queue = queue.lock().unwrap();
                        (queue.pop_front(), queue.len())
                    };
                    let Some(order) = order else { break };
                    if left.is_multiple_of(10) {
                        eprintln!("walk: {left} of {given} parts behind '{order}'");
                    }
                    let mut count = 0;
                    let (done, ended) = worker.done(&order, &mut count);
                    let died = done.last().filter(|_| !ended).map(|done| done.case.clone());
                    if let Some(order) = died.as_ref().and_then(&next) {
                        queue.lock().unwrap().push_front(order);
                    }
                    let mut all = all.lock().unwrap();
                    all.0.extend(done);
                    all.1 += count;
                }
            });
        }
    });
    let (done, count) = all.into_inner().unwrap();
    *cases += count;
    done
}

/// Each group's slowest first; a death is slower than all.
pub(crate) fn slowest_by_key(names: &Names, done: &[Done]) -> BTreeMap<String, Vec<Done>> {
    let mut groups: BTreeMap<String, Vec<Done>> = BTreeMap::new();
    for one in done {
        groups.entry(names.key(&one.case)).or_default().push(one.clone());
    }
    for group in groups.values_mut() {
        group.sort_by_key(|one| std::cmp::Reverse(one.took_us.unwrap_or(u64::MAX)));
    }
    groups
}
