//! Models: loom runs the shipped ring, link and bell over its own words, in every order that the
//! memory model allows; with three threads, up to [`PREEMPTIONS_OF_THREE`]. Rings are as small as
//! they can be, so that a few messages wrap.
//!
//! Heads, tails and bells are loom's atomic words; no side loads what it stores itself (invariant 1
//! of the ring), so loom tries each store before and after each load of the other side. Words of
//! messages are loom's cells: a read and a write of one that no head or tail orders are an error,
//! even where both happen to see the right bytes. No story spins: each side tries so many times,
//! and what is left is looked at when both are done.

use super::bell::Bell;
use super::bytes::{DATA, HEAD, Ring, TAIL};
use super::producer::PushError;
use super::{LinkSpec, ends, link::link_over};
use crate::format::words::SharedWords;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};

/// Times that a thread may be interrupted in a story of two threads: as often as there are steps.
const ANY: Option<usize> = None;
/// The same in a story of three: half a second of orders. Three (47,783 orders, 5 s) found no more.
const PREEMPTIONS_OF_THREE: Option<usize> = Some(2);

/// A word of a message: its value, and which side may access it now.
struct Word {
    value: std::sync::atomic::AtomicU64,
    access: UnsafeCell<()>,
}

/// Head (or a bell's word), tail and messages.
#[derive(Clone)]
struct LoomWords {
    sides: Arc<[AtomicU64; 2]>,
    messages: Arc<Vec<Word>>,
}

impl LoomWords {
    fn new(capacity: u64) -> LoomWords {
        let word = || Word { value: 0.into(), access: UnsafeCell::new(()) };
        let messages = (0..capacity / 8).map(|_| word()).collect();
        let sides = [AtomicU64::new(0), AtomicU64::new(0)];
        LoomWords { sides: Arc::new(sides), messages: Arc::new(messages) }
    }

    fn side(&self, offset: u64) -> Option<&AtomicU64> {
        match offset {
            TAIL => Some(&self.sides[0]),
            HEAD => Some(&self.sides[1]),
            _ => None,
        }
    }

    fn message(&self, offset: u64) -> &Word {
        &self.messages[usize::try_from((offset - DATA) / 8).unwrap()]
    }
}

impl SharedWords for LoomWords {
    fn len(&self) -> u64 {
        DATA + 8 * self.messages.len() as u64
    }
    fn load32(&self, _: u64, _: Ordering) -> u32 {
        unreachable!("rings have words of 8 bytes")
    }
    fn store32(&self, _: u64, _: u32, _: Ordering) {
        unreachable!("rings have words of 8 bytes")
    }
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        if let Some(side) = self.side(offset) {
            return side.load(order);
        }
        let word = self.message(offset);
        word.access.with(|_| word.value.load(Ordering::Relaxed))
    }
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        if let Some(side) = self.side(offset) {
            return side.store(value, order);
        }
        let word = self.message(offset);
        word.access.with_mut(|_| word.value.store(value, Ordering::Relaxed));
    }
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.side(offset).expect("a shared word").fetch_add(n, order).wrapping_add(n)
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

fn check(preemptions: Option<usize>, story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (count, began) = (orders.clone(), std::time::Instant::now());
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        story();
    });
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders > 1, "loom tried one order only");
    // To see how much was looked at: `cargo test model_ -- --nocapture`.
    eprintln!("{orders} orders, {} ms", began.elapsed().as_millis());
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("a whole word"))
}

#[test]
fn model_messages_arrive_whole_and_in_order_across_the_end() {
    // A ring for two messages, entered half-way: the producer publishes by ones and twos and writes
    // again where the consumer has just read.
    check(ANY, || {
        let (mut producer, mut consumer) = ends(Ring::new(LoomWords::new(32), 32, 16));
        let mut payload = Vec::new();
        producer.try_push(9, 0, &[&[9; 8]]).unwrap();
        producer.publish();
        consumer.pop_into(&mut payload).unwrap().unwrap();
        consumer.release();
        let thread = loom::thread::spawn(move || {
            let mut sent = 0;
            for publishes in [false, true, true, true] {
                match producer.try_push(1, 0, &[&u64::to_le_bytes(sent + 1)]) {
                    Ok(()) => sent += 1,
                    Err(error) => assert_eq!(error, PushError::Full),
                }
                if publishes {
                    producer.publish();
                }
            }
            sent
        });
        let mut expected = 1;
        for _ in 0..4 {
            if let Some(header) = consumer.pop_into(&mut payload).unwrap() {
                assert_eq!((header.kind, header.length, number(&payload)), (1, 8, expected));
                expected += 1;
                consumer.release();
            }
        }
        let sent = thread.join().unwrap();
        while consumer.pop_into(&mut payload).unwrap().is_some() {
            assert_eq!(number(&payload), expected);
            expected += 1;
        }
        assert_eq!(expected, sent + 1, "all arrived");
    });
}

/// A requester that asks as often as its credits allow, and a responder that never finds its ring
/// full.
fn ask_and_answer(credits: u32, tries: u64) {
    let spec = LinkSpec { request_bytes: 64, credits, reply_bytes: 16 };
    let replies = LoomWords::new(spec.reply_ring_bytes());
    let (mut requester, mut responder) = link_over(&spec, LoomWords::new(64), replies);
    let thread = loom::thread::spawn(move || {
        let mut payload = Vec::new();
        for _ in 0..tries {
            while let Some(request) = responder.receive(&mut payload).expect("a fair peer") {
                responder.reply(request.token, 0, &[]).expect("room that was promised");
            }
            responder.publish();
        }
        responder
    });
    let (mut payload, mut sent, mut answered) = (Vec::new(), 0, 0);
    for _ in 0..tries {
        while requester.send(sent + 1, 0, 0, &[]).is_ok() {
            sent += 1;
        }
        requester.publish();
        if let Some((token, _)) = requester.reply(&mut payload).expect("a fair peer") {
            answered += 1;
            assert_eq!(token, answered, "replies in the order of the requests");
        }
    }
    let mut responder = thread.join().unwrap();
    // The rest is answered when both are alone.
    while let Some(request) = responder.receive(&mut payload).expect("a fair peer") {
        responder.reply(request.token, 0, &[]).expect("room that was promised");
    }
    responder.publish();
    while let Some((token, _)) = requester.reply(&mut payload).expect("a fair peer") {
        answered += 1;
        assert_eq!(token, answered);
    }
    assert_eq!((answered, requester.outstanding()), (sent, 0), "every request has its reply");
}

#[test]
fn model_what_was_added_before_publishing_arrives_with_it() {
    // Requests of one and of two words, across the end of the ring: a taker of one has all of
    // it.
    check(ANY, || {
        let spec = LinkSpec { request_bytes: 128, credits: 8, reply_bytes: 16 };
        let replies = LoomWords::new(spec.reply_ring_bytes());
        let (mut requester, mut responder) = link_over(&spec, LoomWords::new(128), replies);
        let thread = loom::thread::spawn(move || {
            let mut taken = 0;
            for _ in 0..3 {
                let mut payload = Vec::new();
                if let Some(request) = responder.receive(&mut payload).expect("a fair peer") {
                    let token = request.token.to_le_bytes();
                    let whole = if request.token == 2 { &token[..] } else { &[token; 2].concat() };
                    assert_eq!(payload, whole, "request {}", request.token);
                    taken += 1;
                    assert_eq!(request.token, taken);
                    responder.reply(taken, 0, &[]).expect("room that was promised");
                    responder.publish();
                }
            }
        });
        for token in 1..=5u64 {
            let word = token.to_le_bytes();
            if requester.send(token, 0, 0, &[&word]).is_err() {
                break;
            }
            if token != 2 && !requester.extend(token, 0, &[&word]).expect("a fair peer") {
                break; // it finds no room, and is never seen
            }
            requester.publish();
        }
        thread.join().unwrap();
    });
}

#[test]
fn model_a_reply_always_finds_room_with_one_credit() {
    // The ring of replies holds one: the next request is seen only with the room of the last reply.
    check(ANY, || ask_and_answer(1, 4));
}

#[test]
fn model_a_reply_always_finds_room_with_two_credits() {
    // The ring of replies holds two, and requests fill their ring, too.
    check(ANY, || ask_and_answer(2, 3));
}

#[test]
fn model_who_has_the_reply_has_the_room_of_the_request() {
    // The ring of requests is full, credits are left. The requester waits for nothing but a reply:
    // when it has one, its next request fits.
    check(ANY, || {
        let spec = LinkSpec { request_bytes: 64, credits: 8, reply_bytes: 16 };
        let replies = LoomWords::new(spec.reply_ring_bytes());
        let (mut requester, mut responder) = link_over(&spec, LoomWords::new(64), replies);
        for token in 0..4 {
            requester.send(token, 0, 0, &[]).expect("four fit");
        }
        assert_eq!(requester.send(4, 0, 0, &[]), Err(PushError::Full));
        requester.publish();
        let thread = loom::thread::spawn(move || {
            let mut payload = Vec::new();
            for token in 0..2 {
                assert_eq!(responder.receive(&mut payload).unwrap().unwrap().token, token);
                responder.reply(token, 0, &[]).expect("room that was promised");
                responder.publish();
            }
        });
        let (mut payload, mut next) = (Vec::new(), 4);
        for _ in 0..3 {
            if requester.reply(&mut payload).expect("a fair peer").is_some() {
                requester.send(next, 0, 0, &[]).expect("the room of what was answered");
                next += 1;
            }
        }
        thread.join().unwrap();
    });
}

/// A thread that sleeps until it has one message from each of so many others.
fn sleep_and_wake(others: usize) {
    let bell = Bell::over(LoomWords::new(0), HEAD);
    let kernel = Arc::new((Notify::new(), AtomicU64::new(0)));
    let (mut consumers, mut threads) = (Vec::new(), Vec::new());
    for _ in 0..others {
        let (mut producer, consumer) = ends(Ring::new(LoomWords::new(16), 16, 16));
        consumers.push(consumer);
        let (bell, kernel) = (bell.clone(), kernel.clone());
        threads.push(loom::thread::spawn(move || {
            producer.try_push(0, 0, &[]).unwrap();
            producer.publish();
            let fenced = bell.fence();
            bell.ring(&fenced, || {
                kernel.1.fetch_add(1, Ordering::Relaxed);
                kernel.0.notify();
            });
        }));
    }
    let (mut payload, mut received, mut sleeps) = (Vec::new(), 0, 0);
    while received < others {
        for consumer in &mut consumers {
            while consumer.pop_into(&mut payload).unwrap().is_some() {
                received += 1;
            }
        }
        if received == others {
            break;
        }
        sleeps += 1;
        if bell.prepare_sleep(|| consumers.iter_mut().any(|c| c.has_message().unwrap())) {
            // A lost wake-up is a deadlock, which loom reports.
            kernel.0.wait();
            bell.woken();
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(kernel.1.load(Ordering::Relaxed) <= sleeps, "one wake for a sleep at most");
}

#[test]
fn model_no_wake_up_is_lost() {
    // One publishes while the other decides to sleep.
    check(ANY, || sleep_and_wake(1));
}

#[test]
fn model_two_wakers_wake_a_sleep_once() {
    // Two publish, each to a ring of its own, while the third decides to sleep.
    check(PREEMPTIONS_OF_THREE, || sleep_and_wake(2));
}
