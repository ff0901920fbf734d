//! Another process walks over all keys, and reads a file that somebody cuts off.

use super::stepped::{Stepped, at_every_load, move_lines};
use super::{Arena, StopOnDrop, directory, spec};
use crate::format::layout::{entry, entry_reference, entry_tag, header, record as r};
use crate::format::words::SharedWords;
use crate::{ArenaError, ForeignReader};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;
/// Steps of a walk at most: far more than the tables here have lines.
const STEPS_MOST: u32 = 1 << 20;
/// Names the file that a child cuts off and reads without a guard.
const UNGUARDED: &str = "NIGH_SHM_UNGUARDED";

/// Keys with their values and expiries.
type Met = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// All keys that begin so, with their values and expiries; keys met twice count once.
fn walk<W: SharedWords>(foreign: &ForeignReader<W>, prefix: &[u8]) -> Result<Met, ArenaError> {
    let (mut met, mut cursor) = (BTreeMap::new(), 0);
    for _ in 0..STEPS_MOST {
        cursor = foreign.scan(cursor, prefix, &mut |record| {
            met.insert(record.key.clone(), (record.value.clone(), record.expiry_ms));
        })?;
        if cursor == 0 {
            return Ok(met);
        }
    }
    panic!("a walk never ends");
}

#[test]
fn a_walk_from_outside_meets_what_there_is() {
    // Small and long values, keys of two prefixes, one whose time is over, and a growth under way.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    assert!(walk(&foreign, b"").unwrap().is_empty());
    a.put(b"b:long", &[7; 2_000_000], 9000).unwrap();
    a.put(b"b:short", b"", 0).unwrap();
    a.put(b"b:over", b"gone", 5000).unwrap();
    a.writer.note_time(6000);
    let mut growths = 0;
    for i in 0..5000u32 {
        a.put(format!("a:{i}").as_bytes(), &i.to_le_bytes(), 0).unwrap();
        if a.writer.stats().growing && i % 7 == 0 {
            growths += 1;
            assert_eq!(walk(&foreign, b"a:").unwrap().len(), i as usize + 1);
        }
    }
    assert!(growths > 20, "{growths}");
    let met = walk(&foreign, b"b:").unwrap();
    let wanted =
        [(b"b:long".to_vec(), (vec![7; 2_000_000], 9000)), (b"b:short".to_vec(), (Vec::new(), 0))];
    assert!(met == BTreeMap::from(wanted));
    assert_eq!(foreign.expiry(b"b:long").unwrap(), Some(9000));
    assert_eq!(foreign.expiry(b"b:over").unwrap(), None);
    assert_eq!(foreign.view(|view| view.expiry(b"b:long")).unwrap(), Some(9000));
    assert_eq!(foreign.clock_ms(), 6000);
}

#[test]
fn a_walk_from_outside_misses_no_key_beside_a_writer() {
    // One thread overwrites all keys, adds others and deletes them, so that the index grows and
    // shrinks and memory is reused; each walk meets each key that stays, with a whole value.
    const STAY: u32 = 600;
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 6 * MIB));
    let put = |a: &mut Arena, key: String, byte: u8| {
        a.put_soon(key.as_bytes(), &vec![byte; 200 + usize::from(byte)]).unwrap();
    };
    (0..STAY).for_each(|i| put(&mut a, format!("stay:{i}"), 0));
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = StopOnDrop(stop);
        let walks = scope.spawn(move || {
            let mut walks = 0;
            while walks == 0 || !stop.load(Ordering::Relaxed) {
                let met = match walk(&foreign, b"stay:") {
                    Ok(met) => met,
                    Err(ArenaError::Busy { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(met.len(), STAY as usize);
                for (key, (value, _)) in met {
                    let whole = value.iter().all(|byte| *byte == value[0])
                        && value.len() == 200 + usize::from(value[0]);
                    assert!(whole, "{} is torn", String::from_utf8_lossy(&key));
                }
                walks += 1;
            }
            walks
        });
        for round in 0..40u8 {
            (0..STAY).for_each(|i| put(&mut a, format!("stay:{i}"), round));
            (0..2000).for_each(|i| put(&mut a, format!("come:{i}"), round));
            (0..2000).for_each(|i| assert!(a.delete(format!("come:{i}").as_bytes())));
            a.turn();
        }
        drop(stops);
        assert!(walks.join().unwrap() > 0);
    });
}

#[test]
fn a_walk_from_outside_misses_no_key_whatever_comes_between_two_loads() {
    // Some lines of the index move to another table, or one of the keys is overwritten.
    const STAY: u32 = 20;
    fn name(i: u32) -> Vec<u8> {
        format!("stay:{i}").into_bytes()
    }
    fn overwrite(a: &mut Arena, load: u64) {
        a.put(&name(load as u32 % STAY), &load.to_le_bytes(), 0).unwrap();
    }
    let acts: [fn(&mut Arena, u64); 2] = [move_lines, overwrite];
    for act in acts {
        let dir = directory();
        let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
        (0..STAY).for_each(|i| a.put(&name(i), b"", 0).unwrap());
        let foreign = ForeignReader::open(&a.spec.path).unwrap().over(Stepped::over);
        let (words, arena) = (foreign.words().clone(), Rc::new(RefCell::new(a)));
        at_every_load(&words, &arena, act, |load| {
            let met = walk(&foreign, b"").unwrap();
            let missed = (0..STAY).find(|&i| !met.contains_key(&name(i)));
            assert_eq!((missed, met.len()), (None, STAY as usize), "it came before load {load}");
        });
    }
}

#[test]
fn a_walk_passes_on_nothing_that_is_no_record() {
    // An entry names a place before all slots, one behind the file's end, or one at which no key's
    // version stands. Reads and walks end there, and say so.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let (words, g) = (a.writer.words, a.writer.space.geometry());
    let mut entries = Vec::new();
    a.writer.index.each(&words, &mut |at, entry| entries.push((at, entry)));
    let [(entry_at, was)] = entries[..] else { panic!("one key") };
    let refused = |case: &str| {
        assert!(matches!(walk(&foreign, b""), Err(ArenaError::Busy { .. })), "{case}");
        let read = foreign.get(b"k", &mut Vec::new());
        assert!(matches!(read, Err(ArenaError::Busy { .. })), "{case}: {read:?}");
    };
    let end = a.spec.path.metadata().unwrap().len();
    let first = g.slot_offset(g.first_slot);
    for place in [64, first - r::UNIT, first, end - r::UNIT, end, g.address_bytes - r::UNIT] {
        let reference = u32::try_from(place / r::UNIT).unwrap();
        words.store64(entry_at, entry(entry_tag(was), reference), Ordering::Relaxed);
        refused(&format!("a record at {place}"));
    }
    words.store64(entry_at, was, Ordering::Relaxed);
    let record = u64::from(entry_reference(was)) * r::UNIT;
    for (at, byte) in [(r::KIND, r::KIND_INTENT), (r::KIND, 0), (r::FLAGS, r::FLAG_TOMBSTONE)] {
        let mut bytes = words.load64(record + (at & !7), Ordering::Relaxed).to_le_bytes();
        let before = u64::from_le_bytes(bytes);
        bytes[usize::try_from(at & 7).unwrap()] = byte;
        words.store64(record + (at & !7), u64::from_le_bytes(bytes), Ordering::Relaxed);
        refused(&format!("byte {at} is {byte}"));
        words.store64(record + (at & !7), before, Ordering::Relaxed);
    }
    assert_eq!(walk(&foreign, b"").unwrap().len(), 1);
}

#[test]
fn reads_of_a_file_that_is_cut_off_say_so() {
    // Somebody else shortens the file under readers that are at work. They would have died by
    // SIGBUS; now they are told, and a new reader finds no arena.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    (0..2000u32).for_each(|i| a.put(&i.to_le_bytes(), &[1; 1000], 0).unwrap());
    let len = a.spec.path.metadata().unwrap().len();
    for kept in [0, 4096, 131_072, len / 2, len - 4096] {
        let copy = dir.path().join("copy");
        std::fs::copy(&a.spec.path, &copy).unwrap();
        let foreign = ForeignReader::open(&copy).unwrap();
        assert_eq!(walk(&foreign, b"").unwrap().len(), 2000);
        let file = File::options().write(true).open(&copy).unwrap();
        file.set_len(kept).unwrap();
        let mut refused = 0;
        for i in 0..2000u32 {
            match foreign.get(&i.to_le_bytes(), &mut Vec::new()) {
                Ok(found) => assert!(found.is_some() && kept > 0, "{i} of {kept} bytes"),
                Err(ArenaError::Cut { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // The file ends at the last record; from where it is cut off on, all is refused.
        assert!(refused > 0 || kept == len - 4096, "{kept}");
        if refused > 0 {
            assert!(matches!(walk(&foreign, b""), Err(ArenaError::Cut { .. })));
            assert!(matches!(foreign.multi_get(&[b"k"]), Err(ArenaError::Cut { .. })));
            assert!(matches!(foreign.check(), Err(ArenaError::Cut { .. })));
        }
        let again = ForeignReader::open(&copy);
        assert!(kept > 0 || matches!(again, Err(ArenaError::Damaged { .. })));
    }
    assert_eq!(a.get(&7u32.to_le_bytes()), Some(vec![1; 1000]), "others read on");
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    // A pipe has the arena's name, so that opening it would wait for a writer; or a link has it.
    let dir = directory();
    let (pipe, link) = (dir.path().join("a"), dir.path().join("link"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let a = Arena::create(&spec(dir.path().join("arena"), 4 * MIB));
    std::os::unix::fs::symlink(&a.spec.path, &link).unwrap();
    for path in [&pipe, &link, dir.path()] {
        assert!(matches!(ForeignReader::open(path), Err(ArenaError::Io { .. })));
    }
}

#[test]
fn a_file_that_was_set_aside_or_removed_tells_its_readers() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", &[1; 1_000_000], 0).unwrap();
    let (path, copy) = (a.spec.path.clone(), dir.path().join("copy"));
    std::fs::copy(&path, &copy).unwrap();
    let foreign = ForeignReader::open(&copy).unwrap();
    assert!(foreign.has_its_name() && foreign.check().is_ok());
    crate::end_file(&copy).unwrap();
    assert!(matches!(foreign.get(b"k", &mut Vec::new()), Err(ArenaError::Over { .. })));
    std::fs::rename(&copy, dir.path().join("aside")).unwrap();
    assert!(!foreign.has_its_name());
    assert!(crate::end_file(&copy).is_err(), "it isn't there");
    std::fs::write(&copy, b"text").unwrap();
    assert!(crate::end_file(&copy).is_err(), "it is no arena");
    assert_eq!(std::fs::read(&copy).unwrap(), b"text");
    // The owner removes its own. A reader that has it mapped keeps no memory of it.
    let foreign = ForeignReader::open(&path).unwrap();
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let region = std::sync::Arc::clone(a.writer.region());
    region.set_over();
    assert!(matches!(foreign.multi_get(&[b"k"]), Err(ArenaError::Over { .. })));
    assert_eq!(a.get(b"k").map(|value| value.len()), Some(1_000_000), "its own reads go on");
    drop((a, region));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert!(blocks * 512 <= 4096, "{blocks} blocks are left");
    assert!(matches!(foreign.check(), Err(ArenaError::Over { .. })));
}

#[test]
fn a_bus_error_elsewhere_ends_the_process_as_before() {
    // The guard is installed, and the program faults in a mapping of its own.
    let Some(path) = std::env::var_os(UNGUARDED) else {
        let dir = directory();
        let a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
        let name = "tests::foreign_scan::a_bus_error_elsewhere_ends_the_process_as_before";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).env(UNGUARDED, &a.spec.path);
        let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    };
    let path = Path::new(&path);
    let foreign = ForeignReader::open(path).unwrap();
    foreign.check().unwrap();
    let cut = path.with_extension("cut");
    std::fs::write(&cut, [1; 4096]).unwrap();
    let file = File::options().read(true).write(true).open(&cut).unwrap();
    let mapping = crate::memory::file_mapping::FileMapping::read_only(&file, 4096).unwrap();
    file.set_len(0).unwrap();
    let word = mapping.words().load64(0, Ordering::Relaxed);
    unreachable!("it read {word}");
}

#[test]
fn a_header_that_is_punched_out_is_no_arena() {
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let copy = dir.path().join("copy");
    std::fs::copy(&a.spec.path, &copy).unwrap();
    let foreign = ForeignReader::open(&copy).unwrap();
    let file = File::options().write(true).open(&copy).unwrap();
    file.write_all_at(&[0; 8], header::INCARNATION).unwrap();
    assert!(matches!(foreign.get(b"k", &mut Vec::new()), Err(ArenaError::Cut { .. })));
}
