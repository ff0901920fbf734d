//! Folders of edition 1: the tests read them as such, whatever edition servers write today.

use super::{Args, run_by};
use nigh_shm::Domain;
use nigh_store::{DEFAULT_TENANT, Edition, Keyspace, StoreError, StoreOptions, Turn, left_in};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

type Content = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn of_edition_1(_: &Path, _: &str) -> Result<Edition, StoreError> {
    Ok(Edition::One)
}

fn arguments(dir: &Path, partitions: Option<usize>) -> Args {
    let (shm_dir, tenant) = (dir.to_owned(), DEFAULT_TENANT.to_owned());
    Args { shm_dir, dir: None, partitions, maxmemory: None, tenant }
}

/// The keys of all partitions, and the libraries, of a folder with this many partitions and bytes.
fn content(dir: &Path, partitions: usize, capacity_bytes: u64) -> (Content, Vec<Vec<u8>>) {
    let left = left_in(dir, DEFAULT_TENANT, Edition::Living).expect("it is readable");
    let left = left.expect("something is there");
    assert_eq!((left.partitions, left.capacity_bytes), (partitions, capacity_bytes));
    let domain = Domain::new(1);
    let mut options = StoreOptions::new(dir, capacity_bytes);
    options.partitions = partitions;
    let (keyspace, _) = Keyspace::open(&options, &domain).expect("it is whole");
    let (me, mut all) = (domain.join(), Content::new());
    let pin = me.pin();
    for (partition, store) in keyspace.parts().iter().enumerate() {
        store.reader().scan(&pin, 0, u32::MAX, &mut |record| {
            assert_eq!(keyspace.partition_of(record.key()), partition);
            all.insert(record.key().to_vec(), (record.value().to_vec(), record.expiry_ms()));
        });
    }
    let turn = Turn { now_ms: 0, pin: &pin, random: 0 };
    let libraries = keyspace.librarian().libraries(&turn);
    (all, libraries.into_iter().map(|(name, _)| name.to_vec()).collect())
}

/// Puts the files of the kept folder into `dir`.
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

/// A kept folder of a server of edition 1: the copy has as much as the reader counted. (The test in
/// `tests/cli/convert/kept.rs` tells what that is, and serves it.)
#[test]
fn the_kept_folder_of_edition_1_is_converted_without_options() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs is there");
    let dir = folder.path().join("arenas");
    unpack(&dir);
    run_by(&arguments(&dir, None), of_edition_1).expect("it is whole");
    let (keys, libraries) = content(&dir, 1, 8 << 20);
    let told = include_str!("../../tests/data/edition-1/keys.txt").lines().count();
    assert_eq!((keys.len(), libraries), (told - 3, vec![b"pair".to_vec()]));
    assert_eq!(keys[&b"number"[..]], (b"42".to_vec(), 0));
    assert_eq!(keys[&b"renamed to"[..]], (vec![b'r'; 90_000], 0));
}

/// A conversion names the damage, and leaves the folder as it was.
#[test]
fn a_damaged_folder_of_edition_1_is_left_as_it_was() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs is there");
    let dir = folder.path().join("arenas");
    unpack(&dir);
    let path = dir.join("default.0.arena");
    let file = std::fs::File::options().write(true).open(&path).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[255], 260).expect("it is ours");
    let before = std::fs::read(&path).expect("it is there");
    let error = run_by(&arguments(&dir, None), of_edition_1).expect_err("its table is elsewhere");
    assert!(error.to_string().contains("damaged at offset 260"), "{error}");
    assert!(std::fs::read(&path).expect("it is there") == before);
    assert!(!folder.path().join("arenas.convert").exists());
}
