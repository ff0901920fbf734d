//! Keys that are deleted together, without tombstones.

use super::{Arena, StopOnDrop, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const KEYS: usize = 64;

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|i| format!("key:{i}").into_bytes()).collect()
}

fn named<'k>(a: &Arena, keys: &'k [Vec<u8>]) -> Vec<(u32, &'k [u8])> {
    keys.iter().map(|key| (a.writer.hash(key), key.as_slice())).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn others_see_all_of_them_or_none() {
    // Keys are committed together and deleted together. A reader of the first and the last, at one
    // moment or each by itself, never finds the one gone while the other is as it was before.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let (keys, reader, mut other) = (keys(), a.reader.clone(), a.domain.join());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = StopOnDrop(&stop);
        let reads = scope.spawn(|| {
            let (first, last) = (&keys[0], &keys[KEYS - 1]);
            let (mut newest, mut told, mut gone) = (0, 0u64, 0u64);
            while !stop.load(Ordering::Relaxed) {
                {
                    let pin = other.pin();
                    let alone = |key: &Vec<u8>| {
                        let found = reader.get_alone(&pin, reader.hash(key), key).ok()?.0;
                        Some(found.map(|record| number(record.value())))
                    };
                    match alone(first) {
                        Some(Some(n)) => newest = n,
                        Some(None) => {
                            if let Some(Some(n)) = alone(last) {
                                assert!(n > newest, "{n} is there, and was deleted with the first");
                            }
                            gone += 1;
                        }
                        None => {}
                    }
                    if let Some(moment) = reader.moment(&pin) {
                        let at = |key: &Vec<u8>| {
                            let found = reader.get_at(&pin, &moment, reader.hash(key), key).ok()?;
                            Some(found.map(|record| number(record.value())))
                        };
                        if let (Some(first), Some(last)) = (at(first), at(last)) {
                            assert_eq!(first, last);
                            told += 1;
                        }
                    }
                }
                other.quiescent();
            }
            (told, gone)
        });
        let (begun, mut round) = (Instant::now(), 0u64);
        while begun.elapsed() < Duration::from_secs(2) {
            round += 1;
            a.soon(|a| {
                let mut refs = Vec::new();
                for key in &keys {
                    match a.writer.stage(a.writer.hash(key), key, &[&round.to_le_bytes()], 0) {
                        Ok(staged) => refs.push(staged),
                        Err(error) => {
                            a.writer.abandon(&refs);
                            return Err(error);
                        }
                    }
                }
                a.writer.commit(&a.me.pin(), false, &refs).inspect_err(|_| a.writer.abandon(&refs))
            })
            .unwrap();
            // So that others have seen them.
            let seen = Instant::now();
            while seen.elapsed() < Duration::from_micros(20) {
                std::hint::spin_loop();
            }
            let before = a.writer.words.load64(header::COMMITTED_LSN, Ordering::Relaxed);
            a.writer.delete_together(&a.me.pin(), &named(&a, &keys));
            let after = a.writer.words.load64(header::COMMITTED_LSN, Ordering::Relaxed);
            assert_eq!(after - before, KEYS as u64);
            assert_eq!(
                (a.writer.keys(), a.writer.words.load32(header::INTENT, Ordering::Relaxed)),
                (0, 0)
            );
            a.turn();
        }
        drop(stops);
        let (told, gone) = reads.join().unwrap();
        assert!(told > 100 && gone > 100, "{told} moments, {gone} times gone, {round} rounds");
    });
}
