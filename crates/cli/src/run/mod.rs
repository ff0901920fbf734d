//! `nigh run`: command files on databases of the library, a pinned thread for each file.
//!
//! ```text
//! FILE ── parse ──┐ all of them, or nothing runs
//! FILE ── parse ──┴─> run_pinned ──> worker, worker ──> Databases (one Db a name) ──> report
//! ```
//!
//! Invariants:
//! 1. Nothing runs if a line of any file is broken.
//! 2. A file whose command fails ends there; the others run to their end. The error says how far
//!    each one came.

mod command_file;
mod databases;
mod report;
mod timing;
mod worker;

use crate::output::{self, say};
use crate::size::DatabaseFlags;
use anyhow::{Context, Result, bail, ensure};
use command_file::CommandFile;
use databases::Databases;
use nigh::Options;
use nigh::threads::run_pinned;
use report::RunReport;
use std::path::PathBuf;
use std::time::Instant;
use worker::{Manner, run_file};

/// Threads that a database takes by itself.
const THREADS: usize = 256;

/// Options of `nigh run`.
#[derive(clap::Args)]
#[command(after_help = "\
Lines of a file, as DragonDB has them: `open NAME`, `puts KEY VALUE`, `get KEY`, `close`; words are \
between blanks, and taken as they are. `open NAME -STRONG` makes the writes behind it strong; the \
flag -STRONG, which DragonDB takes, is --strong. Threads that open one NAME share it, and the last \
one closes it. A file's end closes what it has open.

Each file has a thread of its own, kept on one of the least loaded cores. In the table, `total` is \
the time of all threads together, and `per second` their rate together while they did that.

Nothing runs if a line is broken. The exit code is 1 if a command fails.")]
pub(crate) struct Args {
    /// Command files
    #[arg(required = true)]
    file: Vec<PathBuf>,
    /// Folder in which the databases lie; they are made there if they don't exist
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Answer a write when it is on disk
    #[arg(long)]
    strong: bool,
    /// DragonDB's way to write --strong
    #[arg(short = 'S', hide = true, value_parser = ["TRONG"])]
    dragondb_strong: Option<String>,
    /// Print what each get finds: `KEY : VALUE`
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Print a JSON object in place of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Runs the files.
pub(crate) fn run(args: &Args) -> Result<()> {
    let begin = Instant::now();
    ensure!(args.dir.is_dir(), "{} is no folder: name one by --dir", args.dir.display());
    let nothing_ran = "nothing was run";
    let read = |path| command_file::read(path).context(nothing_ran);
    let bytes = args.file.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let parse = |(path, bytes)| command_file::parse(path, bytes).context(nothing_ran);
    let files = args.file.iter().map(PathBuf::as_path).zip(bytes.iter().map(Vec::as_slice));
    let files = files.map(parse).collect::<Result<Vec<CommandFile<'_>>>>()?;
    let strong = args.strong || args.dragondb_strong.is_some();
    let manner = Manner { strong, prints: args.print };
    let options = args.database.apply(Options::new()).threads_most(files.len().max(THREADS));
    let databases = Databases::of(&files, &args.dir, options, strong)?;
    let prepared = begin.elapsed();
    let work = |index: usize, core| run_file(&files[index], &databases, manner, core);
    let mut runs = run_pinned(files.len(), work).context(nothing_ran)?;
    let mut failed = runs.iter_mut().map(|run| &mut run.failed);
    if let Some(closed) = failed.find_map(|it| it.take_if(|it| output::end_of(it).is_some())) {
        return Err(closed);
    }
    let report = RunReport::of(&runs, databases.syncs(), prepared);
    say!("{}", if args.json { report.json() } else { report.table() });
    match report.failed() {
        [] => Ok(()),
        failed => bail!("{}", failed.join("; ")),
    }
}
