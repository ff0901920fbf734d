//! The folder: `meta` is old or new, never half; what isn't named goes, what isn't ours stays.

use nigh_log::simulated::{SimChance, SimDisk, SimFault};
use nigh_log::{
    Chain, LogError, Meta, MetaFault, Secret, Storage, TenantLine, list, need_meta, read_meta,
    remove_chains, remove_unnamed, save_meta,
};

fn meta(tenant: &str) -> Meta {
    let mut meta = Meta::new([7; 16], Secret([9; 16]));
    let line = TenantLine { name: tenant.into(), partitions: 8, seed: 1 };
    (meta.next_generation, meta.next_tenant) = (4, 2);
    meta.tenants.insert(1, line);
    meta.chains = vec![Chain { generation: 3, shard: 0, shards: 1 }];
    meta
}

#[test]
fn a_saved_meta_is_read_and_survives_a_power_cut() {
    let disk = SimDisk::new(1);
    assert_eq!(read_meta(&disk).unwrap(), None);
    for name in ["a", "b"] {
        save_meta(&disk, &meta(name)).unwrap();
        let cut = disk.power_cut(&SimChance::new(5));
        assert_eq!(read_meta(&disk).unwrap().unwrap(), meta(name));
        assert_eq!(read_meta(&cut).unwrap().unwrap(), meta(name));
        assert_eq!(cut.names().unwrap(), ["meta"]);
    }
}

#[test]
fn a_meta_that_contradicts_itself_is_not_saved() {
    let disk = SimDisk::new(1);
    save_meta(&disk, &meta("a")).unwrap();
    let fault = save_meta(&disk, &meta("two words")).unwrap_err();
    assert!(matches!(fault, MetaFault::Unchanged(LogError::Meta { .. })), "{fault}");
    assert_eq!(read_meta(&disk).unwrap().unwrap(), meta("a"));
}

/// Each call of saving is cut off, fails, or finds no room: the old meta or the new one is there,
/// and `Unchanged` means the old one.
#[test]
fn at_every_moment_the_old_meta_or_the_new_one_is_there() {
    let prepared = |seed| {
        let disk = SimDisk::new(seed);
        save_meta(&disk, &meta("old")).unwrap();
        disk
    };
    let whole = prepared(0);
    let before = whole.calls();
    save_meta(&whole, &meta("new")).unwrap();
    let calls = whole.calls() - before;
    let (mut old, mut new) = (0, 0);
    for call in 1..=calls {
        for seed in 0..200 {
            let disk = prepared(seed);
            let at = disk.calls() + call;
            match seed % 4 {
                0 | 1 => disk.stop_at(at),
                2 => disk.fail(at, SimFault::Io),
                _ => disk.fail(at, SimFault::NoSpace),
            }
            let fault = save_meta(&disk, &meta("new")).unwrap_err();
            let unchanged = matches!(fault, MetaFault::Unchanged(_));
            let left =
                if seed % 8 < 4 { disk.kill() } else { disk.power_cut(&SimChance::new(seed)) };
            let left = read_meta(&left).expect("it is whole").expect("it is there");
            assert!(
                left == meta("old") || left == meta("new") && !unchanged,
                "call {call}: {fault}"
            );
            if left == meta("old") { old += 1 } else { new += 1 }
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// After a kill the new meta may be seen and not be on disk. Only what a later power cut can't take
/// back is given out.
#[test]
fn what_read_meta_gives_is_durable() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        save_meta(&disk, &meta("old")).unwrap();
        disk.stop_at(disk.calls() + 5);
        save_meta(&disk, &meta("new")).unwrap_err();
        let killed = disk.kill();
        let read = read_meta(&killed).unwrap().unwrap();
        let cut = killed.power_cut(&SimChance::new(seed));
        assert_eq!(read_meta(&cut).unwrap().unwrap(), read);
    }
}

#[test]
fn only_names_of_ours_are_listed_and_removed() {
    let disk = SimDisk::new(1);
    let ours = ["g3-s00-0000000002.log", "g3-s00-0000000010.log", "meta", "lock"];
    let new = ["g2-s00-0000000002.log.new", "g3-s00-0000000011.log.new", "meta.new"];
    let unnamed = ["g2-s00-0000000001.log", "g3-s01-0000000001.log"];
    let others = ["g3-s00-2.log", "notes.new", "notes.txt"];
    for name in ours.iter().chain(&new).chain(&unnamed).chain(&others) {
        disk.set_contents(name, b"x".to_vec());
    }
    let listing = list(&disk).unwrap();
    let files: Vec<String> = listing.files.iter().map(ToString::to_string).collect();
    assert_eq!(files, [unnamed[0], ours[0], ours[1], unnamed[1]]);
    assert_eq!(
        (&listing.new[..], &listing.others[..]),
        (&new.map(String::from)[..], &others.map(String::from)[..])
    );
    assert!(listing.meta);
    need_meta(&listing, Some(&meta("a"))).unwrap();
    let gone = remove_unnamed(&disk, &listing, &meta("a")).unwrap();
    let wanted = [new[0], new[2], unnamed[0], unnamed[1]];
    assert_eq!(gone, wanted);
    // The chain's writer takes over what is set aside for it.
    let mut left: Vec<&str> = ours.iter().chain(&others).chain([&new[1]]).copied().collect();
    left.sort_unstable();
    assert_eq!(disk.power_cut(&SimChance::new(3)).names().unwrap(), left, "it is durable");
    assert!(remove_unnamed(&disk, &list(&disk).unwrap(), &meta("a")).unwrap().is_empty());
}

#[test]
fn a_chain_that_is_over_goes_while_another_is_written() {
    let disk = SimDisk::new(1);
    let goes = ["g2-s00-0000000007.log", "g2-s00-0000000008.log.new"];
    let stays = ["g2-s01-0000000007.log", "g3-s00-0000000001.log", "g3-s00-0000000002.log.new"];
    for name in goes.iter().chain(&stays).chain(&["meta", "meta.new"]) {
        disk.set_contents(name, b"x".to_vec());
    }
    let over = Chain { generation: 2, shard: 0, shards: 2 };
    let gone = remove_chains(&disk, &list(&disk).unwrap(), &[over]).unwrap();
    assert_eq!(gone, [goes[1], goes[0]]);
    let left = disk.power_cut(&SimChance::new(3)).names().unwrap();
    assert_eq!(left, [stays[0], stays[1], stays[2], "meta", "meta.new"]);
}

#[test]
fn log_files_without_their_meta_are_refused() {
    let disk = SimDisk::new(1);
    need_meta(&list(&disk).unwrap(), None).expect("an empty folder is a new log");
    disk.set_contents("g4-s00-0000000001.log", Vec::new());
    let listing = list(&disk).unwrap();
    let missing = need_meta(&listing, None);
    assert!(matches!(missing, Err(LogError::MetaMissing { file }) if file.starts_with("g4-")));
    let older = need_meta(&listing, Some(&meta("a"))).unwrap_err();
    assert!(matches!(older, LogError::Meta { line: 4, .. }), "{older}");
}
