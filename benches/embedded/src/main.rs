//! The command nigh-bench-embedded: measures the embedded library beside LevelDB, RocksDB, LMDB,
//! redb and fjall, and writes docs/benchmarks-embedded.md with its pictures.
//!
//! ```text
//! run ── conductor ── host ──pipe──> engine_process ── engines/     a process for each database
//!            └── results (a file; later runs add to it) ──> report: page and pictures
//! beside ── LMDB alone, for `nigh-bench local`, which starts it
//! ```

mod beside;
mod conductor;
mod data;
mod engine_process;
mod engines;
mod host;
mod interrupt;
mod machine;
mod plan;
mod protocol;
mod report;
mod results;
mod workloads;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The exit code of wrong arguments.
const USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(name = "nigh-bench-embedded", version, about = "Benchmarks the embedded library.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures, and adds to the file of results.
    Run(plan::RunArgs),
    /// Writes the page and its pictures, of all results.
    Report(report::ReportArgs),
    /// What `nigh-bench local` starts to measure LMDB.
    #[command(hide = true)]
    Beside(beside::BesideArgs),
    /// What `run` starts for each database.
    #[command(hide = true)]
    Engine(engine_process::EngineArgs),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            eprintln!("nigh-bench-embedded: {line} (--help tells more)");
            return ExitCode::from(USAGE);
        }
    };
    let done = match &arguments.command {
        Command::Run(args) => match plan::Plan::of(args) {
            Ok(plan) => measure(&plan),
            Err(error) => {
                eprintln!("nigh-bench-embedded: {error:#}");
                return ExitCode::from(USAGE);
            }
        },
        Command::Report(args) => report::write(args),
        Command::Beside(args) => beside::serve(args),
        Command::Engine(args) => engine_process::serve(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nigh-bench-embedded: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(plan: &plan::Plan) -> Result<()> {
    interrupt::watch()?;
    conductor::run(plan)
}
