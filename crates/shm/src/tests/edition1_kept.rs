//! Arenas of edition 1 that were kept, and what was in them. They are read whatever servers write
//! today.
//!
//! `data/edition1/NAME.arena.gz` is a file as its writer left it, and `NAME.txt` what it says: of
//! each key a line with the key (hexadecimal; a long one as the value), the value's length and its
//! xxHash32 (seed 0, hexadecimal), and the expiry.
//!
//! | name | how its writer left it |
//! |---|---|
//! | kinds | closed: keys of all kinds, deleted ones, and two that share a run |
//! | clearing | killed in a commit that clears first, before it cleared |
//! | commit | killed in a commit with tombstones, half of it published |
//! | growth | killed while the index grew, between an entry's insertion and MOVED |

use super::directory;
use crate::ArenaError;
use crate::format::hash::hash;
use crate::recover::edition1::{Edition1, version_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Flipped bits of each arena.
const FLIPS: usize = 400;
/// Bytes of a slot of these arenas.
const SLOT_BYTES: usize = 128 << 10;
/// Longer keys are told by their length and hash.
const KEY_BYTES_TOLD: usize = 64;

const KEPT: [(&str, &[u8], &str); 4] = [
    (
        "kinds",
        include_bytes!("data/edition1/kinds.arena.gz"),
        include_str!("data/edition1/kinds.txt"),
    ),
    (
        "clearing",
        include_bytes!("data/edition1/clearing.arena.gz"),
        include_str!("data/edition1/clearing.txt"),
    ),
    (
        "commit",
        include_bytes!("data/edition1/commit.arena.gz"),
        include_str!("data/edition1/commit.txt"),
    ),
    (
        "growth",
        include_bytes!("data/edition1/growth.arena.gz"),
        include_str!("data/edition1/growth.txt"),
    ),
];

/// Value and expiry of each key.
type Content = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn unpacked(gz: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(gz).read_to_end(&mut bytes).expect("a kept file is whole");
    bytes
}

/// All keys with value and expiry, scanned in steps that end wherever it comes.
pub(super) fn content(path: &Path) -> Result<Content, ArenaError> {
    let arena = Edition1::open(path)?;
    let (mut all, mut at, mut visits) = (Content::new(), Some(0), 0u32);
    while let Some(from) = at {
        at = arena.scan(from, 1 + u64::from(visits % 50), &mut |entry| {
            visits += 1;
            if visits.is_multiple_of(3) {
                return ControlFlow::Break(());
            }
            let content = (entry.value.to_vec(), entry.expiry_ms);
            assert_eq!(all.insert(entry.key.to_vec(), content), None, "a key comes once");
            ControlFlow::Continue(())
        })?;
        visits += 1;
    }
    assert_eq!(arena.keys(), all.len() as u64);
    Ok(all)
}

/// What an arena says, as it is kept.
pub(super) fn told(path: &Path) -> Result<String, ArenaError> {
    let mut text = String::new();
    for (key, (value, expiry_ms)) in content(path)? {
        let sum = |bytes: &[u8]| format!("{} {:08x}", bytes.len(), hash(0, bytes));
        if key.len() > KEY_BYTES_TOLD {
            text += &sum(&key);
        } else {
            key.iter().for_each(|byte| text += &format!("{byte:02x}"));
        }
        text += &format!(" {} {expiry_ms}\n", sum(&value));
    }
    Ok(text)
}

#[test]
fn what_a_server_of_edition_1_left_is_read() {
    // A closed arena, and three whose writer was killed: what it had begun is taken as done.
    let dir = directory();
    for (name, gz, expected) in KEPT {
        let path = dir.path().join(name);
        std::fs::write(&path, unpacked(gz)).unwrap();
        assert_eq!(version_of(&path).expect("it is readable"), Some(1));
        assert!(told(&path).expect("it is sound") == expected, "{name}");
    }
}

#[test]
fn a_flipped_bit_of_an_old_arena_is_an_error_or_another_answer() {
    // Words that say something, of header, slots, index and records, each with one bit flipped:
    // nothing panics, and whatever is read is read to its end.
    let dir = directory();
    for (name, gz, _) in KEPT {
        let (path, sound) = (dir.path().join(name), unpacked(gz));
        // Every second flip hits the header or the tables of slots, which lie in the first one.
        let is_told = |at: &usize| *at < 400 || sound[*at..at + 4] != [0; 4];
        let words = |bytes| (0..bytes).step_by(4).filter(is_told).collect::<Vec<usize>>();
        let places = [words(SLOT_BYTES), words(sound.len())];
        std::fs::write(&path, &sound).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let (mut refused, mut random) = (BTreeSet::new(), 1u64);
        for flip in 0..FLIPS {
            // Knuth's MMIX generator, upper bits.
            random = random.wrapping_mul(6_364_136_223_846_793_005);
            random = random.wrapping_add(1_442_695_040_888_963_407);
            let words = &places[flip % 2];
            let at = words[(random >> 33) as usize % words.len()] + (random >> 62) as usize;
            let flipped = sound[at] ^ 1 << (random >> 30 & 7);
            file.write_all_at(&[flipped], at as u64).unwrap();
            match told(&path) {
                Ok(_) => {}
                Err(ArenaError::Damaged { what, .. }) => _ = refused.insert(what),
                Err(error) => panic!("{name}, offset {at}: {error}"),
            }
            file.write_all_at(&sound[at..=at], at as u64).unwrap();
        }
        assert!(refused.len() > 5, "{name}: {refused:?}");
    }
}

#[test]
fn an_old_arena_that_was_cut_off_is_refused() {
    // Less than the header, less than the tables of slots, less than what the index names.
    let dir = directory();
    let (path, sound) = (dir.path().join("a"), unpacked(KEPT[0].1));
    for len in [0, 11, 12, 4095, 4096, 100_000, 128 << 10, sound.len() / 2] {
        std::fs::write(&path, &sound[..len]).unwrap();
        let refused = Edition1::open(&path).err().expect("it isn't whole");
        assert!(matches!(refused, ArenaError::Damaged { .. }), "{len}: {refused}");
    }
}

#[test]
fn what_is_no_arena_of_edition_1_is_known_cheaply() {
    // Magic and version tell; whatever else is in the file isn't looked at.
    let dir = directory();
    let path = dir.path().join("a");
    for (start, version) in [
        (&b"NIGHARN1\x01\0\0\0"[..], Some(1)),
        (b"NIGHARN1\x02\0\0\0 and more", Some(2)),
        (b"NIGHARN1\x02\0\0", None),
        (b"something else", None),
        (b"", None),
    ] {
        std::fs::write(&path, start).unwrap();
        assert_eq!(version_of(&path).expect("it is readable"), version);
    }
    let mut second = unpacked(KEPT[0].1);
    second[8] = 2;
    std::fs::write(&path, second).unwrap();
    let Err(ArenaError::Damaged { what, expected, found, .. }) = Edition1::open(&path) else {
        panic!("it is another edition");
    };
    assert_eq!((what, expected.as_str(), found.as_str()), ("format version", "1", "2"));
}
