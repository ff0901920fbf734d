//! The kept folder of a killed server of edition 1, and a list of all that was in it.
//!
//! `data/edition-1/keys.txt` has a line for each key: the key (hexadecimal), the value (a count,
//! `*`, and the bytes that are repeated), and the expiry (Unix ms, -1 if none). Three keys expired
//! soon after. The library `pair` is that of these tests.

use super::{assert_converts, assert_whole, now_ms};
use crate::support::{Server, assert_one_sentence, folder, nigh, stdout};
use nigh_client::Frame;
use nigh_shm::layout::header;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

const KEYS: &str = include_str!("../../data/edition-1/keys.txt");

/// Puts the folder's files into `dir`.
fn unpack(dir: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/edition-1");
    std::fs::create_dir(dir).expect("the folder is ours");
    for name in ["default.0.arena", "_system.0.arena"] {
        let file = std::fs::File::open(from.join(format!("{name}.gz"))).expect("it is kept");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("it is whole");
        std::fs::write(dir.join(name), bytes).expect("the folder is ours");
    }
    std::fs::copy(from.join("manifest"), dir.join("manifest")).expect("it is kept");
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// `nigh check` called arenas of edition 1, and those of a newer server, damaged, and advised to
/// start empty.
#[test]
fn check_tells_other_versions_from_damage() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    unpack(&dir);
    let path = dir.to_str().expect("UTF-8");
    let old = nigh(&["check", path]);
    assert_one_sentence(&old, &["no server would take 1 folder(s): see above"]);
    let said = stdout(&old);
    let command = format!("`nigh convert --shm-dir {path}`");
    assert!(said.contains(&command) && !said.contains("damaged"), "{said}");
    for name in ["default.0.arena", "_system.0.arena"] {
        let file =
            std::fs::OpenOptions::new().write(true).open(dir.join(name)).expect("it is ours");
        file.write_all_at(&3u32.to_le_bytes(), header::VERSION).expect("it is ours");
    }
    let new = nigh(&["check", path]);
    assert_one_sentence(&new, &["no server would take 1 folder(s): see above"]);
    let said = stdout(&new);
    assert!(said.contains("format version 3: a newer server wrote it"), "{said}");
    assert!(!said.contains("damaged"), "{said}");
    // A start said that they are damaged.
    let refused = nigh(&["serve", "--port", "0", "--shm-dir", path, "--appendonly", "no"]);
    assert_one_sentence(&refused, &["has format version 3, and this program reads 2", "--fresh"]);
}

/// Old data gets another number of partitions. Every key is there with its value and expiry, and
/// the library's function can be called.
#[test]
fn data_of_edition_1_is_converted_and_served() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    unpack(&dir);
    let shm_dir = dir.to_str().expect("UTF-8");
    let refused = nigh(&["serve", "--port", "0", "--shm-dir", shm_dir, "--appendonly", "no"]);
    assert_one_sentence(&refused, &["format version 1", "nigh convert --shm-dir", shm_dir]);
    let said = assert_converts(&dir, 2);
    assert!(said.contains("expired") && said.contains("libraries"), "{said}");
    assert_whole(&dir);
    let flags = ["--partitions", "2", "--maxmemory", "16mb"];
    let server = Server::start_with(folder.path(), &flags);
    let (mut connection, mut keys) = (server.connect(), 0);
    for line in KEYS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (count, piece) = fields[1].split_once('*').expect("a value");
        let (key, expiry) = (from_hex(fields[0]), fields[2].parse::<i64>().expect("a time"));
        if (0..now_ms()).contains(&expiry) {
            continue;
        }
        keys += 1;
        let value = from_hex(piece).repeat(count.parse().expect("a count"));
        let found = connection.call([&b"GET"[..], &key]).expect("the server is up");
        assert!(found.bytes() == Some(&value), "{line:.100}");
        let found = connection.call([&b"PEXPIRETIME"[..], &key]).expect("the server is up");
        assert_eq!(found, Frame::Integer(expiry), "{line:.100}");
    }
    assert_eq!(keys, KEYS.lines().count() as i64 - 3);
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(keys));
    let joined = server.call(&["FCALL", "join", "1", "a", "b"]);
    assert_eq!(joined.bytes(), Some(&b"a+b"[..]), "{joined:?}");
}
