//! The rows of the comparison: commands, contestants and targets.
//!
//! Invariant: all contestants of a row do the same work on the same data.

use super::arena::{Room, record_bytes, tmpfs_bytes};
use super::contest::{Args, Contestant, KEY_BYTES, ResultRow, RowTarget, Servers, VALUE_BYTES};
use super::growing;
use super::levels::Levels;
use crate::child::{ServerProcess, accepted};
use crate::drawn_keys::{Keys, RecordShape};
use crate::engine::{Engine, Until, histogram};
use crate::graph::{self, Graph};
use crate::load;
use crate::template::Workload;
use crate::walk;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use nigh_client::Connection;
use std::time::{Duration, Instant};

/// Bytes of overhead for each key, by the target.
const OVERHEAD_BYTES: usize = 40;
/// The memory target is this many times the bytes of keys, values and overhead.
const MEMORY_FACTOR: f64 = 1.25;
/// Time for the server's background threads to finish after a load.
const SETTLE: Duration = Duration::from_millis(500);
/// Length of a slice, in which one contestant is measured. Other guests of the host disturb some
/// seconds now and then; with short slices they disturb all contestants alike.
pub(super) const SLICE: Duration = Duration::from_millis(250);
/// Pipeline depth of traversals by function.
const CALLS: u64 = 16;
/// Seed of all random choices.
const SEED: u64 = 1;
/// Number of starts for GET per node: a traversal takes 20 ms.
const GET_STARTS: usize = 20;

/// The functions of the rows, for Nigh.
const JS: &str = include_str!("functions.js");
/// The same functions for Redis.
const LUA: &str = include_str!("functions.lua");

const GET: &str = "GET __key__";
const SET: &str = "SET __key__ __value__";

/// A row of requests that are all alike.
struct Plan {
    title: &'static str,
    command: &'static str,
    connections: usize,
    pipeline: u64,
    targets: &'static [RowTarget],
    floor: bool,
}

const fn plan(
    title: &'static str,
    command: &'static str,
    (connections, pipeline): (usize, u64),
    targets: &'static [RowTarget],
) -> Plan {
    Plan { title, command, connections, pipeline, targets, floor: true }
}

use RowTarget::{PerSecond, Ratio};
const PLANS: [Plan; 10] = [
    plan("GET, c50 P1", GET, (50, 1), &[Ratio("Redis", 1.0), Ratio("floor", 0.95)]),
    plan("SET, c50 P1", SET, (50, 1), &[Ratio("Redis", 1.0), Ratio("floor", 0.95)]),
    plan("GET, c1 P1", GET, (1, 1), &[Ratio("Redis", 1.15)]),
    plan("SET, c1 P1", SET, (1, 1), &[Ratio("Redis", 1.15)]),
    plan("GET, c50 P16", GET, (50, 16), &[Ratio("Redis", 3.0)]),
    plan("GET, c50 P64", GET, (50, 64), &[Ratio("Redis", 4.0)]),
    plan("SET, c50 P16", SET, (50, 16), &[Ratio("Redis", 2.5)]),
    plan("SET, c50 P64", SET, (50, 64), &[Ratio("Redis", 3.0)]),
    Plan {
        floor: false,
        ..plan(
            "FCALL no-op, c50 P64",
            "FCALL noop 0",
            (50, 64),
            &[Ratio("Redis", 3.0), PerSecond(2e6)],
        )
    },
    Plan {
        floor: false,
        ..plan(
            "FCALL with one read, c50 P64",
            "FCALL readOne 1 __key__",
            (50, 64),
            &[Ratio("Redis", 5.0)],
        )
    },
];

/// The targets of traversals at depth 3. Depth 2 has none.
const TRAVERSAL_TARGETS: [RowTarget; 3] = [
    Ratio("Redis, MGET per level", 10.0),
    Ratio("Redis, Lua on lists", 15.0),
    Ratio("Redis, GET per node", 400.0),
];

/// Loads the servers and measures the wanted rows.
pub(super) fn measure(args: &Args, servers: &Servers, bar: &ProgressBar) -> Result<Vec<ResultRow>> {
    let wanted = |title: &str| args.only.as_ref().is_none_or(|text| title.contains(text.as_str()));
    let plans: Vec<&Plan> = PLANS.iter().filter(|plan| wanted(plan.title)).collect();
    let runs: usize = plans.iter().map(|plan| if plan.floor { 3 } else { 2 }).sum();
    let depths: Vec<(u32, &'static str)> =
        [(2, "countFriends, depth 2"), (3, "countFriends, depth 3")]
            .into_iter()
            .filter(|(_, title)| wanted(title))
            .collect();
    let grows = wanted(growing::APPEND);
    let appends = if grows { 2 } else { 0 };
    bar.set_length(((runs + appends + depths.len() * 4) * args.pairs) as u64);
    let empty = tmpfs_bytes(servers.nigh.directory())?;
    bar.set_message("loading keys");
    fill(args, &servers.nigh)?;
    std::thread::sleep(SETTLE);
    let full = tmpfs_bytes(servers.nigh.directory())?;
    fill(args, &servers.redis)?;
    load_functions(servers)?;
    let mut rows = Vec::new();
    if wanted(MEMORY) {
        rows.push(memory(args, full.saturating_sub(empty)));
    }
    for plan in plans {
        bar.set_message(plan.title);
        rows.push(requests(args, servers, plan, bar)?);
    }
    if grows {
        bar.set_message(growing::APPEND);
        rows.push(growing::measure(args, servers, bar)?);
    }
    if !depths.is_empty() {
        let graph = Graph::load()?;
        load_graph(servers, &graph)?;
        for (depth, title) in depths {
            bar.set_message(title);
            rows.push(traversals(args, servers, &graph, depth, title, bar)?);
        }
    }
    Ok(rows)
}

/// Title of the memory row.
const MEMORY: &str = "Memory";

fn memory(args: &Args, bytes: u64) -> ResultRow {
    let per_key = bytes as f64 / args.keys as f64;
    let most = MEMORY_FACTOR * (KEY_BYTES + VALUE_BYTES + OVERHEAD_BYTES) as f64;
    ResultRow {
        title: MEMORY,
        command: format!("SET of {} keys; tmpfs blocks less those of an empty server", args.keys),
        unit: "bytes per key",
        contestants: vec![Contestant { name: "Nigh", rates: vec![per_key], latency_us: None }],
        targets: vec![RowTarget::AtMost(most)],
        note: format!(
            "{bytes} bytes in all; keys and values alone are {}",
            KEY_BYTES + VALUE_BYTES
        ),
    }
}

fn workload(args: &Args, command: &str, lines: &[String], keys: Keys) -> Result<Workload> {
    let shape = RecordShape::new(KEY_BYTES, VALUE_BYTES, args.keys)?;
    Workload::new(command, lines, 0.0, shape, keys, SEED)
}

/// Sets all keys of a server.
fn fill(args: &Args, server: &ServerProcess) -> Result<()> {
    let mut load = workload(args, "set", &[], Keys::Sequential { next: 0, count: args.keys })?;
    let mut engine = Engine::connect(
        server.address(),
        None,
        load::PRELOAD_CONNECTIONS,
        load::PRELOAD_PIPELINE,
        None,
    )?;
    let run = engine.run(&mut load, Until::Requests(args.keys), &mut |_| {})?;
    ensure!(run.tally.errors == 0, "loading keys failed: {:?}", run.tally.first_error);
    Ok(())
}

/// Measures requests that are all alike.
fn requests(args: &Args, servers: &Servers, plan: &Plan, bar: &ProgressBar) -> Result<ResultRow> {
    let time = args.run_time()?;
    let sets = plan.command == SET;
    let mut room = Room::new(args);
    let (mut refills, mut total_sets) = (0, 0);
    if sets {
        // Earlier rows have appended an unknown number of records, so begin with a fresh arena.
        refill(args, &servers.nigh)?;
    }
    let mut runners = vec![Runner::new("Nigh", &servers.nigh, args, plan)?];
    runners.push(Runner::new("Redis", &servers.redis, args, plan)?);
    if plan.floor {
        runners.push(Runner::new("floor", &servers.floor, args, plan)?);
    }
    let warmed = in_turn(&mut runners, time / 4)?;
    if sets {
        room.add(warmed);
    }
    for runner in &mut runners {
        runner.forget()?;
    }
    for _ in 0..args.pairs {
        if sets && room.is_short() {
            refill(args, &servers.nigh)?;
            room.refill(args.keys);
            refills += 1;
        }
        let replies = in_turn(&mut runners, time)?;
        if sets {
            room.add(replies);
            total_sets += replies;
        }
        bar.inc(runners.len() as u64);
    }
    let mut note = String::new();
    if sets {
        note = format!(
            "{total_sets} SETs on Nigh of {} B a record into an arena of {} MiB, flushed and \
             loaded again {refills} times between runs",
            record_bytes(),
            args.arena >> 20,
        );
    }
    Ok(ResultRow {
        title: plan.title,
        command: format!("{} -c {} -P {}", plan.command, plan.connections, plan.pipeline),
        unit: "per second",
        contestants: runners.into_iter().map(Runner::finish).collect(),
        targets: plan.targets.to_vec(),
        note,
    })
}

/// One run of each contestant, of `time`, in slices that alternate. Returns the number of replies
/// of the first contestant, which is Nigh.
fn in_turn(runners: &mut [Runner], time: Duration) -> Result<u64> {
    let slices = u32::try_from(time.as_nanos().div_ceil(SLICE.as_nanos()))?.max(1);
    for _ in 0..slices {
        for runner in &mut *runners {
            runner.slice(time / slices)?;
        }
    }
    let replies = runners.first().map_or(0, |nigh| nigh.replies);
    runners.iter_mut().for_each(Runner::end);
    Ok(replies)
}

/// Empties a server and loads all keys again.
fn refill(args: &Args, server: &ServerProcess) -> Result<()> {
    accepted(server.connect()?.call(["FLUSHALL"])?).context("FLUSHALL failed")?;
    std::thread::sleep(SETTLE);
    fill(args, server)?;
    std::thread::sleep(SETTLE);
    Ok(())
}

/// One server under one load.
struct Runner {
    name: &'static str,
    engine: Engine,
    load: Workload,
    rates: Vec<f64>,
    latency: Histogram<u64>,
    /// Replies of the current run.
    replies: u64,
    seconds: f64,
}

impl Runner {
    fn new(name: &'static str, server: &ServerProcess, args: &Args, plan: &Plan) -> Result<Self> {
        let keys = Keys::Uniform { count: args.keys };
        Ok(Self {
            name,
            engine: Engine::connect(server.address(), None, plan.connections, plan.pipeline, None)?,
            load: workload(args, plan.command, &[], keys)?,
            rates: Vec::new(),
            latency: histogram()?,
            replies: 0,
            seconds: 0.0,
        })
    }

    /// Measures one slice of a run.
    fn slice(&mut self, time: Duration) -> Result<()> {
        let run = self.engine.run(&mut self.load, Until::Elapsed(time), &mut |_| {})?;
        let tally = &run.tally;
        ensure!(tally.errors == 0, "{} answered with errors: {:?}", self.name, tally.first_error);
        ensure!(tally.nulls == 0, "{} lacks keys that were set", self.name);
        self.replies += tally.replies;
        self.seconds += run.seconds;
        self.latency.add(&run.latency)?;
        Ok(())
    }

    /// Ends a run.
    fn end(&mut self) {
        self.rates.push(std::mem::take(&mut self.replies) as f64 / self.seconds);
        self.seconds = 0.0;
    }

    /// Drops the figures so far: they are of the warm-up.
    fn forget(&mut self) -> Result<()> {
        self.rates.clear();
        self.latency = histogram()?;
        Ok(())
    }

    fn finish(self) -> Contestant {
        let at = |percent| self.latency.value_at_percentile(percent) as f64 / 1000.0;
        let latency_us = Some([at(50.0), at(99.0), at(99.99)]);
        Contestant { name: self.name, rates: self.rates, latency_us }
    }
}

fn load_functions(servers: &Servers) -> Result<()> {
    let load = |server: &ServerProcess, source: &str| {
        accepted(server.connect()?.call(["FUNCTION", "LOAD", "REPLACE", source])?)
    };
    load(&servers.nigh, JS).context("Nigh refused the functions")?;
    load(&servers.redis, LUA).context("Redis refused the functions")?;
    Ok(())
}

/// Loads the graph: strings into both servers, and lists for Lua into Redis.
fn load_graph(servers: &Servers, graph: &Graph) -> Result<()> {
    // After rows of SETs Nigh's arena may be nearly full.
    accepted(servers.nigh.connect()?.call(["FLUSHALL"])?)?;
    for server in [&servers.nigh, &servers.redis] {
        for reply in server.connect()?.pipeline(graph.commands())? {
            accepted(reply)?;
        }
    }
    accepted(servers.nigh.connect()?.call(["FUNCTION", "LOAD", "REPLACE", graph::LIBRARY])?)?;
    let push = |(node, friends): (&u32, &Vec<u32>)| {
        let friends = friends.iter().map(u32::to_string);
        ["RPUSH".to_owned(), format!("l:{node}")].into_iter().chain(friends).collect::<Vec<_>>()
    };
    for reply in servers.redis.connect()?.pipeline(graph.lists.iter().map(push))? {
        accepted(reply)?;
    }
    Ok(())
}

/// Measures traversals per second: by function in Nigh, in three ways in Redis.
fn traversals(
    args: &Args,
    servers: &Servers,
    graph: &Graph,
    depth: u32,
    title: &'static str,
    bar: &ProgressBar,
) -> Result<ResultRow> {
    let time = args.run_time()?;
    let command = format!("FCALL countFriends 0 __line__ {depth}");
    let lines: Vec<String> = graph.starts.iter().map(u32::to_string).collect();
    let mut load = workload(args, &command, &lines, Keys::Uniform { count: 1 })?;
    let mut nigh = Engine::connect(servers.nigh.address(), None, 1, CALLS, None)?;
    let mut lua = Engine::connect(servers.redis.address(), None, 1, CALLS, None)?;
    let mut levels = Levels::connect(servers.redis.address())?;
    let mut single = servers.redis.connect()?;
    agree(servers, graph, depth, &mut levels)?;
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut called = |engine: &mut Engine| {
        let run = engine.run(&mut load, Until::Elapsed(time), &mut |_| {})?;
        ensure!(run.tally.errors == 0, "countFriends failed: {:?}", run.tally.first_error);
        Ok::<_, anyhow::Error>(run.rate())
    };
    for _ in 0..args.pairs {
        rates[0].push(called(&mut nigh)?);
        bar.inc(1);
        rates[1].push(timed(time, &graph.starts, |start| levels.count(start, depth))?);
        bar.inc(1);
        rates[2].push(called(&mut lua)?);
        bar.inc(1);
        let few = &graph.starts[..GET_STARTS];
        let rate = whole_pass(few, |start| walk::by_get(&mut single, start, depth))?;
        rates[3].push(rate * graph.weight(few, depth));
        bar.inc(1);
    }
    let names = ["Nigh", "Redis, MGET per level", "Redis, Lua on lists", "Redis, GET per node"];
    let contestants = names
        .into_iter()
        .zip(rates)
        .map(|(name, rates)| Contestant { name, rates, latency_us: None })
        .collect();
    Ok(ResultRow {
        title,
        command: format!("{command} -c 1 -P {CALLS} (functions); 200 starts, in turn"),
        unit: "traversals per second",
        contestants,
        targets: if depth == 3 { TRAVERSAL_TARGETS.to_vec() } else { Vec::new() },
        note: format!(
            "GET per node from the first {GET_STARTS} starts only, once in each run, its rate \
             weighed by their look-ups"
        ),
    })
}

/// An error, unless all ways give the same counts.
fn agree(servers: &Servers, graph: &Graph, depth: u32, levels: &mut Levels) -> Result<()> {
    let counts = |connection: &mut Connection| walk::by_call(connection, &graph.starts, depth);
    let nigh = counts(&mut servers.nigh.connect()?)?;
    let lua = counts(&mut servers.redis.connect()?)?;
    for (at, &start) in graph.starts.iter().enumerate() {
        let level = levels.count(start, depth)?;
        ensure!(
            nigh[at] == lua[at] && nigh[at] == level,
            "counts differ for node {start}: Nigh {}, Lua {}, MGET {level}",
            nigh[at],
            lua[at]
        );
    }
    Ok(())
}

/// The rate of one count from each of `starts`. Starts differ too much to measure only some.
fn whole_pass(starts: &[u32], mut count: impl FnMut(u32) -> Result<u64>) -> Result<f64> {
    let begin = Instant::now();
    for &start in starts {
        count(start)?;
    }
    Ok(starts.len() as f64 / begin.elapsed().as_secs_f64())
}

/// Counts from `starts` in turn for `time`; returns traversals per second.
fn timed(time: Duration, starts: &[u32], mut count: impl FnMut(u32) -> Result<u64>) -> Result<f64> {
    let begin = Instant::now();
    let mut done = 0u32;
    for &start in starts.iter().cycle() {
        count(start)?;
        done += 1;
        if begin.elapsed() >= time {
            break;
        }
    }
    Ok(f64::from(done) / begin.elapsed().as_secs_f64())
}
