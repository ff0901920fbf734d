//! A machine with a store that has journal and log: its shards' turns and its logs' threads are
//! driven by hand, over a simulated disk; arenas and journals lie in /dev/shm.
//!
//! A kill drops everything without a word. A power cut also takes the arenas and journals, and
//! tears the disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use nigh_log::simulated::{SimChance, SimClock, SimDisk};
use nigh_log::{LogSettings, World};
use nigh_shm::{Domain, JournalWriter, Participant};
use nigh_store::{
    BaseCause, CompactionPace, Keyspace, LogHealth, LogOptions, LogOrder, LogStatus, LogThread,
    LogThreadParts, ShardCompaction, StartReport, StoreError, StoreOptions, SyncMode, Turn,
};
use tempfile::TempDir;

use crate::support::{Resp2, START_MS, op};

/// Passes that a log's thread gets to come to rest.
const PASSES_MOST: u32 = 10_000;

/// Bytes of a log file: small, so that files change and go.
const FILE_BYTES: u64 = 32 << 10;

/// How many histories there are: more, if the environment says so.
pub(crate) fn seeds() -> Option<u64> {
    std::env::var("NIGH_DURABLE_SEEDS").ok()?.parse().ok()
}

/// One shard's log: its thread's state, and what the shard has of it.
pub(crate) struct Log {
    pub(crate) thread: LogThread<SimDisk>,
    pub(crate) journal: JournalWriter,
    pub(crate) compaction: ShardCompaction,
    pub(crate) status: Arc<LogStatus>,
    pub(crate) _orders: SyncSender<LogOrder>,
}

/// A store that runs.
pub(crate) struct Running {
    pub(crate) keyspace: Keyspace,
    pub(crate) logs: Vec<Log>,
    pub(crate) participant: Participant,
    pub(crate) turns: u64,
}

/// The machine, and the store on it.
pub(crate) struct Machine {
    pub(crate) dir: TempDir,
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) chance: Arc<SimChance>,
    pub(crate) boot: u8,
    pub(crate) shards: usize,
    pub(crate) partitions: usize,
    pub(crate) mode: SyncMode,
    pub(crate) file_bytes: u64,
    pub(crate) running: Option<Running>,
}

impl Machine {
    pub(crate) fn new(seed: u64, partitions: usize) -> Machine {
        let dir = tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm");
        Machine {
            dir: dir.expect("a directory in /dev/shm"),
            disk: SimDisk::new(seed),
            clock: Arc::new(SimClock::new(START_MS)),
            chance: Arc::new(SimChance::new(seed)),
            boot: 1,
            shards: 1,
            partitions,
            mode: SyncMode::Always,
            file_bytes: FILE_BYTES,
            running: None,
        }
    }

    pub(crate) fn started(seed: u64, partitions: usize) -> Machine {
        let mut machine = Machine::new(seed, partitions);
        let report = machine.start().expect("the first start");
        assert_eq!(report.base, Some(BaseCause::First));
        machine
    }

    pub(crate) fn start(&mut self) -> Result<StartReport, StoreError> {
        assert!(self.running.is_none());
        let mut options = StoreOptions::new(self.dir.path().join("arenas"), 32 << 20);
        options.system_capacity_bytes = 4 << 20;
        options.partitions = self.partitions;
        let log = LogOptions {
            shards: self.shards,
            settings: LogSettings { file_bytes: self.file_bytes },
            journal_bytes: 1 << 20,
            mode: self.mode,
            boot_id: [self.boot; 16],
            progress: Arc::new(|_| {}),
        };
        let world = World {
            storage: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as _,
            chance: Arc::clone(&self.chance) as _,
        };
        let domain = Domain::new(2);
        let (keyspace, _, opened) = Keyspace::open_with_log(&options, &log, &world, &domain)?;
        let logs = opened.shards.into_iter().map(|shard| {
            let (sender, orders) = sync_channel(4);
            let (looks, looked) = sync_channel(2);
            let compaction = ShardCompaction::new(looked, sender.clone());
            let status = Arc::clone(&shard.log.status);
            let thread = LogThread::new(LogThreadParts {
                log: shard.log,
                streams: Arc::clone(&opened.streams),
                orders,
                looks: (looks, Arc::new(|| {})),
                pace: CompactionPace {
                    garbage_percent: 20,
                    max_bytes: 0,
                    file_bytes: self.file_bytes,
                },
                wake_shards: Arc::new(|| {}),
            });
            Log { thread, journal: shard.journal, compaction, status, _orders: sender }
        });
        let logs = logs.collect();
        let participant = domain.join();
        self.running = Some(Running { keyspace, logs, participant, turns: 0 });
        Ok(opened.report)
    }

    pub(crate) fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("a store that runs")
    }

    /// The process ends at once.
    pub(crate) fn kill(&mut self) {
        self.running = None;
        self.disk = self.disk.kill();
    }

    /// The machine loses power: what is in memory goes, and what isn't synced may.
    pub(crate) fn cut_power(&mut self) {
        self.running = None;
        self.lose_memory();
        self.disk = self.disk.power_cut(&*self.chance);
        self.boot += 1;
    }

    pub(crate) fn lose_memory(&mut self) {
        let dir = self.dir.path().join("arenas");
        std::fs::remove_dir_all(dir).expect("the arenas' folder");
    }

    /// The arenas go; journals stay.
    pub(crate) fn lose_arenas(&mut self) {
        let dir = std::fs::read_dir(self.dir.path().join("arenas")).expect("the arenas' folder");
        for entry in dir {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if !name.starts_with("journal.") {
                std::fs::remove_file(path).expect("its name");
            }
        }
    }

    /// The last LSN of the data, and the last one that was told durable.
    pub(crate) fn lsns(&mut self) -> (u64, u64) {
        let reader = self.running().keyspace.reader(0);
        (reader.begun_lsn(), reader.durable_lsn())
    }

    /// Passes of all logs, until they rest; then the shards' ticks come, and passes again. So a
    /// log's thread gets far before it is told what is alive.
    pub(crate) fn settle(&mut self) {
        self.settle_untold();
        let running = self.running();
        let live = running.keyspace.live_bytes();
        running.logs.iter().for_each(|log| log.status.tell_live(live));
        self.settle_untold();
    }

    /// Passes of all logs, until they rest.
    pub(crate) fn settle_untold(&mut self) {
        for _ in 0..PASSES_MOST {
            if !self.step() {
                return;
            }
        }
        panic!("the logs never come to rest");
    }

    /// A pass of each log, and a step of its compaction. Whether there is more to do.
    pub(crate) fn step(&mut self) -> bool {
        let now_ms = self.clock_ms();
        let running = self.running();
        let mut more = false;
        {
            let pin = running.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: 0 };
            for log in &mut running.logs {
                more |= log.thread.pass() == nigh_store::Passed::More;
                let tail = log.journal.tail();
                more |= running.keyspace.compact(&mut log.compaction, tail, &turn);
                log.journal.leave();
            }
        }
        running.participant.quiescent();
        more
    }

    pub(crate) fn run(&mut self, command: &str) -> String {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.bytes(&args)
    }

    /// Applies a command at the partition of its first key. It is refused if it waits for a log
    /// that broke.
    pub(crate) fn bytes(&mut self, args: &[&[u8]]) -> String {
        for _ in 0..PASSES_MOST {
            if let Some(reply) = self.try_bytes(args) {
                return reply;
            }
            self.settle();
            let mut logs = self.running().logs.iter();
            if logs.any(|log| log.status.health() == LogHealth::Broken) {
                return "-MISCONF".to_owned();
            }
        }
        panic!("memory never comes back");
    }

    /// The same once: `None` if memory or the journal has no room for it now.
    pub(crate) fn try_run(&mut self, command: &str) -> Option<String> {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.try_bytes(&args)
    }

    fn try_bytes(&mut self, args: &[&[u8]]) -> Option<String> {
        let now_ms = self.clock_ms();
        let op = op(args[0]);
        let running = self.running();
        running.turns += 1;
        let partition = match op.first_key() {
            0 => 0,
            at => running.keyspace.partition_of(args[at]),
        };
        let (reply, busy) = {
            let pin = running.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: running.turns };
            running.keyspace.begin_turn(&turn);
            let store = running.keyspace.part_mut(partition);
            let mut out = Resp2::default();
            store.apply(op, args, &turn, &mut out);
            let busy = store.take_busy().is_some();
            running.keyspace.maintain(&turn);
            (out.0, busy)
        };
        running.participant.quiescent();
        (!busy).then(|| String::from_utf8_lossy(&reply).trim_end().replace("\r\n", " "))
    }

    pub(crate) fn clock_ms(&self) -> u64 {
        use nigh_log::Clock;
        self.clock.unix_ms()
    }

    /// All keys with their values and expiries.
    pub(crate) fn state(&mut self, keys: &[String]) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for key in keys {
            let value = self.run(&format!("GET {key}"));
            if value != "$-1" {
                let expiry = self.run(&format!("PEXPIRETIME {key}"));
                state.insert(key.clone(), format!("{value} {expiry}"));
            }
        }
        state
    }
}
