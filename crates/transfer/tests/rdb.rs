//! RDB files: one of the real Redis, ones of older and newer servers byte for byte, and damaged
//! ones.

use nigh_transfer::{Found, Input, RdbReader, SourceError, ValueKind};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Made by Redis 7.0.15, with LFU frequencies: strings of all encodings, and each other type in its
/// encodings of small and large values; a library; databases 0 and 3.
const REDIS_7: &[u8] = include_bytes!("fixtures/redis-7.0.rdb");
/// An expiry in the file.
const EXPIRY_MS: i64 = 4_000_000_000_123;

/// Database and key.
type DbKey = (u64, Vec<u8>);
/// Value and expiry.
type Timed = (Vec<u8>, Option<i64>);

#[derive(Debug, Default, PartialEq)]
struct Read {
    strings: HashMap<DbKey, Timed>,
    others: BTreeMap<String, Vec<String>>,
}

/// Reads a file to its end. Values are read if `with_values` says so, else left out.
fn read(file: &[u8], with_values: bool) -> Result<Read, SourceError> {
    let mut read = Read::default();
    let mut reader = RdbReader::open(Input::new(file, 0))?;
    loop {
        let entry = match reader.next_found()? {
            Found::End => return Ok(read),
            Found::Key(entry) => entry,
            Found::Function(name) => {
                read.others.entry("libraries".into()).or_default().push(name);
                continue;
            }
            Found::ModuleData(name) => {
                read.others.entry("module data".into()).or_default().push(name);
                continue;
            }
            other => panic!("{other:?}"),
        };
        let key = reader.key().to_vec();
        if entry.kind != ValueKind::String {
            let key = String::from_utf8_lossy(&key).into_owned();
            read.others.entry(entry.kind.to_string()).or_default().push(key);
        } else if with_values {
            let mut value = Vec::new();
            reader.value::<SourceError>(|piece| {
                value.extend_from_slice(piece);
                Ok(())
            })?;
            assert_eq!(value.len() as u64, entry.value_bytes);
            read.strings.insert((entry.db, key), (value, entry.expiry_ms));
        }
    }
}

/// Strings of all encodings come out, and each other key is named by its type.
#[test]
fn a_file_of_redis_7_is_read() {
    let found = read(REDIS_7, true).expect("it is sound");
    let get = |key: &str| found.strings[&(0, key.as_bytes().to_vec())].clone();
    for number in [0, -1, 127, -32768, 70000, 1_i64 << 40] {
        assert_eq!(get(&format!("int:{number}")), (number.to_string().into_bytes(), None));
    }
    assert_eq!(get("12").0, b"number");
    assert_eq!(get("").0, b"no name");
    assert_eq!(get("e").0, b"");
    assert_eq!(get("packed").0, b"ab".repeat(3000));
    assert_eq!((get("any").0.len(), get("long").0.len()), (500, 17_000));
    assert_eq!(get("ms"), (b"v".to_vec(), Some(EXPIRY_MS)));
    assert_eq!(found.strings[&(3, b"of:3".to_vec())].0, b"3");
    assert_eq!(found.strings.len(), 14);
    let counts: Vec<_> = found.others.iter().map(|(kind, keys)| (&**kind, keys.len())).collect();
    assert_eq!(
        counts,
        [
            ("hashes", 2),
            ("libraries", 1),
            ("lists", 4),
            ("sets", 2),
            ("sorted sets", 2),
            ("streams", 1)
        ]
    );
    let left_out = read(REDIS_7, false).expect("it is sound");
    assert_eq!(left_out.others, found.others);
}

fn file(head: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    [head, &parts.concat(), &[255]].concat()
}

/// What Redis 2 wrote: no checksum, expiries in seconds, zipmaps and ziplists, scores as text.
#[test]
fn files_of_redis_2_are_read() {
    let parts: [&[u8]; 9] = [
        &[254, 0],
        &[253, 0, 0, 0, 0x70, 0, 1, b'k', 1, b'v'],
        &[9, 2, b'z', b'm', 3, 0, 255, 255],
        &[10, 2, b'z', b'l', 0x40, 5, 1, 2, 3, 4, 5],
        &[11, 1, b'i', 1, 0],
        &[12, 1, b'z', 2, 0, 0],
        &[13, 1, b'h', 0],
        &[3, 1, b'o', 2, 1, b'a', 3, b'1', b'.', b'5', 1, b'b', 254],
        &[0, 0xc0, 200, 0xc1, 0, 1],
    ];
    let found = read(&file(b"REDIS0003", &parts), true).expect("it is sound");
    let strings = &found.strings;
    assert_eq!(strings[&(0, b"k".to_vec())], (b"v".to_vec(), Some(0x7000_0000 * 1000)));
    assert_eq!(strings[&(0, b"-56".to_vec())], (b"256".to_vec(), None));
    let kinds: Vec<_> = found.others.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["hashes", "lists", "sets", "sorted sets"]);
}

/// Modules, their data beside the keys, slots, and hashes whose fields have expiries: Redis 7.4 and
/// Valkey 9 use other numbers for these.
#[test]
fn files_of_newer_servers_are_read() {
    let module = [0x81, 0, 0, 0, 0, 0, 0, 4, 0];
    let parts: [&[u8]; 6] = [
        &[250, 2, b'x', b'y', 0xc0, 1],
        &[&[247], &module[..], &[2, 2, 5, 1, b's', 0]].concat(),
        &[244, 1, 2, 3],
        &[248, 7, 249, 9, 251, 1, 0, 0, 1, b'a', 1, b'1'],
        &[&[7, 1, b'm'], &module[..], &[1, 5, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat(),
        &[246, 1, b'l', 3, b'L', b'U', b'A', 1, 1, b'd', 2, b'-', b'-'],
    ];
    let hash_7_4: &[u8] = &[24, 1, b'h', 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 1, b'f', 1, b'v'];
    let listpack_7_4: &[u8] = &[25, 1, b'i', 0, 0, 0, 0, 0, 0, 0, 0, 2, 9, 9];
    let hash_9: &[u8] = &[22, 1, b'h', 1, 1, b'f', 1, b'v', 0, 0, 0, 0, 0, 0, 0, 0];
    let import_9: &[u8] = &[243, 1, b'j', 1, 0, 5];
    let redis = file(b"REDIS0012", &[&parts.concat(), hash_7_4, listpack_7_4]);
    let valkey = file(b"VALKEY080", &[&parts.concat(), import_9, hash_9]);
    for (file, hashes) in [(redis, 2), (valkey, 1)] {
        let found = read(&[&file[..], &[0; 8]].concat(), true).expect("it is sound");
        assert_eq!(found.strings.len(), 1);
        assert_eq!(found.others["hashes"].len(), hashes);
        assert_eq!(found.others["values of modules"], ["m"]);
        assert_eq!(found.others["libraries"], ["l"]);
        assert_eq!(found.others["module data"].len(), 1);
    }
    for (head, other) in [(b"REDIS0012", hash_9), (b"VALKEY080", hash_7_4)] {
        let error = read(&file(head, &[other]), true).expect_err("it is the other server's");
        assert!(matches!(error, SourceError::UnknownType { offset: 9, .. }), "{error}");
    }
    for head in [b"REDIS0099", b"REDIS0000", b"REDIS00-1", b"VALKEY081"] {
        let error = read(&file(head, &[]), true).expect_err("it isn't known");
        assert!(matches!(error, SourceError::UnknownVersion { .. }), "{error}");
    }
}

/// A type that isn't known ends the reading with its number and place.
#[test]
fn unknown_types_are_named() {
    let error = read(&file(b"REDIS0011", &[&[0, 1, b'a', 1, b'1', 77, 1]]), true);
    let text = error.expect_err("77 is no type").to_string();
    assert!(text.starts_with("type 77 at offset 14 isn't known"), "{text}");
}

/// Lengths up to 2^64 - 1 of keys, values, packed values and counts end with the bytes, at once.
#[test]
fn lengths_from_the_file_take_no_memory() {
    let huge: [&[u8]; 2] =
        [&[0x81, 255, 255, 255, 255, 255, 255, 255, 255], &[0x80, 31, 255, 255, 255]];
    for length in huge {
        for before in [&[0][..], &[0, 1, b'k'], &[1, 1, b'k'], &[15, 1, b'k'], &[250], &[245]] {
            let file = [b"REDIS0011", before, length, b"some bytes"].concat();
            let error = read(&file, true).expect_err("it isn't whole");
            assert!(error.to_string().contains("offset"), "{error}");
        }
        let packed = [b"REDIS0011", &[0, 1, b'k', 0xc3, 5][..], length, b"bytes"].concat();
        assert!(read(&packed, true).expect_err("too long").to_string().contains("packed"));
    }
}

/// Wherever a file ends, that is where the error says.
#[test]
fn cut_files_are_refused_at_their_end() {
    for cut in (0..REDIS_7.len()).step_by(11).chain(REDIS_7.len() - 9..REDIS_7.len()) {
        for with_values in [false, true] {
            match read(&REDIS_7[..cut], with_values).expect_err("it is cut") {
                SourceError::Ended { offset, .. } => assert_eq!(offset, cut as u64),
                error => panic!("{cut}: {error}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() })]

    /// A changed bit never passes, and the error says where. Without its checksum a file may pass:
    /// it ends, and doesn't panic.
    #[test]
    fn changed_files_are_refused(at in 9..REDIS_7.len(), bit in 0..8_u8, with_values: bool) {
        let mut file = REDIS_7.to_vec();
        file[at] ^= 1_u8 << bit;
        let error = read(&file, with_values).expect_err("a bit is changed");
        prop_assert!(error.to_string().contains("offset"), "{}", error);
        let sum = file.len() - 8;
        file[sum..].fill(0);
        let _ = read(&file, with_values);
    }
}

/// The whole source was kept, and four times as much for its first line: of a packed one, hundreds
/// of times the file's bytes.
#[test]
fn of_a_librarys_source_only_its_beginning_is_kept() {
    let library = |source: &[u8]| {
        let mut file = b"REDIS0010".to_vec();
        file.extend_from_slice(&[245, 0x80]);
        file.extend_from_slice(&u32::try_from(source.len()).expect("it is short").to_be_bytes());
        file.extend_from_slice(source);
        file.push(255);
        file.extend_from_slice(&[0; 8]);
        read(&file, false).expect("a whole file").others["libraries"].clone()
    };
    assert_eq!(library(&[0; 100_000]), ["\\x00".repeat(1024)]);
    assert_eq!(library(b"#!lua name=short\nmore"), ["#!lua name=short"]);
}
