//! Stories about rings, links and bells on the heap: against a model, against peers that lie, and
//! between threads that run as fast as they can.

use super::bell::Bell;
use super::bytes::{
    BIGGEST_PART, Broken, DATA, HEAD, LEAST_BYTES, MOST_BYTES, Ring, TAIL, heap_words,
    message_bytes,
};
use super::consumer::Consumer;
use super::producer::{Producer, PushError};
use super::{LinkSpec, ends, exposed_bell, link, link::link_over, pair};
use crate::format::words::{HeapWords, SharedWords};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Longer than any wait that ends by itself, on a machine whose threads starve too.
const TOO_LONG: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
enum Step {
    /// Payload, kind, and where it is cut into parts.
    Push(Vec<u8>, u16, Vec<usize>),
    Publish,
    Pop,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ];
    let cuts = prop::collection::vec(0usize..300, 0..4);
    prop_oneof![
        4 => (payload, any::<u16>(), cuts).prop_map(|(p, k, c)| Step::Push(p, k, c)),
        2 => Just(Step::Publish),
        4 => Just(Step::Pop),
        2 => Just(Step::Release),
    ]
}

/// What the ring has to behave like.
#[derive(Default)]
struct Model {
    staged: VecDeque<(Vec<u8>, u16)>,
    visible: VecDeque<(Vec<u8>, u16)>,
    /// Bytes that were written and not released.
    used: u64,
    /// Bytes that were taken and not released.
    taken: u64,
}

fn cut<'a>(payload: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| (*cut).min(payload.len())).collect();
    at.extend([0, payload.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &payload[pair[0]..pair[1]]).collect()
}

fn run(bytes: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut producer, mut consumer) = pair(bytes);
    let capacity = u64::from(bytes);
    let most = capacity / BIGGEST_PART - 8;
    let (mut model, mut payload) = (Model::default(), Vec::new());
    for step in steps {
        match step {
            Step::Push(bytes, kind, cuts) => {
                let size = message_bytes(bytes.len() as u64);
                let expected = match bytes.len() as u64 {
                    n if n > most => Err(PushError::TooLong { bytes: n, most }),
                    _ if size > capacity - model.used => Err(PushError::Full),
                    _ => Ok(()),
                };
                let found = producer.try_push(*kind, kind ^ 1, &cut(bytes, cuts));
                prop_assert_eq!(found, expected);
                if expected.is_ok() {
                    model.used += size;
                    model.staged.push_back((bytes.clone(), *kind));
                }
            }
            Step::Publish => {
                prop_assert_eq!(producer.publish(), !model.staged.is_empty());
                model.visible.append(&mut model.staged);
            }
            Step::Pop => {
                prop_assert_eq!(consumer.has_message(), Ok(!model.visible.is_empty()));
                let header = consumer.pop_into(&mut payload).expect("a fair peer");
                let found = header.map(|h| (h.kind, h.flags, h.length as usize, payload.clone()));
                let expected = model.visible.pop_front().map(|(bytes, kind)| {
                    model.taken += message_bytes(bytes.len() as u64);
                    (kind, kind ^ 1, bytes.len(), bytes)
                });
                prop_assert_eq!(found, expected);
            }
            Step::Release => {
                prop_assert_eq!(consumer.release(), model.taken > 0);
                model.used -= std::mem::take(&mut model.taken);
            }
        }
        let room = (capacity - model.used).saturating_sub(8).min(most);
        prop_assert_eq!(producer.room().expect("a fair peer"), room);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_ring_is_a_bounded_queue(
        shift in 6u32..11, steps in prop::collection::vec(step(), 1..200)
    ) {
        // Any steps on small rings: messages come out as they went in, room is exact to the byte.
        run(1 << shift, &steps)?;
    }

    #[test]
    fn a_lying_producer_is_found_out_or_harmless(
        tails in prop::collection::vec(position(), 1..8),
        words in prop::collection::vec(any::<u64>(), 8),
        small in prop::collection::vec(0u64..24, 8)
    ) {
        // The writer of the ring stores any tail and any bytes: errors or short payloads come out.
        for words in [&words, &small] {
            let (memory, ring) = exposed(64);
            let mut consumer = Consumer::new(ring);
            for (i, word) in words.iter().enumerate() {
                memory.store64(DATA + 8 * i as u64, *word, Ordering::Relaxed);
            }
            let mut payload = Vec::new();
            for tail in &tails {
                memory.store64(TAIL, *tail, Ordering::Relaxed);
                // More messages than fit would mean that it reads in circles.
                let mut left = 64 / 8 + 1;
                while let Ok(Some(header)) = consumer.pop_into(&mut payload) {
                    prop_assert!(payload.len() <= 8 && payload.len() == header.length as usize);
                    left -= 1;
                    prop_assert!(left > 0);
                }
                consumer.release();
            }
        }
    }

    #[test]
    fn a_lying_consumer_is_found_out_or_harmless(heads in prop::collection::vec(position(), 1..40)) {
        // The reader of the ring stores any head: never more is staged than the ring holds.
        let (memory, ring) = exposed(64);
        let mut producer = Producer::new(ring);
        for head in heads {
            memory.store64(HEAD, head, Ordering::Relaxed);
            for _ in 0..5 {
                let _ = producer.try_push(1, 0, &[&[7; 8]]);
            }
            prop_assert!(producer.room().is_ok_and(|room| room <= 8) || producer.room().is_err());
            producer.publish();
        }
    }

    #[test]
    fn a_lying_requester_gets_errors(
        tail in position(), head in position(), words in prop::collection::vec(0u64..40, 8)
    ) {
        // A client writes anything into its pair of rings: the server's end answers, or says it is
        // broken.
        let spec = LinkSpec { request_bytes: 64, credits: 2, reply_bytes: 16 };
        let (requests, replies) = (heap_words(64), heap_words(spec.reply_ring_bytes()));
        let (_, mut responder) = link_over(&spec, requests.clone(), replies.clone());
        for (i, word) in words.iter().enumerate() {
            requests.store64(DATA + 8 * i as u64, *word, Ordering::Relaxed);
        }
        requests.store64(TAIL, tail, Ordering::Relaxed);
        replies.store64(HEAD, head, Ordering::Relaxed);
        let mut payload = Vec::new();
        for _ in 0..10 {
            let Ok(Some(request)) = responder.receive(&mut payload) else { break };
            if responder.reply(request.token, 0, &[]).is_err() {
                break;
            }
            responder.publish();
        }
        prop_assert!(responder.unanswered() <= 2);
    }
}

/// Positions that a liar would try, on a ring of 64 bytes.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..200, (0u64..25).prop_map(|n| 8 * n), any::<u64>(), Just(u64::MAX)]
}

/// A ring whose words somebody else can write.
fn exposed(capacity: u64) -> (HeapWords, Ring<HeapWords>) {
    let memory = heap_words(capacity);
    (memory.clone(), Ring::new(memory, capacity, capacity / BIGGEST_PART))
}

#[test]
fn faults_of_a_peer_are_named() {
    // Each way to break the rules, and what is said about it; asking again says the same.
    let (memory, ring) = exposed(64);
    let (mut producer, mut consumer) = ends(ring);
    let mut payload = Vec::new();
    memory.store64(TAIL, 72, Ordering::Relaxed);
    let error = consumer.pop_into(&mut payload).unwrap_err();
    assert_eq!(error, Broken::Position { whose: "producer", found: 72, low: 0, high: 64 });
    assert_eq!(consumer.pop_into(&mut payload), Err(error));
    memory.store64(TAIL, 16, Ordering::Relaxed);
    memory.store64(DATA, 9, Ordering::Relaxed);
    let error = consumer.pop_into(&mut payload).unwrap_err();
    assert_eq!(error, Broken::Length { position: 0, found: 9, low: 0, high: 8 });
    assert!(error.to_string().contains("close the ring"));
    // A message longer than what was published, shorter than the most.
    let (memory, ring) = exposed(1024);
    let mut consumer = Consumer::new(ring);
    memory.store64(TAIL, 16, Ordering::Relaxed);
    memory.store64(DATA, 16, Ordering::Relaxed);
    let error = consumer.pop_into(&mut payload).unwrap_err();
    assert_eq!(error, Broken::Length { position: 0, found: 16, low: 0, high: 8 });
    // A head of what was only staged.
    let (memory, ring) = exposed(64);
    let mut liar = Producer::new(ring);
    liar.try_push(0, 0, &[&[1; 8]]).unwrap();
    memory.store64(HEAD, 16, Ordering::Relaxed);
    let error = (0..4).find_map(|_| liar.try_push(0, 0, &[&[1; 8]]).err());
    let broken = Broken::Position { whose: "consumer", found: 16, low: 0, high: 0 };
    assert_eq!(error, Some(PushError::Broken(broken)));
    assert_eq!(producer.room(), Ok(8));
}

#[test]
fn faults_of_a_link_are_named() {
    // A reply to no request; more requests than credits; replies that are never released.
    let spec = LinkSpec { request_bytes: 256, credits: 2, reply_bytes: 16 };
    let words = || (heap_words(256), heap_words(spec.reply_ring_bytes()));
    let (requests, replies) = words();
    let (mut requester, _) = link_over(&spec, requests, replies.clone());
    let replies = Ring::new(replies, spec.reply_ring_bytes(), 16);
    let mut forger = Producer::new(replies);
    forger.push(0, 0, Some(7), &[]).unwrap();
    forger.publish();
    let mut payload = Vec::new();
    assert_eq!(requester.reply(&mut payload), Err(Broken::UnaskedReply));

    let (requests, replies) = words();
    let (_, mut responder) = link_over(&spec, requests.clone(), replies);
    let mut forger = Producer::new(Ring::new(requests, 256, 64));
    for token in 0..3 {
        forger.push(0, 0, Some(token), &[]).unwrap();
    }
    forger.publish();
    for token in 0..2 {
        assert_eq!(responder.receive(&mut payload).unwrap().unwrap().token, token);
    }
    assert_eq!(responder.receive(&mut payload), Err(Broken::TooManyRequests { credits: 2 }));
    responder.reply(0, 0, &[]).unwrap();
    responder.reply(1, 0, &[]).unwrap();
    responder.publish();
    forger.push(0, 0, Some(3), &[]).unwrap();
    forger.publish();
    let next = responder.receive(&mut payload).unwrap().unwrap();
    assert_eq!(responder.reply(next.token, 0, &[]), Err(Broken::NoReplyRoom));
}

#[test]
fn credits_come_back_with_replies() {
    // Two credits: the third request waits for a reply, however much room its ring has.
    let spec = LinkSpec { request_bytes: 1024, credits: 2, reply_bytes: 64 };
    let (mut requester, mut responder) = link(&spec);
    let (asked, mut payload) = (b"do".as_slice(), Vec::new());
    requester.send(1, 5, 6, &[asked, b"it"]).unwrap();
    requester.send(2, 5, 6, &[]).unwrap();
    assert_eq!(requester.send(3, 5, 6, &[]), Err(PushError::Full));
    assert_eq!((requester.outstanding(), requester.can_send(0)), (2, Ok(false)));
    assert_eq!(responder.has_request(), Ok(false), "nothing was published");
    assert!(requester.publish());
    let request = responder.receive(&mut payload).unwrap().unwrap();
    assert_eq!((request.token, request.kind, request.flags), (1, 5, 6));
    assert_eq!(payload, b"doit");
    responder.reply(1, 9, &[b"done"]).unwrap();
    assert!(responder.publish());
    assert_eq!(requester.has_reply(), Ok(true));
    assert_eq!(requester.reply(&mut payload), Ok(Some((1, 9))));
    assert_eq!(payload, b"done");
    assert_eq!(requester.can_send(requester.most_payload()), Ok(true));
    assert_eq!(requester.can_send(u64::MAX), Ok(false));
    requester.send(3, 0, 0, &[]).unwrap();
}

#[test]
fn what_is_added_to_a_request_comes_with_it() {
    // A request is added to until it is published; then, and for another token or kind, it takes no
    // more. What is too long, or finds no room, changes nothing.
    let spec = LinkSpec { request_bytes: 256, credits: 8, reply_bytes: 64 };
    let (mut requester, mut responder) = link(&spec);
    let mut payload = Vec::new();
    assert_eq!(requester.extend(1, 5, &[b"nothing to add to"]), Ok(false));
    requester.send(1, 5, 0, &[b"on", b"e"]).unwrap();
    assert_eq!(requester.extend(2, 5, &[b"another"]), Ok(false));
    assert_eq!(requester.extend(1, 6, &[b"another"]), Ok(false));
    assert_eq!(requester.extend(1, 5, &[b"two", b" and more"]), Ok(true));
    assert_eq!(requester.extend(1, 5, &[b"three"]), Ok(true));
    assert_eq!(requester.extend(1, 5, &[&[b'x'; 20]]), Ok(false), "longer than a message may be");
    requester.publish();
    assert_eq!(requester.extend(1, 5, &[b"late"]), Ok(false));
    assert_eq!(responder.receive(&mut payload).unwrap().unwrap().token, 1);
    assert_eq!(payload, b"one\0\0\0\0\0two and more\0\0\0\0three");
    requester.send(2, 5, 0, &[]).unwrap();
    for token in 3..7 {
        requester.send(token, 5, 0, &[&[b'x'; 24]]).unwrap();
    }
    requester.send(7, 5, 0, &[]).unwrap();
    assert_eq!(requester.free_bytes(), Ok(16), "the first request is still there");
    assert_eq!(requester.extend(7, 5, &[&[b'x'; 17]]), Ok(false));
    responder.reply(1, 0, &[]).unwrap();
    responder.publish();
    assert_eq!(requester.extend(7, 5, &[&[b'x'; 17]]), Ok(true), "its room is given back");
}

#[test]
#[should_panic(expected = "in the order of the requests")]
fn replies_out_of_order_are_our_mistake() {
    // Two requests were taken; the second is answered first.
    let (mut requester, mut responder) =
        link(&LinkSpec { request_bytes: 256, credits: 4, reply_bytes: 64 });
    requester.send(1, 0, 0, &[]).unwrap();
    requester.send(2, 0, 0, &[]).unwrap();
    requester.publish();
    let mut payload = Vec::new();
    while responder.receive(&mut payload).unwrap().is_some() {}
    let _ = responder.reply(2, 0, &[]);
}

#[test]
fn only_a_sleeper_is_woken() {
    // Awake, kept awake by mail, asleep, woken, asleep again: a wake for each sleep, and for
    // nothing else.
    let bell = Bell::new();
    let ring = || {
        let fenced = bell.fence();
        let mut called = false;
        let told = bell.ring(&fenced, || called = true);
        assert_eq!(told, called);
        told
    };
    assert!(!ring(), "awake from the beginning");
    assert!(!bell.prepare_sleep(|| true));
    assert!(!ring(), "mail kept it awake");
    for _ in 0..3 {
        assert!(bell.prepare_sleep(|| false));
        assert!(ring() && !ring(), "the first wakes");
        bell.woken();
        assert!(!ring());
    }
    assert!(bell.prepare_sleep(|| false));
    bell.woken();
    assert!(!ring(), "it woke by itself");
}

#[test]
fn a_bell_whose_word_anybody_writes_does_no_harm() {
    // Between any two looks the word becomes another, the greatest too: its owner decides within a
    // bound whether it sleeps, and nothing overflows.
    let words = [u64::MAX, 0, u64::MAX - 1, 1 << 16, u64::MAX << 16, 0xFFFF];
    let mut next = words.into_iter().cycle();
    let bell = exposed_bell(Arc::new(Mutex::new(move |_, _| next.next().expect("no end"))));
    for turn in 0..4 * words.len() {
        bell.prepare_sleep(|| turn % 2 == 0);
        bell.woken();
        let fenced = bell.fence();
        bell.ring(&fenced, || ());
    }
}

#[test]
fn sizes_out_of_range_are_refused() {
    // A ring too small for a message, too big for its lengths, or not a power of two.
    for bytes in [0, LEAST_BYTES / 2, LEAST_BYTES + 8, MOST_BYTES + 8] {
        assert!(std::panic::catch_unwind(|| pair(bytes)).is_err(), "{bytes}");
    }
}

/// A payload of the `n`th message: any length up to `most`, all bytes depend on `n`.
fn payload_of(n: u64, most: u64) -> Vec<u8> {
    let length = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    vec![(n % 251) as u8; (length % (most + 1)) as usize]
}

#[test]
fn two_threads_pass_messages_through_a_small_ring() {
    // One writes batches of any size into 256 bytes, one reads: nothing lost, torn or out of order.
    const MESSAGES: u64 = 100_000;
    let (mut producer, mut consumer) = pair(256);
    let most = producer.most_payload();
    let thread = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            let payload = payload_of(n, most);
            while producer.try_push((n % 7) as u16, 0, &[&payload]) == Err(PushError::Full) {
                producer.publish();
                std::thread::yield_now();
            }
            if n % 3 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let (mut n, mut payload) = (0, Vec::new());
    while n < MESSAGES {
        match consumer.pop_into(&mut payload).expect("a fair peer") {
            Some(header) => {
                assert_eq!(u64::from(header.kind), n % 7);
                assert!(payload == payload_of(n, most), "message {n}");
                n += 1;
                if n % 2 == 0 {
                    consumer.release();
                }
            }
            None => {
                consumer.release();
                std::thread::yield_now();
            }
        }
    }
    thread.join().expect("the producer");
}

#[test]
fn a_sleeper_is_woken_for_every_message_and_once() {
    // Two producers send now and then; the consumer sleeps whenever it finds nothing. A lost
    // wake-up ends the story by its time limit; a second wake of one sleep is counted.
    const MESSAGES: u64 = 10_000;
    let bell = Bell::new();
    let (kernel, woken) = mpsc::channel();
    let (wakes, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (mut consumers, mut threads) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (mut producer, consumer) = pair(64);
        consumers.push(consumer);
        let (bell, kernel) = (bell.clone(), kernel.clone());
        let (wakes, failed) = (wakes.clone(), failed.clone());
        threads.push(std::thread::spawn(move || {
            let mut sent = 0;
            while sent < MESSAGES && !failed.load(Ordering::Relaxed) {
                if producer.try_push(0, 0, &[&u64::to_le_bytes(sent)]).is_ok() {
                    sent += 1;
                    producer.publish();
                    let fenced = bell.fence();
                    bell.ring(&fenced, || {
                        wakes.fetch_add(1, Ordering::Relaxed);
                        let _ = kernel.send(());
                    });
                } else {
                    std::thread::yield_now();
                }
            }
        }));
    }
    let (mut received, mut sleeps, mut payload) = (0, 0, Vec::new());
    while received < 2 * MESSAGES {
        for consumer in &mut consumers {
            while consumer.pop_into(&mut payload).expect("a fair peer").is_some() {
                received += 1;
            }
            consumer.release();
        }
        sleeps += 1;
        let all = received == 2 * MESSAGES;
        if bell.prepare_sleep(|| all || consumers.iter_mut().any(|c| c.has_message() == Ok(true))) {
            let outcome = woken.recv_timeout(TOO_LONG);
            failed.store(outcome.is_err(), Ordering::Relaxed);
            outcome.expect("a wake-up was lost");
            bell.woken();
        }
    }
    for thread in threads {
        thread.join().expect("a producer");
    }
    assert!(wakes.load(Ordering::Relaxed) <= sleeps);
}
