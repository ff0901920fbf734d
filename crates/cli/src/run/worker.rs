//! Running the commands of one file, in one thread.

use super::command_file::{CommandFile, FileCommand};
use super::databases::Databases;
use super::timing::{KINDS, KindTimes, OperationKind};
use crate::output::Output;
use anyhow::{Context, Result};
use nigh::{Db, WriteOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of printed lines that a thread keeps before it writes them.
const PRINT_BYTES: usize = 64 << 10;

/// How a file's commands are run.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// All writes are strong.
    pub(super) strong: bool,
    /// What `get` finds is printed.
    pub(super) prints: bool,
}

/// What a thread did.
pub(super) struct FileRun {
    pub(super) core: usize,
    pub(super) begin: Instant,
    pub(super) end: Instant,
    /// Commands that were run.
    pub(super) commands: usize,
    /// Gets that found their key.
    pub(super) found: u64,
    pub(super) times: [KindTimes; KINDS.len()],
    /// Why it ended early.
    pub(super) failed: Option<anyhow::Error>,
}

/// A database that this thread has open.
struct OpenOne<'a> {
    name: &'a str,
    db: Arc<Db>,
    put: WriteOptions,
}

struct Worker<'a> {
    databases: &'a Databases<'a>,
    manner: Manner,
    open: Option<OpenOne<'a>>,
    run: FileRun,
    value: Vec<u8>,
    printed: Vec<u8>,
}

/// Runs a file's commands, up to its end or to the first one that fails; then closes what is open.
pub(super) fn run_file(
    file: &CommandFile<'_>,
    databases: &Databases<'_>,
    manner: Manner,
    core: usize,
) -> FileRun {
    let begin = Instant::now();
    let run = FileRun {
        core,
        begin,
        end: begin,
        commands: 0,
        found: 0,
        times: std::array::from_fn(|_| KindTimes::new()),
        failed: None,
    };
    let (value, printed) = (Vec::new(), Vec::new());
    let mut worker = Worker { databases, manner, open: None, run, value, printed };
    let mut outcome = Ok(());
    for (number, command) in &file.commands {
        outcome = worker.run(command).with_context(|| {
            let (all, ran) = (file.commands.len(), worker.run.commands);
            let path = file.path.display();
            format!("{path}, line {number}, after {ran} of {all} commands")
        });
        if outcome.is_err() {
            break;
        }
        worker.run.commands += 1;
    }
    let closed = worker.close().with_context(|| format!("{}, at its end", file.path.display()));
    let written = worker.print_rest();
    worker.run.failed = outcome.and(closed).and(written).err();
    worker.run.end = Instant::now();
    worker.run
}

impl<'a> Worker<'a> {
    fn time<R>(
        &mut self,
        kind: OperationKind,
        work: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let begin = Instant::now();
        let result = work(self)?;
        self.run.times[kind as usize].add(begin.elapsed());
        Ok(result)
    }

    fn run(&mut self, command: &FileCommand<'a>) -> Result<()> {
        match *command {
            FileCommand::Open { name, strong } => self.open(name, strong),
            FileCommand::Puts { key, value } => self.time(OperationKind::Puts, |worker| {
                let open = worker.open.as_ref().context("nothing is open")?;
                Ok(open.db.put_with(key, value, &open.put)?)
            }),
            FileCommand::Get { key } => {
                let is_there = self.time(OperationKind::Get, |worker| {
                    let open = worker.open.as_ref().context("nothing is open")?;
                    worker.value.clear();
                    Ok(open.db.get_into(key, &mut worker.value)?)
                })?;
                self.run.found += u64::from(is_there);
                if self.manner.prints { self.print(key, is_there) } else { Ok(()) }
            }
            FileCommand::Close => self.close(),
        }
    }

    /// Opens a database in place of the one that is open.
    fn open(&mut self, name: &'a str, strong: bool) -> Result<()> {
        self.close()?;
        self.time(OperationKind::Open, |worker| {
            let strong = strong || worker.manner.strong;
            let put = if strong { WriteOptions::strong() } else { WriteOptions::eventual() };
            worker.open = Some(OpenOne { name, db: worker.databases.open(name)?, put });
            Ok(())
        })
    }

    fn close(&mut self) -> Result<()> {
        let Some(OpenOne { name, db, .. }) = self.open.take() else { return Ok(()) };
        self.time(OperationKind::Close, |worker| worker.databases.close(name, db))
    }

    /// A line in DragonDB's form.
    fn print(&mut self, key: &[u8], is_there: bool) -> Result<()> {
        self.printed.extend_from_slice(key);
        match is_there {
            true => {
                self.printed.extend_from_slice(b" : ");
                self.printed.extend_from_slice(&self.value);
                self.printed.push(b'\n');
            }
            false => self.printed.extend_from_slice(b" isn't there\n"),
        }
        if self.printed.len() > PRINT_BYTES { self.print_rest() } else { Ok(()) }
    }

    fn print_rest(&mut self) -> Result<()> {
        Output::new().write_all(&self.printed)?;
        self.printed.clear();
        Ok(())
    }
}
