//! Replies as text, in the form that redis-cli made familiar; numbers with commas.
//!
//! ```text
//! 1) "a"
//! 2) 1) (integer) 3
//!    2) (nil)
//! ```
//!
//! Invariants:
//! 1. The text is ASCII, whatever bytes the reply has. [`raw`] alone gives the bytes as they are.
//! 2. The text ends without a line break.

use indicatif::HumanFloatCount;
use nigh_client::Frame;
use std::fmt::Write;

/// A reply for people.
pub(crate) fn formatted(frame: &Frame) -> String {
    let mut text = String::new();
    write(&mut text, frame, 0);
    text
}

/// A reply for programs: strings as they are, elements on lines of their own.
pub(crate) fn raw(frame: &Frame) -> Vec<u8> {
    match frame {
        Frame::Array(items) | Frame::Set(items) | Frame::Push(items) => {
            items.iter().map(raw).collect::<Vec<_>>().join(&b'\n')
        }
        Frame::Map(pairs) => {
            let items: Vec<_> =
                pairs.iter().flat_map(|(key, value)| [raw(key), raw(value)]).collect();
            items.join(&b'\n')
        }
        Frame::Attribute { value, .. } => raw(value),
        Frame::Null | Frame::NullArray => Vec::new(),
        other => match (other.bytes(), other.error()) {
            (Some(bytes), _) | (None, Some(bytes)) => bytes.to_vec(),
            (None, None) => bare(other).into_bytes(),
        },
    }
}

/// A number or a truth value without the name of its type.
fn bare(frame: &Frame) -> String {
    match frame {
        Frame::Integer(number) => number.to_string(),
        Frame::Double(number) => number.to_string(),
        Frame::Boolean(truth) => truth.to_string(),
        other => scalar(other),
    }
}

fn write(text: &mut String, frame: &Frame, indent: usize) {
    match frame {
        Frame::Array(items) => elements(text, items, ')', "array", indent),
        Frame::Set(items) => elements(text, items, '~', "set", indent),
        Frame::Push(items) => elements(text, items, '>', "push", indent),
        Frame::Map(pairs) => {
            let width = digits(pairs.len());
            for (at, (key, value)) in pairs.iter().enumerate() {
                number(text, at, width, '#', indent);
                write(text, key, indent + width + 2);
                text.push_str(" => ");
                write(text, value, indent + width + 2);
            }
            if pairs.is_empty() {
                text.push_str("(empty map)");
            }
        }
        Frame::Attribute { value, .. } => write(text, value, indent),
        other => text.push_str(&scalar(other)),
    }
}

fn elements(text: &mut String, items: &[Frame], mark: char, name: &str, indent: usize) {
    let width = digits(items.len());
    for (at, item) in items.iter().enumerate() {
        number(text, at, width, mark, indent);
        write(text, item, indent + width + 2);
    }
    if items.is_empty() {
        let _ = write!(text, "(empty {name})");
    }
}

/// The number before an element. The first element stands on the line that is already begun.
fn number(text: &mut String, at: usize, width: usize, mark: char, indent: usize) {
    if at > 0 {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent));
    }
    let _ = write!(text, "{:>width$}{mark} ", at + 1);
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

fn scalar(frame: &Frame) -> String {
    match frame {
        Frame::Simple(text) => printable(text),
        Frame::Error(text) | Frame::BlobError(text) => format!("(error) {}", printable(text)),
        Frame::Integer(number) => format!("(integer) {number}"),
        Frame::Bulk(bytes) => quoted(bytes),
        Frame::Null | Frame::NullArray => "(nil)".to_owned(),
        Frame::Double(number) => format!("(double) {number}"),
        Frame::Boolean(truth) => format!("({truth})"),
        Frame::BigNumber(digits) => printable(digits),
        Frame::Verbatim { text, .. } => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Text whose control characters can't move a terminal's cursor.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A number rounded to an integer, with commas.
pub(crate) fn thousands(number: f64) -> String {
    format!("{:.0}", HumanFloatCount(number))
}

/// Text of several lines, each [`printable`]. Lines after the first begin with `indent`.
pub(crate) fn printable_lines(bytes: &[u8], indent: &str) -> String {
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| printable(line.strip_suffix(b"\r").unwrap_or(line)));
    lines.collect::<Vec<_>>().join(&format!("\n{indent}"))
}

/// Bytes in double quotes, as redis-cli writes them: [`nigh_client::split_words`] reads them back.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for &byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            7 => text.push_str("\\a"),
            8 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                let _ = write!(text, "\\x{other:02x}");
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Frame {
        Frame::Bulk(text.into())
    }

    /// Nested arrays and maps are indented under their number.
    #[test]
    fn nesting_is_indented() {
        let inner = Frame::Array(vec![Frame::Integer(3), Frame::Null]);
        let outer = Frame::Array(vec![bulk("a"), inner, Frame::Array(vec![])]);
        let expected = "1) \"a\"\n2) 1) (integer) 3\n   2) (nil)\n3) (empty array)";
        assert_eq!(formatted(&outer), expected);
        let map = Frame::Map(vec![(bulk("k"), Frame::Set(vec![bulk("x"), bulk("y")]))]);
        assert_eq!(formatted(&map), "1# \"k\" => 1~ \"x\"\n   2~ \"y\"");
    }

    /// Any bytes can be printed, and the printed text, typed in again, gives the same bytes.
    #[test]
    fn quoted_bytes_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = formatted(&Frame::Bulk(all.clone()));
        assert!(text.is_ascii());
        assert_eq!(nigh_client::split_words(text.as_bytes()).expect("well-formed"), [all]);
    }

    /// An error can't send escape sequences to the terminal.
    #[test]
    fn errors_cannot_drive_the_terminal() {
        assert_eq!(formatted(&Frame::Error(b"ERR \x1b[2J".to_vec())), "(error) ERR ?[2J");
    }

    /// Raw output is the value, byte for byte.
    #[test]
    fn raw_output_has_the_bytes() {
        let reply = Frame::Array(vec![Frame::Bulk(vec![0, 255]), Frame::Integer(1), Frame::Null]);
        assert_eq!(raw(&reply), b"\x00\xff\n1\n");
    }
}
