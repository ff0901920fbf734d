//! Frames and changes.

use super::{KEY, SECRET, flipped};
use crate::format::change::{ChangeHeader, ChangeKind};
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::{FrameBody, StreamRow};
use crate::format::layout::{
    FILE_BYTES_MOST, LSN_END, PAYLOAD_BYTES_MOST, change as c, frame as f, put,
};
use crate::format::sum::SumKey;
use crate::position::LogPosition;
use crate::storage::Chance;
use crate::storage::simulated::{SimChance, below};

const AT: LogPosition = LogPosition { file: 7, position: 8192 };
const FILE_BYTES: u64 = 1 << 16;

fn header() -> FrameHeader {
    FrameHeader {
        header_sum: 0,
        body_sum: 0xB0D7,
        before_sum: 0xBEF0,
        at: AT,
        length: 1024,
        body_bytes: 700,
        watermark: LogPosition { file: 6, position: 12_288 },
        oldest: 3,
        unix_ms: 1_800_000_000_000,
        clock_ms: 1_799_999_999_999,
        kind: FrameKind::Changes,
        rows: 2,
        changes: 5,
    }
}

fn parse(bytes: &[u8; f::BYTES]) -> Option<Result<FrameHeader, &'static str>> {
    FrameHeader::parse(bytes, &KEY, AT, FILE_BYTES)
}

/// The bytes with this change, and a sum that is right.
fn with(change: &dyn Fn(&mut [u8])) -> [u8; f::BYTES] {
    let (mut bytes, _) = header().encode(&KEY);
    change(&mut bytes);
    let sum = KEY.header(&bytes[f::BODY_SUM..]);
    put(&mut bytes, f::HEADER_SUM, &sum.to_le_bytes());
    bytes
}

#[test]
fn a_header_is_parsed_as_it_was_written() {
    let (bytes, header_sum) = header().encode(&KEY);
    assert_eq!(parse(&bytes), Some(Ok(FrameHeader { header_sum, ..header() })));
    let begin = FrameHeader {
        at: LogPosition { file: 7, position: 4096 },
        kind: FrameKind::Begin,
        changes: 0,
        length: 4096,
        ..header()
    };
    let (bytes, header_sum) = begin.encode(&KEY);
    let parsed = FrameHeader::parse(&bytes, &KEY, begin.at, FILE_BYTES);
    assert_eq!(parsed, Some(Ok(FrameHeader { header_sum, ..begin })));
}

#[test]
fn each_flipped_bit_of_a_header_makes_it_invalid() {
    let (bytes, _) = header().encode(&KEY);
    for (bit, other) in flipped(&bytes) {
        let parsed = parse(other.first_chunk().expect("as many bytes"));
        assert_eq!(parsed, None, "bit {bit}");
    }
}

#[test]
fn a_header_in_another_place_or_of_another_life_is_invalid() {
    let (bytes, _) = header().encode(&KEY);
    let at = |file, position| LogPosition { file, position };
    for other in [at(7, 4096), at(8, 8192), at(0, 0)] {
        assert_eq!(FrameHeader::parse(&bytes, &KEY, other, FILE_BYTES), None);
    }
    let salted = SumKey { salt: KEY.salt + 1, ..KEY };
    assert_eq!(FrameHeader::parse(&bytes, &salted, AT, FILE_BYTES), None);
    let secret = SumKey { secret: crate::format::sum::Secret([7; 16]), ..KEY };
    assert_eq!(FrameHeader::parse(&bytes, &secret, AT, FILE_BYTES), None);
    assert!(FrameHeader::parse(&bytes, &KEY, AT, 9216).is_some(), "it just fits its file");
    assert_eq!(FrameHeader::parse(&bytes, &KEY, AT, 9215), None, "its file is shorter");
    assert_ne!(SECRET.0, [7; 16]);
}

#[test]
fn a_header_with_an_impossible_length_is_invalid() {
    for length in [0, 511, 513, 1025, FILE_BYTES, u64::MAX, u64::MAX - 511, 1 << 63] {
        let bytes = with(&|bytes| put(bytes, f::LENGTH, &length.to_le_bytes()));
        assert_eq!(parse(&bytes), None, "{length}");
    }
}

#[test]
fn what_is_valid_and_breaks_the_format_is_no_torn_tail() {
    let broken = |what: &str, change: &dyn Fn(&mut [u8])| {
        let parsed = parse(&with(change));
        assert!(matches!(parsed, Some(Err(_))), "{what}: {parsed:?}");
    };
    let word = |at: usize, value: u64| move |bytes: &mut [u8]| put(bytes, at, &value.to_le_bytes());
    broken("a BEGIN behind the first frame", &|bytes| bytes[f::KIND] = 1);
    broken("kind 0", &|bytes| bytes[f::KIND] = 0);
    broken("kind 3", &|bytes| bytes[f::KIND] = 3);
    broken("bytes behind the kind", &|bytes| bytes[f::KIND + 3] = 1);
    broken("the last byte", &|bytes| bytes[f::BYTES - 1] = 1);
    broken("the first unused byte", &|bytes| bytes[f::REST] = 1);
    broken("a body that is too long", &word(f::BODY_BYTES, 1024 - 127));
    broken("the longest body", &word(f::BODY_BYTES, u64::MAX));
    broken("a watermark in a later file", &word(f::MARK_FILE, 8));
    broken("a watermark that is nowhere", &word(f::MARK_POSITION, FILE_BYTES_MOST + 1));
    broken("no oldest file", &word(f::OLDEST, 0));
    broken("an oldest file that is newer", &word(f::OLDEST, 8));
    broken("a watermark behind the frame", &|bytes| {
        put(bytes, f::MARK_FILE, &7u64.to_le_bytes());
        put(bytes, f::MARK_POSITION, &8193u64.to_le_bytes());
    });
    assert!(matches!(parse(&with(&word(f::BODY_BYTES, 1024 - 128))), Some(Ok(_))));
    let at = LogPosition { file: 7, position: 4096 };
    for (kind, changes, mark) in
        [(FrameKind::Changes, 0, 6), (FrameKind::Begin, 1, 6), (FrameKind::Begin, 0, 7)]
    {
        let watermark = LogPosition { file: mark, position: 0 };
        let (bytes, _) = FrameHeader { at, kind, changes, watermark, ..header() }.encode(&KEY);
        let parsed = FrameHeader::parse(&bytes, &KEY, at, FILE_BYTES);
        assert!(matches!(parsed, Some(Err(_))), "{kind:?} {changes} {mark}");
    }
}

/// A change of a body.
fn change(stream: u32, lsn: u64, kind: ChangeKind, flags: u8, payload: &[u8]) -> Vec<u8> {
    let header = ChangeHeader {
        payload_bytes: u32::try_from(payload.len()).unwrap(),
        stream,
        lsn,
        kind,
        more: flags & c::FLAG_MORE != 0,
        again: flags & c::FLAG_AGAIN != 0,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(header.bytes_in_frame(), 0);
    bytes
}

/// A header and a body with these rows and changes.
fn body(rows: &[(u32, u64, u64)], changes: &[Vec<u8>]) -> (FrameHeader, Vec<u8>) {
    let rows = rows.iter().map(|&(stream, first, last)| StreamRow { stream, first, last });
    let mut bytes: Vec<u8> = rows.clone().flat_map(|row| row.encode()).collect();
    bytes.extend(changes.concat());
    let header = FrameHeader {
        rows: u32::try_from(rows.count()).unwrap(),
        changes: u32::try_from(changes.len()).unwrap(),
        body_bytes: bytes.len() as u64,
        ..header()
    };
    (header, bytes)
}

const MORE: u8 = c::FLAG_MORE;
const AGAIN: u8 = c::FLAG_AGAIN;

fn sample() -> (FrameHeader, Vec<u8>) {
    let changes = [
        change(256, 5, ChangeKind::Clear, MORE, b""),
        change(256, 6, ChangeKind::Put, MORE, b"a record"),
        change(256, 7, ChangeKind::Gone, 0, b"seven!!"),
        change(256, 2, ChangeKind::Put, AGAIN, b"an old record"),
        change(513, 900, ChangeKind::Based, 0, &[9; 40]),
        change(256, 8, ChangeKind::Put, 0, b"x"),
    ];
    body(&[(256, 5, 8), (513, 900, 900)], &changes)
}

#[test]
fn a_body_is_parsed_as_it_was_written() {
    let (header, bytes) = sample();
    let parsed = FrameBody::parse(&header, &bytes).expect("a body of ours");
    let lsns = |commit: &[crate::format::frame_body::FramedChange<'_>]| -> Vec<u64> {
        commit.iter().map(|change| change.header.lsn).collect()
    };
    let commits: Vec<Vec<u64>> = parsed.commits().map(lsns).collect();
    assert_eq!(commits, [vec![5, 6, 7], vec![2], vec![900], vec![8]]);
    assert_eq!(parsed.rows[1], StreamRow { stream: 513, first: 900, last: 900 });
    let payloads: Vec<&[u8]> = parsed.changes.iter().map(|change| change.payload).collect();
    assert_eq!(payloads[..4], [&b""[..], b"a record", b"seven!!", b"an old record"]);
    let (empty, bytes) = body(&[], &[]);
    assert_eq!(FrameBody::parse(&empty, &bytes).expect("an empty frame").commits().count(), 0);
}

#[test]
fn each_flipped_bit_of_a_body_changes_its_sum() {
    let (_, bytes) = sample();
    let sum = SumKey::more(KEY.body(8192), &bytes);
    for (bit, other) in flipped(&bytes) {
        assert_ne!(SumKey::more(KEY.body(8192), &other), sum, "bit {bit}");
    }
    assert_ne!(SumKey::more(KEY.body(8704), &bytes), sum, "another position");
    let (front, rest) = bytes.split_at(17);
    assert_eq!(SumKey::more(SumKey::more(KEY.body(8192), front), rest), sum, "in pieces");
}

#[test]
fn a_body_that_breaks_the_format_is_refused() {
    let put = |lsn, flags| change(256, lsn, ChangeKind::Put, flags, b"r");
    let refused = |what: &str, rows: &[(u32, u64, u64)], changes: &[Vec<u8>]| {
        let (header, bytes) = body(rows, changes);
        assert!(FrameBody::parse(&header, &bytes).is_err(), "{what}");
    };
    let row = [(256, 5, 6)];
    assert!({
        let (header, bytes) = body(&row, &[put(5, MORE), put(6, 0)]);
        FrameBody::parse(&header, &bytes).is_ok()
    });
    refused("a commit that goes on in the next frame", &row, &[put(5, 0), put(6, MORE)]);
    refused("a gap in a commit", &[(256, 5, 7)], &[put(5, MORE), put(7, 0)]);
    refused("a gap between commits", &[(256, 5, 7)], &[put(5, 0), put(7, 0)]);
    refused("one LSN twice", &row, &[put(5, 0), put(5, 0), put(6, 0)]);
    refused("another order", &row, &[put(6, 0), put(5, 0)]);
    refused("an AGAIN within a commit", &[(256, 5, 5)], &[put(5, MORE), put(6, AGAIN)]);
    let other = change(257, 6, ChangeKind::Put, 0, b"r");
    refused("two streams in a commit", &[(256, 5, 5), (257, 6, 6)], &[put(5, MORE), other]);
    let clear = change(256, 6, ChangeKind::Clear, 0, b"");
    refused("a clear behind a change of its commit", &row, &[put(5, MORE), clear]);
    refused("a row too few", &[], &[put(5, 0)]);
    refused("a row too many", &[(256, 5, 5), (257, 1, 1)], &[put(5, 0)]);
    refused("a row that counts more", &[(256, 5, 6)], &[put(5, 0)]);
    refused("a row that counts less", &[(256, 5, 5)], &[put(5, 0), put(6, 0)]);
    refused("a row of an AGAIN", &[(256, 5, 5)], &[put(5, AGAIN)]);
    refused("LSN 0", &[(256, 0, 0)], &[put(0, 0)]);
    refused("an LSN that is too high", &[(256, LSN_END, LSN_END)], &[put(LSN_END, 0)]);
    refused("rows in no order", &[(257, 1, 1), (256, 5, 5)], &[put(5, 0)]);
    refused("a row twice", &[(256, 5, 5), (256, 5, 5)], &[put(5, 0)]);
    refused("a row that ends before it begins", &[(256, 6, 5)], &[]);
}

#[test]
fn a_begin_has_all_streams_and_no_changes() {
    let begin = |rows: &[(u32, u64, u64)]| {
        let (mut header, bytes) = body(rows, &[]);
        (header.kind, header.at.position) = (FrameKind::Begin, 4096);
        FrameBody::parse(&header, &bytes).map(|body| body.rows.len())
    };
    assert_eq!(begin(&[(0, 0, 0), (256, 0, 77)]), Ok(2));
    assert_eq!(begin(&[]), Ok(0));
    assert!(begin(&[(256, 1, 77)]).is_err() && begin(&[(256, 0, LSN_END)]).is_err());
}

#[test]
fn a_change_that_breaks_the_format_is_refused() {
    let good = change(256, 5, ChangeKind::Put, 0, b"r");
    let refused = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        assert!(ChangeHeader::parse(bytes.first_chunk().unwrap()).is_err(), "{what}");
    };
    for kind in [0, 5, 255] {
        refused("a kind", &|bytes| bytes[c::KIND] = kind);
    }
    for bit in 2..8 {
        refused("a flag", &|bytes| bytes[c::FLAGS] = 1 << bit);
    }
    for at in c::FLAGS + 1..c::BYTES {
        refused("a byte that is unused", &|bytes| bytes[at] = 1);
    }
    refused("a length", &|bytes| put(bytes, 0, &(PAYLOAD_BYTES_MOST + 1).to_le_bytes()));
    refused("AGAIN with MORE", &|bytes| bytes[c::FLAGS] = AGAIN | MORE);
    refused("a GONE again", &|bytes| (bytes[c::KIND], bytes[c::FLAGS]) = (3, AGAIN));
    refused("a CLEAR with a payload", &|bytes| bytes[c::KIND] = 4);
    let (header, mut bytes) = body(&[(256, 5, 5)], std::slice::from_ref(&good));
    *bytes.last_mut().unwrap() = 1;
    assert!(FrameBody::parse(&header, &bytes).is_err(), "padding that isn't zero");
}

#[test]
fn a_change_is_parsed_as_it_was_written() {
    let chance = SimChance::new(1);
    for kind in [ChangeKind::Put, ChangeKind::Based, ChangeKind::Gone, ChangeKind::Clear] {
        for flags in [0, MORE, AGAIN] {
            if flags == AGAIN && kind != ChangeKind::Put {
                continue;
            }
            let header = ChangeHeader {
                payload_bytes: if kind == ChangeKind::Clear { 0 } else { PAYLOAD_BYTES_MOST },
                stream: u32::try_from(chance.word() >> 32).unwrap(),
                lsn: 1 + below(&chance, LSN_END - 1),
                kind,
                more: flags & MORE != 0,
                again: flags & AGAIN != 0,
            };
            assert_eq!(ChangeHeader::parse(&header.encode()), Ok(header));
        }
    }
}

/// Bodies of forged frames: right sums, any bytes.
#[test]
fn no_bytes_make_a_parser_panic() {
    let chance = SimChance::new(3);
    let byte = || chance.word().to_le_bytes()[0];
    let pick = |end: usize| usize::try_from(below(&chance, end as u64)).unwrap();
    let (header, sample) = sample();
    for round in 0..20_000 {
        let mut bytes = sample.clone();
        for _ in 0..1 + pick(4) {
            let at = pick(bytes.len());
            bytes[at] = if round % 2 == 0 { byte() } else { [0, 1, 0x7F, 0xFF][pick(4)] };
        }
        bytes.truncate(if pick(3) == 0 { pick(bytes.len() + 1) } else { bytes.len() });
        let mut other = header;
        if pick(3) == 0 {
            other.rows = [0, 1, 3, 1000, u32::MAX][pick(5)];
        }
        if pick(3) == 0 {
            other.changes = [0, 1, 7, 100_000, u32::MAX][pick(5)];
        }
        if let Ok(body) = FrameBody::parse(&other, &bytes) {
            assert!(body.commits().all(|commit| !commit.is_empty()));
        }
        let any: [u8; f::BYTES] = std::array::from_fn(|_| byte());
        assert_eq!(parse(&any), None);
        let _ = parse(&with(&|bytes| bytes[8 + pick(120)] = byte()));
        let any: [u8; c::BYTES] = std::array::from_fn(|_| byte());
        let _ = ChangeHeader::parse(&any);
    }
}
