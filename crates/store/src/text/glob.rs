//! Patterns of keys and names: Redis's `stringmatchlen`, byte for byte.
//!
//! `*` is any bytes, `?` one byte, `[a-z]` and `[^a]` a class, `\x` the byte x. Redis's oddities
//! are kept:
//!
//! - a class without its `]` ends with the pattern
//! - ranges compare *signed* bytes, in either order, as Redis does where C's `char` is signed
//! - an empty string matches the empty pattern only
//!
//! 1. A match takes at most `pattern × string` steps and no recursion, because only the last `*` is
//!    tried again. If the text behind it is nowhere in the rest of the string, a longer match of an
//!    earlier `*` only leaves less to search.
//!
//! Thread: any; it is pure.

/// True if `pattern` matches the whole of `string`. Takes at most `pattern × string` steps.
pub fn matches(pattern: &[u8], string: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while p < pattern.len() && s < string.len() {
        let step = if pattern[p] == b'*' {
            while pattern.get(p + 1) == Some(&b'*') {
                p += 1;
            }
            p += 1;
            if p == pattern.len() {
                return true;
            }
            retry = Some((p, s));
            continue;
        } else {
            one(pattern, p, string[s])
        };
        let next = step.map(|end| (end, s + 1)).filter(|&(end, at)| {
            at < string.len() && end < pattern.len() || ends(pattern, end, at == string.len())
        });
        if let Some((end, at)) = next {
            if at == string.len() {
                return true;
            }
            (p, s) = (end, at);
            continue;
        }
        let Some((after, from)) = retry else { return false };
        if from + 1 >= string.len() {
            return false;
        }
        retry = Some((after, from + 1));
        (p, s) = (after, from + 1);
    }
    p == pattern.len() && s == string.len()
}

/// True if the string is at its end and the pattern from `p` on is only stars.
fn ends(pattern: &[u8], p: usize, string_is_at_its_end: bool) -> bool {
    string_is_at_its_end && pattern[p.min(pattern.len())..].iter().all(|&byte| byte == b'*')
}

/// The position behind the pattern's element at `p` (not a star), if that matches `byte`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// The same for a class whose first byte behind the `[` is at `p`.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let mut pattern = b"a*".repeat(1000);
        pattern.push(b'b');
        assert!(!matches(&pattern, &string));
        pattern.pop();
        assert!(matches(&pattern, &string));
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
