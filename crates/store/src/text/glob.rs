//! Patterns of keys and names: Redis's `stringmatchlen`, byte for byte.
//!
//! `*` is any bytes, `?` one byte, `[a-z]` and `[^a]` a class, `\x` the byte x. Redis's oddities
//! are kept:
//!
//! - a class without its `]` ends with the pattern
//! - ranges compare *signed* bytes, in either order, as Redis does where C's `char` is signed
//! - an empty string matches the empty pattern only
//!
//! 1. A match takes at most `elements × string` steps and no recursion, because only the last `*`
//!    is tried again. If the text behind it is nowhere in the rest of the string, a longer match of
//!    an earlier `*` only leaves less to search.
//! 2. A pattern is read once, not for each string: a class is one step, however long it is.
//! 3. A pattern has at most [`PATTERN_BYTES_MAX`]: a client can make the keys, too, and a command
//!    that compares all of them holds the shard.
//!
//! Thread: any; it is pure.

/// Longest pattern. With one of these, the longest key takes some 50 ms at most, and a key of 20
/// bytes less than a microsecond.
pub(crate) const PATTERN_BYTES_MAX: usize = 1024;
/// The error of a longer one.
pub(crate) const PATTERN_TOO_LONG: &str = "ERR the pattern is longer than 1024 bytes";

/// What one byte of the string is compared with, or a star.
enum Element {
    Star,
    Any,
    Byte(u8),
    /// A bit for each byte that is in it.
    Class([u64; 4]),
}

impl Element {
    /// Of a star it is never asked.
    fn takes(&self, byte: u8) -> bool {
        match self {
            Element::Star => false,
            Element::Any => true,
            Element::Byte(literal) => *literal == byte,
            Element::Class(bits) => bits[usize::from(byte / 64)] >> (byte % 64) & 1 == 1,
        }
    }
}

/// A pattern that was read.
pub struct Glob {
    /// No two stars follow each other.
    elements: Vec<Element>,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PATTERN_TOO_LONG`].
    pub fn new(pattern: &[u8]) -> Result<Glob, &'static str> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(PATTERN_TOO_LONG);
        }
        let (mut elements, mut rest) = (Vec::new(), pattern);
        while let [first, behind @ ..] = rest {
            let (element, end) = match (first, behind) {
                (b'*', _) => (Element::Star, behind),
                (b'?', _) => (Element::Any, behind),
                (b'[', _) => class(behind),
                (b'\\', [escaped, end @ ..]) => (Element::Byte(*escaped), end),
                (literal, _) => (Element::Byte(*literal), behind),
            };
            if !matches!((elements.last(), &element), (Some(Element::Star), Element::Star)) {
                elements.push(element);
            }
            rest = end;
        }
        Ok(Glob { elements })
    }

    /// The same of keys; `None` is all of them, the empty one too.
    pub(crate) fn of_keys(pattern: &[u8]) -> Result<Option<Glob>, &'static str> {
        if pattern == b"*" { Ok(None) } else { Glob::new(pattern).map(Some) }
    }

    /// True if it matches the whole of `string`.
    #[must_use]
    pub fn matches(&self, string: &[u8]) -> bool {
        if string.is_empty() {
            return self.elements.is_empty();
        }
        let (mut p, mut s) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.elements.get(p) {
                Some(Element::Star) => {
                    p += 1;
                    if p == self.elements.len() {
                        return true;
                    }
                    // What is behind it takes a byte.
                    if s == string.len() {
                        return false;
                    }
                    retry = Some((p, s));
                    continue;
                }
                Some(element) if s < string.len() && element.takes(string[s]) => {
                    (p, s) = (p + 1, s + 1);
                    continue;
                }
                None if s == string.len() => return true,
                // Whatever the star takes beside, less of the string is left.
                Some(_) if s == string.len() => return false,
                _ => {}
            }
            let Some((after, from)) = retry else { return false };
            retry = Some((after, from + 1));
            (p, s) = (after, from + 1);
        }
    }
}

/// A class whose first byte behind the `[` is the first here, and what is behind it.
fn class(mut rest: &[u8]) -> (Element, &[u8]) {
    let mut bits = [0; 4];
    let mut add = |byte: u8| bits[usize::from(byte / 64)] |= 1 << (byte % 64);
    let negated = rest.first() == Some(&b'^');
    rest = &rest[usize::from(negated)..];
    loop {
        rest = match rest {
            [] => break,
            [b'\\', escaped, behind @ ..] => {
                add(*escaped);
                behind
            }
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [from, b'-', to, behind @ ..] => {
                let (from, to) = (from.cast_signed(), to.cast_signed());
                (from.min(to)..=from.max(to)).for_each(|byte| add(byte.cast_unsigned()));
                behind
            }
            [literal, behind @ ..] => {
                add(*literal);
                behind
            }
        };
    }
    if negated {
        bits = bits.map(|word| !word);
    }
    (Element::Class(bits), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &[u8], string: &[u8]) -> bool {
        Glob::new(pattern).expect("a short pattern").matches(string)
    }

    fn check(pattern: &str, string: &str, wanted: bool) {
        assert_eq!(matches(pattern.as_bytes(), string.as_bytes()), wanted, "{pattern} on {string}");
    }

    /// The patterns that the documentation of KEYS promises.
    #[test]
    fn documented_patterns_match() {
        for (pattern, string, wanted) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "hllo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            ("*", "anything", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("*b", "aab", true),
            ("*b", "aba", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("abc*", "abc", true),
            ("abc**", "abc", true),
            ("abc*?", "abc", false),
            ("*?", "a", true),
        ] {
            check(pattern, string, wanted);
        }
    }

    /// The oddities of Redis's C code.
    #[test]
    fn odd_patterns_match_as_in_redis() {
        for (pattern, string, wanted) in [
            ("", "", true),
            ("*", "", false),
            ("", "a", false),
            ("a", "", false),
            ("[", "a", false),
            ("[^", "a", true),
            ("[a", "a", true),
            ("[a", "ab", false),
            ("[]", "]", false),
            ("[^]", "x", true),
            ("[\\]]", "]", true),
            ("[a-", "-", true),
            ("[a-]", "]", true),
            ("[a-]", "b", false),
            ("\\", "\\", true),
            ("a\\", "a\\", true),
            ("\\a", "a", true),
        ] {
            check(pattern, string, wanted);
        }
        assert!(matches(b"[a-\xff]", b"\x00"), "0xff is -1 where char is signed");
        assert!(!matches(b"[a-\xff]", b"\x80"));
    }

    /// A pattern that makes other matchers backtrack exponentially ends soon.
    #[test]
    fn hostile_patterns_end() {
        let string = vec![b'a'; 20_000];
        let mut pattern = b"a*".repeat(500);
        pattern.push(b'b');
        assert!(!matches(&pattern, &string));
        pattern.pop();
        assert!(matches(&pattern, &string));
    }

    /// A class was read again at each byte of each key: so with one of megabytes, a few keys held
    /// the shard for hours.
    #[test]
    fn a_long_class_is_one_step() {
        let (mut pattern, string) = (b"*[".to_vec(), vec![b'a'; 65_535]);
        pattern.resize(1_000, b'a');
        pattern.extend_from_slice(b"]b");
        let began = std::time::Instant::now();
        assert!((0..500).all(|_| !matches(&pattern, &string)));
        // Some 2 s in a debug build; as it was, minutes.
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }

    #[test]
    fn a_pattern_has_a_bound() {
        assert!(Glob::new(&[b'*'; PATTERN_BYTES_MAX]).is_ok());
        assert!(Glob::new(&[b'*'; PATTERN_BYTES_MAX + 1]).is_err_and(|it| it == PATTERN_TOO_LONG));
        assert!(PATTERN_TOO_LONG.contains(&PATTERN_BYTES_MAX.to_string()));
    }

    /// The position behind the pattern's element at `p` (not a star), if that matches `byte`.
    fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
        match pattern[p] {
            b'?' => Some(p + 1),
            b'[' => class_by_byte(pattern, p + 1, byte),
            b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
            literal => (literal == byte).then_some(p + 1),
        }
    }

    /// The same for a class whose first byte behind the `[` is at `p`.
    fn class_by_byte(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
        let negated = pattern.get(p) == Some(&b'^');
        p += usize::from(negated);
        let mut found = false;
        loop {
            match pattern.get(p..).unwrap_or_default() {
                [] => break,
                [b'\\', escaped, ..] => {
                    found |= *escaped == byte;
                    p += 2;
                }
                [b']', ..] => {
                    p += 1;
                    break;
                }
                [from, b'-', to, ..] => {
                    let (from, to) = (from.cast_signed(), to.cast_signed());
                    found |= (from.min(to)..=from.max(to)).contains(&byte.cast_signed());
                    p += 3;
                }
                [literal, ..] => {
                    found |= *literal == byte;
                    p += 1;
                }
            }
        }
        (found != negated).then_some(p)
    }

    /// The recursive definition, which may take long.
    fn slowly(pattern: &[u8], string: &[u8]) -> bool {
        let (Some(&first), false) = (pattern.first(), string.is_empty()) else {
            return pattern.is_empty() && string.is_empty();
        };
        if first == b'*' {
            let rest = &pattern[pattern.iter().take_while(|&&byte| byte == b'*').count()..];
            return rest.is_empty() || (0..string.len()).any(|at| slowly(rest, &string[at..]));
        }
        one(pattern, 0, string[0]).is_some_and(|end| {
            let rest = &pattern[end..];
            if string.len() == 1 {
                return rest.iter().all(|&byte| byte == b'*');
            }
            slowly(rest, &string[1..])
        })
    }

    proptest! {
        /// Trying only the last star again gives the same result as trying all of them.
        #[test]
        fn one_retry_is_enough(pattern in "[ab*?\\[\\]^\\\\-]{0,9}", string in "[ab]{0,9}") {
            let (pattern, string) = (pattern.as_bytes(), string.as_bytes());
            prop_assert_eq!(matches(pattern, string), slowly(pattern, string));
        }
    }
}
