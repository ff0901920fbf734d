//! `nigh shell`: commands typed by hand, or read from stdin; for a server, or for the folder of a
//! database.
//!
//! ```text
//! nigh shell          lines ──► server ──► Connection     a running server
//! nigh shell DIR            └─► store ───► nigh::Db       a database of the library, no server
//! ```
//!
//! Invariant: no flag is passed over. With DIR, those of a server are refused, and the other way
//! round.

mod completion;
mod history;
mod lines;
mod server;
mod store;

use crate::target::{ServerFlags, refuse_flags, refuse_server_flags};
use anyhow::Result;
use clap::error::Error;
use clap::{ArgMatches, Command};
use std::path::PathBuf;

/// Options of `nigh shell`.
#[derive(clap::Args)]
#[command(after_help = "\
With DIR, the shell opens the database in that folder itself, as a program with the library `nigh` \
does; the folder is made if it isn't there. `help` lists its commands. Words are quoted as in \
redis-cli: \"a b\", \"\\x00\".

If stdin isn't a terminal, its lines are run, and the exit code is 1 if one of them failed.")]
pub(crate) struct Args {
    /// Folder of a database of the library, instead of a server
    dir: Option<PathBuf>,
    #[command(flatten)]
    store: store::StoreFlags,
    #[command(flatten)]
    target: ServerFlags,
    /// Print strings as they are
    #[arg(long)]
    raw: bool,
}

/// Flags that mean a folder.
const OF_STORE: [&str; 5] = ["read_only", "memory_dir", "capacity", "partitions", "shared"];

/// Refuses flags of a server beside DIR, and flags of a folder without it.
pub(crate) fn check_flags(matches: &ArgMatches, command: &mut Command) -> Result<(), Error> {
    if matches.contains_id("dir") {
        let why = "is about a server, and DIR names a folder: give one of them";
        return refuse_server_flags(matches, command, why);
    }
    let why = "is about a folder, and there is none: give DIR too";
    refuse_flags(&OF_STORE, matches, command, why)
}

/// Reads and runs lines until the end of input.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.dir {
        Some(dir) => store::run(dir, &args.store, args.raw),
        None => server::run(&args.target, args.raw),
    }
}
