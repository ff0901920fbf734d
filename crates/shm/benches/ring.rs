//! Rings between two threads that spin, each pinned to a core of its own if there are two: messages
//! one way, round trips, round trips in batches, and the same through a link with credits. 64-byte
//! payloads.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nigh_shm::ring::{Bell, LinkSpec, PushError, REPLY_BYTES, link, pair};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

/// Bytes of a ring, as between shards.
const RING_BYTES: u32 = 64 << 10;
/// Messages of a batch.
const BATCH: u64 = 32;
const PAYLOAD: [u8; 64] = [7; 64];

/// The cores that the process may use, before any thread is pinned: a new thread inherits the pin.
static CORES: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let allowed = sched_getaffinity(None).expect("an affinity");
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
});

/// Pins this thread to the `n`th core, if there are so many.
fn pin(n: usize) {
    if let Some(core) = CORES.get(n) {
        let mut only = CpuSet::new();
        only.set(*core);
        sched_setaffinity(None, &only).expect("a core to pin to");
    }
}

/// A second thread on the second core, until it is dropped.
struct Other(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Other {
    /// Repeats `turn`.
    fn start(mut turn: impl FnMut() + Send + 'static) -> Other {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            pin(1);
            while !flag.load(Ordering::Relaxed) {
                turn();
            }
        });
        Other(stop, Some(thread))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().expect("the other thread");
        }
    }
}

/// One thread puts in and takes out: what the work itself costs, without another core.
fn alone(c: &mut Criterion) {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let mut payload = Vec::new();
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one_thread", |b| {
        b.iter(|| {
            producer.try_push(1, 0, &[&PAYLOAD]).expect("room");
            producer.publish();
            consumer.pop_into(&mut payload).expect("a fair peer").expect("a message");
            consumer.release();
        });
    });
    group.finish();
}

/// Batches one way, as fast as the consumer takes them.
fn one_way(c: &mut Criterion) {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let mut payload = Vec::new();
    let _other = Other::start(move || {
        while consumer.pop_into(&mut payload).expect("a fair peer").is_some() {}
        if !consumer.release() {
            spin_loop();
        }
    });
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("one_way/32", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                while producer.try_push(1, 0, &[&PAYLOAD]) == Err(PushError::Full) {
                    spin_loop();
                }
            }
            producer.publish();
        });
    });
    group.finish();
}

/// There and back through two bare rings.
fn round_trip(c: &mut Criterion) {
    for batch in [1, BATCH] {
        let (mut there, mut inbox) = pair(RING_BYTES);
        let (mut outbox, mut back) = pair(RING_BYTES);
        let (mut payload, mut taken) = (Vec::new(), Vec::new());
        let _other = Other::start(move || {
            while inbox.pop_into(&mut payload).expect("a fair peer").is_some() {
                outbox.try_push(1, 0, &[&payload]).expect("room");
            }
            inbox.release();
            if !outbox.publish() {
                spin_loop();
            }
        });
        let mut group = c.benchmark_group("ring");
        group.throughput(Throughput::Elements(batch));
        group.bench_function(format!("round_trip/{batch}"), |b| {
            b.iter(|| {
                for _ in 0..batch {
                    there.try_push(1, 0, &[&PAYLOAD]).expect("room");
                }
                there.publish();
                let mut left = batch;
                while left > 0 {
                    match back.pop_into(&mut taken).expect("a fair peer") {
                        Some(_) => left -= 1,
                        None => spin_loop(),
                    }
                }
                back.release();
            });
        });
        group.finish();
    }
}

/// There and back through a link: tokens, credits, and the fence of a bell that nobody sleeps
/// behind.
fn ask(c: &mut Criterion) {
    for batch in [1, BATCH] {
        let credits = RING_BYTES / REPLY_BYTES;
        let spec = LinkSpec { request_bytes: RING_BYTES, credits, reply_bytes: REPLY_BYTES };
        let (mut requester, mut responder) = link(&spec);
        let (bell, their_bell) = (Bell::new(), Bell::new());
        let (mut payload, mut taken) = (Vec::new(), Vec::new());
        let _other = Other::start(move || {
            while let Some(request) = responder.receive(&mut payload).expect("a fair peer") {
                responder.reply(request.token, 0, &[&payload[..8]]).expect("room");
                payload.clear();
            }
            if responder.publish() {
                let fenced = bell.fence();
                bell.ring(&fenced, || unreachable!("nobody sleeps"));
            } else {
                spin_loop();
            }
        });
        let mut group = c.benchmark_group("link");
        group.throughput(Throughput::Elements(batch));
        group.bench_function(format!("round_trip/{batch}"), |b| {
            b.iter(|| {
                for token in 0..batch {
                    requester.send(token, 1, 0, &[&PAYLOAD]).expect("credits");
                }
                requester.publish();
                let fenced = their_bell.fence();
                their_bell.ring(&fenced, || unreachable!("nobody sleeps"));
                let mut left = batch;
                while left > 0 {
                    match requester.reply(&mut taken).expect("a fair peer") {
                        Some(_) => left -= 1,
                        None => spin_loop(),
                    }
                }
            });
        });
        group.finish();
    }
}

fn pinned(c: &mut Criterion) {
    pin(0);
    alone(c);
    one_way(c);
    round_trip(c);
    ask(c);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_millis(1000));
    targets = pinned
}
criterion_main!(benches);
