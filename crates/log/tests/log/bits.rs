//! Bits rot: a start refuses, or finds all that was durable, and no wrong value.

use crate::book::{Book, Halt};
use crate::machine::{Machine, inspect};
use crate::power::{variable, world};
use nigh_log::simulated::{SimChance, SimDisk, below};
use nigh_log::{Chance, LogError, Storage};
use std::collections::BTreeMap;

const FILE_BYTES: u64 = 16 << 10;
/// Bytes of all files of the log.
const LOG_BYTES: u64 = 64 << 10;
/// Flips that are tried without a variable that says otherwise.
const FLIPS: u64 = 12_000;

/// A log that ended cleanly.
fn closed_log() -> (SimDisk, Book) {
    for seed in 0.. {
        let disk = SimDisk::new(seed);
        let mut book = Book::new();
        book.commits_before = 2;
        let mut machine = Machine::start(world(&disk, seed), &mut book, FILE_BYTES, seed).unwrap();
        while disk.used_bytes() < LOG_BYTES {
            let i = usize::from(machine.chance.word().is_multiple_of(2));
            machine.commit(&mut book, i);
            machine.pump(&book, i).unwrap();
            machine.shards[i].writer.write(false).unwrap();
            if machine.chance.word().is_multiple_of(4) {
                machine.shards[i].writer.sync().unwrap();
            }
        }
        machine.drain(&book).unwrap();
        machine.shards.iter_mut().for_each(|shard| shard.writer.close().unwrap());
        machine.tell(&mut book).unwrap();
        if disk.used_bytes() < LOG_BYTES + FILE_BYTES {
            assert!(book.shards.iter().all(|shard| shard.marks.is_empty()), "all is durable");
            return (disk, book);
        }
    }
    unreachable!()
}

fn kind(error: &LogError) -> &'static str {
    match error {
        LogError::Meta { .. } => "meta",
        LogError::NewerVersion { .. } => "newer version",
        LogError::Head { .. } => "head",
        LogError::Corrupt { .. } => "corrupt",
        other => panic!("a flipped bit gives {other}"),
    }
}

/// `NIGH_BITS` says how many bits, spread over all: 1,000,000 are all.
#[test]
fn a_flipped_bit_is_refused_or_does_no_harm() {
    let (disk, book) = closed_log();
    inspect(&world(&disk, 1), &book).expect("the log is whole");
    let names: Vec<String> = disk.names().unwrap();
    let files: Vec<(String, Vec<u8>)> =
        names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect();
    let bits: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64 * 8).sum();
    let wanted = variable("NIGH_BITS", FLIPS).min(bits);
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let chance = SimChance::new(wanted);
    for i in 0..wanted {
        // One in each stretch of the log.
        let (from, to) = (i * bits / wanted, (i + 1) * bits / wanted);
        let mut bit = from + below(&chance, to - from);
        let mut at = files.iter();
        let (name, bytes) = loop {
            let (name, bytes) = at.next().unwrap();
            if bit < bytes.len() as u64 * 8 {
                break (name, bytes);
            }
            bit -= bytes.len() as u64 * 8;
        };
        let mut rotten = bytes.clone();
        rotten[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
        disk.set_contents(name, rotten);
        let what = match inspect(&world(&disk, 1), &book) {
            Ok(()) => "harmless",
            Err(Halt::Log(error)) => kind(&error),
            Err(halt) => panic!("bit {} of byte {} of {name}: {halt}", bit % 8, bit / 8),
        };
        *found.entry(what).or_default() += 1;
        disk.set_contents(name, bytes.clone());
    }
    println!("{wanted} of {bits} bits flipped: {found:?}");
    for what in ["harmless", "meta", "head", "corrupt"] {
        assert!(found.contains_key(what), "no bit was {what}");
    }
}

/// Several rotten places at once, also whole sectors of zeros: no wrong value, and what is durable
/// is lost only if the last frame and the one that tells of it are both hit.
#[test]
fn rotten_sectors_give_no_wrong_value() {
    let (disk, book) = closed_log();
    let chance = SimChance::new(1);
    let names: Vec<String> = disk.names().unwrap();
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..300 {
        // One to three at once, in one file or in several.
        let mut whole = BTreeMap::new();
        let mut places = Vec::new();
        for _ in 0..=below(&chance, 3) {
            let name = &names[usize::try_from(below(&chance, names.len() as u64)).unwrap()];
            let mut bytes = disk.contents(name).unwrap();
            whole.entry(name).or_insert_with(|| bytes.clone());
            let sectors = bytes.len() as u64 / 512 + 1;
            let at = usize::try_from(below(&chance, sectors) * 512).unwrap();
            let end = bytes.len().min(at + 512);
            let filler = chance.word().to_le_bytes()[0] & 1;
            bytes[at..end].fill(filler * 0xFF);
            disk.set_contents(name, bytes);
            places.push((name, at));
        }
        match inspect(&world(&disk, 1), &book) {
            Ok(()) => accepted += 1,
            Err(Halt::Wrong(what)) => panic!("{places:?}: {what}"),
            Err(_) => refused += 1,
        }
        for (name, bytes) in whole {
            disk.set_contents(name, bytes);
        }
    }
    assert!(refused > 50 && accepted > 10, "{refused} {accepted}");
}
