//! The `nigh` command: one binary for the server and for everything that talks to one.
//!
//! ```text
//! main ── serve      a server in the foreground
//!      ├─ shell      an interactive prompt, for a server or a database's folder
//!      ├─ run        command files on databases, a thread for each file
//!      ├─ call       one function call, or one raw command
//!      ├─ get, mget, scan   keys, by a server or from its memory alone
//!      ├─ fn         load, list and delete function libraries
//!      ├─ top        what the shards of a running server do, live
//!      ├─ check      arenas and logs, and whether they are whole; a damaged log's rest
//!      ├─ backup     a copy of a running server's log
//!      ├─ restore    a log, made of a backup
//!      ├─ convert    other partitions, or more memory, for the data of a stopped server
//!      ├─ import     data from Redis: a file, or a running server
//!      └─ export     data as commands, for Redis too
//! ```
//!
//! Invariants:
//! 1. The exit code is 0 after success, 1 after one sentence on stderr, 2 after wrong usage. `check
//!    --salvage` ends with 3 if its copy lacks something. If the reader of stdout has gone, it is
//!    141, and nothing is said.
//! 2. Results go to stdout; progress and errors go to stderr.
#![forbid(unsafe_code)]

mod backup;
mod call;
mod check;
mod check_log;
mod convert;
mod export;
mod functions;
mod import;
mod interrupt;
mod lookup;
mod output;
mod render;
mod restore;
mod run;
mod salvage;
mod serve;
mod shell;
mod size;
mod target;
mod top;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// A Redis-protocol store that runs JavaScript next to the data.
#[derive(Parser)]
#[command(
    name = "nigh",
    version,
    arg_required_else_help = true,
    after_help = "Loads, comparisons and the demo are in the program nigh-bench."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve in the foreground
    Serve(serve::Args),
    /// Type commands by hand, for a server or for the folder of a database
    Shell(shell::Args),
    /// Run command files on databases, without a server, and say how long that took
    Run(run::Args),
    /// Call a function, or send one command
    Call(call::Args),
    /// Print a key's value, by a server or from its memory alone
    Get(lookup::GetArgs),
    /// Print the values of several keys, of one moment
    Mget(lookup::MultiGetArgs),
    /// Print the keys that begin with a text
    Scan(lookup::ScanArgs),
    /// Load, list and delete function libraries
    Fn(functions::Args),
    /// Watch the shards of a running server
    Top(top::Args),
    /// List and verify arenas and logs, or save what can be saved of a log
    Check(check::Args),
    /// Copy a running server's log, as of one moment, and verify the copy
    Backup(backup::Args),
    /// Make the log of a new server from a backup
    Restore(restore::Args),
    /// Give the data of a stopped server other partitions, or more memory
    Convert(convert::Args),
    /// Fill a running server from an RDB file, an AOF, or a running Redis
    Import(import::Args),
    /// Write all strings of a running server as commands
    Export(export::Args),
    /// Try new sources for a server (the server starts this itself)
    #[command(name = nigh_server::CHECK_SUBCOMMAND, hide = true)]
    CheckSources,
}

/// The command line, or the error that it is ended with.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some((name, matches)) = matches.subcommand() {
        let command = command.find_subcommand_mut(name).expect("it is declared above");
        match name {
            "shell" => shell::check_flags(matches, command)?,
            "get" | "mget" | "scan" | "top" => target::check_local(matches, command)?,
            "import" => import::check_flags(matches, command)?,
            _ => {}
        }
    }
    target::check_password(&matches, &mut command)?;
    Cli::from_arg_matches(&matches)
}

fn main() -> ExitCode {
    let cli = parse().unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Shell(args) => shell::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Get(args) => lookup::get(&args),
        Command::Mget(args) => lookup::multi_get(&args),
        Command::Scan(args) => lookup::scan(&args),
        Command::Fn(args) => functions::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::CheckSources => nigh_server::serve_checks().map_err(Into::into),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(code) = output::end_of(&error) {
                return code;
            }
            output::tell!("nigh: {}", output::whole_text(&error));
            match error.downcast_ref::<salvage::SomethingLost>() {
                Some(_) => ExitCode::from(3),
                None => ExitCode::FAILURE,
            }
        }
    }
}
