//! A local client is hostile: it writes any bytes into the memory of its rings and bells at any
//! moment. The server's end returns an error or goes on, and keeps its bounds: no panic, no access
//! outside of the memory, no more bytes than were asked for and one piece, and a sleep that is
//! refused or agreed on after a bounded number of looks.
//!
//! The input has the steps of the server's end, and then the client's writes for each look of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_shm::local::{Awaits, LocalSpec, exposed_local};
use nigh_shm::ring::HostilePeer;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Most steps of the server's end in one input.
const STEPS_MAX: usize = 96;
/// The smallest rings.
const SPEC: LocalSpec = LocalSpec { request_bytes: 4096, reply_bytes: 4096 };
/// The longest piece of such a ring.
const PIECE_MAX: usize = 4096 / 4 - 8;
/// Most looks of one step: a piece has a byte at least, a look at the positions before each, and
/// its words; a bell is tried a bounded number of times.
const LOOKS_MAX: usize = 16_000;
/// What is written.
static REPLIES: [u8; 8192] = [0x5A; 8192];

/// The client. Each look of the server's end takes one byte of `lies`, and more if that byte asks
/// for them. After the last byte it begins anew, so that it never keeps still.
fn peer(lies: &[u8], looks: Arc<AtomicUsize>) -> Arc<Mutex<HostilePeer>> {
    let mut lies: VecDeque<u8> = lies.iter().copied().collect();
    Arc::new(Mutex::new(move |_offset: u64, word: u64| {
        looks.fetch_add(1, Ordering::Relaxed);
        let mut next = || match lies.pop_front() {
            Some(lie) => {
                lies.push_back(lie);
                u64::from(lie)
            }
            None => 0,
        };
        match next() {
            // Forward and back by words: near a possible position.
            how @ 1..48 => word.wrapping_add(how * 8),
            how @ 48..56 => word.wrapping_sub((how - 47) * 8),
            // Any word.
            56..72 => (0..8).fold(0, |word, _| word << 8 | next()),
            // The header of a piece that is possible, or nearly.
            72..104 => 1 << 32 | (next() | next() << 8) % 1100,
            how @ 104..112 => word ^ 1 << (8 * (how - 104)),
            112 => u64::MAX,
            // A bell that is rung once more.
            113..120 => word.wrapping_add(1),
            _ => word,
        }
    }))
}

fuzz_target!(|input: &[u8]| {
    let steps = input.len().min(STEPS_MAX) / 2;
    let (steps, lies) = input.split_at(steps);
    let looks = Arc::new(AtomicUsize::new(0));
    let mut server = exposed_local(SPEC, peer(lies, Arc::clone(&looks)));
    let mut buf = Vec::new();
    for &step in steps {
        let before = looks.load(Ordering::Relaxed);
        let size = usize::from(step) * 16;
        match step % 5 {
            0 => {
                buf.clear();
                let read = server.read(&mut buf, size);
                assert!(read.is_err() || read == Ok(buf.len()));
                assert!(buf.len() < size + PIECE_MAX, "{} of {size}", buf.len());
            }
            1 => {
                let written = server.write(&REPLIES[..2 * size]);
                assert!(written.is_err() || written.is_ok_and(|written| written <= 2 * size));
            }
            2 => _ = (server.has_input(), server.has_room()),
            3 => _ = server.flush(|| ()),
            _ => {
                server.flush(|| ());
                let awaits = Awaits { input: step & 64 != 0, room: step & 128 != 0 };
                if server.prepare_sleep(awaits) == Ok(true) {
                    server.woken();
                }
            }
        }
        assert!(looks.load(Ordering::Relaxed) - before <= LOOKS_MAX, "step {step} looks on and on");
    }
});
