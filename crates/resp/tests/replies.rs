//! Replies: the decoder reads back what the encoders write, however the bytes are cut. A hostile
//! server gets an error, and takes no memory.

use nigh_resp::Protocol::{self, Resp2, Resp3};
use nigh_resp::decode::{Replies, ReplyError, ReplyFault};
use nigh_resp::encode;
use nigh_resp::frame::Frame;
use nigh_resp::limits::{self, Limits};
use proptest::prelude::*;

/// Feeds `input` in pieces of the given lengths (the last one repeats), consuming after each.
fn feed(input: &[u8], pieces: &[usize]) -> (Vec<Frame>, Option<ReplyError>) {
    let mut decoder = Replies::new(Limits::replies());
    let (mut buf, mut frames) = (Vec::new(), Vec::new());
    let mut rest = input;
    let mut pieces = pieces.iter().copied();
    let mut last = 1;
    while !rest.is_empty() {
        last = pieces.next().unwrap_or(last).max(1);
        let (piece, after) = rest.split_at(last.min(rest.len()));
        buf.extend_from_slice(piece);
        rest = after;
        loop {
            match decoder.decode(&buf) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        buf.drain(..decoder.consume());
    }
    (frames, None)
}

fn fault(input: &[u8]) -> ReplyFault {
    feed(input, &[input.len()]).1.expect("an error").fault
}

fn encoded(frame: &Frame, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    encode::frame(&mut out, protocol, frame);
    out
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..30)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    text().prop_map(|text| text.into_iter().filter(|byte| !b"\r\n".contains(byte)).collect())
}

fn leaf() -> impl Strategy<Value = Frame> {
    prop_oneof![
        line().prop_map(Frame::Simple),
        line().prop_map(Frame::Error),
        any::<i64>().prop_map(Frame::Integer),
        text().prop_map(Frame::Bulk),
        Just(Frame::Null),
        any::<f64>().prop_filter("NaN equals nothing", |n| !n.is_nan()).prop_map(Frame::Double),
        any::<bool>().prop_map(Frame::Boolean),
        any::<i128>().prop_map(|number| Frame::BigNumber(number.to_string().into_bytes())),
        (any::<[u8; 3]>(), text()).prop_map(|(format, text)| Frame::Verbatim { format, text }),
        text().prop_map(Frame::BlobError),
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    leaf().prop_recursive(5, 60, 6, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..6);
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            items().prop_map(Frame::Array),
            items().prop_map(Frame::Set),
            items().prop_map(Frame::Push),
            pairs().prop_map(Frame::Map),
            (pairs(), inner.clone()).prop_map(|(attributes, value)| Frame::Attribute {
                attributes,
                value: Box::new(value),
            }),
        ]
    })
}

proptest! {
    /// Every frame of RESP3 comes back as it was, cut at random places.
    #[test]
    fn frames_survive_any_cut(
        frames in prop::collection::vec(any_frame(), 1..5),
        pieces in prop::collection::vec(1usize..40, 1..20),
    ) {
        let input: Vec<u8> = frames.iter().flat_map(|frame| encoded(frame, Resp3)).collect();
        prop_assert_eq!(feed(&input, &pieces), (frames, None));
    }

    /// Bytes that look like replies, and mostly are none, give the same frames and the same error
    /// at the same offset, cut or whole.
    #[test]
    fn broken_replies_fail_alike_however_cut(
        input in prop::collection::vec(
            prop::sample::select(b"*$%~>|+-:_,#(=!0123?tf\r\n\r\n\r\n".to_vec()), 0..80),
        pieces in prop::collection::vec(1usize..9, 1..10),
    ) {
        prop_assert_eq!(
            format!("{:?}", feed(&input, &pieces)),
            format!("{:?}", feed(&input, &[input.len()]))
        );
    }
}

/// In RESP2 every type has the form that Redis gives it.
#[test]
fn resp2_has_the_forms_of_redis() {
    let frame = |frame: Frame| String::from_utf8(encoded(&frame, Resp2)).expect("ASCII");
    assert_eq!(frame(Frame::Null), "$-1\r\n");
    assert_eq!(frame(Frame::NullArray), "*-1\r\n");
    assert_eq!(frame(Frame::Boolean(true)), ":1\r\n");
    assert_eq!(frame(Frame::Boolean(false)), ":0\r\n");
    assert_eq!(frame(Frame::Double(1.5)), "$3\r\n1.5\r\n");
    assert_eq!(frame(Frame::BigNumber(b"12".into())), "$2\r\n12\r\n");
    assert_eq!(frame(Frame::Set(vec![Frame::Integer(1)])), "*1\r\n:1\r\n");
    assert_eq!(frame(Frame::Push(vec![])), "*0\r\n");
    let pairs = vec![(Frame::Integer(1), Frame::Integer(2))];
    assert_eq!(frame(Frame::Map(pairs.clone())), "*2\r\n:1\r\n:2\r\n");
    let value = Box::new(Frame::Integer(3));
    assert_eq!(frame(Frame::Attribute { attributes: pairs, value }), ":3\r\n");
    assert_eq!(frame(Frame::Verbatim { format: *b"txt", text: b"a".into() }), "$1\r\na\r\n");
    assert_eq!(frame(Frame::BlobError(b"ERR a\nb".into())), "-ERR a b\r\n");
}

/// No text of a client can break out of its error line.
#[test]
fn line_breaks_in_errors_become_spaces() {
    let mut out = Vec::new();
    encode::error(&mut out, "ERR a\r\n+OK\nb\r\n\r\n");
    encode::simple(&mut out, "a\r\nb");
    assert_eq!(out, b"-ERR a  +OK b\r\n+a  b\r\n");
}

/// A long value goes out beside the buffer: header, body and end make the same bytes as a bulk.
#[test]
fn a_bulk_in_parts_equals_a_bulk() {
    for len in [0, 9, 10, 99, 100, 12345] {
        let body = vec![b'x'; len];
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        encode::bulk(&mut whole, &body);
        encode::bulk_header(&mut parts, len);
        parts.extend_from_slice(&body);
        parts.extend_from_slice(encode::CRLF);
        assert_eq!(whole, parts);
        assert!(whole.starts_with(format!("${len}\r\n").as_bytes()));
    }
}

/// A request built from an iterator that doesn't know its length has the right count.
#[test]
fn requests_of_unknown_length_have_the_right_count() {
    let mut out = b"before".to_vec();
    encode::request(&mut out, (0..30).filter(|number| number % 2 == 0).map(|n| n.to_string()));
    assert!(out.starts_with(b"before*15\r\n$1\r\n0\r\n$1\r\n2\r\n"));
}

/// Doubles have the digits that C's `%.17g` prints; expected texts are printf's.
#[test]
fn doubles_print_as_in_c() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-1.5, "-1.5"),
        (0.1, "0.10000000000000001"),
        (2.1, "2.1000000000000001"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (123456789012345678.0, "1.2345678901234568e+17"),
        (1e21, "1e+21"),
        (1e100, "1e+100"),
        (0.0001, "0.0001"),
        (0.00012345, "0.00012344999999999999"),
        (0.00001, "1.0000000000000001e-05"),
        (5e-324, "4.9406564584124654e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (100.5, "100.5"),
        (9007199254740993.0, "9007199254740992"),
        (90071992547409930.0, "90071992547409936"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        let mut out = Vec::new();
        encode::format_double(&mut out, number);
        assert_eq!(String::from_utf8(out).expect("ASCII"), text);
    }
}

/// Each fault of a reply has its own error.
#[test]
fn each_fault_is_named() {
    let deep = b"*1\r\n".repeat(limits::NESTING + 1);
    let line = [b"+".to_vec(), vec![b'a'; limits::REPLY_LINE_BYTES]].concat();
    let limit = limits::BULK_BYTES;
    for (input, expected) in [
        (b"HTTP/1.1 400\r\n".as_slice(), ReplyFault::UnknownType { found: b'H' }),
        (b"$x\r\n", ReplyFault::InvalidLength { kind: b'$' }),
        (b"$-2\r\n", ReplyFault::InvalidLength { kind: b'$' }),
        (b"=-1\r\n", ReplyFault::InvalidLength { kind: b'=' }),
        (b"%-1\r\n", ReplyFault::InvalidLength { kind: b'%' }),
        (b"$536870913\r\n", ReplyFault::BulkTooLong { len: 536_870_913, limit }),
        (b"$1\r\nabc", ReplyFault::MissingEnd { kind: b'$' }),
        (b"+a\rb", ReplyFault::MissingEnd { kind: b'+' }),
        (b":1x\r\n", ReplyFault::InvalidValue { kind: b':' }),
        (b"#x\r\n", ReplyFault::InvalidValue { kind: b'#' }),
        (b",1.x\r\n", ReplyFault::InvalidValue { kind: b',' }),
        (b",infinity\r\n", ReplyFault::InvalidValue { kind: b',' }),
        (b"(12a\r\n", ReplyFault::InvalidValue { kind: b'(' }),
        (b"_1\r\n", ReplyFault::InvalidValue { kind: b'_' }),
        (b"=3\r\ntxt\r\n", ReplyFault::InvalidValue { kind: b'=' }),
        (b"*?\r\n", ReplyFault::Streamed { kind: b'*' }),
        (b"$?\r\n", ReplyFault::Streamed { kind: b'$' }),
        (&deep, ReplyFault::TooDeep { limit: limits::NESTING }),
        (&line, ReplyFault::LineTooLong { limit: limits::REPLY_LINE_BYTES }),
        (
            b"*9223372036854775807\r\n",
            ReplyFault::ArrayTooLong { len: i64::MAX as u64, limit: limits::REPLY_ARRAY_LEN },
        ),
    ] {
        assert_eq!(fault(input), expected, "{}", input.escape_ascii());
    }
}

/// The offset in an error counts from the beginning of the connection, over consumed bytes.
#[test]
fn errors_say_where() {
    let (frames, error) = feed(b"+OK\r\n*2\r\n:1\r\n?", &[3]);
    assert_eq!(frames, [Frame::Simple(b"OK".into())]);
    let error = error.expect("an error");
    assert_eq!(error.offset, 13);
    assert!(error.to_string().contains("at byte 13"));
}

/// A reply with too many frames is refused before it fills memory.
#[test]
fn the_number_of_frames_is_bounded() {
    let limits = Limits { frames: 3, ..Limits::replies() };
    let input = b"*3\r\n:1\r\n:2\r\n:3\r\n";
    let error = Replies::new(limits).decode(input).expect_err("four frames");
    assert_eq!(error.fault, ReplyFault::TooManyFrames { limit: 3 });
    let limits = Limits { frames: 4, ..limits };
    assert!(matches!(Replies::new(limits).decode(input), Ok(Some(_))));
}

/// A server that sends one reply without an end, in small pieces, filled memory: each string was
/// within its bound, and their number was. A string counts as soon as it is announced.
#[test]
fn the_bytes_of_a_reply_are_bounded() {
    let reply = b"*3\r\n$4\r\nabcd\r\n$4\r\nabcd\r\n$4\r\nabcd\r\n";
    let limits = |reply_bytes| Limits { reply_bytes, ..Limits::replies() };
    let by_pieces = |limits: Limits, inputs: &[&[u8]]| {
        let (mut decoder, mut buf, mut frames) = (Replies::new(limits), Vec::new(), 0);
        for byte in inputs.concat() {
            buf.push(byte);
            frames += usize::from(decoder.decode(&buf)?.is_some());
            buf.drain(..decoder.consume());
        }
        Ok::<_, ReplyError>(frames)
    };
    // Each reply has its own bytes; those behind its last string don't count.
    assert_eq!(by_pieces(limits(28), &[reply, b"+OK\r\n", reply]), Ok(3));
    let error = by_pieces(limits(27), &[reply]).expect_err("it is too long");
    assert_eq!((error.offset, error.fault), (24, ReplyFault::TooLong { limit: 27 }));
    assert_eq!(Replies::new(limits(27)).decode(reply), Err(error), "however it comes");
    let announced = Replies::new(limits(20)).decode(b"*2\r\n$20\r\n");
    let error = announced.expect_err("it is too long before it comes").to_string();
    assert!(error.ends_with("the reply has more than 20 bytes: ask for less at once"), "{error}");
}

/// What is over its limit is refused, and what is at its limit isn't.
#[test]
fn what_is_over_a_limit_is_refused() {
    let limits =
        Limits { bulk_bytes: 10, array_len: 2, inline_bytes: 5, nesting: 2, ..Limits::replies() };
    let decode = |input: &[u8]| Replies::new(limits).decode(input).map_err(|e| e.fault);
    assert_eq!(decode(b"$10\r\n0123456789\r\n"), Ok(Some(Frame::Bulk(b"0123456789".into()))));
    assert_eq!(decode(b"$11\r\n"), Err(ReplyFault::BulkTooLong { len: 11, limit: 10 }));
    assert_eq!(decode(b"*2\r\n"), Ok(None));
    assert_eq!(decode(b"*3\r\n"), Err(ReplyFault::ArrayTooLong { len: 3, limit: 2 }));
    assert_eq!((decode(b"+abcd"), decode(b"+abcd\r")), (Ok(None), Ok(None)));
    assert_eq!(decode(b"+abcde"), Err(ReplyFault::LineTooLong { limit: 5 }));
    assert_eq!(decode(b"*1\r\n*1\r\n"), Ok(None));
    assert_eq!(decode(b"*1\r\n*1\r\n*1\r\n"), Err(ReplyFault::TooDeep { limit: 2 }));
}

/// The decoder waits for a claimed giant length, without an allocation of that size.
#[test]
fn giant_claims_take_no_memory() {
    for input in [b"*2147483648\r\n".as_slice(), b"%2147483648\r\n", b"$536870912\r\n"] {
        assert_eq!(feed(input, &[99]), (vec![], None));
    }
}

/// A claim reserves room for as many elements as the bytes at hand could be.
#[test]
fn room_is_reserved_for_what_has_come() {
    let input = [b"*9\r\n".as_slice(), &b":1\r\n".repeat(9)].concat();
    let room = |pieces: &[usize]| match feed(&input, pieces).0.pop() {
        Some(Frame::Array(items)) if items.len() == 9 => items.capacity(),
        other => panic!("{other:?}"),
    };
    assert_eq!(room(&[input.len()]), 9);
    assert!(room(&[8, input.len()]) > 9, "it was made as they came");
}

/// A map's pairs are made of its elements at once, in room for just as many. So a map of very many
/// takes no second and third piece of memory while it is made.
#[test]
fn room_for_the_pairs_of_a_map_is_reserved_at_once() {
    let input = [b"%9\r\n".as_slice(), &b":1\r\n:2\r\n".repeat(9)].concat();
    match feed(&input, &[input.len()]).0.pop() {
        Some(Frame::Map(pairs)) => assert_eq!((pairs.len(), pairs.capacity()), (9, 9)),
        other => panic!("{other:?}"),
    }
}

/// A client drops what was decoded, of an incomplete reply too. So its buffer holds one part of a
/// long reply, and not all that the server has ever sent.
#[test]
fn what_was_decoded_is_told_to_be_dropped() {
    let mut decoder = Replies::new(Limits::replies());
    let input = b"+OK\r\n*2\r\n:1\r\n$9";
    assert_eq!(decoder.decode(input), Ok(Some(Frame::Simple(b"OK".into()))));
    assert_eq!((decoder.consume(), decoder.consume()), (5, 0));
    assert_eq!(decoder.decode(&input[5..]), Ok(None));
    assert_eq!((decoder.consume(), decoder.consume()), (8, 0));
}

/// The accessors look through attributes, and tell errors and nulls from values.
#[test]
fn frames_are_read_through_attributes() {
    let inside = |frame: Frame| Frame::Attribute { attributes: vec![], value: Box::new(frame) };
    assert_eq!(inside(Frame::Bulk(b"a".into())).bytes(), Some(b"a".as_slice()));
    assert_eq!(inside(Frame::Error(b"ERR".into())).error(), Some(b"ERR".as_slice()));
    assert_eq!(inside(Frame::Integer(4)).integer(), Some(4));
    assert_eq!(inside(inside(Frame::Null)).without_attributes(), Frame::Null);
    assert_eq!(Frame::Set(vec![Frame::Null]).elements(), Some([Frame::Null].as_slice()));
    assert!(Frame::NullArray.is_null() && !Frame::Integer(0).is_null());
}

/// Lines of one value, in each form of Redis 7 and other servers; and lines that are none.
#[test]
fn lines_of_one_value_are_read_in_all_their_forms() {
    let double = Frame::Double;
    for (input, frame) in [
        (&b",inf\r\n"[..], double(f64::INFINITY)),
        (b",+inf\r\n", double(f64::INFINITY)),
        (b",-inf\r\n", double(f64::NEG_INFINITY)),
        (b",+1.5E+2\r\n", double(150.0)),
        (b",-5e-1\r\n", double(-0.5)),
        (b",7\r\n", double(7.0)),
        (b":+5\r\n", Frame::Integer(5)),
        (b":-5\r\n", Frame::Integer(-5)),
        (b"(-12\r\n", Frame::BigNumber(b"-12".into())),
        (b"(+12\r\n", Frame::BigNumber(b"+12".into())),
        (b"#t\r\n", Frame::Boolean(true)),
        (b"#f\r\n", Frame::Boolean(false)),
        (b"*-1\r\n", Frame::NullArray),
        (b"$-1\r\n", Frame::Null),
        (b"_\r\n", Frame::Null),
    ] {
        assert_eq!(feed(input, &[99]), (vec![frame], None), "{}", input.escape_ascii());
    }
    for input in [b",nan\r\n".as_slice(), b",-nan\r\n"] {
        let frames = feed(input, &[99]).0;
        assert!(matches!(frames[..], [Frame::Double(n)] if n.is_nan()), "{frames:?}");
    }
    for input in [b",\r\n".as_slice(), b",infinity\r\n", b",1f\r\n", b",+\r\n"] {
        assert_eq!(fault(input), ReplyFault::InvalidValue { kind: b',' });
    }
    for input in [b"(\r\n".as_slice(), b"(-\r\n", b"(--1\r\n", b"(1-\r\n"] {
        assert_eq!(fault(input), ReplyFault::InvalidValue { kind: b'(' });
    }
}
