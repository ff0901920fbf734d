//! Logs that come and go by chance: begin, end, break and heal, with kills and power cuts.

use super::*;

/// A partition's keys with their values, and the last LSN in that state.
type PartState = (BTreeMap<String, String>, u64);

/// What a power cut may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// Nothing: there is no log.
    Nothing,
    /// Nothing, or a state of the past: it begins, or its end is in doubt.
    Either,
    /// All that was told durable.
    Durable,
}

/// Logs that begin, end, break and heal at any step, with kills and power cuts at any call.
#[test]
fn histories_of_logs_that_come_and_go() {
    let seeds = std::env::var("NIGH_LIVE_SEEDS").ok().and_then(|it| it.parse().ok());
    let seeds: u64 = seeds.unwrap_or(12);
    let first = std::env::var("NIGH_LIVE_FIRST").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut seen = Seen::default();
    (first..first + seeds).for_each(|seed| history(seed, &mut seen));
    eprintln!("{seen:?}");
    assert!(seeds < 12 || seen.counted > 0 && seen.retired > 0 && seen.healed > 0, "{seen:?}");
}

/// How often something was met.
#[derive(Debug, Default)]
struct Seen {
    counted: u32,
    retired: u32,
    healed: u32,
    failed: u32,
    kills: u32,
    cuts: u32,
    busy: u32,
}

struct History {
    live: Live,
    keys: Vec<Vec<String>>,
    states: Vec<Vec<PartState>>,
    promise: Promise,
}

const PARTITIONS: usize = 3;

fn history(seed: u64, seen: &mut Seen) {
    let chance = SimChance::new(seed);
    let few = |end: u64| usize::try_from(below(&chance, end)).expect("few");
    let (shards, mode) = (1 + few(2), SyncMode::ALL[few(3)]);
    let mut live = Live::new(7_000 + seed, PARTITIONS, shards, mode);
    let logged = few(2) == 0;
    live.start(logged).expect("the first start");
    let keys = live.divided_keys();
    let states = vec![vec![(BTreeMap::new(), 0)]; PARTITIONS];
    let promise = if logged { Promise::Durable } else { Promise::Nothing };
    let mut it = History { live, keys, states, promise };
    for step in 0..150 {
        it.change(step, &few);
        it.note();
        it.live.machine.clock.advance_us(below(&chance, 2_000_000));
        if few(12) == 0 {
            it.switch();
        }
        if few(25) == 0 {
            let disk = &it.live.machine.disk;
            disk.fail(disk.calls() + 1 + below(&chance, 20), SimFault::Io);
        }
        let mut stops = None;
        if few(15) == 0 {
            let disk = &it.live.machine.disk;
            stops = Some(disk.calls() + 1 + below(&chance, 40));
            disk.stop_at(stops.unwrap_or(0));
        }
        for _ in 0..few(60) {
            if stops.is_some_and(|stop| it.live.machine.disk.calls() >= stop) {
                break;
            }
            it.live.step_some(&chance);
            it.hear(seen);
        }
        if stops.is_none() && few(20) != 0 {
            continue;
        }
        seen.busy += u32::from(it.live.served().keeper.is_busy());
        it.end(seed, step, &few, seen);
    }
}

impl History {
    fn change(&mut self, step: usize, few: &dyn Fn(u64) -> usize) {
        let of = &self.keys[few(PARTITIONS as u64)];
        let key = of[few(of.len() as u64)].clone();
        let other = of[few(of.len() as u64)].clone();
        let (long, value) = ("L".repeat(140_000), format!("v{step}"));
        let command: Vec<&str> = match few(9) {
            0 => vec!["SET", &key, &long],
            1 | 2 => vec!["APPEND", &key, &value],
            3 => vec!["DEL", &key],
            4 => vec!["EXPIRE", &key, "5000"],
            5 => vec!["SET", &key, &value, "PX", "600000"],
            6 => vec!["RENAME", &key, &other],
            _ => vec!["SET", &key, &value],
        };
        self.live.bytes(&command.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
    }

    /// Notes what the store has now.
    fn note(&mut self) {
        for (partition, states) in self.states.iter_mut().enumerate() {
            let state = self.live.state(&self.keys[partition]);
            let lsn = self.live.served().keyspace.reader(partition).begun_lsn();
            states.push((state, lsn));
        }
    }

    /// The setting changes.
    fn switch(&mut self) {
        if self.live.served().keeper.is_off() {
            if self.live.set_on().is_ok() {
                self.promise = Promise::Either;
            }
        } else if self.promise != Promise::Nothing {
            match self.live.set_off() {
                Ok(()) => self.promise = Promise::Nothing,
                // Whether it is over isn't known, so nothing is promised, until a base counts.
                Err(_) => self.promise = Promise::Either,
            }
        }
    }

    fn hear(&mut self, seen: &mut Seen) {
        for news in self.live.news() {
            match news {
                LogNews::Counts => {
                    seen.counted += 1;
                    self.promise = Promise::Durable;
                }
                LogNews::Off(cause) => {
                    seen.retired += u32::from(cause.is_none());
                    seen.failed += u32::from(cause.is_some());
                    self.promise = Promise::Nothing;
                }
                LogNews::BaseBegins(Some(_)) => seen.healed += 1,
                LogNews::BaseFailed(_) => seen.failed += 1,
                LogNews::BaseBegins(None) | LogNews::Left(_) => {}
            }
        }
    }

    /// A kill or a power cut, a start, and what is to be there then.
    fn end(&mut self, seed: u64, step: usize, few: &dyn Fn(u64) -> usize, seen: &mut Seen) {
        self.note();
        let is_cut = few(2) == 0;
        let at = format!("seed {seed}, step {step}, cut {is_cut}, {:?}", self.promise);
        let durable = |it| self.live.on.as_ref().map(|on| on.keyspace.reader(it).durable_lsn());
        let mut least: Vec<u64> = (0..PARTITIONS).filter_map(durable).collect();
        let mut promise = self.promise;
        if is_cut {
            seen.cuts += 1;
            self.live.cut_power();
        } else {
            seen.kills += 1;
            self.live.kill();
            least = self.states.iter().map(|of| of.last().expect("some").1).collect();
            promise = Promise::Durable;
        }
        let logged = is_cut || few(3) > 0;
        if few(3) == 0 {
            let disk = &self.live.machine.disk;
            disk.stop_at(disk.calls() + 1 + below(&SimChance::new(seed ^ step as u64), 60));
            if self.live.start(logged).is_ok() {
                self.live.settle_if_it_can();
            }
            self.live.kill();
        }
        self.live.start(logged).unwrap_or_else(|error| panic!("{at}: {error}"));
        self.promise = if logged { Promise::Durable } else { Promise::Nothing };
        let keys = self.live.divided_keys();
        if keys != self.keys {
            // A new store: its keys lie elsewhere.
            let may_be_new = promise != Promise::Durable || least.iter().all(|lsn| *lsn == 0);
            let is_empty = keys.iter().all(|keys| self.live.state(keys).is_empty());
            assert!(may_be_new && is_empty, "{at}: {least:?}");
            (self.keys, self.states) = (keys, vec![vec![(BTreeMap::new(), 0)]; PARTITIONS]);
            return;
        }
        for partition in 0..PARTITIONS {
            let state = self.live.state(&self.keys[partition]);
            let states = &mut self.states[partition];
            let lsn = self.live.on.as_ref().expect("it").keyspace.reader(partition).begun_lsn();
            let is_empty = state.is_empty();
            let now_ms = self.live.machine.clock_ms();
            let found = states.iter().rposition(|it| alive(&it.0, now_ms) == state);
            let found = found.filter(|&found| match promise {
                Promise::Nothing => is_empty,
                Promise::Either => true,
                Promise::Durable => states[found].1 >= least[partition],
            });
            let least = least[partition];
            let found = found.unwrap_or_else(|| {
                panic!("{at}: {partition}, least {least}: {state:?} of {states:?}")
            });
            states.truncate(found + 1);
            states[found].1 = lsn;
            if is_empty {
                *states = vec![(BTreeMap::new(), lsn)];
            }
        }
    }
}

/// A state without what is over.
fn alive(state: &BTreeMap<String, String>, now_ms: u64) -> BTreeMap<String, String> {
    let is_alive = |text: &&String| {
        let expiry = text.rsplit(':').next().and_then(|it| it.parse::<i64>().ok());
        expiry.is_none_or(|at| at < 0 || at.unsigned_abs() > now_ms)
    };
    let alive = state.iter().filter(|(_, text)| is_alive(text));
    alive.map(|(key, text)| (key.clone(), text.clone())).collect()
}

impl Live {
    /// The keys of the histories, by partition.
    fn divided_keys(&mut self) -> Vec<Vec<String>> {
        let mut keys = vec![Vec::new(); PARTITIONS];
        for key in (0..30).map(|i| format!("k{i}")) {
            let partition = self.served().keyspace.partition_of(key.as_bytes());
            keys[partition].push(key);
        }
        keys
    }
}
