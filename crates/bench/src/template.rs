//! Requests as bytes with holes. A template is encoded once, then copied and patched for each
//! request.
//!
//! Invariants:
//! 1. A placeholder has a fixed width, so the RESP headers around it never change.
//! 2. Each `__key__` draws a key. `__value__` is the value of the key that was drawn last.

use super::drawn_keys::{Keys, RecordShape, SplitMix64, digits};
use anyhow::{Result, bail};

/// Digits of `__rand__`.
const RANDOM_DIGITS: usize = 12;

/// The kind of a request, which determines the expected reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// GET of one key: its value, or null if it was never set.
    Get,
    /// SET of one key to its value: `+OK`.
    Set,
    /// Anything else.
    Other,
}

#[derive(Clone, Copy)]
enum Hole {
    Key(usize),
    Value(usize),
    Random(usize),
}

/// One request.
pub(super) struct Template {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
    kind: RequestKind,
}

impl Template {
    /// Encodes the command `words` with its placeholders `__key__`, `__value__` and `__rand__`.
    pub(super) fn new(words: &[Vec<u8>], shape: &RecordShape) -> Self {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut holes = Vec::new();
        for word in words {
            let (text, word_holes) = fill(word, shape);
            bytes.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            let at = bytes.len();
            holes.extend(word_holes.into_iter().map(|hole| match hole {
                Hole::Key(offset) => Hole::Key(at + offset),
                Hole::Value(offset) => Hole::Value(at + offset),
                Hole::Random(offset) => Hole::Random(at + offset),
            }));
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(b"\r\n");
        }
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let kind = match words[..] {
            [b"get", b"__key__"] => RequestKind::Get,
            [b"set", b"__key__", b"__value__"] => RequestKind::Set,
            _ => RequestKind::Other,
        };
        Self { bytes, holes, kind }
    }

    /// Appends one request to `out`; returns the number of the key that was drawn last.
    #[inline]
    fn append(
        &self,
        out: &mut Vec<u8>,
        shape: &RecordShape,
        keys: &mut Keys,
        random: &mut SplitMix64,
    ) -> u64 {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let request = &mut out[start..];
        let mut number = 0;
        for &hole in &self.holes {
            match hole {
                Hole::Key(at) => {
                    number = keys.draw(random);
                    shape.key_digits(number, &mut request[at..at + shape.key_bytes()]);
                }
                Hole::Value(at) => {
                    shape.value(number, &mut request[at..at + shape.value_bytes()]);
                }
                Hole::Random(at) => {
                    digits(random.next(), &mut request[at..at + RANDOM_DIGITS]);
                }
            }
        }
        number
    }
}

/// The text of a word, with key 0 in its placeholders, and the offsets of the placeholders.
fn fill(word: &[u8], shape: &RecordShape) -> (Vec<u8>, Vec<Hole>) {
    let (mut text, mut holes, mut rest) = (Vec::new(), Vec::new(), word);
    while !rest.is_empty() {
        let at = text.len();
        if let Some(after) = rest.strip_prefix(b"__key__") {
            holes.push(Hole::Key(at));
            text.resize(at + shape.key_bytes(), 0);
            shape.key(0, &mut text[at..]);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"__value__") {
            holes.push(Hole::Value(at));
            text.resize(at + shape.value_bytes(), b'v');
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"__rand__") {
            holes.push(Hole::Random(at));
            text.resize(at + RANDOM_DIGITS, b'0');
            rest = after;
        } else {
            text.push(rest[0]);
            rest = &rest[1..];
        }
    }
    (text, holes)
}

/// The requests of a run: templates, and the choice among them.
pub(super) struct Workload {
    templates: Vec<Template>,
    /// Probability of the second of two templates, as a fraction of 2^64; `None`: all in turn.
    second: Option<u64>,
    next: usize,
    pub(super) shape: RecordShape,
    pub(super) keys: Keys,
    pub(super) random: SplitMix64,
}

impl Workload {
    /// `command` is `get`, `set`, `mixed`, or words with placeholders. Each request takes the next
    /// of `lines` for `__line__`. `set_share` is the share of SETs in `mixed`.
    pub(super) fn new(
        command: &str,
        lines: &[String],
        set_share: f64,
        shape: RecordShape,
        keys: Keys,
        seed: u64,
    ) -> Result<Self> {
        let one = |text: &str| Ok::<_, anyhow::Error>(Template::new(&words(text)?, &shape));
        let mut second = None;
        let templates = match command {
            "get" => vec![one("GET __key__")?],
            "set" => vec![one("SET __key__ __value__")?],
            "mixed" => {
                if !(0.0..=1.0).contains(&set_share) {
                    bail!("--set-share must be from 0 to 1, not {set_share}");
                }
                second = Some(fraction(set_share));
                vec![one("GET __key__")?, one("SET __key__ __value__")?]
            }
            text if text.contains("__line__") => {
                if lines.is_empty() {
                    bail!("__line__ needs --lines FILE with at least one line");
                }
                let words = words(text)?;
                let filled = |line: &String| {
                    let words: Vec<_> =
                        words.iter().map(|w| replaced(w, b"__line__", line.as_bytes())).collect();
                    Template::new(&words, &shape)
                };
                lines.iter().map(filled).collect()
            }
            text => vec![one(text)?],
        };
        Ok(Self { templates, second, next: 0, shape, keys, random: SplitMix64::new(seed) })
    }

    /// Appends one request to `out`; returns its kind and the number of its key.
    #[inline]
    pub(super) fn append(&mut self, out: &mut Vec<u8>) -> (RequestKind, u64) {
        let template = match self.second {
            Some(share) => &self.templates[usize::from(self.random.next() < share)],
            None => {
                let template = &self.templates[self.next];
                self.next = if self.next + 1 == self.templates.len() { 0 } else { self.next + 1 };
                template
            }
        };
        let number = template.append(out, &self.shape, &mut self.keys, &mut self.random);
        (template.kind, number)
    }

    /// Whether the expected reply of each request is known.
    pub(super) fn is_checkable(&self) -> bool {
        self.templates.iter().all(|template| template.kind != RequestKind::Other)
    }
}

/// `share`, from 0 to 1, as a fraction of 2^64.
#[expect(clippy::cast_possible_truncation, reason = "a cast from float to int saturates")]
fn fraction(share: f64) -> u64 {
    (share * u64::MAX as f64) as u64
}

/// The words of a command: at least one.
fn words(text: &str) -> Result<Vec<Vec<u8>>> {
    let words = nigh_client::split_words(text.as_bytes())?;
    if words.is_empty() {
        bail!("the command is empty");
    }
    Ok(words)
}

/// `word` with each `from` replaced by `to`.
fn replaced(word: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let (mut text, mut rest) = (Vec::new(), word);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(from) {
            text.extend_from_slice(to);
            rest = after;
        } else {
            text.push(rest[0]);
            rest = &rest[1..];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(command: &str, lines: &[&str]) -> Workload {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let shape = RecordShape::new(16, 3, 100).expect("fits");
        Workload::new(command, &lines, 0.0, shape, Keys::Sequential { next: 7, count: 100 }, 1)
            .expect("a valid command")
    }

    /// With placeholders inside words and several keys, headers fit and each key is drawn anew.
    #[test]
    fn requests_are_patched_in_place() {
        let mut load = workload("MSET __key__ __value__ 'a b:__key__' x", &[]);
        let mut out = Vec::new();
        load.append(&mut out);
        let expected = "*5\r\n$4\r\nMSET\r\n$16\r\nkey:000000000007\r\n$3\r\nhij\r\n\
                        $20\r\na b:key:000000000008\r\n$1\r\nx\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    /// `__line__` takes one line after the other, and the first after the last.
    #[test]
    fn lines_come_in_turn() {
        let mut load = workload("ECHO __line__", &["a", "bcd"]);
        let mut out = Vec::new();
        for _ in 0..3 {
            load.append(&mut out);
        }
        let (a, bcd) = ("*2\r\n$4\r\nECHO\r\n$1\r\na\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\nbcd\r\n");
        assert_eq!(String::from_utf8_lossy(&out), format!("{a}{bcd}{a}"));
    }

    /// Only GET and SET of one key can be verified.
    #[test]
    fn what_can_be_checked_is_known() {
        assert!(workload("mixed", &[]).is_checkable());
        assert!(workload("get __key__", &[]).is_checkable());
        assert!(!workload("PING", &[]).is_checkable());
    }

    /// A command with an open quote is refused, and so is one without words.
    #[test]
    fn broken_commands_are_refused() {
        assert!(words("SET 'a").is_err());
        assert!(words("  ").is_err());
    }
}
