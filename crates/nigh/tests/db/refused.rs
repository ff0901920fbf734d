//! Folders that an open refuses, and leaves as they are.

use crate::mounts::{DONE, in_own_mounts};
use crate::opening::memory_of;
use crate::{all, open, small};
use nigh::{Db, OpenError};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Names the child's folder.
const FOLDER: &str = "NIGH_REFUSED_FOLDER";
/// The child: nothing in its folder may be written any more, by root neither.
const MOUNT: &str = "mount --bind \"$NIGH_REFUSED_FOLDER\" \"$NIGH_REFUSED_FOLDER\" \
     && mount -o remount,ro,bind \"$NIGH_REFUSED_FOLDER\" && exec \"$0\" \"$@\"";
/// Where a file of the log has its version: docs/formats/log.md.
const HEAD_VERSION: u64 = 8;

/// The files of a folder.
fn content(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let there = folder.read_dir().expect("a folder").map(|it| it.expect("an entry"));
    there.map(|it| (it.file_name(), std::fs::read(it.path()).expect("a file"))).collect()
}

/// A closed database with one key.
fn make(path: &Path) {
    let db = open(path);
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
}

/// An open fails, changes nothing in the folder, and leaves no memory: neither where the options
/// say, nor by default. What it says both times.
fn refused(path: &Path) -> [OpenError; 2] {
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let memory = elsewhere.path().join("memory");
    let before = path.is_dir().then(|| content(path));
    [small(), small().memory_dir(&memory)].map(|options| {
        let error = Db::open(path, &options).err().expect("it is refused");
        assert!(path.is_dir().then(|| content(path)) == before, "{error}");
        assert!(!path.is_dir() || memory_of(path).is_none(), "{error}");
        assert!(!memory.exists(), "{error}");
        error
    })
}

/// CRC-32C, as docs/formats/log.md says.
fn crc32c(text: &str) -> u32 {
    let bit = |sum: u32| (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg());
    !text.bytes().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| bit(sum)))
}

/// An older program must not guess what a newer one has written, nor call it damage.
#[test]
fn a_log_of_a_newer_version_asks_for_a_newer_program() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    make(&path);
    let asks = |file: &str| {
        for error in refused(&path) {
            assert!(matches!(error, OpenError::Store { .. }), "{error}");
            let text = format!("the database {} can't be opened: ", path.display());
            let error = error.to_string();
            assert!(error.starts_with(&text) && error.contains("use a newer one"), "{error}");
            assert!(error.contains(&format!("{file} has version ")), "{error}");
        }
    };
    let meta = std::fs::read_to_string(path.join("meta")).expect("it is there");
    let (lines, sum) = meta.split_at(meta.rfind("sum ").expect("its last line"));
    assert_eq!(sum, format!("sum {:08x}\n", crc32c(lines)));
    let (first, rest) = lines.split_once('\n').expect("lines");
    let (name, version) = first.rsplit_once(' ').expect("a version");
    let newer = version.parse::<u32>().expect("a number") + 1;
    let lines = format!("{name} {newer}\n{rest}");
    let newer_meta = format!("{lines}sum {:08x}\n", crc32c(&lines));
    std::fs::write(path.join("meta"), newer_meta).expect("a file");
    asks("meta");
    std::fs::write(path.join("meta"), &meta).expect("a file");
    // The same of a file of the log.
    let names = content(&path).into_keys();
    let mut logs = names.filter(|it| Path::new(it).extension() == Some(OsStr::new("log")));
    let log = logs.next().expect("it has a file");
    let file = File::options().write(true).open(path.join(&log)).expect("it is there");
    file.write_all_at(&newer.to_le_bytes(), HEAD_VERSION).expect("a version");
    asks(log.to_str().expect("UTF-8"));
    let version = version.parse::<u32>().expect("a number");
    file.write_all_at(&version.to_le_bytes(), HEAD_VERSION).expect("as it was");
    assert_eq!(all(&open(&path)).len(), 1);
}

/// A disk that is mounted to be read only, or a folder with such a mode.
#[test]
fn a_folder_that_cannot_be_written_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, empty) = (dir.path().join("data"), dir.path().join("empty"));
    make(&path);
    std::fs::create_dir(&empty).expect("a folder");
    if rustix::process::geteuid().is_root() {
        let test = "refused::child_that_may_not_write";
        in_own_mounts(MOUNT, test, &[(FOLDER, dir.path().as_os_str())]);
    } else {
        let set_mode = |mode| {
            for it in [&path, &empty] {
                std::fs::set_permissions(it, Permissions::from_mode(mode)).expect("it is ours");
            }
        };
        set_mode(0o500);
        cannot_be_written(dir.path());
        set_mode(0o700);
    }
    assert_eq!(all(&open(&path)).len(), 1);
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_that_may_not_write() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    cannot_be_written(&folder);
    eprintln!("{DONE}");
}

fn cannot_be_written(folder: &Path) {
    for name in ["data", "empty", "empty/new"] {
        let path = folder.join(name);
        for error in refused(&path) {
            assert!(error.to_string().contains("make it writable, or name another"), "{error}");
            assert!(matches!(error, OpenError::Folder { path: it, .. } if it == path));
        }
    }
}
