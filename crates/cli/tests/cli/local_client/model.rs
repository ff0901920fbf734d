//! One local client against a model: what it reads by itself is what it has written, whatever a
//! second client does to the memory meanwhile.
//!
//! `NIGH_LOCAL_MODEL_SECONDS` makes it as long as one likes.

use super::{local, serve};
use crate::support::folder;
use nigh_client::{Client, ForeignValues, KeyLife};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECONDS: &str = "NIGH_LOCAL_MODEL_SECONDS";
/// Keys of the model; the second client has others.
const KEYS: u64 = 200;
/// Memory that the second client fills again and again, so that it is cleaned and reused.
const MAXMEMORY: &str = "32mb";
/// Changes that tell something, and how long one waits for them.
const LEAST_STEPS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(180);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A cheap sequence of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn key(&mut self) -> Vec<u8> {
        format!("m{}", self.below(KEYS)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let unit = format!("{},", self.below(1 << 40)).into_bytes();
        // One in fifty lies in a run.
        let bytes = if self.below(50) == 0 { 200_000 } else { self.below(300) };
        unit.into_iter().cycle().take(usize::try_from(bytes).expect("small")).collect()
    }
}

#[test]
fn a_client_reads_what_it_has_written() {
    let folder = folder();
    let flags = ["--maxmemory", MAXMEMORY, "--partitions", "2", "--shards", "2"];
    let _server = serve(folder.path(), &flags);
    let seconds = std::env::var(SECONDS).map_or(1.5, |it| it.parse().expect("seconds"));
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| churn(folder.path(), &stop));
        let mut client = local(folder.path(), Duration::ZERO);
        let (mut model, mut random) = (Model::new(), Random(0x9E37_79B9));
        let mut steps = 0u64;
        // A slow machine takes longer for the least that tells something.
        let most = Duration::from_secs_f64(seconds).max(PATIENCE);
        let is_over = |steps: u64| {
            let elapsed = begin.elapsed();
            elapsed > most || elapsed.as_secs_f64() > seconds && steps > LEAST_STEPS
        };
        while !is_over(steps) && !churn.is_finished() {
            change(&mut client, &mut model, &mut random);
            look(&mut client, &model, &mut random);
            steps += 1;
        }
        stop.store(true, Ordering::Relaxed);
        churn.join().expect("the second client didn't panic");
        assert!(steps > LEAST_STEPS, "{steps} steps");
    });
}

/// Overwrites keys of its own, in pipelines.
fn churn(folder: &std::path::Path, stop: &AtomicBool) {
    let mut client = local(folder, Duration::ZERO);
    let mut random = Random(77);
    while !stop.load(Ordering::Relaxed) {
        let sets: Vec<[Vec<u8>; 3]> = (0..64)
            .map(|_| [b"SET".to_vec(), [b"c", &random.key()[..]].concat(), random.value()])
            .collect();
        let replies = client.pipeline(&sets).expect("a server");
        let refused = replies.iter().find_map(|it| it.error());
        assert!(refused.is_none(), "{:?}", refused.map(String::from_utf8_lossy));
    }
}

/// One change of each.
fn change(client: &mut Client, model: &mut Model, random: &mut Random) {
    let (key, value) = (random.key(), random.value());
    match random.below(20) {
        0..10 => {
            client.set(&key, &value).expect("room");
            model.insert(key, value);
        }
        10..13 => {
            let was_there = client.del(&[&key]).expect("a reply") == 1;
            assert_eq!(was_there, model.remove(&key).is_some());
        }
        13..16 => {
            client.call(&[b"APPEND", &key, b"more"]).expect("room");
            model.entry(key).or_default().extend_from_slice(b"more");
        }
        16..18 => {
            // Two of one partition, in one commit.
            let tag = random.below(9);
            let pair = ["a", "b"].map(|it| format!("{{t{tag}}}{it}").into_bytes());
            let request: [&[u8]; 5] = [b"MSET", &pair[0], &value, &pair[1], &value];
            client.call(&request).expect("room");
            pair.into_iter().for_each(|it| drop(model.insert(it, value.clone())));
        }
        18 => {
            // In the past it is gone at once.
            client.set_for(&key, &value, Duration::from_secs(1000)).expect("room");
            client.call(&[b"PEXPIREAT", &key, b"1"]).expect("a reply");
            model.remove(&key);
        }
        _ if random.below(40) == 0 => {
            client.call(&[b"FLUSHALL"]).expect("a reply");
            model.clear();
        }
        _ => {}
    }
}

/// All ways to read.
fn look(client: &mut Client, model: &Model, random: &mut Random) {
    let key = random.key();
    let mut value = Vec::new();
    let is_there = client.get_into(&key, &mut value).expect("an answer");
    assert_eq!(is_there.then_some(&value), model.get(&key), "{}", String::from_utf8_lossy(&key));
    assert_eq!(client.exists(&key).expect("an answer"), is_there);
    let life = client.ttl(&key).expect("an answer");
    assert_eq!(life, is_there.then_some(KeyLife::Forever));
    let keys: Vec<Vec<u8>> = (0..16).map(|_| random.key()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut values = ForeignValues::new();
    client.multi_get_into(&keys, &mut values).expect("an answer");
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(values.get(at), model.get(*key).map(Vec::as_slice));
    }
    let seen = client.view(|view| Ok([view.get(keys[0])?, view.get(keys[1])?])).expect("a moment");
    assert_eq!(seen, [model.get(keys[0]).cloned(), model.get(keys[1]).cloned()]);
    if random.below(50) == 0 {
        let (mut met, mut cursor) = (Model::new(), 0);
        loop {
            let found = |key: &[u8], value: &[u8]| drop(met.insert(key.to_vec(), value.to_vec()));
            cursor = client.scan(b"m1", cursor, 50, found).expect("an answer");
            if cursor == 0 {
                break;
            }
        }
        let of_prefix = model.iter().filter(|(key, _)| key.starts_with(b"m1"));
        assert!(met.iter().eq(of_prefix), "a scan meets all keys, as they are");
    }
}
