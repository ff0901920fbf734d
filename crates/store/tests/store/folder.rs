//! A folder of arenas: opening and `nigh check` judge every fault alike.

use std::path::Path;

use nigh_shm::{Domain, verify};
use nigh_store::{Keyspace, Op, StoreOptions, Turn, faults_of};

use crate::support::Resp2;

const CAPACITY_BYTES: u64 = 8 << 20;
/// Bytes of a header. Only the first ones have a meaning; the rest are zeros.
const HEADER_BYTES: usize = 4096;
const SAYING_BYTES: usize = 392;

fn options(dir: &Path, partitions: usize) -> StoreOptions {
    let mut options = StoreOptions::new(dir, CAPACITY_BYTES * partitions as u64);
    (options.partitions, options.system_capacity_bytes) = (partitions, CAPACITY_BYTES);
    options
}

/// The checks that `nigh check` makes.
fn is_passed(dir: &Path) -> bool {
    let arenas = std::fs::read_dir(dir).expect("it is there");
    let paths = arenas.map(|entry| entry.expect("readable").path());
    let mut arenas = paths.filter(|path| path.extension().is_some_and(|it| it == "arena"));
    let is_whole = |path: &Path| verify(path).is_ok_and(|report| report.findings.is_empty());
    arenas.all(|path| is_whole(&path)) && faults_of(dir).is_empty()
}

/// A flipped bit in the tenant's name, the partition or the seed of an arena without keys once
/// passed the check, and no server took the folder. Flips each bit of the header's fields, one of
/// each other byte of it, and the tables' entries of the first slots.
#[test]
fn whatever_bit_of_a_header_flips_opening_and_the_check_judge_alike() {
    let folder = tempfile::Builder::new().tempdir_in("/dev/shm").expect("a folder");
    let dir = folder.path();
    let domain = Domain::new(2);
    let (mut keyspace, _) = Keyspace::open(&options(dir, 2), &domain).expect("it opens");
    let me = domain.join();
    // One partition has keys, the other one none.
    let mut keys = (0..).map(|n: u32| n.to_string().into_bytes());
    for _ in 0..50 {
        let key = keys.by_ref().find(|key| keyspace.partition_of(key) == 0).expect("half of them");
        let pin = me.pin();
        let turn = Turn { now_ms: 1, pin: &pin, random: 0 };
        keyspace.part_mut(0).apply(
            Op::Set,
            &[b"SET", &key, b"value"],
            &turn,
            &mut Resp2::default(),
        );
    }
    drop((keyspace, me, domain));
    assert!(is_passed(dir));
    let (mut taken, mut refused) = (0, 0);
    for name in ["default.0.arena", "default.1.arena", "_system.0.arena"] {
        let path = dir.join(name);
        let sound = std::fs::read(&path).expect("it is there");
        let every_bit = 0..SAYING_BYTES * 8;
        let one_a_byte = (SAYING_BYTES..HEADER_BYTES).map(|at| at * 8 + at % 8);
        let tables = HEADER_BYTES * 8..(HEADER_BYTES + 32) * 8;
        let all = name.starts_with("default.0");
        let bits = every_bit.step_by(if all { 1 } else { 5 });
        for bit in bits.chain(one_a_byte.filter(|_| all)).chain(tables.filter(|_| all)) {
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).expect("it is ours");
            let passed = is_passed(dir);
            let opened = Keyspace::open(&options(dir, 2), &Domain::new(1));
            let why = opened.as_ref().err().map(ToString::to_string);
            assert_eq!(
                passed,
                opened.is_ok(),
                "{name}, bit {} of byte {}: {why:?}",
                bit % 8,
                bit / 8
            );
            (taken, refused) = if passed { (taken + 1, refused) } else { (taken, refused + 1) };
            drop(opened);
            std::fs::write(&path, &sound).expect("it is ours");
        }
    }
    assert!(taken > 1000 && refused > 500, "{taken} taken, {refused} refused");
}
