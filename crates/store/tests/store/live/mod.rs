//! A log that begins, ends and heals while the store is served, against a model: what was promised
//! while the log counted is there after a power cut; what was served without a log, or retired,
//! doesn't come back; a kill loses nothing.
//!
//! Owners, threads and the keeper are driven by hand, in any order, over a simulated disk.

mod healing;
mod histories;
mod stories;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nigh_log::simulated::{SimChance, SimDisk, SimFault, below};
use nigh_log::{LogSettings, World};
use nigh_shm::{Domain, JournalWriter, Participant};
use nigh_store::{
    AttachedShard, ClosedArenas, CompactionPace, Keyspace, LiveLog, LogBerth, LogHealth, LogKeeper,
    LogNews, LogOptions, LogOrder, LogPort, LogStatuses, LogThread, LogThreadParts, LookBatch,
    Passed, ShardCompaction, ShardLog, SharedStreams, StoreError, StoreOptions, SyncMode,
    ThreadLog, Turn, log_of, retire_log,
};

use crate::machine::Machine;
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

    fn spawn(&mut self, logs: Vec<ThreadLog<SimDisk>>, streams: &Arc<SharedStreams>) {
        let ends = std::mem::take(&mut self.ends);
        for (log, ends) in logs.into_iter().zip(ends) {
            self.add(log, ends, streams);
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

impl Hands {
    fn add(&mut self, log: ThreadLog<SimDisk>, ends: Ends, streams: &Arc<SharedStreams>) {
        let (sender, orders, looks) = ends;
        let thread = LogThread::new(LogThreadParts {
            log,
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
                opened.shards.iter().map(|it| Arc::clone(&it.log.status)).collect();
            hands.statuses = Some(Arc::clone(&statuses));
            for (number, shard) in opened.shards.into_iter().enumerate() {
                let ShardLog { journal, log } = shard;
                let (sender, orders) = sync_channel(4);
                let (looks, looked) = sync_channel(2);
                let side = &mut hands.sides[number];
                side.journal = Some(journal);
                side.compaction = Some(Box::new(ShardCompaction::new(looked, sender.clone())));
                side.statuses = Some(Arc::clone(&statuses));
                hands.add(log, (sender, orders, looks), &opened.streams);
            }
            (keyspace, LogKeeper::of_start(live, statuses, log.mode))
        } else {
            if let Some(id) = log_of(&options.dir)? {
                retire_log(&options, id, &log.boot_id, &world)?;
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

    /// Some steps, over a disk that may have stopped.
    fn settle_if_it_can(&mut self) {
        for _ in 0..200 {
            if !self.step_all() {
                return;
            }
        }
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
                let busy = store.take_busy().is_some();
                on.keyspace.maintain(&turn);
                (out.0, busy)
            };
            on.participant.quiescent();
            if !busy {
                return Some(String::from_utf8_lossy(&reply).trim_end().replace("\r\n", " "));
            }
            self.step_all();
            // A log that was full is tried again each second.
            self.machine.clock.advance_us(1000);
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
