//! The figures of one store, by one client.
//!
//! Invariant: each read is compared: a value that isn't its key's is an error.

use super::content::{Content, KEY_BYTES, Sets, check, set_key, set_value};
use super::rows::{Figures, Row};
use super::store::{Store, TOGETHER};
use crate::drawn_keys::SplitMix64;
use crate::engine::histogram;
use crate::interrupt;
use anyhow::Result;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock, where none of them is timed.
const BATCH: u64 = 1024;
/// A rest before a write to a server that sleeps: several times as long as a shard polls before it
/// sleeps (`spin-us`).
const REST: Duration = Duration::from_micros(500);

/// Sets each key once.
pub(super) fn fill(store: &mut impl Store, content: Content) -> Result<()> {
    let mut sets = Sets::new(content);
    let mut from = 0;
    while from < content.keys {
        interrupt::check()?;
        let to = content.keys.min(from + BATCH);
        sets.choose(from..to);
        store.set_all(&sets)?;
        from = to;
    }
    Ok(())
}

/// The figures of reads.
pub(super) fn reads(store: &mut impl Store, content: Content, slice: Duration) -> Result<Figures> {
    let times = read_latency(store, content, slice)?;
    let mut figures = Figures::default();
    figures.put(Row::ReadP50, us(&times, 50.0));
    figures.put(Row::ReadP99, us(&times, 99.0));
    figures.put(Row::Reads, reads_each(store, content, slice)?);
    figures.put(Row::KeysTogether, reads_together(store, content, slice)?);
    Ok(figures)
}

/// The figures of writes.
pub(super) fn writes(store: &mut impl Store, content: Content, slice: Duration) -> Result<Figures> {
    let times = write_latency(store, content, slice, Duration::ZERO)?;
    let rested = write_latency(store, content, slice, REST)?;
    let mut figures = Figures::default();
    figures.put(Row::WriteP50, us(&times, 50.0));
    figures.put(Row::WriteP99, us(&times, 99.0));
    figures.put(Row::RestedWriteP50, us(&rested, 50.0));
    figures.put(Row::RestedWriteP99, us(&rested, 99.0));
    figures.put(Row::WritesTogether, writes_piped(store, content, slice)?);
    Ok(figures)
}

fn us(times: &Histogram<u64>, percent: f64) -> f64 {
    times.value_at_percentile(percent) as f64 / 1000.0
}

/// What a timed operation costs beside itself, us.
pub(super) fn clock_us() -> f64 {
    const LOOKS: u32 = 100_000;
    let begin = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(Instant::now());
    }
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(LOOKS)
}

fn read_latency(
    store: &mut impl Store,
    content: Content,
    slice: Duration,
) -> Result<Histogram<u64>> {
    let (mut times, mut random) = (histogram()?, SplitMix64::new(3));
    let (mut key, mut value) = ([0; KEY_BYTES], Vec::new());
    let begin = Instant::now();
    loop {
        interrupt::check()?;
        set_key(&mut key, random.below(content.keys));
        let from = Instant::now();
        let found = store.get(&key, &mut value)?;
        let to = Instant::now();
        check(&key, found.then_some(&value[..]), content)?;
        times.saturating_record(nanos(to - from));
        if to - begin >= slice {
            return Ok(times);
        }
    }
}

fn reads_each(store: &mut impl Store, content: Content, slice: Duration) -> Result<f64> {
    let (mut random, mut key, mut value) = (SplitMix64::new(4), [0; KEY_BYTES], Vec::new());
    rate(slice, BATCH, || {
        for _ in 0..BATCH {
            set_key(&mut key, random.below(content.keys));
            let found = store.get(&key, &mut value)?;
            check(&key, found.then_some(&value[..]), content)?;
        }
        Ok(())
    })
}

fn reads_together(store: &mut impl Store, content: Content, slice: Duration) -> Result<f64> {
    let mut random = SplitMix64::new(5);
    let mut keys = [[0; KEY_BYTES]; TOGETHER];
    rate(slice, BATCH, || {
        for _ in 0..BATCH / TOGETHER as u64 {
            keys.iter_mut().for_each(|key| set_key(key, random.below(content.keys)));
            store.get_all(&keys, |at, value| check(&keys[at], value, content))?;
        }
        Ok(())
    })
}

/// Times of writes, with a rest before each.
fn write_latency(
    store: &mut impl Store,
    content: Content,
    slice: Duration,
    rest: Duration,
) -> Result<Histogram<u64>> {
    let (mut times, mut random) = (histogram()?, SplitMix64::new(6));
    let (mut key, mut value) = ([0; KEY_BYTES], vec![0; content.value_bytes]);
    let begin = Instant::now();
    loop {
        interrupt::check()?;
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let number = random.below(content.keys);
        set_key(&mut key, number);
        set_value(&mut value, &key, number);
        let from = Instant::now();
        store.set(&key, &value)?;
        let to = Instant::now();
        times.saturating_record(nanos(to - from));
        if to - begin >= slice {
            return Ok(times);
        }
    }
}

fn writes_piped(store: &mut impl Store, content: Content, slice: Duration) -> Result<f64> {
    let (mut random, mut sets) = (SplitMix64::new(7), Sets::new(content));
    rate(slice, BATCH, || {
        sets.choose((0..BATCH).map(|_| random.below(content.keys)));
        store.set_all(&sets)
    })
}

/// Operations per second; each `batch` has so many.
fn rate(slice: Duration, count: u64, mut batch: impl FnMut() -> Result<()>) -> Result<f64> {
    let (begin, mut done) = (Instant::now(), 0u64);
    loop {
        interrupt::check()?;
        batch()?;
        done += count;
        let elapsed = begin.elapsed();
        if elapsed >= slice {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
