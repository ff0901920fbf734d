//! Hostile bytes of an arena: a whole file of them, or a sound arena with some bytes changed.
//!
//! 1. Verifying, reading from another process, and adopting with further writes don't panic, and
//!    access no bytes outside of the file.
//! 2. An arena that is verified as whole is adopted. Any other is refused.
//!
//! The files lie in the folder `NIGH_FUZZ_DIR` of a tmpfs, or in a folder of their own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_shm::layout::{LINE_BYTES, header};
use nigh_shm::{ArenaError, ArenaSpec, UpkeepBudget, Domain, ForeignReader, Writer, verify};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The smallest arena: 16 slots of 128 KiB.
const CAPACITY_BYTES: u64 = 2 << 20;
/// Keys of the sound arena. Some have an expiry, and one is large.
const KEYS: u32 = 500;
/// Most changes to the sound arena.
const CHANGES_MAX: usize = 64;

/// A sound arena in the midst of growth, byte by byte.
struct Sound {
    directory: PathBuf,
    bytes: Vec<u8>,
}

fn spec(path: PathBuf) -> ArenaSpec {
    ArenaSpec {
        path,
        tenant: "t".into(),
        partition: 0,
        partitions: 1,
        capacity_bytes: CAPACITY_BYTES,
        seed: None,
    }
}

fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let directory = std::env::var_os("NIGH_FUZZ_DIR").map_or_else(
            || PathBuf::from(format!("/dev/shm/nigh-fuzz-{}", std::process::id())),
            PathBuf::from,
        );
        std::fs::create_dir_all(&directory).expect("a tmpfs directory");
        let path = directory.join("sound");
        let domain = Domain::new(1);
        let mut writer = Writer::create(&spec(path.clone()), &domain).expect("an arena");
        let me = domain.join();
        let large = vec![7; 70_000];
        for i in 0..KEYS {
            let (key, pin) = (i.to_le_bytes(), me.pin());
            let value: &[u8] = if i == 7 { &large } else { &key };
            writer.put(&pin, writer.hash(&key), &key, &[value], u64::from(i % 3)).expect("room");
            // The first table begins to grow at 410 keys; stop before it ends.
            if i > 410 && writer.stats().growing && i % 8 == 0 {
                break;
            }
        }
        drop((writer, me));
        let bytes = std::fs::read(&path).expect("its bytes");
        Sound { directory, bytes }
    })
}

/// Changes 8 bytes somewhere: in the header, the tables of slots, an index table or a record.
fn change(bytes: &mut [u8], input: &[u8; 12]) {
    let word = |at: u64| {
        let at = usize::try_from(at).expect("a header offset");
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
    };
    let at = u64::from(u16::from_le_bytes([input[1], input[2]]));
    let table = |word: u32| u64::from(word >> 6) << 17;
    let at = match input[0] % 6 {
        0 => at % 512,
        1 => header::BYTES + at % 512,
        2 => table(word(header::CURRENT)) + at % (128 * LINE_BYTES),
        3 => table(word(header::OLD)) + at % (64 * LINE_BYTES),
        // The head segment comes first or second.
        4 => (1 << 17) + at,
        _ => (2 << 17) + at,
    };
    let at = usize::try_from(at).unwrap_or(0).min(bytes.len().saturating_sub(8));
    let len = 1 + usize::from(input[3] % 8);
    let end = (at + len).min(bytes.len());
    bytes[at..end].copy_from_slice(&input[4..4 + end - at]);
}

fn exercise(path: PathBuf) {
    let is_whole = verify(&path).is_ok_and(|report| report.findings.is_empty());
    let mut out = Vec::new();
    if let Ok(reader) = ForeignReader::open(&path) {
        for i in (0..KEYS).step_by(25).chain([7]) {
            let _ = reader.get(&i.to_le_bytes(), &mut out);
        }
        // After a change of the committed LSN, readers follow earlier versions.
        let keys: Vec<_> = (0..KEYS).step_by(25).chain([7]).map(u32::to_le_bytes).collect();
        for key in &keys {
            let _ = reader.multi_get(&[key]);
        }
    }
    let domain = Domain::new(1);
    let mut writer = match Writer::adopt(&spec(path), &domain) {
        Ok((writer, _)) => writer,
        Err(ArenaError::Damaged { .. }) => {
            assert!(!is_whole, "refused, but verified as whole");
            return;
        }
        // The arena is another tenant's, or there is no memory to finish a commit: no fault of the
        // file.
        Err(_) => return,
    };
    assert!(is_whole, "adopted, but verified as damaged");
    let mut me = domain.join();
    let reader = writer.reader();
    for i in 0..40u32 {
        let key = (i * 13).to_le_bytes();
        let (pin, hash) = (me.pin(), writer.hash(&key));
        let found = reader
            .get(&pin, hash, &key)
            .map(|r| r.value().iter().map(|&b| u64::from(b)).sum::<u64>());
        std::hint::black_box(found);
        let _ = writer.put(&pin, hash, &key, &[&[1; 50]], 5);
        let _ = writer.set_expiry(&pin, hash, &key, 6);
        writer.expire_step(&pin, 5, 4);
        if i % 3 == 0 {
            writer.delete(&pin, hash, &key);
        }
        me.quiescent();
        writer.maintain(UpkeepBudget::default());
    }
    let pin = me.pin();
    reader.scan(&pin, 0, 1 << 12, &mut |r| {
        std::hint::black_box((r.key().len(), r.value().len()));
    });
    writer.clear();
}

fuzz_target!(|input: &[u8]| {
    let sound = sound();
    let path = sound.directory.join("arena");
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("a file");
    match input.split_first() {
        Some((0, rest)) => file.write_all_at(rest, 0).expect("room"),
        Some((_, rest)) => {
            let mut bytes = sound.bytes.clone();
            for input in rest.chunks_exact(12).take(CHANGES_MAX) {
                change(&mut bytes, input.try_into().expect("12 bytes"));
            }
            file.write_all_at(&bytes, 0).expect("room");
        }
        None => {}
    }
    drop(file);
    exercise(path);
});
