//! Hostile bytes of an import: a sound RDB with some bytes changed, or any bytes as RDB and as AOF.
//!
//! 1. Reading doesn't panic, and ends.
//! 2. A value that is read to its end has the announced length.
//! 3. Memory is bounded by the input's bytes: the run's limit shows it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_transfer::{AofReader, Found, Input, RdbReader, SourceError, Words, survey};

/// A file of the real Redis.
const SOUND: &[u8] = include_bytes!("../../crates/transfer/tests/fixtures/redis-7.0.rdb");
/// Most changes to the sound file.
const CHANGES_MAX: usize = 16;

fn read(file: &[u8], with_values: bool) -> Result<(), SourceError> {
    let mut reader = RdbReader::open(Input::new(file, 0))?;
    loop {
        match reader.next_found()? {
            Found::End => return Ok(()),
            Found::Key(entry) if with_values => {
                let mut bytes = 0;
                reader.value::<SourceError>(|piece| {
                    bytes += piece.len() as u64;
                    Ok(())
                })?;
                assert_eq!(bytes, entry.value_bytes);
            }
            _ => {}
        }
        assert!(reader.offset() <= file.len() as u64);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let with_values = how & 1 == 0;
    if how & 2 == 0 {
        let _ = read(data, with_values);
        if let Ok(found) = survey(Input::new(data, 0), 0, &mut |_| ()) {
            let mut reader = AofReader::new(Input::new(data, 0));
            let mut words = Words::default();
            while reader.offset() < found.end {
                assert!(reader.next_command(&mut words).expect("the survey found it whole"));
            }
            assert_eq!(reader.offset(), found.end, "a survey ends behind a command");
        }
        return;
    }
    let mut file = SOUND.to_vec();
    let sum = file.len() - 8;
    file[sum..].fill(0); // no checksum, so that changes get far
    let mut rest = data;
    for _ in 0..CHANGES_MAX {
        let Some((&[a, b, len], behind)) = rest.split_first_chunk::<3>() else { break };
        let at = usize::from(u16::from_le_bytes([a, b])) % file.len();
        if len == 0 {
            file.truncate(at.max(1));
            rest = behind;
            continue;
        }
        let (new, behind) = behind.split_at(behind.len().min(usize::from(len)));
        let end = file.len().min(at + new.len());
        file[at..end].copy_from_slice(&new[..end - at]);
        rest = behind;
    }
    let _ = read(&file, with_values);
});
