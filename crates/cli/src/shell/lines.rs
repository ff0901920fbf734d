//! Lines from a terminal or from stdin, for a shell of any kind.
//!
//! Invariant: if stdin isn't a terminal, there is no prompt and no history. A failed command then
//! makes the exit code 1, after all lines have run.

use super::history;
use crate::output::Output;
use anyhow::{Context, Result, bail};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor, Helper};
use std::io::{BufRead, IsTerminal, Write};

/// A line of so many bytes is refused: longer than any typed command, and it bounds memory.
const LINE_BYTES: u64 = 64 << 20;
/// Most lines of the history.
const HISTORY_LINES: usize = 10_000;

/// The outcome of a line.
pub(super) enum LineOutcome {
    Done,
    Failed,
    Quit,
}

/// What runs lines.
pub(super) trait LineShell {
    /// Completes what is typed.
    type Helper: Helper;

    /// For a terminal: what completes.
    fn helper(&self) -> Self::Helper;
    /// For a terminal: the name of the file for its history, and the line that it begins with.
    fn introduction(&self) -> (&'static str, String);
    /// For a terminal: what stands before a line.
    fn prompt(&self) -> String;
    /// Whether a line stays out of the history.
    fn is_secret(&self, line: &str) -> bool;
    /// Runs a line, which isn't blank.
    fn line(&mut self, line: &str) -> Result<LineOutcome>;
}

/// Reads and runs lines until the end of input.
pub(super) fn run(shell: &mut impl LineShell) -> Result<()> {
    if std::io::stdin().is_terminal() { interactive(shell) } else { script(shell) }
}

fn interactive<S: LineShell>(shell: &mut S) -> Result<()> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<S::Helper, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(shell.helper()));
    let (name, greeting) = shell.introduction();
    let history = history::path(name);
    if let Some(path) = &history {
        // The first time there is no file.
        let _ = editor.load_history(path);
    }
    writeln!(Output::new(), "{greeting}")?;
    loop {
        match editor.readline(&shell.prompt()) {
            Ok(line) => {
                if !shell.is_secret(&line) {
                    editor.add_history_entry(line.as_str())?;
                }
                if !line.trim().is_empty() && matches!(shell.line(&line)?, LineOutcome::Quit) {
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
fn script(shell: &mut impl LineShell) -> Result<()> {
    let (mut failed, mut total) = (0, 0);
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let mut bounded = std::io::Read::take(&mut input, LINE_BYTES);
        if bounded.read_until(b'\n', &mut line).context("can't read stdin")? == 0 {
            break;
        }
        if line.len() as u64 == LINE_BYTES && !line.ends_with(b"\n") {
            input.skip_until(b'\n').context("can't read stdin")?;
            let most = LINE_BYTES >> 20;
            writeln!(Output::new(), "(error) a line has {most} MiB or more: write less at once")?;
            (failed, total) = (failed + 1, total + 1);
            continue;
        }
        let line = String::from_utf8(line).context("stdin isn't UTF-8; write \"\\xHH\"")?;
        if line.trim().is_empty() {
            continue;
        }
        total += 1;
        match shell.line(&line)? {
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
