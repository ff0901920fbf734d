//! Completion and hints of a store's commands.

use super::commands::{COMMANDS, completions};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

/// Answers the line editor.
pub(super) struct Typing;

impl Completer for Typing {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..position];
        let start = if typed.starts_with("help ") { "help ".len() } else { 0 };
        let pair = |name: &str| Pair { display: name.to_owned(), replacement: format!("{name} ") };
        Ok((start, completions(&typed[start..]).into_iter().map(pair).collect()))
    }
}

impl Hinter for Typing {
    type Hint = String;

    /// The arguments of the typed command, once a blank follows its name.
    fn hint(&self, line: &str, position: usize, _: &rustyline::Context<'_>) -> Option<String> {
        let name = line.strip_suffix(' ').filter(|_| position == line.len())?;
        let command = COMMANDS.iter().find(|it| name.eq_ignore_ascii_case(it.name))?;
        Some(command.arguments.to_owned()).filter(|arguments| !arguments.is_empty())
    }
}

impl Highlighter for Typing {}
impl Validator for Typing {}
impl rustyline::Helper for Typing {}
