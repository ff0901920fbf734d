//! A log that begins, ends and heals while the store is served, against a model: what was promised
//! while the log counted is there after a power cut; what was served without a log, or retired,
//! doesn't come back; a kill loses nothing.
//!
//! Owners, threads and the keeper are driven by hand, in any order, over a simulated disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nigh_log::simulated::{SimChance, SimDisk, SimFault, below};
use nigh_log::{LogSettings, World};
use nigh_shm::{Domain, JournalWriter, Participant};
use nigh_store::{
    AttachedShard, BaseLog, CompactionPace, Keyspace, LiveLog, LogBerth, LogHealth, LogKeeper,
    LogNews, LogOptions, LogOrder, LogPort, LogStatuses, LogThread, LogThreadParts, LookBatch,
    Passed, ShardCompaction, ShardLog, SharedStreams, StoreError, StoreOptions, SyncMode, Turn,
    log_of, retire_log,
};

use crate::durable::Machine;
use crate::support::{Resp2, op};

/// Steps that something gets to come to its end.
const STEPS_MOST: u32 = 20_000;
const FILE_BYTES: u64 = 32 << 10;

/// What an owner is asked for.
enum Ask {
    Attach(LogBerth, Option<JournalWriter>, LogStatuses, Box<ShardCompaction>),
    Detach,
}

/// A shard's side of its log.
#[derive(Default)]
struct Side {
    journal: Option<JournalWriter>,
    compaction: Option<Box<ShardCompaction>>,
    statuses: Option<LogStatuses>,
    asks: VecDeque<Ask>,
}

/// What a log's thread has of its channels.
type Ends = (SyncSender<LogOrder>, Receiver<LogOrder>, SyncSender<LookBatch>);

/// The owners and the threads.
struct Hands {
    world: World<SimDisk>,
    sides: Vec<Side>,
    threads: Vec<(LogThread<SimDisk>, SyncSender<LogOrder>)>,
    statuses: Option<LogStatuses>,
    ends: Vec<Ends>,
    attached: Vec<AttachedShard>,
    news: Vec<LogNews>,
}

impl LogPort<SimDisk> for Hands {
    fn end_threads(&mut self, abandoned: bool) {
        for status in self.statuses.iter().flat_map(|all| all.iter()) {
            if abandoned { status.abandon() } else { status.close() }
        }
    }

    fn threads_ended(&mut self) -> bool {
        self.threads.is_empty()
    }

    fn attach(&mut self, berths: Vec<LogBerth>, journals: Vec<JournalWriter>, logs: LogStatuses) {
        let mut journals = journals.into_iter();
        (self.ends, self.attached, self.statuses) = (Vec::new(), Vec::new(), Some(logs));
        let logs = self.statuses.clone().expect("just set");
        for (side, berth) in self.sides.iter_mut().zip(berths) {
            let (sender, orders) = sync_channel(4);
            let (looks, looked) = sync_channel(2);
            let compaction = Box::new(ShardCompaction::new(looked, sender.clone()));
            self.ends.push((sender, orders, looks));
            side.asks.push_back(Ask::Attach(berth, journals.next(), Arc::clone(&logs), compaction));
        }
    }

    fn attached(&mut self) -> Option<Vec<AttachedShard>> {
        (self.attached.len() == self.sides.len()).then(|| std::mem::take(&mut self.attached))
    }

    fn spawn(&mut self, logs: Vec<BaseLog<SimDisk>>, streams: &Arc<SharedStreams>) {
        let ends = std::mem::take(&mut self.ends);
        for (log, ends) in logs.into_iter().zip(ends) {
            let BaseLog { reader, writer, status, words, .. } = log;
            self.add(ShardLogParts { reader, writer, status, words }, ends, streams);
        }
    }

    fn detach(&mut self) {
        self.sides.iter_mut().for_each(|side| side.asks.push_back(Ask::Detach));
    }

    fn detached(&mut self) -> bool {
        self.sides.iter().all(|side| side.asks.is_empty())
    }

    fn tell(&mut self, news: &LogNews) {
        self.news.push(news.clone());
    }
}

struct ShardLogParts {
    reader: nigh_shm::JournalReader,
    writer: nigh_log::LogWriter<SimDisk>,
    status: Arc<nigh_store::LogStatus>,
    words: Vec<(u32, nigh_shm::DurableWord)>,
}

impl Hands {
    fn add(&mut self, log: ShardLogParts, ends: Ends, streams: &Arc<SharedStreams>) {
        let (sender, orders, looks) = ends;
        let thread = LogThread::new(LogThreadParts {
            reader: log.reader,
            writer: log.writer,
            world: self.world.clone(),
            status: log.status,
            words: log.words,
            streams: Arc::clone(streams),
            orders,
            looks: (looks, Arc::new(|| {})),
            pace: CompactionPace { garbage_percent: 20, max_bytes: 0, file_bytes: FILE_BYTES },
            wake_shards: Arc::new(|| {}),
        });
        self.threads.push((thread, sender));
    }

    fn pass(&mut self, number: usize) -> bool {
        match self.threads.get_mut(number).map(|(thread, _)| thread.pass()) {
            Some(Passed::More) => true,
            Some(Passed::Ended) => {
                self.threads.remove(number);
                true
            }
            _ => false,
        }
    }
}

/// A store that is served.
struct Served {
    keyspace: Keyspace,
    participant: Participant,
    turns: u64,
    hands: Hands,
    keeper: LogKeeper<SimDisk>,
}

/// The machine, and what it serves.
struct Live {
    machine: Machine,
    on: Option<Served>,
}

impl Live {
    fn new(seed: u64, partitions: usize, shards: usize, mode: SyncMode) -> Live {
        let mut machine = Machine::new(seed, partitions);
        (machine.shards, machine.mode) = (shards, mode);
        Live { machine, on: None }
    }

    fn options(&self) -> (StoreOptions, LogOptions, World<SimDisk>) {
        let machine = &self.machine;
        let mut options = StoreOptions::new(machine.dir.path().join("arenas"), 32 << 20);
        options.system_capacity_bytes = 4 << 20;
        options.partitions = machine.partitions;
        let log = LogOptions {
            shards: machine.shards,
            settings: LogSettings { file_bytes: FILE_BYTES },
            journal_bytes: 1 << 20,
            mode: machine.mode,
            boot_id: [machine.boot; 16],
            progress: Arc::new(|_| {}),
        };
        let world = World {
            storage: Arc::new(machine.disk.clone()),
            clock: Arc::clone(&machine.clock) as _,
            chance: Arc::clone(&machine.chance) as _,
        };
        (options, log, world)
    }

    /// A start, with or without a log.
    fn start(&mut self, logged: bool) -> Result<(), StoreError> {
        let (options, log, world) = self.options();
        let domain = Domain::new(2);
        let sides = (0..self.machine.shards).map(|_| Side::default()).collect();
        let mut hands = Hands {
            world: world.clone(),
            sides,
            threads: Vec::new(),
            statuses: None,
            ends: Vec::new(),
            attached: Vec::new(),
            news: Vec::new(),
        };
        let (keyspace, keeper) = if logged {
            let (keyspace, _, opened) = Keyspace::open_with_log(&options, &log, &world, &domain)?;
            let live = LiveLog::of_start(&opened, &options, &log);
            let statuses: LogStatuses =
                opened.shards.iter().map(|it| Arc::clone(&it.status)).collect();
            hands.statuses = Some(Arc::clone(&statuses));
            for (number, shard) in opened.shards.into_iter().enumerate() {
                let ShardLog { journal, reader, writer, status, words } = shard;
                let (sender, orders) = sync_channel(4);
                let (looks, looked) = sync_channel(2);
                let side = &mut hands.sides[number];
                side.journal = Some(journal);
                side.compaction = Some(Box::new(ShardCompaction::new(looked, sender.clone())));
                side.statuses = Some(Arc::clone(&statuses));
                let parts = ShardLogParts { reader, writer, status, words };
                hands.add(parts, (sender, orders, looks), &opened.streams);
            }
            (keyspace, LogKeeper::of_start(live, statuses, log.mode))
        } else {
            if let Some(id) = log_of(&options.dir)? {
                retire_log(&options, id, &world)?;
            }
            (Keyspace::open(&options, &domain)?.0, LogKeeper::off())
        };
        let participant = domain.join();
        self.on = Some(Served { keyspace, participant, turns: 0, hands, keeper });
        Ok(())
    }

    fn served(&mut self) -> &mut Served {
        self.on.as_mut().expect("a store that is served")
    }

    fn set_on(&mut self) -> Result<(), String> {
        let (options, log, world) = self.options();
        let on = self.on.as_mut().expect("a store that is served");
        if !on.keeper.is_off() {
            return Err("it isn't off".to_owned());
        }
        let begun = LiveLog::begin(&options, &log, &world).map_err(|error| error.to_string())?;
        let begun = on.keeper.begin(begun.0, begun.1, log.mode, &mut on.hands);
        begun.map_err(|error| error.to_string())
    }

    fn set_off(&mut self) -> Result<(), String> {
        let on = self.served();
        on.keeper.retire(&mut on.hands).map_err(|error| error.to_string())
    }

    /// What an owner does at a turn's beginning: what it is asked for.
    fn take_ask(&mut self, shard: usize) {
        let shards = self.machine.shards;
        let on = self.on.as_mut().expect("a store that is served");
        let side = &mut on.hands.sides[shard];
        match side.asks.pop_front() {
            None => {}
            Some(Ask::Attach(berth, journal, statuses, mut compaction)) => {
                side.journal = journal.or_else(|| side.journal.take());
                let journal = side.journal.as_ref().expect("a journal");
                let attached = on.keyspace.begin_base(journal, &mut compaction, &berth);
                (side.compaction, side.statuses) = (Some(compaction), Some(statuses));
                on.hands.attached.push(attached);
            }
            Some(Ask::Detach) => {
                on.keyspace.leave_log(shard, shards);
                let asks = std::mem::take(&mut side.asks);
                *side = Side { asks, ..Side::default() };
            }
        }
    }

    /// What an owner does at a turn's end.
    fn end_turn(&mut self, shard: usize) -> bool {
        let now_ms = self.machine.clock_ms();
        let on = self.on.as_mut().expect("a store that is served");
        let mut more = false;
        {
            let live = on.keyspace.live_bytes();
            let pin = on.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: 0 };
            let side = &mut on.hands.sides[shard];
            if let Some(statuses) = &side.statuses {
                statuses[shard].tell_live(live);
            }
            if let (Some(journal), Some(compaction)) = (&side.journal, &mut side.compaction) {
                more = on.keyspace.compact(compaction, journal.tail(), &turn);
                journal.leave();
            }
        }
        on.participant.quiescent();
        more
    }

    /// The keys of the histories, by partition.
    fn divided_keys(&mut self) -> Vec<Vec<String>> {
        let mut keys = vec![Vec::new(); PARTITIONS];
        for key in (0..30).map(|i| format!("k{i}")) {
            let partition = self.served().keyspace.partition_of(key.as_bytes());
            keys[partition].push(key);
        }
        keys
    }

    /// Everything does one step. Whether there is more to do.
    fn step_all(&mut self) -> bool {
        let mut more = false;
        for shard in 0..self.machine.shards {
            self.take_ask(shard);
            more |= self.end_turn(shard);
        }
        let on = self.served();
        for number in (0..on.hands.threads.len()).rev() {
            more |= on.hands.pass(number);
        }
        on.keeper.step(&mut on.hands);
        more | on.keeper.is_busy()
    }

    fn settle(&mut self) {
        for _ in 0..STEPS_MOST {
            if !self.step_all() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// One step of one of all.
    fn step_some(&mut self, chance: &SimChance) {
        let shards = self.machine.shards as u64;
        let which = below(chance, shards * 3 + 2);
        let shard = usize::try_from(which % shards).expect("few");
        match which {
            _ if which < shards => self.take_ask(shard),
            _ if which < 2 * shards => drop(self.end_turn(shard)),
            _ if which < 3 * shards => drop(self.served().hands.pass(shard)),
            _ => {
                let on = self.served();
                on.keeper.step(&mut on.hands);
            }
        }
    }

    /// Applies a command at the partition of its first key, unless the log refuses writes.
    fn bytes(&mut self, args: &[&[u8]]) -> Option<String> {
        let now_ms = self.machine.clock_ms();
        let op = op(args[0]);
        let shards = self.machine.shards;
        for _ in 0..STEPS_MOST {
            let on = self.on.as_mut().expect("a store that is served");
            on.turns += 1;
            let partition = on.keyspace.partition_of(args[1]);
            let statuses = on.hands.sides[partition % shards].statuses.as_ref();
            let refuses = statuses.is_some_and(|all| {
                let own = &all[partition % shards];
                own.heals() || own.counts() && own.health() == LogHealth::Broken
            });
            if refuses && !op.only_reads() {
                return None;
            }
            let (reply, busy) = {
                let pin = on.participant.pin();
                let turn = Turn { now_ms, pin: &pin, random: on.turns };
                on.keyspace.begin_turn(&turn);
                let store = on.keyspace.part_mut(partition);
                let mut out = Resp2::default();
                store.apply(op, args, &turn, &mut out);
                let busy = store.take_busy();
                on.keyspace.maintain(&turn);
                (out.0, busy)
            };
            on.participant.quiescent();
            if !busy {
                return Some(String::from_utf8_lossy(&reply).trim_end().replace("\r\n", " "));
            }
            self.step_all();
        }
        panic!("memory or the journal never has room");
    }

    fn run(&mut self, command: &str) -> Option<String> {
        self.bytes(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    fn get(&mut self, key: &str) -> String {
        self.run(&format!("GET {key}")).expect("reads go on")
    }

    fn state(&mut self, keys: &[String]) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for key in keys {
            let value = self.get(key);
            if value != "$-1" {
                let expiry = self.run(&format!("PEXPIRETIME {key}")).expect("reads go on");
                state.insert(key.clone(), format!("{value} {expiry}"));
            }
        }
        state
    }

    fn kill(&mut self) {
        self.on = None;
        self.machine.kill();
    }

    fn cut_power(&mut self) {
        self.on = None;
        self.machine.cut_power();
    }

    fn news(&mut self) -> Vec<LogNews> {
        std::mem::take(&mut self.served().hands.news)
    }
}

/// A log that was begun while serving has what was there before and what came meanwhile, long
/// values that stand on others too; a retired one never returns.
#[test]
fn a_log_begins_and_ends_while_serving() {
    let mut live = Live::new(1, 2, 2, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..200 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.set_on().expect("a log");
    for i in 0..STEPS_MOST {
        if i < 200 {
            live.run(&format!("SET k{} new{i}", i % 100));
            live.bytes(&[b"APPEND", b"long", b"x"]);
        }
        if !live.step_all() {
            break;
        }
    }
    assert_eq!(live.news(), [LogNews::BaseBegins(None), LogNews::Counts]);
    let keys: Vec<String> = (0..200).map(|i| format!("k{i}")).chain(["long".into()]).collect();
    live.run("SET k0 last");
    live.settle();
    let before = live.state(&keys);
    assert_eq!(before.len(), 201);
    live.cut_power();
    live.start(true).expect("after the power cut");
    assert_eq!(live.state(&keys), before);
    live.set_off().expect("no log");
    live.run("DEL k0");
    live.settle();
    assert_eq!(live.news(), [LogNews::Off(None)]);
    assert_eq!(live.get("k1"), before["k1"].rsplit_once(' ').expect("its expiry").0);
    let names = std::fs::read_dir(live.machine.dir.path().join("arenas")).expect("the folder");
    let journals = names.filter(|name| {
        name.as_ref().is_ok_and(|name| name.file_name().to_string_lossy().starts_with("journal"))
    });
    assert_eq!(journals.count(), 0);
    // Once more, over what the first one left.
    live.set_on().expect("a log");
    live.settle();
    live.set_off().expect("no log");
    live.settle();
    live.cut_power();
    live.start(true).expect("a new store");
    assert_eq!(live.get("k1"), "$-1", "it doesn't return");
}

/// Records that wait for room in the log thread's orders are looked at again when there is some:
/// what was changed meanwhile doesn't come back from the log as it was.
#[test]
fn what_waits_for_room_is_looked_at_again() {
    const LONG: usize = 80;
    let mut live = Live::new(9, 1, 1, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..5_000 {
        live.run(&format!("SET k{i} v"));
    }
    let long = "L".repeat(140_000);
    for i in 0..LONG {
        live.bytes(&[b"SET", format!("long{i}").as_bytes(), long.as_bytes()]);
    }
    live.set_on().expect("a log");
    while live.served().hands.threads.is_empty() {
        live.take_ask(0);
        let on = live.served();
        on.keeper.step(&mut on.hands);
    }
    // The log's thread takes nothing.
    for _ in 0..100 {
        live.end_turn(0);
    }
    for i in 0..5_000 {
        live.run(&format!("DEL k{i}"));
    }
    for i in 0..LONG {
        live.run(&format!("APPEND long{i} x"));
    }
    live.settle();
    assert_eq!(live.news().last(), Some(&LogNews::Counts));
    live.cut_power();
    live.start(true).expect("after the power cut");
    for i in 0..5_000 {
        assert_eq!(live.get(&format!("k{i}")), "$-1", "k{i}");
    }
    for i in 0..LONG {
        assert_eq!(live.run(&format!("STRLEN long{i}")).as_deref(), Some(":140001"), "long{i}");
    }
}

/// More keys than a small table has room for are put in from the log in whatever order they lie.
#[test]
fn a_log_of_many_keys_is_read_back() {
    let mut live = Live::new(10, 1, 1, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..30_000 {
        live.run(&format!("SET k{i} v"));
    }
    live.set_on().expect("a log");
    live.settle();
    live.cut_power();
    live.start(true).expect("after the power cut");
    let there = (0..30_000).filter(|i| live.get(&format!("k{i}")) == "$1 v").count();
    assert_eq!(there, 30_000);
}

/// A log that is over says nothing about arenas of a later time, which may be divided otherwise.
#[test]
fn a_retired_log_hinders_no_later_one() {
    let mut live = Live::new(8, 2, 2, SyncMode::Always);
    live.start(true).expect("a log");
    live.run("SET a 1");
    live.settle();
    live.set_off().expect("no log");
    live.settle();
    for logged in [false, true] {
        live.cut_power();
        live.machine.partitions += 1;
        live.start(logged).expect("a new store, whose keys lie elsewhere");
        assert_eq!(live.get("a"), "$-1");
        live.run("SET b 2");
        if !logged {
            live.set_on().expect("a log");
        }
        live.settle();
        live.cut_power();
        live.start(true).expect("after the power cut");
        assert_eq!(live.get("b"), "$1 2");
        live.set_off().expect("no log");
        live.settle();
    }
}

/// What a start refuses is refused while serving, and nothing changes.
#[test]
fn what_a_start_refuses_is_refused() {
    let mut other = Live::new(2, 1, 1, SyncMode::Always);
    other.start(true).expect("a log");
    other.run("SET theirs 1");
    other.settle();
    other.on = None;
    let mut live = Live::new(3, 1, 1, SyncMode::Always);
    live.start(false).expect("a start");
    live.run("SET a 1");
    live.machine.disk = other.machine.disk.kill();
    let refused = live.set_on().expect_err("there is another log");
    let (options, ..) = live.options();
    assert_eq!(refused, StoreError::Unlogged { dir: options.dir.clone() }.to_string());
    assert!(live.served().keeper.is_off() && log_of(&options.dir).expect("ids").is_none());
    live.run("SET a 2");
    live.on = None;
    assert_eq!(live.start(true).expect_err("the same").to_string(), refused);
}

/// A base whose disk fails ends the log, and a later try makes another.
#[test]
fn a_base_that_fails_leaves_the_store_as_it_was() {
    let mut calls = 1;
    let mut failures = 0;
    loop {
        let mut live = Live::new(4, 2, 2, SyncMode::EverySecond);
        live.start(false).expect("a start without a log");
        live.run("SET a 1");
        live.machine.disk.fail(live.machine.disk.calls() + calls, SimFault::Io);
        let refused = live.set_on().is_err();
        live.settle();
        let news = live.news();
        let failed = news.iter().any(|it| matches!(it, LogNews::Off(Some(_))));
        // One in doubt is made good at once.
        let healed = news.last() == Some(&LogNews::Counts);
        let what = live.machine.disk.failed_call();
        if what.is_none() {
            break;
        }
        failures += u32::from(failed);
        assert!(live.run("SET a 2").is_some(), "{what:?} {news:?}");
        let is_left = matches!(news.last(), Some(LogNews::Left(_)));
        assert!(refused || failed || healed || is_left, "{what:?} {news:?}");
        if refused || failed {
            assert!(live.served().keeper.is_off());
            live.set_on().unwrap_or_else(|error| panic!("{what:?}: {error}"));
            live.settle();
        }
        live.machine.clock.advance_us(11_000_000);
        live.settle();
        assert_eq!(live.run("SET b 3").as_deref(), Some("+OK"), "{what:?} {news:?}");
        live.settle();
        live.machine.clock.advance_us(2_000_000);
        live.settle();
        live.cut_power();
        live.start(true).unwrap_or_else(|error| panic!("{what:?}: {error}"));
        assert_eq!(live.get("b"), "$1 3", "{what:?} {news:?}");
        calls += 1;
    }
    assert!(failures > 5, "{failures} of {calls}");
}

/// A log that breaks is healed by a base while the store is served, and tried again if that fails.
#[test]
fn a_broken_log_heals_while_serving() {
    let mut live = Live::new(5, 4, 2, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..50 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.settle();
    for more_failures in 0..3u64 {
        live.run("SET b 2");
        let next = live.machine.disk.calls() + 1;
        live.machine.disk.fail(next, SimFault::Io);
        let mut refused = 0;
        for i in 0..STEPS_MOST {
            let more = live.step_all();
            refused += u32::from(live.run("SET c 3").is_none());
            if u64::from(i) == 3 + more_failures {
                let next = live.machine.disk.calls() + more_failures;
                live.machine.disk.fail(next, SimFault::Io);
            }
            if !more && i > 10 {
                break;
            }
        }
        live.machine.clock.advance_us(11_000_000);
        live.settle();
        assert!(refused > 0);
        let news = live.news();
        assert!(matches!(news.first(), Some(LogNews::BaseBegins(Some(_)))), "{news:?}");
        assert_eq!(news.last(), Some(&LogNews::Counts), "{news:?}");
        assert_eq!(live.run(&format!("SET d {more_failures}")).as_deref(), Some("+OK"));
        live.settle();
        live.cut_power();
        live.start(true).expect("after the power cut");
        assert_eq!((live.get("b"), live.get("k49")), ("$1 2".into(), "$3 v49".into()));
        assert_eq!(live.get("d"), format!("$1 {more_failures}"));
        live.machine.clock.advance_us(11_000_000);
    }
}

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
    /// Some steps, over a disk that may have stopped.
    fn settle_if_it_can(&mut self) {
        for _ in 0..200 {
            if !self.step_all() {
                return;
            }
        }
    }
}
