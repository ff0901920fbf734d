//! `meta`, heads, and names of files.

use super::{SECRET, flipped};
use crate::error::LogError;
use crate::format::head::Head;
use crate::format::layout::{FILE_BYTES_LEAST, FILE_BYTES_MOST, VERSION, head as h};
use crate::format::meta::{ChainEnd, Meta, TenantLine};
use crate::format::meta_text::{encode, parse};
use crate::format::names::FileName;
use crate::format::sum::{of_head, of_text};
use crate::position::{Chain, LogPosition};
use crate::storage::Chance;
use crate::storage::simulated::{SimChance, below};

fn full_meta() -> Meta {
    let line = |name: &str, partitions| TenantLine { name: name.into(), partitions, seed: 0xAB };
    let mut meta = Meta::new(*b"the id of a log!", SECRET);
    (meta.next_generation, meta.next_tenant) = (9, 40);
    meta.tenants.insert(0, line("_system", 1));
    meta.tenants.insert(7, line("größe", 256));
    meta.tenants.insert(12, line("a", 8));
    meta.dropped.extend([3, 39]);
    let chain = |shard, generation| Chain { generation, shard, shards: 2 };
    meta.chains = vec![chain(0, 8), chain(1, 5)];
    meta
}

fn backup() -> Meta {
    let end = |shard| {
        let at = LogPosition { file: 3, position: 8192 };
        ChainEnd { shard, at, sum: 0xC }
    };
    Meta { ends: vec![end(0), end(1)], mark: Some([0xFE; 16]), ..full_meta() }
}

/// The text with a sum that is right.
fn summed(lines: &str) -> String {
    format!("{lines}sum {:08x}\n", of_text(lines.as_bytes()))
}

#[test]
fn a_meta_is_parsed_as_it_was_written() {
    for meta in [full_meta(), backup(), Meta::new([0; 16], SECRET)] {
        let text = encode(&meta);
        assert_eq!(parse(text.as_bytes()).expect("a meta of ours"), meta, "{text}");
    }
    let text = encode(&full_meta());
    let begins = "nigh-log 1\nid 746865206964206f662061206c6f6721\nsecret 30313233343536373839";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("tenant 7 größe 256 000000ab\ntenant 12 a 8 000000ab\ndropped 3\n"));
}

#[test]
fn each_flipped_bit_of_a_meta_is_noticed() {
    for meta in [full_meta(), backup()] {
        for (bit, text) in flipped(encode(&meta).as_bytes()) {
            let parsed = parse(&text);
            let refused =
                matches!(parsed, Err(LogError::Meta { .. } | LogError::NewerVersion { .. }));
            assert!(refused, "bit {bit}: {parsed:?}");
        }
    }
}

#[test]
fn a_meta_that_lacks_or_repeats_or_moves_a_line_is_refused() {
    let text = encode(&backup());
    let lines: Vec<&str> = text.lines().collect();
    let body = &lines[..lines.len() - 1];
    let join = |lines: Vec<&str>| summed(&(lines.join("\n") + "\n"));
    assert!(parse(join(body.to_vec()).as_bytes()).is_ok(), "the sum is computed right");
    for at in 0..body.len() {
        let mut repeated = body.to_vec();
        repeated.insert(at, body[at]);
        assert!(parse(join(repeated).as_bytes()).is_err(), "line {at} twice");
        let mut swapped = body.to_vec();
        swapped.swap(at, (at + 1) % body.len());
        assert!(parse(join(swapped).as_bytes()).is_err(), "line {at} moved");
        let mut without = body.to_vec();
        // A line that need not be there is missed by nobody but its sum.
        let may_lack = ["dropped ", "tenant "].iter().any(|begin| without[at].starts_with(begin));
        without.remove(at);
        assert!(parse(join(without.clone()).as_bytes()).is_ok() == may_lack, "without line {at}");
        let old_sum = [without.join("\n").as_str(), "\n", lines[lines.len() - 1], "\n"].concat();
        assert!(parse(old_sum.as_bytes()).is_err(), "without line {at}, with the old sum");
    }
    for cut in 0..text.len() {
        assert!(parse(&text.as_bytes()[..cut]).is_err(), "cut to {cut} bytes");
    }
    for other in [text.replace('\n', "\r\n"), text.clone() + "\n", text.clone() + "x"] {
        assert!(parse(other.as_bytes()).is_err(), "{other}");
    }
}

#[test]
fn a_meta_of_a_newer_version_says_so_whatever_else_it_has() {
    for text in ["nigh-log 2\n", "nigh-log 77\nwhat is this\n"] {
        let Err(LogError::NewerVersion { file, found, known: VERSION }) = parse(text.as_bytes())
        else {
            panic!("{text}");
        };
        assert!(file == "meta" && found > VERSION);
    }
}

#[test]
fn a_meta_whose_lines_contradict_each_other_is_refused() {
    let refused = |change: &dyn Fn(&mut Meta)| {
        let mut meta = backup();
        change(&mut meta);
        let text = encode(&meta);
        assert!(meta.check().is_err() && parse(text.as_bytes()).is_err(), "{text}");
    };
    let tenant = |name: &str| TenantLine { name: name.into(), partitions: 1, seed: 0 };
    refused(&|m| m.next_generation = 8);
    refused(&|m| m.next_tenant = 39);
    refused(&|m| m.next_tenant = (1 << 24) + 1);
    refused(&|m| m.chains[1].shard = 0);
    refused(&|m| m.chains[1].shards = 3);
    refused(&|m| m.chains[0].generation = 0);
    refused(&|m| m.chains.truncate(1));
    refused(&|m| m.ends.truncate(1));
    refused(&|m| m.mark = None);
    refused(&|m| m.ends.clear());
    refused(&|m| m.dropped.extend([7]));
    refused(&|m| m.tenants.get_mut(&7).unwrap().partitions = 257);
    refused(&|m| m.tenants.get_mut(&7).unwrap().partitions = 0);
    for name in ["", "a b", "a\nb", "a\u{85}b", "\u{7f}", "a", &"x".repeat(129)] {
        refused(&|m| drop(m.tenants.insert(8, tenant(name))));
    }
}

#[test]
fn texts_that_nobody_wrote_are_refused_and_panic_nowhere() {
    let chance = SimChance::new(5);
    let text = encode(&backup());
    let words = ["18446744073709551616", "-1", "+1", "", "\0", "é", "999999999", "0", "tenant"];
    for _ in 0..3000 {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.pop();
        for _ in 0..=below(&chance, 3) {
            let line = usize::try_from(below(&chance, lines.len() as u64)).unwrap();
            let mut parts: Vec<&str> = lines[line].split(' ').collect();
            let part = usize::try_from(below(&chance, parts.len() as u64)).unwrap();
            parts[part] = words[usize::try_from(below(&chance, 9)).unwrap()];
            lines[line] = parts.join(" ");
        }
        let other = summed(&(lines.join("\n") + "\n"));
        if let Ok(meta) = parse(other.as_bytes()) {
            assert_eq!(encode(&meta), other, "one state has one text");
        }
    }
    for length in 0..200 {
        let bytes: Vec<u8> = (0..length).map(|_| chance.word().to_le_bytes()[0]).collect();
        assert!(parse(&bytes).is_err());
    }
}

const CHAIN: Chain = Chain { generation: 3, shard: 1, shards: 4 };
const ID: [u8; 16] = *b"the id of a log!";

fn head() -> Head {
    Head { log_id: ID, chain: CHAIN, number: 12, file_bytes: 1 << 16, salt: u64::MAX - 5 }
}

fn parse_head(block: &[u8], length: u64) -> Result<Head, LogError> {
    Head::parse(block, &SECRET, &ID, &CHAIN, &FileName::of(&CHAIN, 12), length)
}

#[test]
fn a_head_is_parsed_as_it_was_written() {
    let block = head().encode(&SECRET);
    assert_eq!(parse_head(&block, 1 << 16).expect("a head of ours"), head());
    assert_eq!(parse_head(&block, 1 << 20).expect("a longer file"), head());
    assert!(parse_head(&block, (1 << 16) - 1).is_err(), "the file is shorter than it says");
}

#[test]
fn each_flipped_bit_of_a_head_is_noticed() {
    for (bit, block) in flipped(&head().encode(&SECRET)) {
        let parsed = parse_head(&block, 1 << 16);
        // A version above ours can't be checked further.
        let version = (h::VERSION * 8..h::SUM * 8).contains(&bit);
        let refused = match parsed {
            Err(LogError::NewerVersion { found, .. }) => version && found > VERSION,
            Err(LogError::Head { .. }) => true,
            _ => false,
        };
        assert!(refused, "bit {bit}: {parsed:?}");
    }
}

#[test]
fn a_head_of_another_log_or_file_or_size_is_refused() {
    let refused = |change: &dyn Fn(&mut Head)| {
        let mut other = head();
        change(&mut other);
        let parsed = parse_head(&other.encode(&SECRET), FILE_BYTES_MOST * 2);
        assert!(matches!(parsed, Err(LogError::Head { .. })), "{other:?}");
    };
    refused(&|h| h.log_id[15] ^= 1);
    refused(&|h| h.chain.generation = 4);
    refused(&|h| h.chain.shard = 0);
    refused(&|h| h.chain.shards = 5);
    refused(&|h| h.number = 13);
    refused(&|h| h.file_bytes = FILE_BYTES_LEAST - 4096);
    refused(&|h| h.file_bytes = FILE_BYTES_MOST + 4096);
    refused(&|h| h.file_bytes += 512);
    let block = head().encode(&SECRET);
    let other = crate::format::sum::Secret([1; 16]);
    let name = FileName::of(&CHAIN, 12);
    assert!(Head::parse(&block, &other, &ID, &CHAIN, &name, 1 << 16).is_err(), "another secret");
    let name = FileName::of(&Chain { shard: 2, ..CHAIN }, 12);
    assert!(Head::parse(&block, &SECRET, &ID, &CHAIN, &name, 1 << 16).is_err(), "another name");
    assert!(parse_head(&[], 0).is_err() && parse_head(&block[..4095], 1 << 16).is_err());
}

#[test]
fn a_head_of_version_0_is_refused_though_its_sum_is_right() {
    let mut block = head().encode(&SECRET);
    block[h::VERSION] = 0;
    let sum = of_head(&SECRET, &block[..h::SUM], &block[h::LOG_ID..]);
    block[h::SUM..h::LOG_ID].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(parse_head(&block, 1 << 16), Err(LogError::Head { .. })));
}

#[test]
fn names_are_parsed_only_as_they_are_written() {
    let name = |generation, shard, number| FileName { generation, shard, number };
    let written = [
        ("g1-s00-0000000001.log", name(1, 0, 1)),
        ("g12-s07-0000000345.log", name(12, 7, 345)),
        ("g1-s123-12345678901.log", name(1, 123, 12_345_678_901)),
        (
            "g18446744073709551615-s4294967295-9007199254740992.log",
            name(u64::MAX, u32::MAX, 1 << 53),
        ),
    ];
    for (text, name) in written {
        assert_eq!(name.to_string(), text);
        assert_eq!(FileName::parse(text), Some(name));
        assert_eq!(FileName::parse(&name.new_name()), None);
    }
    let others = [
        "",
        "meta",
        "lock",
        "g1-s00-1.log",
        "g1-s0-0000000001.log",
        "g01-s00-0000000001.log",
        "g1-s00-0000000000.log",
        "g1-s00-00000000001.log",
        "g+1-s00-0000000001.log",
        "g1-s00-0000000001.log.new",
        "G1-s00-0000000001.log",
        "g1-s00-0000000001",
        "g1-s00--000000001.log",
        "g-s-.log",
        "g1-s4294967296-0000000001.log",
        "g18446744073709551616-s00-0000000001.log",
        "g1-s00-9007199254740993.log",
        "g1-s00-18446744073709551615.log",
        "g1-s00-00000000é1.log",
    ];
    for text in others {
        assert_eq!(FileName::parse(text), None, "{text}");
    }
    assert!(name(1, 0, 9_999_999_999) < name(1, 0, 10_000_000_000), "they sort as numbers");
}
