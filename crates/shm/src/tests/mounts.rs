//! Arenas in a tmpfs that is not like others: a child in a mount namespace of its own tells how
//! they fare.

use super::room::append;
use super::{Arena, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::memory::hugepages::HUGE_PAGE_BYTES;
use crate::{Denial, Domain, WriteError, Writer};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;
/// Names the directory of the child.
const DIRECTORY: &str = "NIGH_SHM_MOUNT";
/// The options with which the child is to mount a tmpfs there itself.
const OPTIONS: &str = "NIGH_SHM_MOUNT_OPTIONS";

/// Runs a test of this file as a child that may mount; `None` where the system allows that nobody
/// (a user in a chroot).
#[expect(clippy::print_stderr, reason = "nobody would know that nothing is tested")]
fn run_mounting(test: &str, options: &str) -> Option<(bool, String)> {
    let child = std::env::current_exe().unwrap();
    let child = child.to_str().unwrap();
    let mount = ["unshare", "--mount", "--propagation", "unchanged", child];
    let user = ["unshare", "--user", "--map-root-user", "--mount", child];
    let way = if rustix::process::geteuid().is_root() { &mount[..] } else { &user[..] };
    let (done, said) = run_child(way, test, options);
    if said.starts_with("unshare:") {
        eprintln!("mounting isn't allowed: nothing is tested");
        return None;
    }
    Some((done, said))
}

fn run_child(way: &[&str], test: &str, options: &str) -> (bool, String) {
    let dir = directory();
    let mut command = std::process::Command::new(way[0]);
    command.args(&way[1..]).args(["--exact", &format!("tests::mounts::{test}"), "--nocapture"]);
    let output = command.env(DIRECTORY, dir.path()).env(OPTIONS, options).output();
    let output = output.expect("unshare of util-linux, or sh");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The child's directory, with a tmpfs if it is to have its own; `None` for a process that is no
/// child and has nothing to do.
fn mounted() -> Option<std::ffi::OsString> {
    let (directory, options) = (std::env::var_os(DIRECTORY)?, std::env::var(OPTIONS).ok()?);
    if !options.is_empty() {
        let flags = rustix::mount::MountFlags::empty();
        let options = std::ffi::CString::new(options).expect("text");
        rustix::mount::mount("none", &*directory, "tmpfs", flags, Some(&*options))
            .expect("a tmpfs");
    }
    Some(directory)
}

#[test]
fn a_full_tmpfs_is_an_error_and_no_fault() {
    // The file system runs full before the arena does. Where nobody may mount, files may not grow.
    let child = "child_in_a_small_tmpfs";
    let (done, said) = run_mounting(child, "size=3m").unwrap_or_else(|| {
        let itself = std::env::current_exe().unwrap();
        let limit = "trap '' XFSZ; ulimit -f 6144; exec \"$0\" \"$@\"";
        run_child(&["sh", "-c", limit, itself.to_str().unwrap()], child, "")
    });
    assert!(done && said.contains("the tmpfs was full"), "{said}");
}

#[test]
fn child_in_a_small_tmpfs() {
    // Run by its sibling. Writes are refused, the process lives.
    let Some(mount) = mounted() else { return };
    let mut a = Arena::create(&spec(Path::new(&mount).join("a"), 64 * MIB));
    let mut n = 0u32;
    while a.put(&n.to_le_bytes(), &[n as u8; 1000], 0).is_ok() {
        n += 1;
        assert!(n < 4000, "3 MiB hold no more");
    }
    assert!(n > 1000, "{n}");
    for i in 0..n {
        assert_eq!(a.get(&i.to_le_bytes()).unwrap()[0], i as u8);
    }
    let large = a.put_soon(b"large", &vec![1; 1 << 20]);
    // Where files may not grow, the system has another word for it.
    let is_limit = |error: &WriteError| matches!(error, WriteError::Denied(Denial::Other(_)));
    let is_full = |error: &WriteError| *error == WriteError::Denied(Denial::Full);
    assert!(large.as_ref().is_err_and(|error| is_full(error) || is_limit(error)), "{large:?}");
    let denied = a.writer.region().take_denied();
    assert!(denied.iter().all(|it| it.doing == "taking memory" && it.times > 0), "{denied:?}");
    assert!(!denied.is_empty() && a.writer.region().take_denied().is_empty(), "{denied:?}");
    a.writer.clear();
    a.settle();
    a.put(b"k", b"v", 0).unwrap();
    eprintln!("the tmpfs was full");
}

#[test]
fn an_arena_is_adopted_where_others_have_filled_the_tmpfs() {
    // A writer died, and others filled its tmpfs. The next one wanted the rest of the first segment
    // before it took the arena over: what was there was not served, though nothing of it was
    // missing.
    let Some((done, said)) = run_mounting("child_beside_others", "size=8m") else { return };
    assert!(done && said.contains("the arena was adopted"), "{said}");
}

#[test]
fn child_beside_others() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let mut a = Arena::create(&spec(Path::new(&mount).join("a"), 256 * MIB));
    (0..100u32).for_each(|n| a.put(&n.to_le_bytes(), &[7; 100], 0).unwrap());
    let mut filler = std::fs::File::create(Path::new(&mount).join("filler")).unwrap();
    while std::io::Write::write(&mut filler, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
    let backed = a.writer.stats().backed_bytes;
    let (mut a, adoption) = a.again();
    assert_eq!((adoption.keys, a.writer.stats().backed_bytes), (100, backed));
    // What it holds, it can use; what it needs anew is refused with words, until there is some
    // again.
    let mut n = 100u32;
    let refused = loop {
        match a.put_soon(&n.to_le_bytes(), &[7; 100]) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
        assert!(n < 2000, "64 KiB hold no more");
    };
    assert!(n > 110 && refused == WriteError::Denied(Denial::Full), "{n}: {refused}");
    assert_eq!(a.writer.stats().backed_bytes, backed, "nothing was taken");
    filler.set_len(0).unwrap();
    (n..5000).for_each(|n| a.put_soon(&n.to_le_bytes(), &[7; 100]).unwrap());
    assert!((0..5000u32).all(|n| a.get(&n.to_le_bytes()).is_some()));
    eprintln!("the arena was adopted");
}

#[test]
fn a_file_that_cannot_grow_stays_as_long_as_its_tables() {
    // A growth that found no memory for the tables of its slots left the file longer than them: the
    // server that adopted the arena while the tmpfs was still full touched pages that nobody could
    // give.
    let Some((done, said)) = run_mounting("child_that_cannot_grow", "size=3m") else { return };
    assert!(done && said.contains("the file has its length"), "{said}");
}

#[test]
fn child_that_cannot_grow() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let path = Path::new(&mount).join("a");
    let a = Arena::create(&spec(path.clone(), 12 << 30));
    let mut filler = std::fs::File::create(Path::new(&mount).join("filler")).unwrap();
    while std::io::Write::write(&mut filler, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
    let len = || std::fs::metadata(&path).unwrap().len();
    let before = len();
    a.writer.region().grow_to(4 << 30).expect_err("no memory for tables of 4,096 slots");
    assert_eq!(len(), before);
    // One that was made longer by something else is refused.
    drop(a);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
    let error = Writer::adopt(&spec(path, 12 << 30), &Domain::new(1)).err().unwrap();
    assert!(error.to_string().contains("taking memory"), "{error}");
    eprintln!("the file has its length");
}

#[test]
fn huge_pages_are_mapped_as_such() {
    // A tmpfs that has them gave arenas huge pages before, but each step of an arena's growth was
    // mapped by itself, and no step held a whole one.
    let Some((done, said)) = run_mounting("child_with_huge_pages", "size=256m,huge=always") else {
        return;
    };
    let is_known = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert!(done && said.contains("the pages were huge") || !is_known, "{said}");
}

#[test]
fn child_with_huge_pages() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let path = Path::new(&mount).join("a");
    let mut a = Arena::create(&spec(path.clone(), 64 * MIB));
    for i in 0..200_000u32 {
        a.put_soon(&i.to_le_bytes(), &[1; 100]).unwrap();
    }
    assert!(a.writer.region().has_huge_pages());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_arena = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    let ranges = of_arena.map(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(from), number(to))
    });
    let is_whole = |at: u64| at.is_multiple_of(HUGE_PAGE_BYTES);
    let ranges: Vec<_> = ranges.collect();
    assert!(ranges.len() > 5 && ranges.iter().all(|(from, to)| is_whole(*from) && is_whole(*to)));
    eprintln!("the pages were huge");
}

/// Fills the file system of a directory, but for so many pages.
fn fill(directory: &Path, but_pages: u64) {
    let mut filler = std::fs::File::create(directory.join("filler")).unwrap();
    while std::io::Write::write(&mut filler, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
    let len = filler.metadata().unwrap().len();
    filler.set_len(len - but_pages * 4096).unwrap();
}

#[test]
fn a_flipped_length_meets_no_hole_where_the_tmpfs_is_full() {
    // A bit of a long value's length flipped, so that it reached behind the run's pages. The arena
    // was adopted, as it should be; and when the tmpfs was full, the first GET of the key ended the
    // server by SIGBUS.
    let Some((done, said)) = run_mounting("child_with_a_flipped_length", "size=16m") else {
        return;
    };
    assert!(done && said.contains("the value was read"), "{said}");
}

#[test]
fn child_with_a_flipped_length() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let mount = Path::new(&mount);
    let mut a = Arena::create(&spec(mount.join("a"), 16 * MIB));
    a.put(b"run", &vec![1; 100_000], 0).unwrap();
    a.settle();
    let at = {
        let pin = a.me.pin();
        a.reader.get(&pin, a.reader.hash(b"run"), b"run").unwrap().reference().offset()
    };
    let len = a.writer.words.load32(at, Relaxed);
    a.writer.words.store32(at, len ^ 1 << 14, Relaxed);
    let (mut a, _) = a.again();
    (0..10u32).for_each(|n| a.put(&n.to_le_bytes(), b"v", 0).unwrap());
    a.settle();
    fill(mount, 0);
    let value = a.get(b"run").unwrap();
    assert_eq!(value.len(), 100_000 ^ 1 << 14);
    assert!(value[..100_000] == [1; 100_000] && value[100_000..].iter().all(|byte| *byte == 0));
    eprintln!("the value was read");
}

#[test]
fn a_flipped_reference_meets_no_hole_where_the_tmpfs_is_full() {
    // An entry named a place in a free slot. The check of the file read a record there, in memory
    // that nobody could give.
    let Some((done, said)) = run_mounting("child_with_a_flipped_reference", "size=16m") else {
        return;
    };
    assert!(done && said.contains("the file was refused"), "{said}");
}

#[test]
fn child_with_a_flipped_reference() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let mount = Path::new(&mount);
    let mut a = Arena::create(&spec(mount.join("a"), 16 * MIB));
    a.put(b"run", &vec![1; 700_000], 0).unwrap();
    let run = {
        let pin = a.me.pin();
        a.reader.get(&pin, a.reader.hash(b"run"), b"run").unwrap().value_ref().offset()
    };
    a.put(b"key", b"v", 0).unwrap();
    a.delete(b"run");
    a.settle();
    let place =
        a.writer.index.locate(&a.writer.words, a.writer.hash(b"key"), b"key").found.unwrap();
    let (right, table) = (place.reference, a.writer.index.current().word());
    let wrong = u32::try_from((run + 400_000) / 16).unwrap();
    a.writer.words.store32(place.at + 4, wrong, Relaxed);
    let spec = a.spec.clone();
    drop(a);
    fill(mount, 0);
    let report = crate::verify(&spec.path).unwrap();
    assert!(report.findings[0].what.starts_with("tail of a segment is 0"), "{report:?}");
    let error = Writer::adopt(&spec, &Domain::new(1)).err().unwrap();
    assert!(error.to_string().contains("tail of a segment is 0"), "{error}");
    // So does a table that a flipped bit makes twice as long. The entry is right again.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&spec.path).unwrap();
    file.write_all_at(&right.to_le_bytes(), place.at + 4).unwrap();
    file.write_all_at(&(table ^ 1).to_le_bytes(), header::CURRENT).unwrap();
    let error = Writer::adopt(&spec, &Domain::new(1)).err().unwrap();
    assert!(error.to_string().contains("taking memory"), "{error}");
    eprintln!("the file was refused");
}

#[test]
fn a_value_grows_as_far_as_the_tmpfs_has_pages() {
    // A run that grows is backed ahead. Where the tmpfs had the page that an APPEND needed, and not
    // all that were asked for, the APPEND was refused; so was the value that could lie in a
    // segment, for want of a run with room.
    let Some((done, said)) = run_mounting("child_in_the_last_pages", "size=16m") else { return };
    assert!(done && said.contains("the last page was taken"), "{said}");
}

#[test]
fn child_in_the_last_pages() {
    // Run by its sibling.
    let Some(mount) = mounted() else { return };
    let mount = Path::new(&mount);
    // Slots of 256 KiB: values up to half of that can lie in a segment.
    let mut a = Arena::create(&spec(mount.join("a"), 64 * MIB));
    a.put(b"run", &vec![1; 200_000], 0).unwrap();
    append(&mut a, b"run", &[2; 100_000]).unwrap();
    a.put(b"inline", &vec![1; 65_000], 0).unwrap();
    // More than a segment, so that the next one is backed as a whole; and none beyond it.
    (0..300u32).for_each(|n| a.put_soon(&n.to_le_bytes(), &[1; 1000]).unwrap());
    a.settle();
    // Up to the end of what is backed ahead.
    let (mut len, backed) = (300_000u64, a.writer.stats().backed_bytes);
    fill(mount, 3);
    let refused = loop {
        match append(&mut a, b"run", &[3; 1000]) {
            Ok(()) => len += 1000,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, WriteError::Denied(Denial::Full));
    assert_eq!(a.writer.stats().backed_bytes, backed + 3 * 4096, "all three pages");
    assert_eq!(a.get(b"run").map(|value| value.len() as u64), Some(len));
    let runs = a.writer.stats().runs;
    append(&mut a, b"inline", &[2; 1000]).unwrap();
    assert_eq!((a.get(b"inline").map(|v| v.len()), a.writer.stats().runs), (Some(66_000), runs));
    eprintln!("the last page was taken");
}
