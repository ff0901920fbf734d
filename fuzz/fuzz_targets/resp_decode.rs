//! Arbitrary bytes in arbitrary pieces must decode as in one piece: to the same commands, replies
//! and errors. No input may make a decoder panic.
//!
//! The first bytes of the input choose the pieces, and the number of commands that are taken at
//! once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_resp::Protocol;
use nigh_resp::decode::{Batch, ProtocolError, Replies, ReplyError, Requests};
use nigh_resp::encode;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;

/// Bytes at the front of the input that choose the lengths of the pieces.
const CUTS: usize = 8;

type Commands = Vec<Vec<Vec<u8>>>;

/// Small limits, so that a short input reaches them.
fn limits() -> Limits {
    Limits {
        bulk_bytes: 1000,
        array_len: 200,
        inline_bytes: 40,
        unauthenticated_array_len: 5,
        unauthenticated_bulk_bytes: 20,
        nesting: 4,
        frames: 50,
        reply_bytes: 2000,
    }
}

/// The pieces in which `input` arrives.
fn pieces<'a>(cuts: &'a [u8], input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = input;
    let mut lengths = cuts.iter().cycle().map(|cut| usize::from(*cut) + 1);
    std::iter::from_fn(move || {
        let len = lengths.next().unwrap_or(1).min(rest.len());
        let (piece, after) = rest.split_at(len);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn requests<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    max_commands: usize,
    authenticated: bool,
) -> (Commands, Option<ProtocolError>) {
    let mut decoder = Requests::new(limits());
    decoder.set_authenticated(authenticated);
    let (mut buf, mut batch, mut commands) = (Vec::new(), Batch::new(), Commands::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            batch.clear();
            let result = decoder.decode(&buf, &mut batch, max_commands);
            assert!(batch.len() <= max_commands);
            for index in 0..batch.len() {
                let args = batch.args(index);
                assert!(!args.is_empty(), "a command has a name");
                if let Some(text) = args.text(&buf) {
                    let mut again = Batch::new();
                    again.push_places(0, args.places());
                    assert!(again.args(0).iter(text).eq(args.iter(&buf)));
                }
                commands.push(args.iter(&buf).map(<[u8]>::to_vec).collect());
            }
            if let Err(error) = result {
                error.write_reply(&mut Vec::new());
                return (commands, Some(error));
            }
            assert!(decoder.needed() <= buf.len() * 2 + (1 << 20));
            let consumed = decoder.consume();
            assert!(consumed <= buf.len());
            assert!(consumed > 0 || batch.is_empty());
            buf.drain(..consumed);
            if batch.len() < max_commands {
                break;
            }
        }
    }
    (commands, None)
}

fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<ReplyError>) {
    let mut decoder = Replies::new(limits());
    let (mut buf, mut frames) = (Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.decode(&buf) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        let consumed = decoder.consume();
        assert!(consumed <= buf.len());
        buf.drain(..consumed);
    }
    (frames, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((cuts, input)) = data.split_at_checked(CUTS) else { return };
    let max_commands = usize::from(cuts[0] % 4) + 1;
    for authenticated in [true, false] {
        let whole = requests(std::iter::once(input), usize::MAX, authenticated);
        let cut = requests(pieces(cuts, input), max_commands, authenticated);
        assert_eq!(cut, whole);
        // The decoded commands, encoded again, decode to the same.
        let mut again = Vec::new();
        whole.0.iter().for_each(|args| encode::request(&mut again, args));
        let (commands, _) = requests(std::iter::once(&again[..]), usize::MAX, true);
        assert!(commands == whole.0 || whole.0.iter().any(|args| over_limits(args)));
    }

    let whole = replies(std::iter::once(input));
    let text = format!("{whole:?}"); // NaN equals itself only as text
    assert_eq!(format!("{:?}", replies(pieces(cuts, input))), text);
    // The encoded frames decode to the same number of frames, which encode to the same bytes. (The
    // frames may differ: a line feed inside a line becomes a space, and RESP3 has one null.)
    let encoded = encode_all(&whole.0);
    let (frames, error) = replies(std::iter::once(&encoded[..]));
    assert!(error.is_some() || frames.len() == whole.0.len());
    assert!(error.is_some() || encode_all(&frames) == encoded);
});

fn encode_all(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| encode::frame(&mut out, Protocol::Resp3, frame));
    out
}

/// An inline command may have more or longer words than an array may.
fn over_limits(args: &[Vec<u8>]) -> bool {
    args.len() > limits().array_len || args.iter().any(|arg| arg.len() > limits().bulk_bytes)
}
