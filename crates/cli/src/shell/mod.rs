//! `nigh shell`: commands typed by hand, or read from stdin.
//!
//! ```text
//! line ──► \help, \quit …            local
//!      └─► split_words ──► Connection ──► render      one command, one reply
//! ```
//!
//! Invariants:
//! 1. The shell works with any server of the Redis protocol: it asks the server for its commands.
//! 2. If stdin isn't a terminal, there is no prompt and no history. A failed command then makes the
//!    exit code 1, after all lines have run.
//! 3. The history keeps no line with a password.

mod completion;
mod history;

use crate::render;
use crate::target::ServerFlags;
use anyhow::{Context, Result, bail};
use completion::Commands;
use nigh_client::{Connection, split_words};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use std::io::{BufRead, IsTerminal, Write};

/// Longest line that is read, in bytes: longer than any typed command, and it bounds memory.
const LINE_BYTES: u64 = 64 << 20;
/// Most lines of the history.
const HISTORY_LINES: usize = 10_000;

/// Options of `nigh shell`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ServerFlags,
    /// Print strings as they are
    #[arg(long)]
    raw: bool,
}

/// The outcome of a line.
enum LineOutcome {
    Done,
    Failed,
    Quit,
}

struct Shell<'a> {
    args: &'a Args,
    connection: Option<Connection>,
    commands: Commands,
    in_transaction: bool,
}

/// Reads and runs lines until the end of input.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut connection = args.target.open()?;
    let commands = Commands::ask(&mut connection)?;
    let connection = Some(connection);
    let mut shell = Shell { args, connection, commands, in_transaction: false };
    if std::io::stdin().is_terminal() { shell.interactive() } else { shell.script() }
}

impl Shell<'_> {
    fn interactive(&mut self) -> Result<()> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor: Editor<completion::Helper, FileHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(completion::Helper::new(self.commands.clone())));
        let history = history::path();
        if let Some(path) = &history {
            // The first time there is no file.
            let _ = editor.load_history(path);
        }
        println!("\\help lists commands, \\help NAME explains one, Ctrl-D leaves.");
        loop {
            let mark = if self.in_transaction { "(TX)" } else { "" };
            let state = if self.connection.is_some() { "" } else { "(not connected) " };
            let prompt = format!("{state}{}{mark}> ", self.args.target.address());
            match editor.readline(&prompt) {
                Ok(line) => {
                    if !history::is_secret(&line) {
                        editor.add_history_entry(line.as_str())?;
                    }
                    if matches!(self.line(&line)?, LineOutcome::Quit) {
                        break;
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error).context("can't read from the terminal"),
            }
        }
        if let Some(path) = &history {
            history::save(&mut editor, path)?;
        }
        Ok(())
    }

    /// Runs the lines of stdin.
    fn script(&mut self) -> Result<()> {
        let (mut failed, mut total) = (0, 0);
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let mut bounded = std::io::Read::take(&mut input, LINE_BYTES);
            if bounded.read_until(b'\n', &mut line).context("can't read stdin")? == 0 {
                break;
            }
            let line = String::from_utf8(line).context("stdin isn't UTF-8; write \"\\xHH\"")?;
            if line.trim().is_empty() {
                continue;
            }
            total += 1;
            match self.line(&line)? {
                LineOutcome::Done => {}
                LineOutcome::Failed => failed += 1,
                LineOutcome::Quit => break,
            }
        }
        if failed > 0 {
            bail!("{failed} of {total} commands failed; their errors stand above");
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<LineOutcome> {
        let line = line.trim();
        if let Some(local) = line.strip_prefix('\\') {
            return self.local(local);
        }
        let words = match split_words(line.as_bytes()) {
            Ok(words) => words,
            Err(error) => {
                println!("(error) {error}");
                return Ok(LineOutcome::Failed);
            }
        };
        let Some(first) = words.first() else { return Ok(LineOutcome::Done) };
        let verb = first.to_ascii_lowercase();
        if matches!(&verb[..], b"exit" | b"quit") {
            return Ok(LineOutcome::Quit);
        }
        if matches!(&verb[..], b"subscribe" | b"psubscribe" | b"ssubscribe" | b"monitor" | b"sync")
        {
            println!("(error) this shell shows one reply to a command: it can't follow a stream");
            return Ok(LineOutcome::Failed);
        }
        self.send(&verb, &words)
    }

    fn send(&mut self, verb: &[u8], words: &[Vec<u8>]) -> Result<LineOutcome> {
        if self.connection.is_none() {
            match self.args.target.open() {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    println!("(error) {error:#}");
                    return Ok(LineOutcome::Failed);
                }
            }
        }
        let Some(connection) = &mut self.connection else { return Ok(LineOutcome::Failed) };
        let reply = match connection.call(words) {
            Ok(reply) => reply,
            Err(_) if verb == b"shutdown" => {
                self.connection = None;
                return Ok(LineOutcome::Done);
            }
            Err(error) => {
                println!("(error) {error}");
                self.connection = None;
                self.in_transaction = false;
                return Ok(LineOutcome::Failed);
            }
        };
        let failed = reply.error().is_some();
        match verb {
            b"multi" if !failed => self.in_transaction = true,
            b"exec" | b"discard" | b"reset" => self.in_transaction = false,
            _ => {}
        }
        let mut out = std::io::stdout().lock();
        if self.args.raw {
            out.write_all(&render::raw(&reply))?;
            out.write_all(b"\n")?;
        } else {
            writeln!(out, "{}", render::formatted(&reply))?;
        }
        Ok(if failed { LineOutcome::Failed } else { LineOutcome::Done })
    }

    fn local(&mut self, line: &str) -> Result<LineOutcome> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("q" | "quit") => return Ok(LineOutcome::Quit),
            Some("h" | "help" | "?") => {
                let name = words.collect::<Vec<_>>().join(" ");
                println!("{}", self.commands.explain(&name, self.connection.as_mut())?);
            }
            _ => {
                println!("(error) \\help, \\help NAME and \\quit are all there is; not \\{line}");
                return Ok(LineOutcome::Failed);
            }
        }
        Ok(LineOutcome::Done)
    }
}
