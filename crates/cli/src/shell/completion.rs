//! Completion and help, from Nigh's own command table and from the server's COMMAND.
//!
//! Invariants:
//! 1. Completion offers the commands of the connected server, if the server lists them.
//! 2. Help comes from the table. For a command that isn't there, the shell asks the server.

use anyhow::Result;
use nigh_client::Connection;
use nigh_client::Frame;
use nigh_server::commands::{CommandSpec, table};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

/// Width of the column of names in the list of commands.
const NAME_WIDTH: usize = 20;

/// Names of the commands of a server, in upper case, sorted; subcommands as `CLIENT LIST`.
#[derive(Clone)]
pub(super) struct Commands {
    names: Vec<String>,
}

impl Commands {
    /// Asks the server. If it lists none, takes those of Nigh's own table.
    pub(super) fn ask(connection: &mut Connection) -> Result<Self> {
        let reply = connection.call(&["COMMAND"])?;
        let mut names = Vec::new();
        for command in reply.elements().unwrap_or(&[]) {
            collect(command, &mut names);
        }
        if names.is_empty() {
            names = table().iter().map(|spec| shown(spec.name)).collect();
        }
        names.sort();
        names.dedup();
        Ok(Self { names })
    }

    /// Names that begin with `typed`, in any case. Subcommands come once a blank is typed.
    pub(super) fn completions(&self, typed: &str) -> Vec<&str> {
        let typed = typed.to_ascii_uppercase();
        let depth = typed.matches(' ').count();
        self.names
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with(&typed) && name.matches(' ').count() == depth)
            .collect()
    }

    /// One line for each command, or the whole help of one.
    pub(super) fn explain(&self, name: &str, server: Option<&mut Connection>) -> Result<String> {
        if name.is_empty() {
            return Ok(self.list());
        }
        let wanted = name.to_ascii_uppercase();
        if let Some(spec) = table().iter().find(|spec| shown(spec.name) == wanted) {
            return Ok(about(spec));
        }
        if let Some(server) = server
            && self.names.contains(&wanted)
        {
            let reply = server.call(&["COMMAND", "DOCS", &wanted.replace(' ', "|")])?;
            if let Some(text) = about_docs(&wanted, &reply) {
                return Ok(text);
            }
        }
        let near = self.completions(&wanted);
        Ok(match near.is_empty() {
            true => format!("{wanted} is no command of this server; \\help lists them"),
            false => near.join("\n"),
        })
    }

    fn list(&self) -> String {
        let line = |name: &String| {
            let spec = table().iter().find(|spec| shown(spec.name) == *name);
            format!("{name:NAME_WIDTH$} {}", spec.map_or("", |spec| spec.summary))
        };
        let proper = self.names.iter().filter(|name| !name.contains(' '));
        proper.map(|name| line(name).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Takes the names of one command of COMMAND's reply and of its subcommands.
fn collect(command: &Frame, names: &mut Vec<String>) {
    let Some(fields) = command.elements() else { return };
    if let Some(name) = fields.first().and_then(Frame::bytes) {
        names.push(shown(&String::from_utf8_lossy(name)));
    }
    /// Position of the subcommands in an entry, since Redis 7.
    const SUBCOMMANDS: usize = 9;
    for subcommand in fields.get(SUBCOMMANDS).and_then(Frame::elements).unwrap_or(&[]) {
        if let Some(name) = subcommand.elements().and_then(<[_]>::first).and_then(Frame::bytes) {
            names.push(shown(&String::from_utf8_lossy(name)));
        }
    }
}

/// A name as a user types it.
fn shown(name: &str) -> String {
    name.replace('|', " ").to_ascii_uppercase()
}

fn about(spec: &CommandSpec) -> String {
    let mut text = format!("{} {}", shown(spec.name), spec.syntax);
    for (title, value) in [
        ("", spec.summary),
        ("group: ", spec.group),
        ("since: ", spec.since),
        ("time: ", spec.complexity),
    ] {
        if !value.is_empty() {
            text = format!("{}\n  {title}{value}", text.trim_end());
        }
    }
    let prefix = format!("{}|", spec.name);
    for sub in table().iter().filter(|sub| sub.name.starts_with(&prefix)) {
        text = format!("{text}\n  {:NAME_WIDTH$} {}", shown(sub.name), sub.summary);
    }
    text
}

/// Help from a server's COMMAND DOCS: name, then a map (a list in RESP2) of facts.
fn about_docs(name: &str, reply: &Frame) -> Option<String> {
    let facts = match reply {
        Frame::Map(pairs) => pairs.first().map(|(_, facts)| facts)?,
        other => other.elements()?.get(1)?,
    };
    let pairs: Vec<(&Frame, &Frame)> = match facts {
        Frame::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        other => other.elements()?.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
    };
    let mut text = name.to_owned();
    for (key, value) in pairs {
        let (Some(key), Some(value)) = (key.bytes(), value.bytes()) else { continue };
        let (key, value) = (crate::render::printable(key), crate::render::printable(value));
        text = format!("{text}\n  {key}: {value}");
    }
    Some(text)
}

/// Answers the line editor.
pub(super) struct Helper {
    commands: Commands,
}

impl Helper {
    pub(super) fn new(commands: Commands) -> Self {
        Self { commands }
    }
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..position];
        let start =
            ["\\help ", "\\h "].iter().find(|p| typed.starts_with(**p)).map_or(0, |p| p.len());
        let pair = |name: &str| Pair { display: name.to_owned(), replacement: format!("{name} ") };
        let found = self.commands.completions(&typed[start..]);
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Helper {
    type Hint = String;

    /// The arguments of the typed command, once a blank follows its name.
    fn hint(&self, line: &str, position: usize, _: &rustyline::Context<'_>) -> Option<String> {
        if position < line.len() || !line.ends_with(' ') {
            return None;
        }
        let wanted = line.trim().to_ascii_uppercase();
        let spec = table().iter().find(|spec| shown(spec.name) == wanted)?;
        Some(spec.syntax.to_owned()).filter(|syntax| !syntax.is_empty())
    }
}

impl Highlighter for Helper {}
impl Validator for Helper {}
impl rustyline::Helper for Helper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let names = ["CLIENT", "CLIENT ID", "CLIENT LIST", "GET", "GETDEL"];
        Commands { names: names.map(ToOwned::to_owned).into() }
    }

    /// Commands come first, and their subcommands after a blank, in any case.
    #[test]
    fn completion_follows_what_is_typed() {
        assert_eq!(commands().completions("ge"), ["GET", "GETDEL"]);
        assert_eq!(commands().completions("client "), ["CLIENT ID", "CLIENT LIST"]);
        assert_eq!(commands().completions("cl"), ["CLIENT"]);
        assert_eq!(commands().completions("client id x"), [] as [&str; 0]);
    }

    /// Help needs no server for commands of the table, and says so if a command doesn't exist.
    #[test]
    fn help_comes_from_the_table() {
        let get = commands().explain("get", None).expect("local");
        assert!(get.starts_with("GET "), "{get}");
        let none = commands().explain("frobnicate", None).expect("local");
        assert!(none.contains("no command"), "{none}");
    }
}
