//! Every sector of a small log is damaged once: the log is refused, or loses nothing.

use super::*;
use crate::reader::follower::{Followed, LogFollower};
use crate::reader::salvage::salvage_chain;
use crate::storage::Chance;
use crate::storage::simulated::below;

/// Three files with frames of one and more sectors; an empty frame says that all is on disk.
fn sound(log: &HandLog) -> [HandFile; 3] {
    let mut first = HandFile::new(&log.meta, 1, 32 << 10);
    first.begin(LogPosition::default());
    first.put(1);
    first.changes(&[fresh(A, 2).with(vec![2; 1500])]);
    first.put(3);
    let mut second = log.next(&first, 2);
    second.synced();
    second.changes(&[fresh(A, 4).with(vec![4; 3000]), again(A, 1)]);
    second.synced();
    second.put(5);
    let mut third = log.next(&second, 4);
    third.changes(&[fresh(A, 6), fresh(A, 7)]);
    third.synced();
    third.put(8);
    third.synced();
    third.changes(&[]);
    [first, second, third]
}

#[test]
fn damage_anywhere_is_refused_or_loses_nothing() {
    let log = HandLog::new();
    let files = sound(&log);
    log.store_all(&files);
    log.store(&HandFile::new(&log.meta, 3, 32 << 10));
    let whole = log.replay().expect("is sound");
    assert_eq!(whole.len(), 9);
    let mut refused = 0;
    for file in &files {
        let used = usize::try_from(file.at).expect("fits");
        for (sector, fill) in (0..used).step_by(512).flat_map(|at| [(at, 0), (at, 0xA5)]) {
            let mut bytes = file.bytes.clone();
            let changed = bytes[sector..sector + 512].iter().any(|&byte| byte != fill);
            bytes[sector..sector + 512].fill(fill);
            log.disk.set_contents(&name(file.head.number), bytes);
            match log.replay() {
                Ok(seen) => assert_eq!(seen, whole, "{} {sector}", file.head.number),
                Err(LogError::Corrupt { .. } | LogError::Head { .. }) if changed => refused += 1,
                Err(error) => panic!("{error}"),
            }
            salvages_a_prefix(&log, &whole);
        }
        log.store(file);
    }
    assert!(refused > 60, "{refused}");
}

fn salvages_a_prefix(log: &HandLog, whole: &[Seen]) {
    let mut seen = Vec::new();
    let each = &mut |commit: &crate::ReplayedCommit<'_>| keep(&mut seen, commit);
    let saved = salvage_chain(&log.world(), &log.meta, &CHAIN, each).expect("reads");
    assert!(whole.starts_with(&seen));
    assert!(saved.bad.is_some() || seen.len() == whole.len());
}

#[test]
fn a_missing_file_is_refused_unless_it_was_never_begun() {
    let log = HandLog::new();
    let files = sound(&log);
    for gone in 0..2 {
        let log = HandLog::new();
        let left = files.iter().enumerate().filter(|(at, _)| *at != gone);
        log.store_all(left.map(|(_, file)| file));
        assert!(matches!(log.replay(), Err(LogError::Missing { .. })));
    }
}

/// Changes some bytes of a frame's header or body, and gives it right sums.
fn forge(file: &mut HandFile, chance: &SimChance) {
    let pick = |end: usize| usize::try_from(below(chance, end as u64)).expect("fits");
    let frame = pick(file.frames.len());
    let start = usize::try_from(file.frames[frame]).expect("fits");
    let end = file.frames.get(frame + 1).map_or(file.at, |&next| next);
    let end = usize::try_from(end).expect("fits");
    for _ in 0..=pick(3) {
        let within = if pick(2) == 0 { f::BYTES } else { (end - start).min(400) };
        let offset = [f::LENGTH, f::BODY_BYTES, f::ROWS, f::CHANGES, f::MARK_FILE, pick(within)];
        let values = [0, 1, 255, chance.word().to_le_bytes()[0]];
        file.bytes[start + offset[pick(6)]] = values[pick(4)];
    }
    let rest = &file.bytes[start + f::BYTES..end];
    let sum = SumKey::more(file.key.body(file.frames[frame]), rest);
    file.forge(frame, f::BODY_SUM, &sum.to_le_bytes());
}

#[test]
fn forged_frames_are_refused_and_never_panic() {
    let log = HandLog::new();
    let files = sound(&log);
    let mut refused = 0;
    for seed in 0..1000 {
        let chance = SimChance::new(seed);
        let mut files = files.clone();
        let at = usize::try_from(below(&chance, 3)).expect("few");
        forge(&mut files[at], &chance);
        log.store_all(&files);
        refused += u32::from(matches!(log.replay(), Err(LogError::Body { .. })));
        let each = &mut |_: &crate::ReplayedCommit<'_>| Ok(());
        salvage_chain(&log.world(), &log.meta, &CHAIN, each).expect("reads");
        // A BEGIN may break the format already.
        let follower = LogFollower::whole(&log.world(), &log.meta, &CHAIN);
        if let Ok(mut follower) = follower {
            while follower.advance(each).is_ok_and(|found| found == Followed::Frame) {}
        }
    }
    assert!(refused > 300, "{refused}");
}
