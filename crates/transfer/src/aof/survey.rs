//! Reads an AOF before anything of it is applied: is it whole, can it be followed, and what does it
//! need?
//!
//! 1. A file that ends within a command, or within a transaction, counts up to there, as in Redis.
//! 2. A file is *plain* if each of its commands sets or removes keys, whatever was there before.
//!    Such a file may be applied to a server that has keys, again and again. Any other must begin
//!    with nothing.
//! 3. A command that can't be applied is found here, if it counts.

use std::io::Read;

use super::commands::{AofReader, Words};
use super::details::fault_of;
use super::meaning::{Meaning, meaning_of, name_of};
use crate::source::{Input, SourceError};

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Where the last command ends that counts.
    pub end: u64,
    /// Bytes behind it: a command or a transaction that isn't whole.
    pub cut_bytes: u64,
    /// Commands that count.
    pub commands: u64,
    /// Whether some command depends on what was there before.
    pub depends: bool,
}

/// Reads the commands from the input's next byte on, as an import of database `db` does. `moved` is
/// told each offset.
///
/// # Errors
/// A [`SourceError`], but for an end within a command.
pub fn survey<R: Read>(
    input: Input<R>,
    db: u64,
    moved: &mut dyn FnMut(u64),
) -> Result<Survey, SourceError> {
    let mut found = Survey { end: input.offset(), ..Survey::default() };
    let mut reader = AofReader::new(input);
    let mut words = Words::default();
    let (mut in_transaction, mut waiting) = (false, 0);
    let (mut selected, mut fault) = (0, None);
    let end = loop {
        let begin = reader.offset();
        match reader.next_command(&mut words) {
            Ok(true) => {}
            Ok(false) => break reader.offset(),
            Err(SourceError::Ended { offset, .. }) => break offset,
            Err(error) => return Err(error),
        }
        moved(reader.offset());
        found.depends |= depends(&words);
        fault = fault.or_else(|| fault_of(&words, begin, &mut selected, db));
        waiting += 1;
        match name_of(&words).as_str() {
            "MULTI" => in_transaction = true,
            "EXEC" => in_transaction = false,
            _ => {}
        }
        if !in_transaction {
            if let Some(fault) = fault {
                return Err(fault);
            }
            found.end = reader.offset();
            found.commands += waiting;
            waiting = 0;
        }
    };
    found.cut_bytes = end - found.end;
    Ok(found)
}

/// Whether the state after a command depends on the state before.
fn depends(words: &Words) -> bool {
    match meaning_of(words) {
        Meaning::Nothing | Meaning::Select | Meaning::SetFor(_) | Meaning::Keys(..) => false,
        Meaning::Set => words.iter().skip(3).any(|option| {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            ["NX", "XX", "GET", "KEEPTTL"].into_iter().any(is)
        }),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(commands: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| {
            nigh_resp::encode::request(&mut bytes, command.split(' '));
        });
        bytes
    }

    fn surveyed(bytes: &[u8]) -> Survey {
        survey(Input::new(bytes, 0), 0, &mut |_| ()).expect("no damage")
    }

    /// A transaction without its EXEC doesn't count, nor does a command that is cut off.
    #[test]
    fn a_torn_end_is_cut_off() {
        let whole = file(&["SET a 1", "MULTI", "SET b 2", "EXEC"]);
        let found = surveyed(&whole);
        assert_eq!((found.end, found.cut_bytes, found.commands), (whole.len() as u64, 0, 4));
        let first = file(&["SET a 1"]).len() as u64;
        let open = file(&["SET a 1", "MULTI", "SET b 2"]);
        let found = surveyed(&open);
        assert_eq!((found.end, found.cut_bytes), (first, open.len() as u64 - first));
        let found = surveyed(&whole[..whole.len() - 1]);
        assert_eq!((found.end, found.commands), (first, 1));
    }

    /// A command that can't be applied is told with its offset, but for one that doesn't count: in
    /// another database, or in a transaction without its EXEC.
    #[test]
    fn what_cannot_be_applied_is_found() {
        let begin = file(&["SET a 1"]).len() as u64;
        let wrong = [
            "SWAPDB 1 0",
            "SELECT x",
            "SET a",
            "SET a 1 IFEQ 2",
            "SET a 1 PX x",
            "SETEX a x 1",
            "GETEX a PX",
            "PEXPIREAT a x",
            "EXPIRE a 9223372036854775807",
            "RESTORE a 0",
        ];
        for command in wrong {
            let bytes = file(&["SET a 1", command, "SET b 2"]);
            let fault = survey(Input::new(&bytes[..], 0), 0, &mut |_| ()).expect_err(command);
            let SourceError::Malformed { offset, .. } = fault else { panic!("{fault}") };
            assert_eq!(offset, begin, "{command}");
        }
        surveyed(&file(&["SELECT 1", "SET a 1 IFEQ 2", "SELECT 0", "SWAPDB 1 2"]));
        assert_eq!(surveyed(&file(&["SET a 1", "MULTI", "SWAPDB 1 0"])).end, begin);
    }

    /// What an export writes is plain; what counts up isn't.
    #[test]
    fn plain_files_are_known() {
        assert!(!surveyed(&file(&["SELECT 0", "SET a 1 PXAT 5", "DEL b", "MSET c 1"])).depends);
        for command in ["INCR a", "SET a 1 KEEPTTL", "FLUSHALL", "PEXPIREAT a 5", "LPUSH l x"] {
            assert!(surveyed(&file(&[command])).depends, "{command}");
        }
    }
}
