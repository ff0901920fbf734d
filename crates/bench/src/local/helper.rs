//! A process that measures a store by itself, and tells its figures: a library of another language,
//! or one that lives in its process.
//!
//! ```text
//! COMMAND --keys N --value-size BYTES --seconds S …
//!    <── {"ready": "LMDB 0.9.24"}
//! reads ──>   <── {"read_p50_us": 0.9, …}        one line each; `rows.rs` has the names
//! writes ──>  <── {"write_p50_us": 2.1, …}       {"error": "…"} in place of any of them
//! (end of input) ──> it ends
//! ```
//!
//! Invariants:
//! 1. Each wait for a line has an end.
//! 2. Dropping it ends the process.

use super::rows::{Figures, row_named};
use crate::interrupt;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest time for a line: LMDB fills its store before the first one.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);
/// Time to end by itself; then it is killed.
const END: Duration = Duration::from_secs(3);
/// Between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// A running helper.
pub(super) struct Helper {
    /// What it says that it measures.
    pub(super) ready: String,
    name: String,
    process: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Helper {
    /// Starts a program with arguments, quoted as for a shell, behind the words of `prefix`, and
    /// adds these arguments; waits until it is ready.
    pub(super) fn start(
        prefix: &[String],
        command: &str,
        arguments: &[(&str, String)],
    ) -> Result<Helper> {
        // The process is the command's, not the shell's: it gets the end of input, and is killed.
        let script = format!("exec {command} \"$@\"");
        let shell = ["sh", "-c", &script, "sh"];
        let words: Vec<&str> = prefix.iter().map(String::as_str).chain(shell).collect();
        let (name, more) = words.split_first().context("a command without words")?;
        let mut process = Command::new(name)
            .args(more)
            .args(arguments.iter().flat_map(|(name, value)| [*name, value]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let orders = process.stdin.take();
        let output = process.stdout.take().context("a process without output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let (ready, name) = (String::new(), command.to_owned());
        let mut helper = Helper { ready, name, process, orders, lines };
        let first = helper.line().with_context(|| format!("can't start {command}"))?;
        let told = first.get("ready").and_then(Value::as_str);
        helper.ready =
            told.with_context(|| format!("{command} said {first}, not that it is ready"))?.into();
        Ok(helper)
    }

    /// Has it measure a part.
    pub(super) fn ask(&mut self, order: &str) -> Result<Figures> {
        let orders = self.orders.as_mut().context("it is ending")?;
        writeln!(orders, "{order}").with_context(|| format!("{} has ended", self.name))?;
        let told = self.line()?;
        let mut figures = Figures::default();
        for (name, figure) in told.as_object().into_iter().flatten() {
            match (row_named(name), figure.as_f64()) {
                (Some(row), Some(figure)) => figures.put(row, figure),
                _ => bail!("{} said {name}: {figure}, which no row has", self.name),
            }
        }
        Ok(figures)
    }

    fn line(&mut self) -> Result<Value> {
        let begin = Instant::now();
        let line = loop {
            interrupt::check()?;
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < PATIENCE => {}
                Err(_) => bail!("{} has ended, or says nothing", self.name),
            }
        };
        let told: Value =
            serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))?;
        match told.get("error") {
            Some(error) => bail!("{}: {error}", self.name),
            None => Ok(told),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.orders.take());
        let begin = Instant::now();
        while begin.elapsed() < END {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Row;
    use super::*;
    use tempfile::TempDir;

    /// A helper that is a script, in a folder whose name has blanks.
    fn shell(script: &str) -> Result<(Helper, TempDir)> {
        let folder = tempfile::Builder::new().prefix("a helper's ").tempdir()?;
        let path = folder.path().join("helper");
        std::fs::write(&path, script)?;
        let command = format!("sh \"{}\"", path.display());
        Ok((Helper::start(&[], &command, &[("--keys", "7".to_owned())])?, folder))
    }

    /// Orders are answered by figures. What is no figure of a row, an error, and an end are told.
    /// A command's words are those that a shell reads.
    #[test]
    fn a_helper_is_asked_line_by_line() {
        let script = r#"echo '{"ready": "it '$2'"}'
            read order; echo '{"read_p50_us": 1.5, "reads_per_s": 3}'
            read order; echo "{\"unknown_$order\": 1}"
            read order; echo '{"error": "no memory"}'"#;
        let (mut helper, _folder) = shell(script).expect("ready");
        assert_eq!(helper.ready, "it 7");
        let figures = helper.ask("reads").expect("figures");
        assert_eq!(figures.get(Row::ReadP50), Some(1.5));
        assert_eq!((figures.get(Row::Reads), figures.get(Row::WriteP50)), (Some(3.0), None));
        for part in ["unknown_writes", "no memory", "ended"] {
            let error = format!("{:#}", helper.ask("writes").expect_err("it says no figures"));
            assert!(error.contains(part), "{error}");
        }
        assert!(shell("echo hello").is_err());
    }
}
