//! DragonDB's command files: a command a line, words between blanks, taken as they are.
//!
//! ```text
//! open NAME [-STRONG]
//! puts KEY VALUE
//! get KEY
//! close
//! ```
//!
//! Invariant: in a file that was read whole, each `puts`, `get` and `close` has its `open` before
//! it.

use crate::render::printable;
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::path::Path;

/// Longest file, in bytes. Its commands take some eight times as much memory, if they are short.
const FILE_BYTES: u64 = 256 << 20;
/// Most characters of a broken line that are shown.
const SHOWN: usize = 60;
/// What a line may be.
const EXPECTED: &str = "open NAME, puts KEY VALUE, get KEY or close";
/// DragonDB's flag for strong writes.
const STRONG: &[u8] = b"-STRONG";

/// A command.
pub(super) enum FileCommand<'a> {
    Open { name: &'a str, strong: bool },
    Puts { key: &'a [u8], value: &'a [u8] },
    Get { key: &'a [u8] },
    Close,
}

/// A file's commands, with the numbers of their lines.
pub(super) struct CommandFile<'a> {
    pub(super) path: &'a Path,
    pub(super) commands: Vec<(u32, FileCommand<'a>)>,
}

/// The bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = || format!("{} can't be read", path.display());
    let file = std::fs::File::open(path).with_context(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes).with_context(failed)?;
    ensure!(
        bytes.len() as u64 <= FILE_BYTES,
        "{} is longer than {} MiB: divide it, and run the parts one after the other",
        path.display(),
        FILE_BYTES >> 20
    );
    Ok(bytes)
}

/// The commands of a file's bytes; the error names the first line that is none.
pub(super) fn parse<'a>(path: &'a Path, bytes: &'a [u8]) -> Result<CommandFile<'a>> {
    let (mut commands, mut is_open) = (Vec::new(), false);
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let command = command_of(line, &mut is_open).map_err(|expected| {
            let text: String = printable(line).trim().chars().take(SHOWN).collect();
            let path = path.display();
            anyhow::anyhow!("{path}, line {number}: expected {expected}, found `{text}`")
        })?;
        commands.extend(command.map(|command| (number, command)));
    }
    if commands.is_empty() {
        bail!("{} has no command: a line is {EXPECTED}", path.display());
    }
    Ok(CommandFile { path, commands })
}

/// The command of a line; `None` if it is blank. The error says what is expected.
fn command_of<'a>(
    line: &'a [u8],
    is_open: &mut bool,
) -> Result<Option<FileCommand<'a>>, &'static str> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(verb) = words.next() else { return Ok(None) };
    // One more than any command has.
    let mut next = || words.next();
    let words = [next(), next(), next()];
    let command = match (verb, words) {
        (b"open", [Some(name), strong, None]) if strong.is_none_or(|word| word == STRONG) => {
            let name = name_of(name).ok_or("open NAME, with the name of a folder, no path")?;
            *is_open = true;
            return Ok(Some(FileCommand::Open { name, strong: strong.is_some() }));
        }
        (b"open", _) => return Err("open NAME, or open NAME -STRONG"),
        (b"puts", [Some(key), Some(value), None]) => FileCommand::Puts { key, value },
        (b"puts", _) => return Err("puts KEY VALUE"),
        (b"get", [Some(key), None, _]) => FileCommand::Get { key },
        (b"get", _) => return Err("get KEY"),
        (b"close", [None, ..]) => FileCommand::Close,
        (b"close", _) => return Err("close alone"),
        _ => return Err(EXPECTED),
    };
    if !*is_open {
        return Err("open NAME before it");
    }
    *is_open = !matches!(command, FileCommand::Close);
    Ok(Some(command))
}

/// A database's name, if it is that of a folder within another.
fn name_of(word: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(word).ok()?;
    let is_path = name.contains('/') || name == "." || name == "..";
    (!is_path && !name.starts_with('-')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(bytes: &[u8]) -> String {
        match parse(Path::new("a.tst"), bytes) {
            Ok(file) => format!("{} commands", file.commands.len()),
            Err(error) => error.to_string(),
        }
    }

    /// DragonDB's files run: blanks don't count, words are bytes, a file need not close.
    #[test]
    fn dragondbs_files_are_read() {
        let bytes = b"open store\n\nputs  a \xff\"\r\n\tget a\nclose\nopen b -STRONG\nget x";
        let file = parse(Path::new("a.tst"), bytes).expect("it is one");
        let numbers: Vec<u32> = file.commands.iter().map(|it| it.0).collect();
        assert_eq!(numbers, [1, 3, 4, 5, 6, 7]);
        assert!(matches!(file.commands[0].1, FileCommand::Open { name: "store", strong: false }));
        let FileCommand::Puts { key: b"a", value } = file.commands[1].1 else { panic!("puts") };
        assert_eq!(value, b"\xff\"");
        assert!(matches!(file.commands[4].1, FileCommand::Open { name: "b", strong: true }));
        assert_eq!(said(b"open a\nopen b\nget x\n"), "3 commands", "an open closes what was open");
    }

    /// A broken line is named, with what is expected in its place, whatever bytes it has.
    #[test]
    fn a_broken_line_is_named() {
        for (text, expected) in [
            ("open a\nputz a 1", "line 2: expected open NAME, puts KEY VALUE, get KEY or close"),
            ("open a\nputs a", "line 2: expected puts KEY VALUE, found `puts a`"),
            ("open a\nputs a b c", "line 2: expected puts KEY VALUE"),
            ("open a\n\n\nget", "line 4: expected get KEY"),
            ("open a\nget b c", "line 2: expected get KEY"),
            ("get b", "line 1: expected open NAME before it, found `get b`"),
            ("open a\nclose\nclose", "line 3: expected open NAME before it"),
            ("open a\nclose it", "line 2: expected close alone"),
            ("open", "line 1: expected open NAME, or open NAME -STRONG"),
            ("open a -WEAK", "line 1: expected open NAME, or open NAME -STRONG"),
            ("open ../a", "line 1: expected open NAME, with the name of a folder"),
            ("open -STRONG", "line 1: expected open NAME, with the name of a folder"),
            ("\x1b[2J", "found `?[2J`"),
            ("\n \n", "a.tst has no command"),
        ] {
            assert!(said(text.as_bytes()).contains(expected), "{}", said(text.as_bytes()));
        }
        assert!(said(&[b'x'; 1000]).len() < 200);
    }
}
