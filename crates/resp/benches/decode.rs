//! Time of the decoders and encoders, over buffers as a socket fills them: pipelines of small
//! commands. Criterion's throughput is in elements, which are commands or replies.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nigh_resp::decode::{Batch, Replies, Requests};
use nigh_resp::encode;
use nigh_resp::limits::Limits;

/// Commands in a buffer: as many as 64 connections with pipelines of 16 bring.
const COMMANDS: usize = 1024;

fn requests(args: impl Fn(usize) -> Vec<String>) -> Vec<u8> {
    let mut buf = Vec::new();
    (0..COMMANDS).for_each(|number| encode::request(&mut buf, args(number)));
    buf
}

fn decode_requests(criterion: &mut Criterion) {
    let gets = requests(|number| vec!["GET".into(), format!("key:{:012}", number * 7919)]);
    let sets =
        requests(|number| vec!["SET".into(), format!("key:{:012}", number * 7919), "x".repeat(64)]);
    let pings = b"PING\r\n".repeat(COMMANDS);
    let mut group = criterion.benchmark_group("requests");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    for (name, buf) in [("get", &gets), ("set_64", &sets), ("inline_ping", &pings)] {
        let mut batch = Batch::new();
        let mut decoder = Requests::new(Limits::requests());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                batch.clear();
                let result = decoder.decode(black_box(buf), &mut batch, COMMANDS);
                assert!(result.is_ok() && batch.len() == COMMANDS);
                assert_eq!(decoder.consume(), buf.len());
            });
        });
    }
    let mut batch = Batch::new();
    let mut decoder = Requests::new(Limits::requests());
    group.bench_function("get_and_read_key", |bencher| {
        bencher.iter(|| {
            batch.clear();
            let result = decoder.decode(black_box(&gets), &mut batch, COMMANDS);
            let bytes: usize =
                (0..batch.len()).map(|index| batch.args(index).get(&gets, 1).len()).sum();
            decoder.consume();
            (result.is_ok(), bytes)
        });
    });
    group.finish();
}

fn decode_replies(criterion: &mut Criterion) {
    let mut buf = Vec::new();
    (0..COMMANDS).for_each(|_| encode::bulk(&mut buf, &[b'x'; 64]));
    let mut group = criterion.benchmark_group("replies");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    group.bench_function("bulk_64", |bencher| {
        let mut decoder = Replies::new(Limits::replies());
        bencher.iter(|| {
            let mut replies = 0;
            while let Ok(Some(frame)) = decoder.decode(black_box(&buf)) {
                replies += usize::from(!frame.is_null());
            }
            decoder.consume();
            assert_eq!(replies, COMMANDS);
        });
    });
    group.finish();
}

fn encode_replies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    let mut out = Vec::new();
    group.bench_function("bulk_64", |bencher| {
        bencher.iter(|| {
            out.clear();
            (0..COMMANDS).for_each(|_| encode::bulk(&mut out, black_box(&[b'x'; 64])));
            out.len()
        });
    });
    group.bench_function("integer", |bencher| {
        bencher.iter(|| {
            out.clear();
            (0..COMMANDS).for_each(|number| encode::integer(&mut out, black_box(number as i64)));
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, decode_requests, decode_replies, encode_replies);
criterion_main!(benches);
