//! Reads what stands in a library's source outside of JavaScript: the first line, and the comments
//! before functions. Pure; any thread.

use std::collections::HashMap;

use crate::LoadError;

/// Characters of a user's text that an error message repeats.
const QUOTED_MAX: usize = 64;
/// Longest name of a library, bytes.
const NAME_MAX: usize = 128;
/// Longest description of a function, bytes.
const DESCRIPTION_MAX: usize = 4096;

/// Name of the library from `#!js name=<name>`.
pub(crate) fn library_name(source: &[u8]) -> Result<String, LoadError> {
    let line = source.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let Some(line) = line.trim_end().strip_prefix("#!") else {
        return Err(LoadError::MissingMetadata);
    };
    let mut words = line.split_ascii_whitespace();
    let Some(engine) = words.next() else { return Err(LoadError::MissingMetadata) };
    if !engine.eq_ignore_ascii_case("js") {
        return Err(LoadError::UnknownEngine { engine: quoted(engine) });
    }
    let mut name = None;
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if key.eq_ignore_ascii_case("name") => {
                if name.replace(value).is_some() {
                    return Err(LoadError::NameTwice);
                }
            }
            _ => return Err(LoadError::InvalidMetadata { value: quoted(word) }),
        }
    }
    let name = name.ok_or(LoadError::MissingName)?;
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(fine) {
        return Err(LoadError::BadName);
    }
    Ok(name.to_owned())
}

fn quoted(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(QUOTED_MAX).collect()
}

/// The JSDoc comments right before each `export … name`, without their stars, by name. One walk over the source.
pub(crate) fn descriptions(source: &str) -> HashMap<&str, String> {
    let mut found = HashMap::new();
    let mut from = 0;
    while let Some(at) = source[from..].find("/**") {
        let start = from + at + 3;
        let Some(length) = source[start..].find("*/") else { break };
        from = start + length + 2;
        if let Some(name) = exported(&source[from..]) {
            found.entry(name).or_insert_with(|| plain(&source[start..start + length]));
        }
    }
    found.retain(|_, text| !text.is_empty());
    found
}

/// A comment's text without its stars, cut to what is kept.
fn plain(comment: &str) -> String {
    let lines: Vec<&str> =
        comment.lines().map(|line| line.trim().trim_start_matches('*').trim()).collect();
    let mut text = lines.join("\n").trim().to_owned();
    let mut cut = text.len().min(DESCRIPTION_MAX);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    text.truncate(cut);
    text
}

/// The name that `source` begins with the export of.
fn exported(source: &str) -> Option<&str> {
    source
        .trim_start()
        .strip_prefix("export")?
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
        .filter(|word| !word.is_empty())
        .find(|word| !matches!(*word, "async" | "function" | "const" | "let" | "var"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library() {
        // What Redis's loader accepts and refuses, with its texts.
        assert_eq!(library_name(b"#!js name=graph\nexport"), Ok("graph".into()));
        assert_eq!(library_name(b"#!JS NAME=a_1\r\n"), Ok("a_1".into()));
        let error = |source: &[u8]| library_name(source).unwrap_err().to_string();
        assert_eq!(error(b"export function f() {}"), "ERR Missing library metadata");
        assert_eq!(error(b""), "ERR Missing library metadata");
        assert_eq!(error(b"#!lua name=x\n"), "ERR Engine 'lua' not found");
        assert_eq!(error(b"#!js\n"), "ERR Library name was not given");
        assert_eq!(error(b"#!js foo=1\n"), "ERR Invalid metadata value given: foo=1");
        assert!(error(b"#!js name=\n").starts_with("ERR Library names can only contain letters"));
        assert!(error(b"#!js name=a-b\n").starts_with("ERR Library names can only contain"));
        assert!(error(b"#!js name=a name=b\n").contains("multiple times"));
    }

    #[test]
    fn the_comment_before_an_export_describes_it() {
        // A comment belongs to the function that follows it at once, not to a later one.
        let source = "#!js name=x\n/** About nothing. */\nlet a = 1;\n/**\n * Adds\n * two.\n */\n\
                      export async function add(db) {}\n/** One. */ export const one = () => 1;\n\
                      export function bare() {}";
        let found = descriptions(source);
        assert_eq!(found.get("add").map(String::as_str), Some("Adds\ntwo."));
        assert_eq!(found.get("one").map(String::as_str), Some("One."));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
