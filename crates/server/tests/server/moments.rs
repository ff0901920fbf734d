//! Reads of several keys show one moment of each partition, whoever owns it and however fast it is
//! written.
//!
//! `NIGH_MOMENT_SECONDS` makes the story as long as one likes.

use crate::common::{Client, TestServer};
use nigh_resp::frame::Frame;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys that are read between the two that tell.
const BETWEEN: usize = 200;
const READERS: usize = 6;
/// A story goes on until it has so many reads, if that takes no longer than [`PATIENCE`].
const READS_LEAST: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// `pair` reads a, the keys between, b, and a again.
const LIBRARY: &str = "#!js name=moments\n\
    export const pair = (db, [a, b, ...between]) => {\n\
      const first = db.text(a);\n\
      for (const key of between) db.text(key);\n\
      return [first, db.text(b), db.text(a)];\n\
    };\n\
    pair.flags = ['no-writes'];\n";

fn number(frame: &Frame) -> u64 {
    let bytes = frame.bytes().expect("a value");
    std::str::from_utf8(bytes).expect("digits").parse().expect("a number")
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

struct Told {
    reads: AtomicU64,
    stop: AtomicBool,
}

/// Sets a, waits, sets b, to the next number each time.
fn write(mut client: Client, [a, b]: [&str; 2], told: &Told) {
    let mut n = 1u64;
    while !told.stop.load(Ordering::Relaxed) {
        n += 1;
        for key in [a, b] {
            client.send(command(&["SET", key, &n.to_string()]));
            client.expect("+OK\r\n");
        }
    }
}

/// What was set first is never older, and doesn't change within one read.
fn read(mut client: Client, by_call: bool, keys: &[&str], told: &Told) {
    let [a, b] = [keys[0], keys[1]];
    let mut words = if by_call { vec!["FCALL_RO", "pair", "0", a, b] } else { vec!["MGET", a] };
    words.extend(&keys[2..]);
    if !by_call {
        words.extend([b, a]);
    }
    let bytes = command(&words);
    while !told.stop.load(Ordering::Relaxed) {
        client.send(&bytes);
        let reply = client.reply();
        let values = reply.elements().unwrap_or_else(|| panic!("{reply:?}"));
        let all = values.len();
        let [first, b, again] = [&values[0], &values[all - 2], &values[all - 1]].map(number);
        assert!(first == again && b <= first && first <= b + 1, "a {first}, b {b}, a {again}");
        told.reads.fetch_add(1, Ordering::Relaxed);
    }
}

fn story(partitions: &str) {
    let server = TestServer::with(&[("shards", "2"), ("partitions", partitions)]);
    let mut client = server.connect();
    client.send(command(&["FUNCTION", "LOAD", LIBRARY]));
    client.expect("$7\r\nmoments\r\n");
    let mut keys = vec!["{t}a".to_owned(), "{t}b".to_owned()];
    keys.extend((0..BETWEEN).map(|n| format!("{{t}}{n}")));
    for key in &keys {
        client.send(command(&["SET", key, "1"]));
        client.expect("+OK\r\n");
    }
    let seconds = std::env::var("NIGH_MOMENT_SECONDS").ok().and_then(|text| text.parse().ok());
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let told = Told { reads: AtomicU64::new(0), stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let (told, keys) = (&told, &keys);
        let writer = server.connect();
        scope.spawn(move || write(writer, [keys[0], keys[1]], told));
        for reader in 0..READERS {
            let client = server.connect();
            scope.spawn(move || {
                // A thread that fails stops the others.
                struct Stop<'a>(&'a Told);
                impl Drop for Stop<'_> {
                    fn drop(&mut self) {
                        self.0.stop.store(true, Ordering::Relaxed);
                    }
                }
                let _stop = Stop(told);
                // Connections go to the shards in turn: each way to read is tried at each of them.
                read(client, reader / 2 % 2 == 0, keys, told);
            });
        }
        let begun = Instant::now();
        let told_time = Duration::from_secs(seconds.unwrap_or(2));
        let is_short = || {
            let is_few = told.reads.load(Ordering::Relaxed) < READS_LEAST;
            begun.elapsed() < told_time || is_few && begun.elapsed() < PATIENCE
        };
        while is_short() && !told.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        told.stop.store(true, Ordering::Relaxed);
    });
    let reads = told.reads.load(Ordering::Relaxed);
    eprintln!("{partitions} partitions: {reads} reads");
    assert!(reads >= READS_LEAST, "{reads} reads");
}

/// A client sets a, waits, sets b. Who read both by a function at another shard, or by MGET, saw b
/// newer than a, or a change within one call.
#[test]
fn several_keys_are_read_as_they_were_at_one_moment() {
    story("1");
}

#[test]
fn several_keys_of_a_partition_among_others_are_read_as_they_were_at_one_moment() {
    story("2");
}
