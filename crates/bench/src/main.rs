//! The command `nigh-bench`: loads, comparisons and the demo. The server's binary has none of them.
//!
//! ```text
//! main ── load      a load on any server that speaks the Redis protocol
//!      │   ├─ template, drawn_keys    the requests (bytes with holes; choice of keys)
//!      │   ├─ engine, reply_counts    the loop     (one thread, epoll; replies are skipped)
//!      │   └─ figures, report         the figures  (histogram, quartiles; text, JSON)
//!      ├─ floor     a server without a store, to compare with
//!      ├─ local     a client that reads the server's memory and writes by a ring, beside other
//!      │            stores: docs/benchmarks-local.md
//!      ├─ peers     Nigh, Redis and the floor: docs/benchmarks.md
//!      │   └─ engine, graph, walk, child
//!      └─ demo      traversals of a graph, from the client side and in the store
//!          └─ graph, walk, child  the data; three ways to count; a server to count in
//! ```
//!
//! Invariants:
//! 1. The exit code is 0 after success, 1 after one sentence on stderr, 2 after wrong usage.
//! 2. Results go to stdout; progress and errors go to stderr.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line tool writes its results to stdout")]

mod bars;
mod child;
mod demo;
mod drawn_keys;
mod engine;
mod figures;
mod floor;
mod graph;
mod interrupt;
mod load;
mod load_options;
mod local;
mod machine;
mod peers;
mod reply_counts;
mod report;
mod stream;
mod template;
mod walk;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Loads a server that speaks the Redis protocol, and measures it.
#[derive(Parser)]
#[command(
    name = "nigh-bench",
    version,
    // Scripts give options, and their users others behind them.
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: load_options::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Run a server that answers at once, without a store, to compare with
    Floor(floor::Args),
    /// Measure a local client of a server that it starts
    Local(local::Args),
    /// Measure Nigh beside Redis and the floor, and write docs/benchmarks.md
    Peers(peers::Args),
    /// Count friends in a social graph, from the client side and in the store
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Some(Command::Floor(args)) => floor::run(args),
        Some(Command::Local(args)) => local::run(args),
        Some(Command::Peers(args)) => peers::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        None => load::run(&cli.load),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Ctrl-C ends the servers too, which may be seen first.
            let error = interrupt::check().err().unwrap_or(error);
            eprintln!("nigh-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
