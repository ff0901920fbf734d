//! The simulated disk keeps what a disk keeps, and loses what a disk may lose.

use nigh_log::simulated::{SimChance, SimDisk, SimFault};
use nigh_log::{Storage, StoredFile, read_exact_at, write_all_at};
use std::collections::BTreeSet;
use std::io;

const SECTOR: usize = 512;

fn filled(byte: u8, sectors: usize) -> Vec<u8> {
    vec![byte; SECTOR * sectors]
}

/// A disk with a file of 16 synced sectors of 1.
fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    let file = disk.create("f").unwrap();
    write_all_at(&file, 0, &filled(1, 16)).unwrap();
    file.sync_all().unwrap();
    disk.sync_folder().unwrap();
    disk
}

/// What many power cuts leave of a file.
fn cuts(disk: &SimDisk, name: &str) -> Vec<Option<Vec<u8>>> {
    let chance = SimChance::new(7);
    (0..500).map(|_| disk.power_cut(&chance).contents(name)).collect()
}

#[test]
fn what_was_synced_stays() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    write_all_at(&file, 100, b"more").unwrap();
    file.sync_data().unwrap();
    let now = disk.contents("f");
    assert!(cuts(&disk, "f").iter().all(|left| *left == now));
}

#[test]
fn each_unsynced_sector_is_kept_lost_or_ruined_by_itself() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    write_all_at(&file, 8 * SECTOR as u64, &filled(2, 2)).unwrap();
    let all = cuts(&disk, "f");
    let left: BTreeSet<(u8, u8)> = all
        .iter()
        .map(|left| {
            let left = left.as_ref().unwrap();
            assert_eq!(left[..8 * SECTOR], filled(1, 8), "the block before is as it was");
            (left[8 * SECTOR], left[9 * SECTOR])
        })
        .collect();
    for kept in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        assert!(left.contains(&kept), "{kept:?} never came");
    }
    let ruined = |left: &Option<Vec<u8>>| left.as_ref().unwrap()[10 * SECTOR..] != filled(1, 6);
    assert!(all.iter().any(ruined), "no synced sector was ruined with its block");
}

#[test]
fn any_version_of_a_sector_may_be_left() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    for byte in [2, 3, 4] {
        write_all_at(&file, 0, &filled(byte, 1)).unwrap();
    }
    let left: BTreeSet<u8> = cuts(&disk, "f").iter().map(|l| l.as_ref().unwrap()[0]).collect();
    assert!(left.is_superset(&BTreeSet::from([1, 2, 3, 4])), "{left:?}");
}

#[test]
fn a_files_sync_makes_neither_its_name_nor_by_itself_its_length_durable() {
    let disk = disk();
    let file = disk.create("g").unwrap();
    write_all_at(&file, 0, &filled(3, 2)).unwrap();
    file.sync_all().unwrap();
    let left = cuts(&disk, "g");
    assert!(left.contains(&None) && left.contains(&Some(filled(3, 2))));
    disk.sync_folder().unwrap();
    file.allocate(4 * SECTOR as u64).unwrap();
    write_all_at(&file, 2 * SECTOR as u64, &filled(4, 2)).unwrap();
    file.sync_data().unwrap();
    let left = cuts(&disk, "g");
    assert!(left.contains(&Some(filled(3, 2))), "the length was never lost");
    assert!(left.contains(&Some([filled(3, 2), filled(4, 2)].concat())));
    file.sync_all().unwrap();
    assert!(cuts(&disk, "g").iter().all(|left| left.as_ref().unwrap().len() == 4 * SECTOR));
}

#[test]
fn a_renaming_is_kept_or_lost_as_a_whole() {
    let disk = disk();
    let other = disk.create("g").unwrap();
    write_all_at(&other, 0, b"other").unwrap();
    other.sync_all().unwrap();
    disk.sync_folder().unwrap();
    disk.rename("g", "f").unwrap();
    assert_eq!((other.links().unwrap(), disk.names().unwrap()), (1, vec!["f".to_string()]));
    let chance = SimChance::new(9);
    let (mut old, mut new) = (0, 0);
    for _ in 0..100 {
        let cut = disk.power_cut(&chance);
        match (cut.contents("f"), cut.contents("g")) {
            (Some(f), None) if f == b"other" => new += 1,
            (Some(f), Some(g)) if f.len() == 16 * SECTOR && g == b"other" => old += 1,
            left => panic!("{left:?}"),
        }
    }
    assert!(old > 0 && new > 0);
    assert!(disk.rename("nothing", "f").is_err());
}

#[test]
fn a_later_renaming_may_be_kept_without_an_earlier_one() {
    let disk = disk();
    disk.rename("f", "g").unwrap();
    disk.rename("g", "h").unwrap();
    let chance = SimChance::new(2);
    let cut = || disk.power_cut(&chance).names().unwrap().join(" ");
    let left: BTreeSet<String> = (0..200).map(|_| cut()).collect();
    let names = ["f", "g", "h", "f h"].map(String::from);
    assert_eq!(left, BTreeSet::from(names), "f and h are then two names of one file");
    let twice =
        (0..200).map(|_| disk.power_cut(&chance)).find(|disk| disk.names().unwrap().len() == 2);
    assert_eq!(twice.unwrap().open("h").unwrap().unwrap().links().unwrap(), 2);
}

#[test]
fn a_kill_loses_nothing_and_syncs_nothing() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    write_all_at(&file, 0, &filled(2, 1)).unwrap();
    let killed = disk.kill();
    write_all_at(&file, 0, &filled(3, 1)).unwrap();
    assert_eq!(killed.contents("f").unwrap()[0], 2, "the old process reaches the new disk");
    assert!(cuts(&killed, "f").iter().any(|left| left.as_ref().unwrap()[0] == 1));
}

#[test]
fn a_failed_sync_isnt_healed_by_a_later_one() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let file = disk.create("f").unwrap();
        write_all_at(&file, 0, &filled(1, 1)).unwrap();
        disk.fail(disk.calls() + 1, SimFault::Io);
        assert!(file.sync_all().is_err());
        assert_eq!(disk.failed_call().unwrap(), "sync_all f");
        file.sync_all().unwrap();
        disk.fail(disk.calls() + 1, SimFault::Io);
        assert!(disk.sync_folder().is_err());
        disk.sync_folder().unwrap();
        assert_eq!(disk.contents("f"), Some(filled(1, 1)), "reads don't see it");
        let left = disk.power_cut(&SimChance::new(seed)).contents("f");
        lost += u32::from(left != Some(filled(1, 1)));
        disk.forget_cache();
        let seen = disk.contents("f");
        assert!(left.is_none_or(|left| left.is_empty() || Some(left) == seen));
    }
    assert!((1..20).contains(&lost), "{lost}");
}

#[test]
fn calls_fail_once_as_they_are_told() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    let fail_next = |fault| disk.fail(disk.calls() + 1, fault);
    fail_next(SimFault::Short);
    assert_eq!(file.write_at(0, &filled(2, 2)).unwrap(), SECTOR);
    fail_next(SimFault::Short);
    let mut buffer = filled(0, 2);
    assert_eq!(file.read_at(0, &mut buffer).unwrap(), SECTOR);
    assert_eq!(buffer[..SECTOR], filled(2, 1));
    fail_next(SimFault::NoSpace);
    let error = file.write_at(0, &filled(3, 1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.contents("f").unwrap()[0], 2, "nothing was written");
    fail_next(SimFault::Io);
    assert!(disk.names().is_err() && disk.names().is_ok());
    read_exact_at(&file, 0, &mut buffer).unwrap();
    assert!(read_exact_at(&file, 15 * SECTOR as u64, &mut buffer).is_err(), "it ends before");
}

#[test]
fn a_machine_that_stands_still_does_nothing_more() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    disk.stop_at(disk.calls() + 1);
    assert!(file.write_at(0, &filled(2, 4)).is_err());
    let after = disk.contents("f");
    assert!(file.write_at(0, &filled(3, 16)).is_err() && file.sync_all().is_err());
    assert!(disk.create("g").is_err() && disk.remove("f").is_err());
    assert_eq!(disk.contents("f"), after);
    let next = disk.kill();
    assert_eq!(next.contents("f"), after);
    next.create("g").expect("the next process can call");
}

#[test]
fn a_full_disk_takes_what_it_has_room_for() {
    let disk = disk();
    let file = disk.open("f").unwrap().unwrap();
    disk.set_capacity(20 * SECTOR as u64);
    assert!(file.allocate(21 * SECTOR as u64).is_err());
    file.allocate(18 * SECTOR as u64).unwrap();
    assert_eq!(file.write_at(17 * SECTOR as u64, &filled(1, 9)).unwrap(), 3 * SECTOR);
    assert_eq!(disk.used_bytes(), 20 * SECTOR as u64);
    let other = disk.create("g").unwrap();
    assert!(other.write_at(0, &[1]).is_err());
    disk.remove("f").unwrap();
    assert!(other.write_at(0, &[1]).is_err(), "a removed file is kept while it is open");
    drop(file);
    assert_eq!(other.write_at(0, &[1]).unwrap(), 1);
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| {
        let disk = disk();
        let file = disk.open("f").unwrap().unwrap();
        write_all_at(&file, 0, &filled(2, 16)).unwrap();
        disk.power_cut(&SimChance::new(seed)).contents("f")
    };
    assert_eq!(run(3), run(3));
    assert!((0..20).any(|seed| run(seed) != run(3)));
}
