//! `nigh fn`: function libraries in a server.
//!
//! Invariant: if the server refuses a file, the error names the file and has the server's text. For
//! a syntax error that text names library, line and column.

use crate::output::say;
use crate::render::{printable, printable_lines};
use crate::target::{ServerFlags, accepted};
use anyhow::{Context, Result, bail};
use nigh_client::Frame;
use std::path::PathBuf;

/// Indentation of the second and later lines of a function's description.
const DESCRIPTION_INDENT: &str = "      ";

/// Options of `nigh fn`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(clap::Subcommand)]
enum Sub {
    /// Load libraries from files; the first line of each names the library: #!js name=…
    Load {
        #[command(flatten)]
        target: ServerFlags,
        /// Files to load, in this order
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Replace libraries of the same name
        #[arg(long)]
        replace: bool,
    },
    /// List libraries and their functions
    List {
        #[command(flatten)]
        target: ServerFlags,
        /// Only libraries whose name matches this pattern
        pattern: Option<String>,
        /// Print the source too
        #[arg(long)]
        code: bool,
    },
    /// Delete libraries
    Delete {
        #[command(flatten)]
        target: ServerFlags,
        /// Names of libraries
        #[arg(required = true, value_name = "LIBRARY")]
        names: Vec<String>,
    },
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Sub::Load { target, files, replace } => load(target, files, *replace),
        Sub::List { target, pattern, code } => list(target, pattern.as_deref(), *code),
        Sub::Delete { target, names } => delete(target, names),
    }
}

fn load(target: &ServerFlags, files: &[PathBuf], replace: bool) -> Result<()> {
    let mut connection = target.connect()?;
    for file in files {
        let source =
            std::fs::read(file).with_context(|| format!("can't read {}", file.display()))?;
        let mut command: Vec<&[u8]> = vec![b"FUNCTION", b"LOAD"];
        if replace {
            command.push(b"REPLACE");
        }
        command.push(&source);
        let reply = connection.call(&command)?;
        let reply = accepted(reply).with_context(|| format!("{} isn't loaded", file.display()))?;
        say!("{} is loaded from {}", text(&reply), file.display());
    }
    Ok(())
}

fn list(target: &ServerFlags, pattern: Option<&str>, code: bool) -> Result<()> {
    let mut command = vec!["FUNCTION", "LIST", "WITHSTATE"];
    if let Some(pattern) = pattern {
        command.extend(["LIBRARYNAME", pattern]);
    }
    if code {
        command.push("WITHCODE");
    }
    let reply = accepted(target.connect()?.call(&command)?)?;
    let Some(libraries) = reply.elements() else {
        bail!("FUNCTION LIST answered something that is no list: is this a Nigh server?");
    };
    for library in libraries {
        let name = field(library, "library_name").map(text).unwrap_or_default();
        let engine = field(library, "engine").map(text).unwrap_or_default();
        say!("{name} ({engine})");
        if let Some(reason) = field(library, "not_running").map(text) {
            say!("  not running: {reason}");
        }
        let functions = field(library, "functions").and_then(Frame::elements).unwrap_or(&[]);
        for function in functions {
            say!("{}", function_text(function));
        }
        if let Some(code) = field(library, "library_code").and_then(Frame::bytes) {
            say!("\n{}", String::from_utf8_lossy(code).trim_end());
        }
    }
    Ok(())
}

/// A function's name, flags and description. Further lines of the description are indented below.
fn function_text(function: &Frame) -> String {
    let name = field(function, "name").map(text).unwrap_or_default();
    let flags = field(function, "flags").and_then(Frame::elements).unwrap_or(&[]);
    let flags: Vec<String> = flags.iter().map(text).collect();
    let flags = if flags.is_empty() { String::new() } else { format!(" [{}]", flags.join(", ")) };
    let description = field(function, "description").and_then(Frame::bytes).unwrap_or_default();
    let description = printable_lines(description, DESCRIPTION_INDENT);
    format!("  {name}{flags}  {description}").trim_end().to_owned()
}

fn delete(target: &ServerFlags, names: &[String]) -> Result<()> {
    let mut connection = target.connect()?;
    for name in names {
        let reply = connection.call(&["FUNCTION", "DELETE", name])?;
        accepted(reply).with_context(|| format!("{name} isn't deleted"))?;
    }
    Ok(())
}

/// A field of a map, which in RESP2 is a list of names and values.
fn field<'a>(frame: &'a Frame, name: &str) -> Option<&'a Frame> {
    let is_name = |key: &Frame| key.bytes() == Some(name.as_bytes());
    match frame {
        Frame::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
        Frame::Array(items) => {
            items.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1])
        }
        _ => None,
    }
}

fn text(frame: &Frame) -> String {
    frame.bytes().map(printable).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a description stay lines. Control characters don't reach the terminal.
    #[test]
    fn descriptions_of_several_lines_are_indented() {
        let bulk = |text: &str| Frame::Bulk(text.into());
        let function = Frame::Map(vec![
            (bulk("name"), bulk("buy")),
            (bulk("flags"), Frame::Array(vec![bulk("no-writes")])),
            (bulk("description"), bulk("Buys.\r\nOr \x1b[2J not.")),
        ]);
        assert_eq!(function_text(&function), "  buy [no-writes]  Buys.\n      Or ?[2J not.");
    }
}
