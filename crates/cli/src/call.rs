//! `nigh call`: one function call, or one command as it stands.
//!
//! ```text
//! nigh call countFriends 107 3          FCALL countFriends 0 107 3
//! nigh call add --key a --key b 5       FCALL add 2 a b 5
//! nigh call -- SET a 'b c'              SET a 'b c'
//! ```
//!
//! A SHUTDOWN has no reply: the end of the connection is its success.

use crate::output::Output;
use crate::render;
use crate::target::{ServerFlags, accepted};
use anyhow::{Result, anyhow, ensure};
use nigh_client::ClientError;
use std::io::Write;

/// Options of `nigh call`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ServerFlags,
    /// Function to call
    #[arg(required_unless_present = "command")]
    function: Option<String>,
    /// Arguments of the function
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// A key that the function uses; may be given several times
    #[arg(long, value_name = "KEY", conflicts_with = "command")]
    key: Vec<String>,
    /// Call by FCALL_RO: the function may not write
    #[arg(long, conflicts_with = "command")]
    read_only: bool,
    /// Print strings as they are; this is the default unless stdout is a terminal
    #[arg(long)]
    raw: bool,
    /// Print strings quoted and with types, even if stdout isn't a terminal
    #[arg(long, conflicts_with = "raw")]
    quoted: bool,
    /// A command and its arguments, instead of a function
    #[arg(last = true)]
    command: Vec<String>,
}

/// Sends the command and prints the reply. An error reply is an error of the program.
pub(crate) fn run(args: &Args) -> Result<()> {
    let words = match &args.function {
        None => args.command.clone(),
        Some(function) => {
            ensure!(args.command.is_empty(), "give a function or a command after --, not both");
            let verb = if args.read_only { "FCALL_RO" } else { "FCALL" };
            let mut words = vec![verb.to_owned(), function.clone(), args.key.len().to_string()];
            words.extend_from_slice(&args.key);
            words.extend_from_slice(&args.args);
            words
        }
    };
    let reply = match args.target.connect()?.call(&words) {
        Err(ClientError::Closed { .. }) if words[0].eq_ignore_ascii_case("shutdown") => {
            return Ok(());
        }
        reply => reply?,
    };
    let reply = accepted(reply).map_err(|error| {
        // As `nigh call GET key`.
        let is_missing = error.to_string() == "ERR Function not found";
        match &args.function {
            Some(name) if is_missing => {
                anyhow!("{error}; to send a command, write nigh call -- {name} …")
            }
            _ => error,
        }
    })?;
    let mut out = Output::new();
    if args.raw || !(args.quoted || out.is_terminal()) {
        out.write_all(&render::raw(&reply))?;
        out.write_all(b"\n")?;
    } else {
        writeln!(out, "{}", render::formatted(&reply))?;
    }
    Ok(())
}
