//! State externalisation, shown: workers that keep no state serve telephone sessions, all of which
//! lie in Nigh. Some workers are killed; others go on where they stopped.
//!
//! ```text
//! driver ══ events ══> worker ── reads: memory, writes: ring ──> Nigh        (or Redis, by a socket)
//!        <═ answers ══   ✝ its sessions go to the other workers
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | session | a session, its events, and which worker has it |
//! | wire | what driver and workers say to each other |
//! | worker | the worker: all that a program like this needs |
//! | server, peer | child processes: servers, workers |
//! | driver, report, chart | the driver, and what it prints and draws |
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it prints its figures")]

mod chart;
mod driver;
mod peer;
mod report;
mod server;
mod session;
mod wire;
mod worker;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use driver::Plan;
use nigh_client::{Address, LocalUse};
use report::Report;
use server::Server;
use std::path::PathBuf;
use std::time::Duration;

/// Workers without state on Nigh: events, kills, and what is left of the sessions.
#[derive(Parser)]
#[command(name = "session", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Server's program [default: the nigh beside this program]
    #[arg(long, value_name = "PATH")]
    nigh: Option<PathBuf>,
    /// A server that is there, in place of one that is started: unix:/path
    #[arg(long, value_name = "ADDRESS", conflicts_with = "nigh")]
    connect: Option<Address>,
    /// Run the same beside it on Redis, whose server's program this is
    #[arg(long, value_name = "PATH")]
    redis: Option<PathBuf>,
    /// Sessions
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Workers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// Workers that are killed and replaced in each run
    #[arg(long, default_value_t = 4)]
    kills: u32,
    /// Seconds of a run
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Events on the way at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// Runs on each store, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Draws the figures
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Role {
    /// A worker, which the driver starts
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        connect: Address,
        /// An error if it can't read the server's memory
        #[arg(long)]
        local: bool,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(Role::Worker { connect, local }) = &args.role {
        return worker::run(connect, if *local { LocalUse::Required } else { LocalUse::Auto });
    }
    let length = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    let mut stores = vec![("Nigh", nigh(&args)?, true)];
    if let Some(program) = &args.redis {
        stores.push(("Redis", Server::redis(program)?, false));
    }
    let mut sums: Vec<(&str, Report)> = Vec::new();
    for _ in 0..args.rounds {
        for (name, server, must_be_local) in &stores {
            let plan = Plan {
                server: server.address.clone(),
                must_be_local: *must_be_local,
                sessions: args.sessions,
                workers: args.workers,
                kills: args.kills,
                length,
                window: args.window as usize,
            };
            let mut report = driver::run(&plan).with_context(|| format!("on {name}"))?;
            ensure!(
                !report.whole_ns.is_empty(),
                "on {name}: no update was acknowledged, so nothing is shown: give more --seconds"
            );
            report.close();
            match sums.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => sum.add(&report)?,
                None => sums.push((name, report)),
            }
        }
    }
    let Args { sessions, workers, window, rounds, seconds, .. } = args;
    // Of a server that was there nobody knows it here.
    let log = if args.connect.is_none() { "; no log" } else { "" };
    println!(
        "{sessions} sessions, {workers} workers, {window} events on the way, {rounds} run(s) of \
         {seconds} s each{log}\n\n{}",
        report::table(&sums)
    );
    if let Some(path) = &args.chart {
        std::fs::write(path, chart::chart(&sums))
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    let wrong = sums.iter().find(|(_, report)| !report.is_right());
    ensure!(wrong.is_none(), "updates are lost or doubled");
    Ok(())
}

/// The Nigh of the options.
fn nigh(args: &Args) -> Result<Server> {
    if let Some(address) = &args.connect {
        ensure!(
            address.user.is_none() && address.password.is_none(),
            "--connect takes no user and no password: its workers would show them in lists of processes"
        );
        return Ok(Server::there(address.clone()));
    }
    let program = match &args.nigh {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("nigh"),
    };
    if !program.is_file() {
        bail!(
            "{} isn't there: build it (cargo build --release -p nigh-cli), or name it by --nigh",
            program.display()
        );
    }
    Server::nigh(&program)
}
