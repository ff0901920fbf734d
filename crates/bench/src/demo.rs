//! `nigh-bench demo`: counts friends in a graph from the client side and inside the store.
//!
//! ```text
//! child       graph            walk                       demo
//! a server ─► loaded into it ─► counted in three ways ─► compared, printed
//! ```
//!
//! Invariants:
//! 1. The demo compares every count of every way. Two that differ are an error.
//! 2. The demo ends its server and removes arenas and log, also after an error or an interrupt.

use super::child::{Program, ServerProcess, accepted};
use super::graph::{self, Graph};
use super::interrupt;
use super::report::thousands;
use super::walk;
use anyhow::{Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_client::Connection;
use std::time::{Duration, Instant};

/// The demo measures reads, and leaves no files. It stops no function, on however slow a machine.
const FLAGS: [&str; 4] = ["--appendonly", "no", "--function-time-limit-ms", "10000"];
/// Number of starts for GET per node: all 200 would take a minute.
const GET_STARTS: usize = 20;
/// The least time of a measurement.
const MEASURED: Duration = Duration::from_millis(300);
/// SETs in one pipeline.
const LOADED_AT_ONCE: usize = 64;
/// Depths of the traversals.
const DEPTHS: std::ops::RangeInclusive<u32> = 1..=3;

/// Options of `nigh-bench demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds over which each figure is taken
    #[arg(long, default_value_t = MEASURED.as_secs_f64(), value_name = "SECONDS")]
    seconds: f64,
    #[command(flatten)]
    program: Program,
}

/// One way to count, at one depth.
struct DemoRow {
    way: &'static str,
    depth: u32,
    starts: usize,
    per_second: f64,
}

/// Runs the demo.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Ok(least) = Duration::try_from_secs_f64(args.seconds) else {
        bail!("--seconds must be a number of seconds, not {}", args.seconds);
    };
    interrupt::watch()?;
    let bar = ProgressBar::new(12);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {msg}")?);
    bar.set_message("unpacking the graph");
    let graph = Graph::load()?;
    bar.inc(1);
    bar.set_message("starting a server");
    let server = ServerProcess::nigh(&args.program.path()?, &[], &FLAGS.map(Into::into))?;
    let mut connection = server.connect()?;
    bar.inc(1);
    bar.set_message("loading the graph and the function");
    load(&mut connection, &graph)?;
    bar.inc(1);
    let mut rows = Vec::new();
    for depth in DEPTHS {
        rows.extend(count(&mut connection, &graph, depth, least, &bar)?);
    }
    drop(connection);
    drop(server);
    bar.finish_and_clear();
    print(&graph, &rows);
    Ok(())
}

/// Stores the graph and the library that walks it.
pub(crate) fn load(connection: &mut Connection, graph: &Graph) -> Result<()> {
    for commands in graph.commands().chunks(LOADED_AT_ONCE) {
        for reply in connection.pipeline(commands)? {
            accepted(reply)?;
        }
    }
    accepted(connection.call(&["FUNCTION", "LOAD", "REPLACE", graph::LIBRARY])?)?;
    Ok(())
}

/// Counts in all three ways at one depth, and compares the counts.
fn count(
    connection: &mut Connection,
    graph: &Graph,
    depth: u32,
    least: Duration,
    bar: &ProgressBar,
) -> Result<Vec<DemoRow>> {
    let few = &graph.starts[..GET_STARTS.min(graph.starts.len())];
    let all = &graph.starts[..];
    let mut rows = Vec::new();
    let mut counts: Vec<Vec<u64>> = Vec::new();
    let mut measure = |way, starts: &[u32], pass: &mut dyn FnMut(&[u32]) -> Result<Vec<u64>>| {
        bar.set_message(format!("depth {depth}, {way}"));
        let start = Instant::now();
        let mut passes = 0;
        let mut result = Vec::new();
        while passes == 0 || start.elapsed() < least {
            interrupt::check()?;
            result = pass(starts)?;
            passes += 1;
        }
        let done = (passes * starts.len()) as f64 * graph.weight(starts, depth);
        let per_second = done / start.elapsed().as_secs_f64();
        rows.push(DemoRow { way, depth, starts: starts.len(), per_second });
        counts.push(result);
        bar.inc(1);
        Ok::<_, anyhow::Error>(())
    };
    measure("GET per node", few, &mut |starts| {
        starts.iter().map(|&start| walk::by_get(connection, start, depth)).collect()
    })?;
    measure("MGET per level", all, &mut |starts| {
        starts.iter().map(|&start| walk::by_mget(connection, start, depth)).collect()
    })?;
    measure("FCALL countFriends", all, &mut |starts| walk::by_call(connection, starts, depth))?;
    for (at, start) in graph.starts.iter().enumerate() {
        let found: Vec<u64> = counts.iter().filter_map(|counts| counts.get(at).copied()).collect();
        ensure!(
            found.iter().all(|&count| count == found[0]),
            "the ways disagree on node {start} at depth {depth}: {found:?}"
        );
    }
    Ok(rows)
}

fn print(graph: &Graph, rows: &[DemoRow]) {
    println!(
        "ego-Facebook, directed: {} lists, {} edges. Paths of length 1..depth from {} nodes,",
        thousands(graph.lists.len() as f64),
        thousands(graph.edges() as f64),
        graph.starts.len()
    );
    println!("counted by a client and in the store, on one connection. All counts agree.");
    println!("What ran from fewer starts is weighed by their look-ups.");
    println!("The server has no log (--appendonly no): nothing is written here.\n");
    println!(
        "{:>5}  {:<20} {:>6} {:>15} {:>12}",
        "depth", "way", "starts", "traversals/s", "ratio"
    );
    for depth in DEPTHS {
        let mut base = None;
        for row in rows.iter().filter(|row| row.depth == depth) {
            let base = *base.get_or_insert(row.per_second);
            println!(
                "{:>5}  {:<20} {:>6} {:>15} {:>11.1}x",
                row.depth,
                row.way,
                row.starts,
                thousands(row.per_second),
                row.per_second / base
            );
        }
    }
}
