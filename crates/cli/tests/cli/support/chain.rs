//! Keys that one client sets in order. Another process reads them at one moment.
//!
//! ```text
//! the client: SET head n ── MSET link:0 n … link:11 n ── SET tail n ── the next n
//! the reader: head ── all links ── tail ── head again, by one view
//! ```
//!
//! At any moment all links have the same number. The links are at the head's number or one behind,
//! and the tail is at the links' number or one behind. A flush may come between two numbers.

use nigh_client::{Connection, Frame};
use nigh_shm::ForeignReader;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys between head and tail.
const LINKS: usize = 12;

/// The chain, and counts of its reads.
#[derive(Default)]
pub(crate) struct Chain {
    number: AtomicU64,
    /// The highest head that was read.
    newest: AtomicU64,
    views: AtomicU64,
    attempts: AtomicU64,
}

fn link(number: usize) -> String {
    format!("link:{number}")
}

impl Chain {
    /// Sets all to the next number.
    pub(crate) fn write(&self, connection: &mut Connection) {
        let text = (self.number.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let links: Vec<String> = (0..LINKS).map(link).collect();
        let pairs = links.iter().flat_map(|link| [link.as_str(), &text]);
        let mset: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
        for command in [&["SET", "head", &text][..], &mset, &["SET", "tail", &text]] {
            let reply = connection.call(command).expect("the server is up");
            assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        }
    }

    /// Reads all at one moment, as another process does. One thread calls it.
    pub(crate) fn read(&self, reader: &ForeignReader) {
        let mut keys = vec!["head".to_string()];
        keys.extend((0..LINKS).map(link).chain(["tail".into(), "head".into()]));
        let found = reader.view(|view| {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            let (mut found, mut bytes) = (Vec::new(), Vec::new());
            for key in &keys {
                let there = view.get(key.as_bytes(), &mut bytes)?.is_some();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                found.push(there.then(|| text.parse::<u64>().expect("a number")));
            }
            Ok(found)
        });
        // With so fast an owner a reader may give up. It must not be wrong.
        let Ok(found) = found else { return };
        let (head, first, tail) = (found[0], found[1], found[LINKS + 1]);
        assert_eq!(head, found[LINKS + 2], "the head changed within a moment");
        assert!(found[1..=LINKS].iter().all(|link| *link == first), "{found:?}");
        // After a flush the later keys are missing until the chain has begun again.
        let follows = |ahead: Option<u64>, behind: Option<u64>| match (ahead, behind) {
            (Some(ahead), Some(behind)) => ahead == behind || ahead == behind + 1,
            (_, behind) => behind.is_none(),
        };
        assert!(follows(head, first) && follows(first, tail) && follows(head, tail), "{found:?}");
        let newest = self.newest.load(Ordering::Relaxed);
        assert!(head.is_none_or(|head| head >= newest), "{head:?} came back after {newest}");
        self.newest.store(head.unwrap_or(newest), Ordering::Relaxed);
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of the reads, for people.
    pub(crate) fn said(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (views, attempts) = (count(&self.views), count(&self.attempts));
        assert!(views > 0, "the chain was never read at one moment");
        let newest = count(&self.newest);
        format!("{views} views of {} keys in {attempts} attempts, to {newest}", LINKS + 3)
    }
}
