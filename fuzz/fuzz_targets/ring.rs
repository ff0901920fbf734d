//! The peer of a ring in shared memory is hostile: it writes any bytes and positions at any moment.
//! Our end returns an error or goes on, and keeps its bounds: no panic, no access outside of the
//! memory, no message longer than allowed, no more messages than a ring holds.
//!
//! The input has the steps of our end, and then the peer's writes for each look of our end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_shm::ring::{LinkSpec, HostilePeer, exposed_bell, exposed_link, exposed_pair};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Most steps of our end in one input.
const STEPS_MAX: usize = 96;
/// The payload of messages, which is cut anywhere.
static PAYLOAD: [u8; 600] = [0xA5; 600];

/// The peer. Each look of our end takes one byte of `lies`, and more if that byte asks for them.
/// After the last byte the memory stays as it is.
fn peer(lies: &[u8]) -> Arc<Mutex<HostilePeer>> {
    let mut lies: VecDeque<u8> = lies.iter().copied().collect();
    Arc::new(Mutex::new(move |_offset: u64, word: u64| {
        let mut next = || u64::from(lies.pop_front().unwrap_or(0));
        match next() {
            // Forward and back by words: near a possible position.
            how @ 1..48 => word.wrapping_add(how * 8),
            how @ 48..64 => word.wrapping_sub((how - 47) * 8),
            // Any word.
            64..80 => (0..8).fold(0, |word, _| word << 8 | next()),
            // A header: a length of up to 64 KiB, any kind.
            80..96 => next() | next() << 8 | next() << 32,
            how @ 96..104 => word ^ 1 << (how - 96),
            how @ 104..108 => u64::MAX - (how - 104) * 8,
            _ => word,
        }
    }))
}

/// A payload of this many bytes, in two parts.
fn parts(step: u8) -> [&'static [u8]; 2] {
    let length = usize::from(step) * 2;
    let (first, second) = PAYLOAD[..length].split_at(length / 3);
    [first, second]
}

fn consume(capacity: u32, steps: &[u8], lies: &[u8]) {
    let (_, mut consumer) = exposed_pair(capacity, peer(lies));
    let most = u64::from(capacity / 4 - 8);
    let (mut payload, mut taken) = (Vec::new(), 0);
    for step in steps {
        match step % 4 {
            0 => {
                consumer.release();
                taken = 0;
            }
            1 => _ = consumer.has_message(),
            _ => {
                if let Ok(Some(header)) = consumer.pop_into(&mut payload) {
                    assert_eq!(payload.len(), header.length as usize);
                    assert!(payload.len() as u64 <= most);
                    taken += 8 + payload.len().next_multiple_of(8);
                    assert!(taken <= capacity as usize, "more than the ring holds");
                }
            }
        }
    }
}

fn produce(capacity: u32, steps: &[u8], lies: &[u8]) {
    let (mut producer, _) = exposed_pair(capacity, peer(lies));
    let mut staged = 0;
    for &step in steps {
        let room = producer.room();
        assert!(room.is_err() || room.is_ok_and(|room| room <= producer.most_payload()));
        if step == 0 {
            assert_eq!(producer.publish(), staged > 0);
            staged = 0;
        } else if producer.try_push(1, 2, &parts(step)).is_ok() {
            staged += 8 + (usize::from(step) * 2).next_multiple_of(8);
            assert!(staged <= capacity as usize, "over what was not published");
        }
    }
}

fn ask(spec: &LinkSpec, steps: &[u8], lies: &[u8]) {
    let (mut requester, _) = exposed_link(spec, peer(lies));
    let mut payload = Vec::new();
    for &step in steps {
        match step % 4 {
            0 => _ = requester.publish(),
            1 => {
                let payload = parts(step);
                let bytes = payload.iter().map(|part| part.len() as u64).sum();
                let fits = requester.can_send(bytes);
                let sent = requester.send(u64::from(step), 1, 0, &payload);
                assert!(fits != Ok(true) || sent.is_ok(), "{sent:?}");
            }
            2 if step >= 128 => {
                let _ = requester.extend(u64::from(step), 1, &parts(step));
                let _ = requester.free_bytes();
            }
            2 => _ = requester.has_reply(),
            _ => {
                let before = requester.outstanding();
                if let Ok(Some(_)) = requester.reply(&mut payload) {
                    assert_eq!(requester.outstanding(), before - 1);
                    assert!(payload.len() <= spec.reply_bytes as usize - 16);
                }
            }
        }
        assert!(requester.outstanding() <= spec.credits);
    }
}

fn answer(spec: &LinkSpec, steps: &[u8], lies: &[u8]) {
    let (_, mut responder) = exposed_link(spec, peer(lies));
    let (mut payload, mut tokens) = (Vec::new(), VecDeque::new());
    for &step in steps {
        match step % 4 {
            0 => _ = responder.publish(),
            1 => _ = responder.has_request(),
            2 => {
                payload.clear();
                if let Ok(Some(request)) = responder.receive(&mut payload) {
                    assert!(payload.len() as u32 <= spec.request_bytes / 4 - 16);
                    tokens.push_back(request.token);
                }
            }
            _ => {
                let length = usize::from(step).min(spec.reply_bytes as usize - 16);
                if let Some(&token) = tokens.front()
                    && responder.reply(token, 0, &[&PAYLOAD[..length]]).is_ok()
                {
                    tokens.pop_front();
                }
            }
        }
        assert_eq!(responder.unanswered(), tokens.len());
        assert!(tokens.len() <= spec.credits as usize);
    }
}

fn sleep(steps: &[u8], lies: &[u8]) {
    let bell = exposed_bell(peer(lies));
    for step in steps {
        match step % 4 {
            0 => _ = bell.prepare_sleep(|| step % 8 == 0),
            1 => bell.woken(),
            _ => {
                let fenced = bell.fence();
                let mut calls = 0;
                assert_eq!(bell.ring(&fenced, || calls += 1), calls == 1);
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[end, size, steps], rest)) = input.split_first_chunk::<3>() else { return };
    let (steps, lies) = rest.split_at(usize::from(steps).min(STEPS_MAX).min(rest.len()));
    let capacity = 64 << (size % 5);
    let spec = LinkSpec {
        request_bytes: capacity,
        credits: u32::from(size >> 5) + 1,
        reply_bytes: 16 + u32::from(size >> 2 & 7) * 8,
    };
    match end % 5 {
        0 => consume(capacity, steps, lies),
        1 => produce(capacity, steps, lies),
        2 => ask(&spec, steps, lies),
        3 => answer(&spec, steps, lies),
        _ => sleep(steps, lies),
    }
});
