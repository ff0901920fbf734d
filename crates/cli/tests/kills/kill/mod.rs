//! SIGKILL under write load: the next server has every acknowledged write, and no half commit.
//!
//! ```text
//! round:  start (adopts) ─► compare with the oracle ─► writers in parallel ─► SIGKILL ─► nigh check
//! ```
//!
//! Each writer has keys of its own and one connection, whose commands run in order: SET, DEL,
//! APPEND, MSET, PEXPIREAT, PERSIST, and MULTI/EXEC of them. When the server dies, some commands
//! are unanswered. The next server must satisfy:
//!
//! 1. A prefix of the unanswered commands happened, each wholly: all keys equal the oracle after
//!    *some* prefix. For APPEND the value is all parts so far, in order, and no more.
//! 2. Brief keys expire while the server runs, is killed or starts. An expired key is never found
//!    again; a key with time left is found. Two keys with the same expiry by one transaction are
//!    both found, or neither.
//! 3. Other keys expire in an hour, or never. Their expiry is compared, too.
//! 4. `nigh check` finds nothing.
//!
//! `NIGH_KILLS` sets the number of kills.

mod writer;

use crate::support::load::{self, Random};
use crate::support::{Server, assert_whole, folder};
use std::time::Duration;
use writer::{Writer, is_refused};

/// Number of kills, unless `NIGH_KILLS` is set.
const KILLS: u64 = 10;
/// Connections that write at the same time.
const WRITERS: u64 = 3;
/// Rounds between flushes: until then overwritten records stay in the arena.
const FLUSH_EVERY: u64 = 8;

/// A log for the servers of a test.
struct Logged {
    /// `appendfsync`.
    mode: &'static str,
    /// Now and then arenas and journals go with the server, as a reboot takes them.
    forgets: bool,
    /// It begins and ends while the writers write.
    flips: bool,
}

impl Logged {
    /// Has the log begin and end by CONFIG SET; in the end it counts if `stays`.
    fn flip(&self, server: &Server, chance: &mut Random, stays: bool) {
        let set = |on| {
            let reply =
                server.call(&["CONFIG", "SET", "appendonly", if on { "yes" } else { "no" }]);
            assert!(!is_refused(&reply), "{reply:?}: {}", server.said());
        };
        for _ in 0..chance.draw(6) {
            set(chance.draw(2) == 0);
            std::thread::sleep(Duration::from_millis(chance.draw(25)));
        }
        if stays {
            set(true);
            server.wait_for_info("log_state:well");
            // What was acknowledged before it counted is on disk then, and all shards have seen it.
            let granted = server.call(&["WAITAOF", "1", "0", "0"]);
            assert!(!is_refused(&granted), "{granted:?}");
            std::thread::sleep(SEEN);
        }
    }
}

/// Between two operations of a writer that no disk holds up: the journal isn't to be full.
const PAUSE: Duration = Duration::from_millis(1);
/// All shards have taken a turn in this time.
const SEEN: Duration = Duration::from_millis(20);
/// Rounds between two servers that find no arenas, where they forget.
const FORGET_EVERY: u64 = 3;

/// The server is killed again and again, under writers of small and large values, logs and brief
/// keys, while the index grows. Every acknowledged write is there, commits are whole, and expired
/// keys stay gone.
#[test]
fn killed_servers_lose_nothing_halve_nothing_and_bring_nothing_back() {
    rounds(None);
}

/// The same with a log that is written and compacted meanwhile: files and journal are small.
#[test]
fn killed_servers_with_a_log_go_on_from_memory() {
    rounds(Some(Logged { mode: "everysec", forgets: false, flips: false }));
}

/// With `always`, all that was acknowledged is in the log alone, whatever becomes of memory.
#[test]
fn what_was_acknowledged_with_always_is_in_the_log() {
    rounds(Some(Logged { mode: "always", forgets: true, flips: false }));
}

/// The same with a log that begins and ends under the writers: when it has begun to count, it has
/// all that was acknowledged before; a kill while it begins or ends loses nothing.
#[test]
fn a_log_that_begins_and_ends_under_load_loses_nothing() {
    rounds(Some(Logged { mode: "always", forgets: true, flips: true }));
}

fn rounds(logged: Option<Logged>) {
    let kills = load::kills(KILLS);
    let folder = folder();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let log = disk.path().join("log");
    let dir = log.to_str().expect("a path of ours");
    let mut flags = vec!["--maxmemory", "2gb"];
    if let Some(Logged { mode, flips, .. }) = &logged {
        flags.extend(["--appendfsync", *mode, "--dir", dir]);
        flags.extend(["--log-file-size", "2mb", "--journal-size"]);
        flags.push(if *flips { "32mb" } else { "4mb" });
        flags.extend(["--log-on-tmpfs", "yes"]); // wherever the build is
    }
    let forgets = logged.as_ref().is_some_and(|logged| logged.forgets);
    let flips = logged.as_ref().is_some_and(|logged| logged.flips);
    let arenas = folder.path().join("arenas");
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut pause = Random(WRITERS + 1);
    let mut before = String::new();
    for round in 0..=kills {
        let is_empty = forgets && round % FORGET_EVERY == 0;
        let on = logged.as_ref().is_some_and(|it| !it.flips || is_empty || pause.draw(2) == 0);
        let appendonly = ["--appendonly", if on { "yes" } else { "no" }];
        let server = Server::start_with(folder.path(), &[&flags[..], &appendonly].concat());
        for writer in &mut writers {
            if let Err(wrong) = writer.compare(&mut server.connect()) {
                panic!("round {round}: {wrong}; {}; the one before it: {before}", server.said());
            }
        }
        if round == kills {
            break;
        }
        if round % FLUSH_EVERY == FLUSH_EVERY - 1 {
            assert!(!is_refused(&server.call(&["FLUSHALL"])), "FLUSHALL always works");
            for writer in &mut writers {
                writer.acknowledged.values_mut().for_each(|held| *held = None);
            }
        }
        let span = Duration::from_millis(3 + pause.draw(60));
        let is_reboot = forgets && round % FORGET_EVERY == FORGET_EVERY - 1;
        std::thread::scope(|scope| {
            for writer in &mut writers {
                writer.pause = if flips { PAUSE } else { Duration::ZERO };
                let mut connection = server.connect();
                scope.spawn(move || writer.write(&mut connection));
            }
            if let Some(logged) = logged.as_ref().filter(|logged| logged.flips) {
                logged.flip(&server, &mut pause, is_reboot);
            }
            std::thread::sleep(span);
            before = server.said();
            server.kill();
        });
        assert_whole(&arenas);
        if logged.is_some() {
            assert_whole(&log);
        }
        if is_reboot {
            std::fs::remove_dir_all(&arenas).expect("the arenas' folder");
        }
    }
    let sum = |of: fn(&Writer) -> u64| writers.iter().map(of).sum::<u64>();
    let (written, over) = (sum(|w| w.count), sum(|w| w.over));
    let (appends, in_part) = (sum(|w| w.appends), sum(|w| w.in_part));
    assert!(written > kills, "{written} acknowledged writes in {kills} rounds are no load");
    assert!(appends > kills && over > kills, "{appends} appends, {over} keys over are no load");
    eprintln!(
        "{kills} kills, {written} acknowledged writes ({appends} of them single APPENDs), all there; {in_part} \
         comparisons with writes of which nobody was told; {over} keys were over and stayed gone"
    );
}
