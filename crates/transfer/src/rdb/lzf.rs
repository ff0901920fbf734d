//! Unpacks LZF, the compression of strings in RDB files. (The crate `lzf` is deprecated.)
//!
//! | first byte | means |
//! |---|---|
//! | `000xxxxx` | x + 1 bytes follow as they are |
//! | `lllooooo` + byte | l + 2 bytes again from o·256 + byte + 1 before |
//! | `111ooooo` + n + byte | n + 9 bytes again, likewise |
//!
//! The memory is a window, whatever the length: a value of 512 MB passes through.
//!
//! Source: `lzf_d.c` of liblzf.

use std::io::Read;

use crate::source::{Input, SourceError};

/// The farthest that bytes are taken again from.
const WINDOW_BYTES: usize = 8192;
/// Unpacked bytes from which on they are handed out.
const PIECE_BYTES: usize = 64 << 10;
/// Most bytes of one step.
const STEP_BYTES: usize = 264;

/// Hands out in pieces what `packed_bytes` of the input unpack to: `bytes` of `what`.
pub(super) fn unpack<R: Read, E: From<SourceError>>(
    input: &mut Input<R>,
    packed_bytes: u64,
    bytes: u64,
    what: &'static str,
    each: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let end = input.offset().saturating_add(packed_bytes);
    let mut out =
        Vec::with_capacity(usize::try_from(bytes).unwrap_or(PIECE_BYTES).min(PIECE_BYTES));
    let mut given = 0; // bytes of `out` that were handed out
    let mut left = bytes;
    while input.offset() < end {
        let before = out.len();
        step(input, &mut out, what)?;
        let gained = (out.len() - before) as u64;
        left = match left.checked_sub(gained) {
            Some(left) if input.offset() <= end => left,
            _ => {
                return Err(input.malformed(format!("{what} unpacks to more than {bytes}")).into());
            }
        };
        if out.len() >= PIECE_BYTES + WINDOW_BYTES - STEP_BYTES {
            each(&out[given..])?;
            out.drain(..out.len() - WINDOW_BYTES);
            given = WINDOW_BYTES;
        }
    }
    if left > 0 {
        return Err(input.malformed(format!("{what} unpacks to {left} bytes too few")).into());
    }
    each(&out[given..])
}

fn step<R: Read>(
    input: &mut Input<R>,
    out: &mut Vec<u8>,
    what: &'static str,
) -> Result<(), SourceError> {
    let first = input.byte(what)?;
    let high = usize::from(first >> 5);
    if high == 0 {
        return input.append(u64::from(first) + 1, what, out);
    }
    let len = if high == 7 { 9 + usize::from(input.byte(what)?) } else { high + 2 };
    let back = (usize::from(first & 0x1f) << 8 | usize::from(input.byte(what)?)) + 1;
    let Some(from) = out.len().checked_sub(back) else {
        return Err(input.malformed(format!("{what} repeats bytes before its first")));
    };
    for at in from..from + len {
        out.push(out[at]); // it may take what it has just given
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8], bytes: u64) -> Result<Vec<u8>, SourceError> {
        let mut all = Vec::new();
        let mut input = Input::new(packed, 0);
        unpack(&mut input, packed.len() as u64, bytes, "a test", &mut |piece| {
            all.extend_from_slice(piece);
            Ok::<_, SourceError>(())
        })?;
        Ok(all)
    }

    /// Bytes as they are, short and long repetitions, and ones that overlap themselves.
    #[test]
    fn repetitions_are_unpacked() {
        let packed = [2, b'a', b'b', b'c', 0x20, 2, 0xe0, 1, 0];
        assert_eq!(unpacked(&packed, 16).expect("it is sound"), b"abcabccccccccccc"[..16].to_vec());
    }

    /// A value much longer than the window comes out whole, with repetitions across pieces.
    #[test]
    fn long_values_pass_through_the_window() {
        let mut packed = vec![1, b'x', b'y'];
        (0..4000).for_each(|_| packed.extend([0xe0, 255, 1]));
        let whole = unpacked(&packed, 2 + 4000 * 264).expect("it is sound");
        assert_eq!(whole.len(), 2 + 4000 * 264);
        assert!(whole.chunks(2).all(|pair| pair == b"xy"));
    }

    /// A wrong length, and a repetition from before the first byte, are refused.
    #[test]
    fn broken_packings_are_refused() {
        assert!(unpacked(&[0, b'a'], 2).is_err());
        assert!(unpacked(&[1, b'a', b'b'], 1).is_err());
        assert!(unpacked(&[0, b'a', 0x20, 1], 4).is_err());
        assert!(unpacked(&[5, b'a'], 6).is_err());
    }
}
