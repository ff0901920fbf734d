//! The shell of a database of the library, without a server.
//!
//! ```text
//! line ──► split_words ──► commands (the table) ──► reads, writes, watching ──► nigh::Db ──► render
//! ```
//!
//! Invariants:
//! 1. The database is closed at the end; what can't be told the disk by then is an error.
//! 2. A batch that no line commits has no effect, and that is an error.

mod arguments;
mod commands;
mod reads;
mod session;
mod typing;
mod watching;
mod writes;

use super::lines::{self, LineOutcome, LineShell};
use crate::output::{Output, whole_text};
use crate::render;
use crate::size::DatabaseFlags;
use anyhow::{Context, Result, bail};
use nigh::{Db, OpenError, Options, ReaderError};
use nigh_client::split_words;
use session::{Interrupt, OpenStore, Session};
use std::io::Write;
use std::path::{Path, PathBuf};
use typing::Typing;

/// Flags that mean a folder.
#[derive(clap::Args)]
pub(super) struct StoreFlags {
    /// Only read, beside the process that has the database open
    #[arg(long)]
    read_only: bool,
    /// The folder that the database has its memory in, if its owner names one
    #[arg(long, value_name = "FOLDER")]
    memory_dir: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseFlags,
}

/// Opens the database, and runs lines until the end of input.
pub(super) fn run(dir: &Path, flags: &StoreFlags, raw: bool) -> Result<()> {
    let session = Session::new(open(dir, flags)?, Interrupt::catch()?);
    let mut shell = StoreShell { name: dir.display().to_string(), raw, session };
    let ran = lines::run(&mut shell);
    let Session { store, batch, .. } = shell.session;
    if let OpenStore::Owner(db) = store {
        db.close().with_context(|| format!("closing {}", dir.display()))?;
    }
    ran?;
    if let Some(batch) = batch {
        bail!("{} writes of a batch are left out: no line was `batch commit`", batch.len());
    }
    Ok(())
}

fn open(dir: &Path, flags: &StoreFlags) -> Result<OpenStore> {
    let memory_dir = flags.memory_dir.as_ref();
    if flags.read_only {
        if let Some(flag) = flags.database.given() {
            bail!("{flag} is its owner's: leave it out with --read-only");
        }
        let opened = match memory_dir {
            None => Db::open_reader(dir),
            Some(memory) => Db::open_reader_in(dir, memory),
        };
        return match opened {
            Ok(reader) => Ok(OpenStore::Reader(reader)),
            Err(error @ ReaderError::NotOpen { .. }) => {
                bail!("{error} (without --read-only this shell opens it)")
            }
            Err(error) => Err(error.into()),
        };
    }
    let mut options = flags.database.apply(Options::new());
    if let Some(memory) = memory_dir {
        options = options.memory_dir(memory);
    }
    match Db::open(dir, &options) {
        Ok(db) => Ok(OpenStore::Owner(db)),
        Err(error @ OpenError::InUse { .. }) => bail!("{error} (--read-only reads beside it)"),
        // Its text has all; its source would say a part again.
        Err(error) => bail!("{error}"),
    }
}

struct StoreShell {
    name: String,
    raw: bool,
    session: Session,
}

impl LineShell for StoreShell {
    type Helper = Typing;

    fn helper(&self) -> Typing {
        Typing
    }

    fn introduction(&self) -> (&'static str, String) {
        let reads = match self.session.store {
            OpenStore::Owner(_) => "",
            OpenStore::Reader(_) => " This shell only reads.",
        };
        ("store-history", format!("`help` lists commands, Ctrl-D leaves.{reads}"))
    }

    fn prompt(&self) -> String {
        let batch = self.session.batch.as_ref().map(|it| format!("(batch of {})", it.len()));
        let strong = if self.session.strong { "(strong)" } else { "" };
        format!("{}{strong}{}> ", self.name, batch.unwrap_or_default())
    }

    fn is_secret(&self, _: &str) -> bool {
        false
    }

    fn line(&mut self, line: &str) -> Result<LineOutcome> {
        let outcome = match split_words(line.trim().as_bytes()) {
            Ok(words) => {
                let Some((name, arguments)) = words.split_first() else {
                    return Ok(LineOutcome::Done);
                };
                if [&b"quit"[..], b"exit"].iter().any(|it| name.eq_ignore_ascii_case(it)) {
                    return Ok(LineOutcome::Quit);
                }
                commands::run(&mut self.session, name, arguments)
            }
            Err(error) => Err(error.into()),
        };
        let mut out = Output::new();
        match outcome {
            Ok(reply) if self.raw => {
                out.write_all(&render::raw(&reply))?;
                out.write_all(b"\n")?;
            }
            Ok(reply) => writeln!(out, "{}", render::formatted(&reply))?,
            Err(error) => {
                writeln!(out, "(error) {}", render::printable(whole_text(&error).as_bytes()))?;
                return Ok(LineOutcome::Failed);
            }
        }
        Ok(LineOutcome::Done)
    }
}
