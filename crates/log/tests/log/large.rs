//! Values that are longer than a frame, and than a file.

use crate::book::{Book, Halt};
use crate::machine::{Machine, inspect};
use crate::model::ModelChange;
use crate::power::world;
use nigh_log::simulated::{SimChance, SimDisk};

const FILE_BYTES: usize = 64 << 10;
const MIB: usize = 1 << 20;

fn put(key: u8, bytes: usize) -> ModelChange {
    let byte = |at: usize| {
        let [low, high, higher, ..] = at.to_le_bytes();
        low.wrapping_mul(31) ^ high ^ higher ^ key
    };
    let value = (0..bytes).map(byte).collect();
    ModelChange::Put { key, based: false, value }
}

/// A machine and a stream of its first shard.
fn begun(disk: &SimDisk, book: &mut Book) -> (Machine<SimDisk>, u32) {
    book.commits_before = 2;
    let machine = Machine::start(world(disk, 3), book, FILE_BYTES as u64, 3).unwrap();
    let stream = *book.shards[0].streams.keys().next().unwrap();
    (machine, stream)
}

fn commit(
    machine: &mut Machine<SimDisk>,
    book: &mut Book,
    stream: u32,
    changes: &[ModelChange],
) -> Result<(), Halt> {
    machine.shards[0].commit(&mut book.shards[0], stream, changes, Vec::new(), 7);
    machine.pump(book, 0)?;
    machine.tell(book)
}

#[test]
fn values_of_about_a_frame_and_longer_than_a_file_come_back() {
    let disk = SimDisk::new(1);
    let mut book = Book::new();
    let (mut machine, stream) = begun(&disk, &mut book);
    for (key, bytes) in (0..).zip([
        FILE_BYTES - 12_500,
        FILE_BYTES,
        MIB - 300,
        MIB - 50,
        MIB - 49,
        MIB - 2,
        MIB,
        3 * MIB + 17,
    ]) {
        commit(&mut machine, &mut book, stream, &[put(key, bytes)]).unwrap();
        commit(&mut machine, &mut book, stream, &[put(100, 10)]).unwrap();
    }
    let many = [put(20, MIB), put(21, 5), put(22, 2 * MIB), ModelChange::Gone { key: 21 }];
    commit(&mut machine, &mut book, stream, &many).unwrap();
    machine.drain(&book).unwrap();
    machine.tell(&mut book).unwrap();
    book.power_was_cut();
    let cut = disk.power_cut(&SimChance::new(1));
    inspect(&world(&cut, 1), &book).unwrap();
    assert_eq!(book.shards[0].durable(stream), book.shards[0].streams[&stream].last);
}

/// The first sectors are written last: until then there is no frame. Cut off at any call, the
/// commit is there as a whole or not at all.
#[test]
fn a_long_commit_is_whole_or_not_there() {
    let (mut whole, mut lost) = (0, 0);
    for call in 1.. {
        let disk = SimDisk::new(call);
        let mut book = Book::new();
        let (mut machine, stream) = begun(&disk, &mut book);
        commit(&mut machine, &mut book, stream, &[put(1, 100)]).unwrap();
        machine.drain(&book).unwrap();
        machine.tell(&mut book).unwrap();
        disk.stop_at(disk.calls() + call);
        let long = [put(1, MIB), put(2, 2 * MIB)];
        let done = commit(&mut machine, &mut book, stream, &long);
        let done = done.and_then(|()| machine.drain(&book));
        for seed in 0..6 {
            let mut book = book.clone();
            let left = if seed == 0 {
                disk.kill()
            } else {
                book.power_was_cut();
                disk.power_cut(&SimChance::new(call * 10 + seed))
            };
            let again = Machine::start(world(&left, 1), &mut book, FILE_BYTES as u64, 1);
            again.unwrap_or_else(|halt| panic!("call {call}, seed {seed}: {halt}"));
            let value = &book.shards[0].streams[&stream].keys[&1].value;
            match value.len() {
                100 => lost += 1,
                MIB => whole += 1,
                other => panic!("{other}"),
            }
        }
        if done.is_ok() {
            break;
        }
    }
    assert!(whole > 0 && lost > 0, "{whole} {lost}");
}

/// A file with a long frame is compacted as any other: its live value is appended again, whole,
/// though its key was only appended to since.
#[test]
fn a_long_value_survives_the_compaction_of_its_file() {
    let disk = SimDisk::new(5);
    let mut book = Book::new();
    let (mut machine, stream) = begun(&disk, &mut book);
    commit(&mut machine, &mut book, stream, &[put(1, 2 * MIB), put(2, MIB)]).unwrap();
    let on_it = ModelChange::Based {
        key: 3,
        source: 1,
        base_lsn: book.shards[0].streams[&stream].keys[&1].lsn,
        base_bytes: 2 << 20,
        more: b"and more".to_vec(),
    };
    commit(&mut machine, &mut book, stream, &[on_it]).unwrap();
    commit(&mut machine, &mut book, stream, &[ModelChange::Gone { key: 1 }]).unwrap();
    for _ in 0..8 {
        commit(&mut machine, &mut book, stream, &[put(9, 30_000)]).unwrap();
    }
    machine.drain(&book).unwrap();
    let newest = machine.shards[0].writer.newest_file();
    for _ in 0..1000 {
        if machine.shards[0].writer.oldest() > newest {
            break;
        }
        machine.shards[0].compact(&book.shards[0], 10_000).unwrap();
        machine.drain(&book).unwrap();
        machine.shards[0].writer.prepare().unwrap();
        machine.tell(&mut book).unwrap();
    }
    let oldest = machine.shards[0].writer.oldest();
    assert!(oldest > newest, "file {oldest} is the oldest, of {newest}");
    assert_eq!(book.shards[0].streams[&stream].keys[&3].value.len(), 2 * MIB + 8);
    book.power_was_cut();
    inspect(&world(&disk.power_cut(&SimChance::new(8)), 1), &book).unwrap();
    assert!(machine.shards[0].writer.bytes() < 24 << 20, "long files are used again or removed");
}
