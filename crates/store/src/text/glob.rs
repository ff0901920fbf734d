//! Patterns of keys and names: Redis's `stringmatchlen`, byte for byte.
//!
//! `*` is any bytes, `?` one byte, `[a-z]` and `[^a]` a class, `\x` the byte x. Redis's oddities
//! are kept:
//!
//! - a class without its `]` ends with the pattern
//! - ranges compare *signed* bytes, in either order, as Redis does where C's `char` is signed
//! - an empty string matches the empty pattern only
//!
//! ```text
//! a*[bc]?   elements 1 a, 2 [bc], 3 ?        a star behind 1
//! state: a bit for each n: the first n elements and their stars match what was read so far
//! ```
//!
//! 1. A byte costs a step for each 64 elements (the Shift-And method: Baeza-Yates and Gonnet, A New
//!    Approach to Text Searching, 1992). So a pattern and keys that were made to match badly cost
//!    no more than others.
//! 2. A pattern has at most [`PATTERN_BYTES_MAX`]: a command that compares all keys holds the
//!    shard.
//!
//! Thread: any; it is pure.

/// Longest pattern: one that is longer than most keys are. Each byte of a key costs some 10 ns with
/// it.
pub(crate) const PATTERN_BYTES_MAX: usize = 1024;
/// The error of a longer one.
pub(crate) const PATTERN_TOO_LONG: &str = "ERR the pattern is longer than 1024 bytes";

/// A pattern that was read.
pub struct Glob {
    /// How many elements there are, without the stars.
    len: usize,
    /// Words of a state.
    words: usize,
    /// For each byte, a word after the other: the elements that take it. An element has the bit of
    /// its number, from 1 on.
    takes: Vec<u64>,
    /// The elements that have a star behind them. The bit 0 is of one at the beginning.
    stars: Vec<u64>,
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
        let words = pattern.len() / 64 + 1;
        let (takes, stars) = (vec![0; 256 * words], vec![0; words]);
        let mut glob = Glob { len: 0, words, takes, stars };
        let mut rest = pattern;
        while let [first, behind @ ..] = rest {
            rest = match (first, behind) {
                (b'*', _) => {
                    glob.stars[glob.len / 64] |= 1 << (glob.len % 64);
                    behind
                }
                (b'?', _) => {
                    glob.add(|_| true);
                    behind
                }
                (b'[', _) => {
                    let (bytes, end) = class(behind);
                    glob.add(|byte| bytes[usize::from(byte)]);
                    end
                }
                (b'\\', [escaped, end @ ..]) => {
                    glob.add_byte(*escaped);
                    end
                }
                (literal, _) => {
                    glob.add_byte(*literal);
                    behind
                }
            };
        }
        Ok(glob)
    }

    /// The same of keys; `None` is all of them, the empty one too.
    pub(crate) fn of_keys(pattern: &[u8]) -> Result<Option<Glob>, &'static str> {
        if pattern == b"*" { Ok(None) } else { Glob::new(pattern).map(Some) }
    }

    fn add(&mut self, takes: impl Fn(u8) -> bool) {
        self.len += 1;
        for byte in (0..=u8::MAX).filter(|byte| takes(*byte)) {
            self.takes[usize::from(byte) * self.words + self.len / 64] |= 1 << (self.len % 64);
        }
    }

    fn add_byte(&mut self, literal: u8) {
        self.len += 1;
        self.takes[usize::from(literal) * self.words + self.len / 64] |= 1 << (self.len % 64);
    }

    /// True if it matches the whole of `string`.
    #[must_use]
    pub fn matches(&self, string: &[u8]) -> bool {
        if string.is_empty() {
            return self.len == 0 && self.stars[0] == 0;
        }
        // What a common pattern needs lies on the stack.
        let (mut one, mut many);
        let state: &mut [u64] = if self.words == 1 {
            one = [0];
            &mut one
        } else {
            many = vec![0; self.words];
            &mut many
        };
        state[0] = 1;
        for &byte in string {
            let takes = &self.takes[usize::from(byte) * self.words..][..self.words];
            let (mut carry, mut any) = (0, 0);
            for ((state, takes), stars) in state.iter_mut().zip(takes).zip(&self.stars) {
                let before = *state;
                *state = (before << 1 | carry) & takes | before & stars;
                carry = before >> 63;
                any |= *state;
            }
            if any == 0 {
                return false;
            }
        }
        state[self.len / 64] >> (self.len % 64) & 1 == 1
    }
}

/// The bytes of a class whose first byte behind the `[` is the first here, and what is behind it.
fn class(mut rest: &[u8]) -> ([bool; 256], &[u8]) {
    let mut bytes = [false; 256];
    let negated = rest.first() == Some(&b'^');
    rest = &rest[usize::from(negated)..];
    loop {
        rest = match rest {
            [] => break,
            [b'\\', escaped, behind @ ..] => {
                bytes[usize::from(*escaped)] = true;
                behind
            }
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [from, b'-', to, behind @ ..] => {
                let (from, to) = (from.cast_signed(), to.cast_signed());
                for byte in from.min(to)..=from.max(to) {
                    bytes[usize::from(byte.cast_unsigned())] = true;
                }
                behind
            }
            [literal, behind @ ..] => {
                bytes[usize::from(*literal)] = true;
                behind
            }
        };
    }
    if negated {
        bytes = bytes.map(|is_in| !is_in);
    }
    (bytes, rest)
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

    /// A class was read again at each byte of each key, and what is behind a star compared again
    /// from each byte on. So a few keys, with a pattern of megabytes, held the shard for hours.
    #[test]
    fn hostile_keys_cost_no_more_than_others() {
        let string = vec![b'a'; 65_535];
        let class = [b"*[".as_slice(), &[b'a'; 1_000], b"]b"].concat();
        let text = [b"*".as_slice(), &[b'a'; 1_000], b"b"].concat();
        let began = std::time::Instant::now();
        for pattern in [class, text] {
            let pattern = Glob::new(&pattern).expect("a short pattern");
            assert!((0..500).all(|_| !pattern.matches(&string)));
        }
        // Less than a second; as it was, a minute and more.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
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

    /// The same of stars, `?` and letters alone, in less time: only the last star is tried again.
    fn by_retries(pattern: &[u8], string: &[u8]) -> bool {
        let (mut p, mut s, mut retry) = (0, 0, None);
        while s < string.len() {
            if pattern.get(p) == Some(&b'*') {
                p += 1;
                retry = Some((p, s));
            } else if pattern.get(p).is_some_and(|it| *it == b'?' || *it == string[s]) {
                (p, s) = (p + 1, s + 1);
            } else if let Some((after, from)) = retry {
                retry = Some((after, from + 1));
                (p, s) = (after, from + 1);
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    proptest! {
        /// All states at once give the same result as one after the other.
        #[test]
        fn states_are_followed_together(pattern in "[ab*?\\[\\]^\\\\-]{0,9}", string in "[ab]{0,9}") {
            let (pattern, string) = (pattern.as_bytes(), string.as_bytes());
            prop_assert_eq!(matches(pattern, string), slowly(pattern, string));
        }

        /// The same where elements lie in several words.
        #[test]
        fn states_go_on_from_word_to_word(
            before in 50_usize..70,
            pattern in "[ab*?]{0,80}",
            string in "[ab]{0,90}",
        ) {
            let front = vec![b'a'; before];
            let (pattern, string) =
                ([&front, pattern.as_bytes()].concat(), [&front, string.as_bytes()].concat());
            let is_right = |pattern: &[u8]| {
                prop_assert_eq!(matches(pattern, &string), by_retries(pattern, &string));
                Ok(())
            };
            is_right(&pattern)?;
            // One that is likely to match.
            let mut starred = string.clone();
            starred.iter_mut().skip(before).step_by(9).for_each(|byte| *byte = b'*');
            is_right(&starred)?;
        }
    }
}
