//! One look at a server: its answers to INFO and LATENCY HISTOGRAM, and the difference of two
//! looks.
//!
//! Invariants:
//! 1. The functions are pure: text and frames in, numbers out. They panic for no answer, and a
//!    missing field is 0.
//! 2. A counter that has gone back was reset, so it counts from 0.

use nigh_client::Frame;
use std::collections::BTreeMap;

/// Sections of INFO that a look asks for.
pub(super) const SECTIONS: [&str; 7] =
    ["server", "clients", "memory", "stats", "keyspace", "nigh", "hotkeys"];

/// A key of the server's sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HotKey {
    pub(super) samples: f64,
    /// Most by which `samples` may be too high.
    pub(super) error: f64,
    /// In quotes, as the server escaped it.
    pub(super) key: String,
}

/// The end of each bucket, in µs, and its calls. Buckets aren't cumulative.
type Times = BTreeMap<u64, u64>;

/// The answers of a server at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    fields: BTreeMap<String, String>,
    /// Fields of the lines `shard_N`, by N.
    pub(super) shards: Vec<BTreeMap<String, f64>>,
    /// The hottest first.
    pub(super) hot_keys: Vec<HotKey>,
    times: BTreeMap<String, Times>,
}

impl Sample {
    /// Reads the answers to INFO and to LATENCY HISTOGRAM.
    pub(super) fn parse(info: &str, histogram: &Frame) -> Self {
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let fields: BTreeMap<String, String> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let numbered = |prefix: &str, first: usize| -> Vec<&String> {
            (first..).map_while(|number| fields.get(&format!("{prefix}{number}"))).collect()
        };
        let shards = numbered("shard_", 0).into_iter().map(|line| parts(line)).collect();
        let hot_keys = numbered("hotkey_", 1).into_iter().map(|line| hot_key(line)).collect();
        Self { shards, hot_keys, times: times(histogram), fields }
    }

    /// A field of INFO; empty if it isn't there.
    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A field of INFO as a number.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> f64 {
        parts(self.text("db0")).get("keys").copied().unwrap_or(0.0)
    }

    /// Whether it is the same run of the same server.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        self.text("run_id") == other.text("run_id")
    }
}

/// `name=number,...`
fn parts(line: &str) -> BTreeMap<String, f64> {
    let pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// `samples=N,error=N,bytes=N,key="..."`: the key is the rest.
fn hot_key(line: &str) -> HotKey {
    let (numbers, key) = line.split_once(",key=").unwrap_or((line, ""));
    let numbers = parts(numbers);
    let number = |name| numbers.get(name).copied().unwrap_or(0.0);
    HotKey { samples: number("samples"), error: number("error"), key: key.to_owned() }
}

/// The pairs of a map, which RESP2 has as an array.
fn pairs(frame: &Frame) -> Vec<(&Frame, &Frame)> {
    match frame {
        Frame::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Frame::Array(items) => {
            let (pairs, _) = items.as_chunks::<2>();
            pairs.iter().map(|[name, value]| (name, value)).collect()
        }
        _ => Vec::new(),
    }
}

fn times(histogram: &Frame) -> BTreeMap<String, Times> {
    let mut commands = BTreeMap::new();
    for (name, about) in pairs(histogram) {
        let Some(name) = name.bytes() else { continue };
        let buckets = pairs(about).into_iter().find(|(n, _)| n.bytes() == Some(b"histogram_usec"));
        let mut before = 0;
        let mut times = Times::new();
        for (end_us, calls) in buckets.into_iter().flat_map(|(_, buckets)| pairs(buckets)) {
            let number = |frame: &Frame| frame.integer().and_then(|n| u64::try_from(n).ok());
            let (Some(end_us), Some(calls)) = (number(end_us), number(calls)) else { continue };
            times.insert(end_us, calls.saturating_sub(before));
            before = calls;
        }
        commands.insert(String::from_utf8_lossy(name).into_owned(), times);
    }
    commands
}

/// Calls and times of one command between two looks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CommandRates {
    pub(super) name: String,
    pub(super) per_second: f64,
    /// Half of the calls took at most this time, in µs.
    pub(super) p50_us: u64,
    /// 99 of 100 calls took at most this time, in µs.
    pub(super) p99_us: u64,
}

/// The difference of two looks.
#[derive(Clone, Copy)]
pub(super) struct Between<'a> {
    pub(super) now: &'a Sample,
    before: &'a Sample,
    seconds: f64,
}

impl<'a> Between<'a> {
    /// The difference of `before` and `now`, over the time between them by the server's clock.
    pub(super) fn new(before: &'a Sample, now: &'a Sample) -> Self {
        let seconds = (now.number("server_time_usec") - before.number("server_time_usec")) / 1e6;
        Self { now, before, seconds: if seconds > 0.0 { seconds } else { 1.0 } }
    }

    fn rate_of(&self, now: f64, before: f64) -> f64 {
        let since = if now >= before { now - before } else { now };
        since / self.seconds
    }

    /// The growth of a counter of INFO, per second.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.rate_of(self.now.number(name), self.before.number(name))
    }

    /// The growth of a shard's counter, per second.
    pub(super) fn shard_rate(&self, number: usize, name: &str) -> f64 {
        let value = |sample: &Sample| {
            sample.shards.get(number).and_then(|shard| shard.get(name)).copied().unwrap_or(0.0)
        };
        self.rate_of(value(self.now), value(self.before))
    }

    /// The commands that were called, the most frequent first.
    pub(super) fn commands(&self) -> Vec<CommandRates> {
        let none = Times::new();
        let mut commands = Vec::new();
        for (name, now) in &self.now.times {
            let before = self.before.times.get(name).unwrap_or(&none);
            let before =
                if before.values().sum::<u64>() > now.values().sum() { &none } else { before };
            let earlier = |end_us| before.get(end_us).copied().unwrap_or(0);
            let since: Vec<(u64, u64)> = now
                .iter()
                .map(|(end_us, calls)| (*end_us, calls.saturating_sub(earlier(end_us))))
                .collect();
            let calls: u64 = since.iter().map(|bucket| bucket.1).sum();
            if calls == 0 {
                continue;
            }
            commands.push(CommandRates {
                name: name.clone(),
                per_second: calls as f64 / self.seconds,
                p50_us: percentile(&since, calls.div_ceil(2)),
                p99_us: percentile(&since, (calls - calls / 100).max(1)),
            });
        }
        commands.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
        commands
    }
}

/// The end of the bucket in which the call of this rank lies.
fn percentile(buckets: &[(u64, u64)], rank: u64) -> u64 {
    let mut calls = 0;
    let found = buckets.iter().find(|(_, count)| {
        calls += count;
        calls >= rank
    });
    found.map_or(0, |(end_us, _)| *end_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Frame {
        Frame::Bulk(text.into())
    }

    fn histogram(calls: &[(i64, i64)]) -> Frame {
        let buckets =
            calls.iter().map(|(end, calls)| (Frame::Integer(*end), Frame::Integer(*calls)));
        let about = Frame::Map(vec![
            (bulk("calls"), Frame::Integer(calls.last().map_or(0, |last| last.1))),
            (bulk("histogram_usec"), Frame::Map(buckets.collect())),
        ]);
        Frame::Map(vec![(bulk("get"), about)])
    }

    /// The same histogram in RESP2, where maps are arrays, is the same histogram.
    #[test]
    fn both_protocols_say_the_same() {
        fn flat(frame: &Frame) -> Frame {
            match frame {
                Frame::Map(pairs) => {
                    Frame::Array(pairs.iter().flat_map(|(a, b)| [flat(a), flat(b)]).collect())
                }
                other => other.clone(),
            }
        }
        let resp3 = histogram(&[(1, 10), (33, 12)]);
        assert_eq!(times(&flat(&resp3)), times(&resp3));
        assert_eq!(times(&resp3)["get"], Times::from([(1, 10), (33, 2)]));
    }

    /// Percentiles are of the calls since the last look; after a reset, of all calls.
    #[test]
    fn percentiles_are_of_the_time_between() {
        let look = |time: u64, calls: &[(i64, i64)]| {
            Sample::parse(&format!("server_time_usec:{time}\r\n"), &histogram(calls))
        };
        let first = look(0, &[(1, 1000), (528, 2000)]);
        let second = look(2_000_000, &[(1, 1197), (8, 1199), (528, 2200)]);
        let expected = |per_second, p50_us, p99_us| {
            vec![CommandRates { name: "get".to_owned(), per_second, p50_us, p99_us }]
        };
        assert_eq!(Between::new(&first, &second).commands(), expected(100.0, 1, 8));
        let reset = look(4_000_000, &[(2, 1)]);
        assert_eq!(Between::new(&second, &reset).commands(), expected(0.5, 2, 2));
        assert_eq!(Between::new(&reset, &reset).commands(), []);
    }

    /// An answer in another form gives zeros, not a panic.
    #[test]
    fn strange_answers_are_zeros() {
        let strange = "shard_0:a=b,=,connections\nhotkey_1:\nserver_time_usec:x\n:::\ndb0:keys";
        let frames = [Frame::Null, Frame::Array(vec![bulk("get")]), histogram(&[(-1, -5), (3, 1)])];
        for frame in frames {
            let sample = Sample::parse(strange, &frame);
            assert_eq!((sample.shards.len(), sample.hot_keys.len(), sample.keys()), (1, 1, 0.0));
            let between = Between::new(&sample, &sample);
            assert_eq!(between.shard_rate(7, "operations"), 0.0);
            assert_eq!(between.commands(), []);
        }
    }
}
