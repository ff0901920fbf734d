//! The table of the commands: what runs them, and their help.

use super::session::Session;
use super::{reads, watching, writes};
use anyhow::{Result, bail};
use nigh_client::Frame;
use std::ops::RangeInclusive;

/// Width of the column of commands in the list.
const SYNTAX_WIDTH: usize = 32;
/// Most words of a command that takes any number.
const MANY: usize = 1_000_000;

/// Runs the command, given its arguments, whose number is right.
type Run = fn(&mut Session, &[Vec<u8>]) -> Result<Frame>;

/// A command.
pub(super) struct StoreCommand {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    summary: &'static str,
    count: RangeInclusive<usize>,
    run: Run,
}

const fn row(
    name: &'static str,
    arguments: &'static str,
    count: RangeInclusive<usize>,
    run: Run,
    summary: &'static str,
) -> StoreCommand {
    StoreCommand { name, arguments, summary, count, run }
}

/// All commands, in the order of the list.
pub(super) const COMMANDS: [StoreCommand; 18] = [
    row("get", "KEY...", 1..=MANY, reads::get, "values; of several keys at one moment"),
    row("put", "KEY VALUE [TTL]", 2..=3, writes::put, "TTL: 10 or 10s, 500ms, 5m, 2h, 7d"),
    row("putnew", "KEY VALUE [TTL]", 2..=3, writes::putnew, "put, if the key isn't there"),
    row("delete", "KEY...", 1..=MANY, writes::delete, "how many were there"),
    row("incr", "KEY [BY]", 1..=2, writes::incr, "adds 1 or BY to an integer"),
    row("cas", "KEY EXPECTED [NEW]", 2..=3, writes::cas, "if it is EXPECTED: put NEW, or delete"),
    row("expire", "KEY [TTL]", 1..=2, writes::expire, "another expiry, or none"),
    row("ttl", "KEY", 1..=1, reads::ttl, "how long a key stays"),
    row("scan", "[PREFIX] [COUNT]", 0..=2, reads::scan, "keys and values, in no order"),
    row("count", "[PREFIX]", 0..=1, reads::count, "keys, by a walk"),
    row("snapshot", "count [PREFIX]", 1..=2, reads::snapshot, "keys, as of one moment"),
    row("stats", "", 0..=0, reads::stats, "counts and sizes"),
    row("batch", "begin | commit | abort", 1..=1, writes::batch, "puts and deletes as one"),
    row("strong", "[on | off]", 0..=1, writes::strong, "whether writes wait for the disk"),
    row("flush", "", 0..=0, writes::flush, "waits until all is on disk"),
    row("watch", "[PREFIX]", 0..=1, watching::watch, "keeps changes for `events`"),
    row("events", "[COUNT]", 0..=1, watching::events, "changes so far; COUNT waits, to Ctrl-C"),
    row("help", "[COMMAND]", 0..=1, help, "this list; `quit` or Ctrl-D leaves"),
];

impl StoreCommand {
    fn syntax(&self) -> String {
        format!("{} {}", self.name, self.arguments).trim_end().to_owned()
    }

    fn line(&self) -> String {
        format!("{:SYNTAX_WIDTH$} {}", self.syntax(), self.summary)
    }
}

/// Finds a command by its name, in any case.
fn find(name: &[u8]) -> Result<&'static StoreCommand> {
    let found = COMMANDS.iter().find(|it| name.eq_ignore_ascii_case(it.name.as_bytes()));
    match found {
        Some(command) => Ok(command),
        None => bail!("`{}` is no command: help lists them", String::from_utf8_lossy(name)),
    }
}

/// Runs a command with its arguments.
pub(super) fn run(session: &mut Session, name: &[u8], arguments: &[Vec<u8>]) -> Result<Frame> {
    let command = find(name)?;
    if !command.count.contains(&arguments.len()) {
        bail!("`{}` has other arguments: {}", command.name, command.syntax());
    }
    (command.run)(session, arguments)
}

/// `help [COMMAND]`.
fn help(_: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let lines = match words.first() {
        Some(name) => vec![find(name)?.line()],
        None => COMMANDS.iter().map(StoreCommand::line).collect(),
    };
    Ok(Frame::Verbatim { format: *b"txt", text: lines.join("\n").into() })
}

/// Names that begin with `typed`, in any case.
pub(super) fn completions(typed: &str) -> Vec<&'static str> {
    let typed = typed.to_ascii_lowercase();
    let names = COMMANDS.iter().map(|it| it.name).chain(["quit"]);
    names.filter(|name| name.starts_with(&typed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names complete in any case, and each command finds its own row.
    #[test]
    fn commands_are_found_by_their_names() {
        assert_eq!(completions("PUT"), ["put", "putnew"]);
        assert_eq!(completions("q"), ["quit"]);
        assert!(completions("x").is_empty());
        for command in &COMMANDS {
            let name = command.name.to_ascii_uppercase();
            assert_eq!(find(name.as_bytes()).expect("it is there").name, command.name);
            assert!(command.line().len() <= 80, "{}", command.line());
        }
        let error = find(b"frob").err().expect("there is none").to_string();
        assert_eq!(error, "`frob` is no command: help lists them");
    }
}
