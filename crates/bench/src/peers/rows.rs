//! The rows of the comparison: commands, contestants and targets.
//!
//! Invariant: all contestants of a row do the same work on the same data.

use super::arena::{Room, file_bytes, record_bytes};
use super::contest::{Args, Contestant, KEY_BYTES, ResultRow, RowTarget, Servers, VALUE_BYTES};
use super::growing;
use super::levels::Levels;
use super::runner::{Runner, fill, in_turn, refill, settle, workload};
use crate::child::{ServerProcess, accepted};
use crate::drawn_keys::Keys;
use crate::engine::{Engine, Until};
use crate::graph::{self, Graph};
use crate::interrupt;
use crate::walk;
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use nigh_client::Connection;
use std::time::{Duration, Instant};

/// Bytes of overhead for each key, by the target.
const OVERHEAD_BYTES: usize = 40;
/// The memory target is this many times the bytes of keys, values and overhead.
const MEMORY_FACTOR: f64 = 1.25;
/// Pipeline depth of traversals by function.
const CALLS: u64 = 16;
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
const PLANS: [Plan; 12] = [
    plan("GET, c50 P1", GET, (50, 1), &[Ratio("Redis", 1.0), Ratio("floor", 0.95)]),
    plan("SET, c50 P1", SET, (50, 1), &[Ratio("Redis", 1.0), Ratio("floor", 0.95)]),
    plan("GET, c1 P1", GET, (1, 1), &[Ratio("Redis", 1.15)]),
    plan("SET, c1 P1", SET, (1, 1), &[Ratio("Redis", 1.15)]),
    plan("GET, c1000 P1", GET, (1_000, 1), &[Ratio("Redis", 1.6)]),
    // A process has 20,000 descriptors at most here: enough for two contestants.
    Plan { floor: false, ..plan("GET, c9000 P1", GET, (9_000, 1), &[Ratio("Redis", 1.5)]) },
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

/// The depths of traversals, and titles of their rows.
const DEPTHS: [(u32, &str); 2] = [(2, "countFriends, depth 2"), (3, "countFriends, depth 3")];

/// The targets of traversals at depth 3. Depth 2 has none.
const TRAVERSAL_TARGETS: [RowTarget; 3] = [
    Ratio("Redis, MGET per level", 10.0),
    Ratio("Redis, Lua on lists", 15.0),
    Ratio("Redis, GET per node", 400.0),
];

/// Whether any of these rows is wanted.
pub(super) fn any_wanted(args: &Args) -> bool {
    let plans = PLANS.iter().map(|plan| plan.title);
    let depths = DEPTHS.iter().map(|(_, title)| *title);
    plans.chain(depths).chain([MEMORY, growing::APPEND]).any(|title| args.wants(title))
}

/// Loads the servers and measures the wanted rows.
pub(super) fn measure(
    args: &Args,
    servers: &Servers,
    bar: &ProgressBar,
    rows: &mut Vec<ResultRow>,
) -> Result<()> {
    let wanted = |title: &str| args.wants(title);
    let plans: Vec<&Plan> = PLANS.iter().filter(|plan| wanted(plan.title)).collect();
    let runs: usize = plans.iter().map(|plan| if plan.floor { 3 } else { 2 }).sum();
    let depths: Vec<(u32, &'static str)> =
        DEPTHS.into_iter().filter(|(_, title)| wanted(title)).collect();
    let grows = wanted(growing::APPEND);
    let appends = if grows { 2 } else { 0 };
    bar.set_length(((runs + appends + depths.len() * 4) * args.pairs) as u64);
    let empty = file_bytes(servers.nigh.directory())?;
    bar.set_message("loading keys");
    fill(args, &servers.nigh)?;
    settle();
    let full = file_bytes(servers.nigh.directory())?;
    fill(args, &servers.redis)?;
    load_functions(servers)?;
    if wanted(MEMORY) {
        rows.push(memory(args, full.saturating_sub(empty)).tell(bar));
    }
    for plan in plans {
        bar.set_message(plan.title);
        rows.push(requests(args, servers, plan, bar)?.tell(bar));
    }
    if grows {
        bar.set_message(growing::APPEND);
        rows.push(growing::measure(args, servers, bar)?.tell(bar));
    }
    if !depths.is_empty() {
        let graph = Graph::load()?;
        load_graph(servers, &graph)?;
        for (depth, title) in depths {
            bar.set_message(title);
            rows.push(traversals(args, servers, &graph, depth, title, bar)?.tell(bar));
        }
    }
    Ok(())
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
        less_wins: true,
        note: format!(
            "{bytes} bytes in all; keys and values alone are {}",
            KEY_BYTES + VALUE_BYTES
        ),
    }
}

/// Measures requests that are all alike.
fn requests(args: &Args, servers: &Servers, plan: &Plan, bar: &ProgressBar) -> Result<ResultRow> {
    let time = args.run_time()?;
    let sets = plan.command == SET;
    let mut room = Room::new(args.arena, args.keys);
    let (mut refills, mut total_sets) = (0, 0);
    if sets {
        // Earlier rows have appended an unknown number of records, so begin with a fresh arena.
        refill(args, &servers.nigh)?;
    }
    let runner = |name, server| {
        Runner::new(name, server, args, plan.command, (plan.connections, plan.pipeline))
    };
    let mut runners = vec![runner("Nigh", &servers.nigh)?, runner("Redis", &servers.redis)?];
    if plan.floor {
        runners.push(runner("floor", &servers.floor)?);
    }
    in_turn(&mut runners, time / 4)?;
    if sets {
        room.add(runners[0].last());
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
        in_turn(&mut runners, time)?;
        if sets {
            room.add(runners[0].last());
            total_sets += runners[0].last();
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
        less_wins: false,
        note,
    })
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
        less_wins: false,
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
        interrupt::check()?;
        count(start)?;
    }
    Ok(starts.len() as f64 / begin.elapsed().as_secs_f64())
}

/// Counts from `starts` in turn for `time`; returns traversals per second.
fn timed(time: Duration, starts: &[u32], mut count: impl FnMut(u32) -> Result<u64>) -> Result<f64> {
    let begin = Instant::now();
    let mut done = 0u32;
    for &start in starts.iter().cycle() {
        interrupt::check()?;
        count(start)?;
        done += 1;
        if begin.elapsed() >= time {
            break;
        }
    }
    Ok(f64::from(done) / begin.elapsed().as_secs_f64())
}
