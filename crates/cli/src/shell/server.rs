//! The shell of a running server.
//!
//! ```text
//! line ──► \help, \quit …            local
//!      └─► split_words ──► Connection ──► render      one command, one reply
//! ```
//!
//! Invariants:
//! 1. The shell works with any server of the Redis protocol: it asks the server for its commands.
//! 2. The history keeps no line with a password.

use super::completion::{self, Commands};
use super::history;
use super::lines::{self, LineOutcome, LineShell};
use crate::output::{Output, say, whole_text};
use crate::render;
use crate::target::ServerFlags;
use anyhow::Result;
use nigh_client::{ClientError, Connection, split_words};
use std::io::Write;

struct ServerShell<'a> {
    target: &'a ServerFlags,
    raw: bool,
    connection: Option<Connection>,
    commands: Commands,
    in_transaction: bool,
}

/// Connects, and runs lines until the end of input.
pub(super) fn run(target: &ServerFlags, raw: bool) -> Result<()> {
    let mut connection = target.connect()?;
    let commands = Commands::ask(&mut connection)?;
    let connection = Some(connection);
    lines::run(&mut ServerShell { target, raw, connection, commands, in_transaction: false })
}

impl LineShell for ServerShell<'_> {
    type Helper = completion::Helper;

    fn helper(&self) -> completion::Helper {
        completion::Helper::new(self.commands.clone())
    }

    fn introduction(&self) -> (&'static str, String) {
        let greeting = "\\help lists commands, \\help NAME explains one, Ctrl-D leaves.";
        ("history", greeting.to_owned())
    }

    fn prompt(&self) -> String {
        let mark = if self.in_transaction { "(TX)" } else { "" };
        let state = if self.connection.is_some() { "" } else { "(not connected) " };
        format!("{state}{}{mark}> ", self.target.address())
    }

    fn is_secret(&self, line: &str) -> bool {
        history::is_secret(line)
    }

    fn line(&mut self, line: &str) -> Result<LineOutcome> {
        let line = line.trim();
        if let Some(local) = line.strip_prefix('\\') {
            return self.local(local);
        }
        let words = match split_words(line.as_bytes()) {
            Ok(words) => words,
            Err(error) => {
                say!("(error) {error}");
                return Ok(LineOutcome::Failed);
            }
        };
        let Some(first) = words.first() else { return Ok(LineOutcome::Done) };
        let verb = first.to_ascii_lowercase();
        if matches!(&verb[..], b"exit" | b"quit") {
            return Ok(LineOutcome::Quit);
        }
        // No server has such a command, and redis-cli knows it.
        if verb == b"help" {
            let name = words[1..].join(&b' ');
            return self.local(&format!("help {}", String::from_utf8_lossy(&name)));
        }
        if matches!(&verb[..], b"subscribe" | b"psubscribe" | b"ssubscribe" | b"monitor" | b"sync")
        {
            say!("(error) this shell shows one reply to a command: it can't follow a stream");
            return Ok(LineOutcome::Failed);
        }
        self.send(&verb, &words)
    }
}

impl ServerShell<'_> {
    fn send(&mut self, verb: &[u8], words: &[Vec<u8>]) -> Result<LineOutcome> {
        if self.connection.is_none() {
            match self.target.connect() {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    say!("(error) {}", whole_text(&error.into()));
                    return Ok(LineOutcome::Failed);
                }
            }
        }
        let Some(connection) = &mut self.connection else { return Ok(LineOutcome::Failed) };
        let reply = match connection.call(words) {
            Ok(reply) => reply,
            // It has no reply.
            Err(ClientError::Closed { .. }) if verb == b"shutdown" => {
                self.connection = None;
                self.in_transaction = false;
                return Ok(LineOutcome::Done);
            }
            Err(error) => {
                say!("(error) {error}");
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
        let mut out = Output::new();
        if self.raw {
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
                say!("{}", self.commands.explain(&name, self.connection.as_mut())?);
            }
            _ => {
                say!("(error) \\help, \\help NAME and \\quit are all there is; not \\{line}");
                return Ok(LineOutcome::Failed);
            }
        }
        Ok(LineOutcome::Done)
    }
}
