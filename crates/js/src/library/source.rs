//! Reads the parts of a library's source that are no JavaScript: the first line, and the comments
//! before functions. Pure; any thread.

use std::collections::HashMap;

use super::LoadError;

/// Most characters of a user's text that an error message repeats.
const QUOTED_MAX: usize = 64;
/// Longest name of a library, bytes.
const NAME_MAX: usize = 128;
/// Longest description of a function, bytes.
const DESCRIPTION_MAX: usize = 4096;

/// Name of the library from `#!js name=<name>`. The line is split into words as Redis does it.
pub(crate) fn library_name(source: &[u8]) -> Result<String, LoadError> {
    if !source.starts_with(b"#!") {
        return Err(LoadError::MissingMetadata);
    }
    let end = source.iter().position(|&byte| byte == b'\n').ok_or(LoadError::InvalidLine)?;
    let words = words(&source[..end]).ok_or(LoadError::InvalidLine)?;
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let (first, rest) = words.split_first().ok_or(LoadError::InvalidLine)?;
    let mut name = None;
    for word in rest {
        match word.split_at_checked("name=".len()) {
            Some((key, value)) if key.eq_ignore_ascii_case("name=") => {
                if name.replace(value).is_some() {
                    return Err(LoadError::NameTwice);
                }
            }
            _ => return Err(LoadError::InvalidMetadata { value: quoted(word) }),
        }
    }
    let name = name.ok_or(LoadError::MissingName)?;
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(fine) {
        return Err(LoadError::BadName);
    }
    if name.len() > NAME_MAX {
        return Err(LoadError::LongName { most: NAME_MAX });
    }
    let engine = &first["#!".len()..];
    if !engine.eq_ignore_ascii_case("js") {
        return Err(LoadError::UnknownEngine { engine: quoted(engine) });
    }
    Ok(name.to_owned())
}

/// The words of a line, which may be quoted: `"` with escapes, or `'` without. `None` if a quote
/// isn't closed, or goes on behind its end, or there is a zero byte. (Redis's `sdssplitargs`.)
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let (mut words, mut rest) = (Vec::new(), line);
    if line.contains(&0) {
        return None;
    }
    loop {
        rest = &rest[rest.iter().take_while(|byte| is_blank(byte)).count()..];
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        loop {
            match *rest {
                [] => break,
                [byte, ..] if is_blank(&byte) => break,
                [quote @ (b'"' | b'\''), ref inside @ ..] => {
                    rest = unquote(quote, inside, &mut word)?;
                    if rest.first().is_some_and(|byte| !is_blank(byte)) {
                        return None;
                    }
                    break;
                }
                [byte, ref behind @ ..] => {
                    word.push(byte);
                    rest = behind;
                }
            }
        }
        words.push(word);
    }
}

/// Reads up to the closing quote into `word`. The rest behind it, or `None` if there is none.
fn unquote<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    loop {
        let (byte, behind) = match *rest {
            [] => return None,
            [byte, ref behind @ ..] if byte == quote => return Some(behind),
            [b'\\', b'\'', ref behind @ ..] if quote == b'\'' => (b'\'', behind),
            [b'\\', b'x', high, low, ref behind @ ..] if quote == b'"' => {
                match (digit(high), digit(low)) {
                    (Some(high), Some(low)) => (high << 4 | low, behind),
                    _ => (b'x', &rest[2..]),
                }
            }
            [b'\\', byte, ref behind @ ..] if quote == b'"' => {
                let escapes = [(b'n', b'\n'), (b'r', b'\r'), (b't', b'\t'), (b'b', 8), (b'a', 7)];
                let meant = escapes.iter().find(|(letter, _)| *letter == byte);
                (meant.map_or(byte, |(_, meant)| *meant), behind)
            }
            [byte, ref behind @ ..] => (byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

fn quoted(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(QUOTED_MAX).collect()
}

/// The JSDoc comments right before each `export … name`, without their stars, by name. One walk
/// over the source.
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

/// A comment's text without its stars, cut to [`DESCRIPTION_MAX`].
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

/// The exported name, if `source` begins with an export.
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
        // Redis's loader accepts and refuses the same lines, with the same texts. (The differential
        // test compares more of them.)
        for (line, wanted) in [
            ("#!js name=graph", "graph"),
            ("#!JS NAME=a_1\r", "a_1"),
            ("#!js\tname=t  ", "t"),
            ("#!js name=\"q\"", "q"),
            ("#!js 'name=q'", "q"),
            ("#!\"js\" name=\"\\x41\"", "A"),
        ] {
            let source = format!("{line}\nexport");
            assert_eq!(library_name(source.as_bytes()).as_deref(), Ok(wanted), "{line}");
        }
        const LETTERS: &str = "ERR Library names can only contain letters, numbers, or \
            underscores(_) and must be at least one character long";
        for (source, wanted) in [
            ("export function f() {}", "ERR Missing library metadata"),
            ("", "ERR Missing library metadata"),
            (" #!js name=x\n", "ERR Missing library metadata"),
            ("#!js name=x", "ERR Invalid library metadata"),
            ("#!js name=\"x\n", "ERR Invalid library metadata"),
            ("#!js 'name=x\n", "ERR Invalid library metadata"),
            ("#!js name=\"x\"y\n", "ERR Invalid library metadata"),
            ("#!js name=x\0\n", "ERR Invalid library metadata"),
            ("#!lua name=x\n", "ERR Engine 'lua' not found"),
            ("#! name=x\n", "ERR Engine '' not found"),
            ("#!js\n", "ERR Library name was not given"),
            ("#!\n", "ERR Library name was not given"),
            ("#! js name=x\n", "ERR Invalid metadata value given: js"),
            ("#!js foo=1\n", "ERR Invalid metadata value given: foo=1"),
            ("#!js name= x\n", "ERR Invalid metadata value given: x"),
            ("#!js name=\n", LETTERS),
            ("#!js name=''\n", LETTERS),
            ("#!js name=a-b\n", LETTERS),
            ("#!js \"name=a\\n\"\n", LETTERS),
            (
                "#!js name=a name=b\n",
                "ERR Invalid metadata value, name argument was given multiple times",
            ),
        ] {
            let error = library_name(source.as_bytes()).expect_err(source).to_string();
            assert_eq!(error, wanted, "{source:?}");
        }
        // Redis knows no limit.
        let named = |count: usize| format!("#!js name={}\n", "n".repeat(count));
        assert_eq!(library_name(named(128).as_bytes()), Ok("n".repeat(128)));
        let error = library_name(named(129).as_bytes()).expect_err("too long").to_string();
        assert_eq!(error, "ERR Library names have at most 128 characters");
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
