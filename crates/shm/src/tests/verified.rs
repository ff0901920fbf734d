//! What `verify` says of an arena beside its findings.

use super::{Arena, StopOnDrop, directory, spec};
use crate::verify;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

#[test]
fn a_report_says_how_large_an_index_is_and_whether_it_grows() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    let mut n = 0u32;
    for growing in [false, true, false] {
        while a.writer.index.growing() != growing {
            a.put(&n.to_le_bytes(), b"v", 7).unwrap();
            n += 1;
        }
        let (stats, report) = (a.writer.stats(), verify(&a.spec.path).unwrap());
        assert_eq!((report.growing, report.index_lines), (growing, stats.index_lines));
        assert_eq!((report.live_bytes, report.keys), (stats.used_bytes, stats.keys));
        assert!(!report.changed_meanwhile && report.findings.is_empty());
    }
}

#[test]
fn a_report_says_that_a_writer_was_at_work() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    (0..5_000u32).for_each(|i| a.put_soon(&i.to_le_bytes(), b"v").unwrap());
    a.settle();
    let (stop, path) = (AtomicBool::new(false), a.spec.path.clone());
    std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let _stop = StopOnDrop(&stop);
            (0..10_000).any(|_| verify(&path).is_ok_and(|report| report.changed_meanwhile))
        });
        // The index stays as it is: only what is committed tells.
        while !stop.load(Ordering::Relaxed) {
            a.put_soon(&7u32.to_le_bytes(), b"v").unwrap();
            a.turn();
        }
        assert!(checks.join().unwrap());
    });
}

#[test]
fn a_file_that_was_cut_off_is_a_finding() {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 8 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    let path = a.spec.path.clone();
    drop(a);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let report = verify(&path).unwrap();
    assert_eq!((report.findings.len(), report.keys), (1, 0), "{report:?}");
}
