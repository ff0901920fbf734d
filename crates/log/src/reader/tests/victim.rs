//! The changes of a file that compaction wants to be rid of.

use super::*;
use crate::reader::log_file::ChainKey;
use crate::reader::victim::VictimReader;

fn two_files(log: &HandLog) -> [HandFile; 2] {
    let mut first = log.first();
    first.changes(&[fresh(A, 1).more(), fresh(A, 2), again(B, 1), fresh(A, 3)]);
    first.changes(&[]);
    first.changes(&[fresh(A, 4)]);
    let second = log.next(&first, 2);
    [first, second]
}

fn steps(log: &HandLog, max_bytes: usize) -> Result<Vec<(LogPosition, Vec<Seen>)>, LogError> {
    let key = ChainKey::of(&log.meta, &CHAIN);
    let files = log.find().expect("heads and BEGINs are sound").files;
    let mut victim = VictimReader::open(&log.disk, &key, &files[0])?;
    assert_eq!(victim.file(), 1);
    let mut steps = Vec::new();
    while let Some(step) = victim.advance(max_bytes)? {
        let each = |change: &crate::FramedChange<'_>| {
            (change.header.stream, change.header.lsn, change.payload.to_vec())
        };
        steps.push((step.at, step.changes.iter().map(each).collect()));
    }
    assert!(victim.advance(max_bytes)?.is_none());
    Ok(steps)
}

#[test]
fn a_victim_gives_all_its_changes_in_bounded_steps() {
    let log = HandLog::new();
    let files = two_files(&log);
    log.store_all(&files);
    let change = |stream, lsn| (stream, lsn, payload(stream, lsn));
    let (here, later) = (at(1, files[0].frames[1]), at(1, files[0].frames[3]));
    let all = [change(A, 1), change(A, 2), change(B, 1), change(A, 3)];
    let whole = vec![(here, all.to_vec()), (later, vec![change(A, 4)])];
    assert_eq!(steps(&log, 1 << 20).expect("is sound"), whole);
    let bytes = fresh(A, 1).0.bytes_in_frame();
    let twos = steps(&log, 2 * bytes).expect("is sound");
    let [first, second] = [all[..2].to_vec(), all[2..].to_vec()];
    assert_eq!(twos, [(here, first), (here, second), (later, vec![change(A, 4)])]);
    assert_eq!(steps(&log, 0).expect("is sound").len(), 5);
}

#[test]
fn a_bad_victim_is_named() {
    let log = HandLog::new();
    let [mut first, second] = two_files(&log);
    first.spoil(3, 200);
    log.store_all([&first, &second]);
    match steps(&log, 1 << 20).expect_err("is refused") {
        LogError::Corrupt { file, position, watermark, last } => {
            assert_eq!((file, position), (name(1), first.frames[3]));
            assert_eq!((watermark, last), (first.end(), vec![(A, 3)]));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_victim_that_was_prepared_again_is_refused() {
    let log = HandLog::new();
    let [first, second] = two_files(&log);
    log.store_all([&first, &second]);
    let key = ChainKey::of(&log.meta, &CHAIN);
    let mut file = log.find().expect("is sound").files.swap_remove(0);
    file.salt += 1;
    let opened = VictimReader::open(&log.disk, &key, &file);
    assert!(matches!(opened.err(), Some(LogError::Head { .. })));
    log.meta.tenants.keys().for_each(drop);
    log.disk.set_contents(&name(1), second.bytes);
    assert!(matches!(steps_open(&log, &file), LogError::Head { .. }));
}

fn steps_open(log: &HandLog, file: &crate::ChainFile) -> LogError {
    let key = ChainKey::of(&log.meta, &CHAIN);
    VictimReader::open(&log.disk, &key, file).err().expect("is refused")
}
