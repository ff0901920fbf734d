//! SIGKILL under write load, with a log: what was answered is there, whatever becomes of memory.
//!
//! ```text
//! round: start ─► compare ─► writers, FLUSHALL now and then ─► SIGKILL ─► memory is changed ─► (a
//!        start that is killed, too)
//! ```
//!
//! After a kill one of these happens:
//!
//! 1. Nothing; or some or all arenas go, or the journals go. Memory has what the log lacks: all
//!    answered writes are there. If a long value was only in an arena, the start names it and
//!    refuses; with the arenas put back it goes on.
//! 2. Arenas and journals go, as with the machine. With `always` all answered writes are there.
//!    With `everysec` each writer's writes are there up to some point, and none behind; what was
//!    answered a second before the kill is there. In one shard no write is there that was sent when
//!    another, which is missing, had been answered.
//!
//! The number of shards may change at any start. Files and journal are small: files change, the
//! journal goes round, and compaction runs.
//!
//! `NIGH_KILLS` sets the number of kills of each test, `NIGH_SLACK_MS` what is allowed on top of
//! the second of `everysec`: on a quiet machine a kill takes 100 ms at most.

mod oracle;

use crate::support::load::{self, Random};
use crate::support::{Server, assert_whole, folder};
use oracle::{Prefix, Writer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Number of kills of each test, unless `NIGH_KILLS` is set.
const KILLS: u64 = 6;
/// Connections that write at the same time.
const WRITERS: u64 = 4;
/// `everysec` promises this.
const MOST_LOST: Duration = Duration::from_millis(1_000);
/// A kill takes some time, and machines that run tests are busy: ms, unless `NIGH_SLACK_MS` is set.
const SLACK_MS: u64 = 2_000;
/// Load before a kill, ms, at most; more before the first one of `everysec`, so that a log that
/// doesn't sync loses more than it may.
const LOAD_MS: u64 = 1_500;
/// A start that is killed has so long, ms.
const START_MS: u64 = 60;

/// One test at a time: they would slow each other down.
static ALONE: Mutex<()> = Mutex::new(());

/// What becomes of memory after a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Stays,
    LosesSomeArenas,
    LosesArenas,
    LosesJournals,
    Goes,
}

#[derive(Default)]
struct Totals {
    kills: u64,
    starts_killed: u64,
    answered: u64,
    unanswered: u64,
    refused: u64,
    over: u64,
    lost: u64,
    longest: Duration,
    refused_starts: u64,
    forgotten: u64,
}

struct Rounds {
    arenas: PathBuf,
    aside: PathBuf,
    dir: PathBuf,
    folder: tempfile::TempDir,
    _disk: tempfile::TempDir,
    mode: &'static str,
    shards: u64,
    changes_shards: bool,
    random: Random,
    totals: Totals,
}

#[test]
fn always_loses_nothing() {
    rounds("always", false);
}

#[test]
fn always_loses_nothing_while_the_number_of_shards_changes() {
    rounds("always", true);
}

#[test]
fn everysec_loses_a_second_at_most() {
    rounds("everysec", false);
}

#[test]
fn everysec_loses_a_second_at_most_while_the_number_of_shards_changes() {
    rounds("everysec", true);
}

fn rounds(mode: &'static str, changes_shards: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let (arenas, aside) = (folder.path().join("arenas"), folder.path().join("aside"));
    let seed = load::seed(u64::from(changes_shards) * 2 + u64::from(mode == "always"));
    let mut all = Rounds {
        arenas,
        aside,
        dir: disk.path().join("log"),
        folder,
        _disk: disk,
        mode,
        shards: 2,
        changes_shards,
        random: Random(seed),
        totals: Totals::default(),
    };
    let writers: Vec<Mutex<Writer>> =
        (0..WRITERS).map(|id| Mutex::new(Writer::new(id + WRITERS * seed))).collect();
    let (mut memory, mut killed_at, mut wrote) = (Memory::Stays, Instant::now(), 0);
    for round in 0..=load::kills(KILLS) {
        let server = all.start(memory);
        all.compare(&writers, &server, memory, killed_at, wrote);
        if round == load::kills(KILLS) {
            break;
        }
        wrote = all.shards;
        let is_long = round == 0 && mode == "everysec";
        killed_at = all.load_and_kill(&writers, server, is_long);
        assert_whole(&all.arenas);
        assert_whole(&all.dir);
        memory = all.draw_memory();
        if is_long || round + 1 == load::kills(KILLS) && all.totals.forgotten == 0 {
            memory = Memory::Goes;
        }
        all.change(memory);
        // A start may be killed as well, and another loss may follow.
        while all.random.draw(3) == 0 {
            all.kill_start(memory);
            if all.random.draw(3) == 0 {
                memory = Memory::Goes;
                all.change(memory);
            }
        }
    }
    all.tell();
}

impl Rounds {
    fn flags(&self) -> Vec<String> {
        let (shards, dir) = (self.shards.to_string(), self.dir.display().to_string());
        let pairs = [
            ("--maxmemory", "512mb"),
            ("--appendonly", "yes"),
            ("--appendfsync", self.mode),
            ("--dir", &dir),
            ("--journal-size", "1mb"),
            ("--log-file-size", "1mb"),
            ("--log-garbage", "20"),
            ("--log-on-tmpfs", "yes"), // wherever the build is
            ("--partitions", "4"),
            ("--shards", &shards),
        ];
        pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect()
    }

    fn spawn(&self) -> Server {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Server::spawn(self.folder.path(), &flags)
    }

    /// The next server. It may refuse to start where arenas are missing that alone had a value.
    fn start(&mut self, memory: Memory) -> Server {
        if self.changes_shards {
            self.shards = 1 + self.random.draw(3);
        }
        let mut server = self.spawn();
        if !matches!(memory, Memory::LosesArenas | Memory::LosesSomeArenas) {
            server.wait();
            return server;
        }
        let Some(said) = server.wait_or_end() else { return server };
        assert_may_refuse(memory, &said);
        self.totals.refused_starts += 1;
        for entry in std::fs::read_dir(&self.aside).expect("they are there") {
            let from = entry.expect("readable").path();
            let to = self.arenas.join(from.file_name().expect("a name"));
            std::fs::rename(from, to).expect("both are ours");
        }
        let mut server = self.spawn();
        server.wait();
        server
    }

    /// A start that is killed at any of its moments, unless it was refused before.
    fn kill_start(&mut self, memory: Memory) {
        if self.changes_shards {
            self.shards = 1 + self.random.draw(3);
        }
        let server = self.spawn();
        std::thread::sleep(Duration::from_millis(self.random.draw(START_MS)));
        match server.kill_start() {
            None => self.totals.starts_killed += 1,
            Some(said) => assert_may_refuse(memory, &said),
        }
    }

    fn draw_memory(&mut self) -> Memory {
        match self.random.draw(10) {
            0..=2 => Memory::Stays,
            3 => Memory::LosesSomeArenas,
            4 => Memory::LosesArenas,
            5 => Memory::LosesJournals,
            _ => Memory::Goes,
        }
    }

    /// Takes from memory what it is to lose.
    fn change(&mut self, memory: Memory) {
        let _ = std::fs::remove_dir_all(&self.aside);
        std::fs::create_dir(&self.aside).expect("the folder is ours");
        if memory == Memory::Stays || !self.arenas.exists() {
            return;
        }
        if memory == Memory::Goes {
            std::fs::remove_dir_all(&self.arenas).expect("the folder is ours");
            self.totals.forgotten += 1;
            return;
        }
        for entry in std::fs::read_dir(&self.arenas).expect("it is there") {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let goes = match memory {
                Memory::LosesJournals => name.starts_with("journal."),
                Memory::LosesSomeArenas => name.ends_with(".arena") && self.random.draw(2) == 0,
                _ => name.ends_with(".arena") || name == "manifest",
            };
            if goes {
                std::fs::rename(&path, self.aside.join(name)).expect("both are ours");
            }
        }
    }

    fn load_and_kill(
        &mut self,
        writers: &[Mutex<Writer>],
        server: Server,
        is_long: bool,
    ) -> Instant {
        let mut span = Duration::from_millis(3 + self.random.draw(LOAD_MS));
        if is_long {
            span += MOST_LOST + load::slack(SLACK_MS);
        }
        let mut pause = Random(self.random.draw(u64::from(u32::MAX)));
        let (gate, is_over) = (RwLock::new(()), AtomicBool::new(false));
        let killed_at = std::thread::scope(|scope| {
            for writer in writers {
                let (mut connection, gate) = (server.connect(), &gate);
                scope.spawn(move || {
                    loop {
                        let _open = gate.read().unwrap_or_else(PoisonError::into_inner);
                        let mut writer = writer.lock().expect("no writer has failed");
                        if !writer.batch(&mut connection) {
                            return;
                        }
                    }
                });
            }
            let mut connection = server.connect();
            let (gate, is_over) = (&gate, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20 + pause.draw(100)));
                    if pause.draw(8) > 0 {
                        continue;
                    }
                    let _all_wait = gate.write().unwrap_or_else(PoisonError::into_inner);
                    let lock = |it: &'_ Mutex<Writer>, what: fn(&mut Writer)| {
                        what(&mut it.lock().expect("no writer has failed"));
                    };
                    writers.iter().for_each(|it| lock(it, Writer::flushes));
                    let Ok(reply) = connection.call(["FLUSHALL"]) else { return };
                    assert!(reply.error().is_none(), "FLUSHALL always works: {reply:?}");
                    writers.iter().for_each(|it| lock(it, Writer::flushed));
                }
            });
            std::thread::sleep(span);
            let killed_at = Instant::now();
            server.kill();
            is_over.store(true, Ordering::Relaxed);
            killed_at
        });
        self.totals.kills += 1;
        killed_at
    }

    /// Compares what the server has with what was answered.
    fn compare(
        &mut self,
        writers: &[Mutex<Writer>],
        server: &Server,
        memory: Memory,
        killed_at: Instant,
        shards: u64,
    ) {
        let may_lose = memory == Memory::Goes && self.mode != "always";
        let mut prefixes: Vec<Prefix> = Vec::new();
        for writer in writers {
            let mut writer = writer.lock().expect("no writer has failed");
            let prefix = writer.find(&mut server.connect());
            let (answered, totals) = (writer.answered(), &mut self.totals);
            totals.answered += answered as u64;
            totals.unanswered += (writer.sent.len() - answered) as u64;
            let lost = answered.saturating_sub(prefix.longest);
            assert!(lost == 0 || may_lose, "{memory:?}: {lost} of {answered} answered ops lost");
            totals.lost += lost as u64;
            for op in &writer.sent[prefix.longest.min(answered)..answered] {
                let ago = killed_at.saturating_duration_since(op.answered_at.expect("answered"));
                assert!(
                    ago < MOST_LOST + load::slack(SLACK_MS),
                    "lost what was answered {ago:?} before"
                );
                totals.longest = totals.longest.max(ago);
            }
            prefixes.push(prefix);
        }
        let writers: Vec<_> =
            writers.iter().map(|it| it.lock().expect("it hasn't failed")).collect();
        if shards == 1 {
            in_one_order(&writers, &prefixes);
        }
        for mut writer in writers {
            writer.sent.clear();
            self.totals.refused += std::mem::take(&mut writer.refused);
            self.totals.over += std::mem::take(&mut writer.over);
        }
    }

    fn tell(&self) {
        let Totals { kills, starts_killed, answered, unanswered, .. } = self.totals;
        let Totals { lost, longest, refused_starts, forgotten, refused, over, .. } = self.totals;
        let newest = newest_file(&self.dir);
        assert!(answered > 100 * kills, "{answered} answered writes are no load");
        assert!(kills == 0 || forgotten > 0, "memory never went");
        eprintln!(
            "{}{}: {kills} kills, {starts_killed} killed starts, memory gone {forgotten} times; \
             {answered} answered writes, {lost} lost, the oldest {} ms before the kill; \
             {unanswered} unanswered, {refused} refused, {over} keys over; {refused_starts} starts refused, then the arenas came back; \
             newest file {newest}",
            self.mode,
            if self.changes_shards { ", shards change" } else { "" },
            longest.as_millis()
        );
    }
}

/// A start is refused only where arenas are missing that alone had a value.
fn assert_may_refuse(memory: Memory, said: &str) {
    let lacks = matches!(memory, Memory::LosesArenas | Memory::LosesSomeArenas);
    let names = said.contains("isn't at hand") || said.contains("value");
    assert!(lacks && names, "{memory:?}: {said}");
}

/// One shard's changes are a prefix of all writers': no write of one is there that was sent when
/// another one, which is missing, had been answered.
fn in_one_order(writers: &[impl std::ops::Deref<Target = Writer>], prefixes: &[Prefix]) {
    for (missing, prefix) in writers.iter().zip(prefixes) {
        let lost = missing.sent.get(prefix.longest).and_then(|op| op.answered_at);
        let Some(lost_at) = lost else { continue };
        for (there, prefix) in writers.iter().zip(prefixes) {
            let Some(last) = prefix.shortest.checked_sub(1) else { continue };
            let sent_at = there.sent[last].sent_at;
            assert!(sent_at <= lost_at, "{:?} after a lost write", sent_at - lost_at);
        }
    }
}

fn newest_file(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("the log's folder");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let number = |name: std::ffi::OsString| {
        let name = name.to_string_lossy().into_owned();
        name.strip_suffix(".log")?.rsplit_once('-')?.1.parse().ok()
    };
    names.filter_map(number).max().unwrap_or_default()
}
