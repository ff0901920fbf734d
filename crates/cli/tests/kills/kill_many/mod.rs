//! Thousands of SIGKILLs over tens of millions of writes: a load as fast as the server, and an
//! oracle that costs little.
//!
//! ```text
//! round: start ─► compare all keys ─► clients, up to some number of answers ─► SIGKILL ─► memory goes, or not
//! ```
//!
//! 1. Memory stays: all that was answered is there.
//! 2. Arenas and journals go. With `always` all that was answered is there. With `everysec` what is
//!    lost was answered a second before the kill at most.
//! 3. What is there of a client is what it had after some number of its commands: none is done by
//!    half, and none is there behind one that is missing.
//!
//! `NIGH_KILLS` sets the number of kills of each test, `NIGH_KILL_WRITES` the mean number of
//! answered writes between two of them, `NIGH_SLACK_MS` what is allowed on top of the second of
//! `everysec`, `NIGH_SEED` other numbers.

mod client;

use crate::support::load::{self, Random};
use crate::support::{Server, assert_whole, folder};
use client::Client;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kills of each test, and mean answers between two of them, unless told.
const KILLS: u64 = 6;
const WRITES: u64 = 4_000;
/// Clients, each with a connection and keys of its own.
const CLIENTS: u64 = 4;
/// `everysec` promises this.
const MOST_LOST: Duration = Duration::from_millis(1_000);
/// A kill takes some time, and machines that run tests are busy: ms, unless `NIGH_SLACK_MS` is set.
const SLACK_MS: u64 = 2_000;
/// A start that is killed has so long, ms.
const START_MS: u64 = 40;
/// Kills between two checks of all bytes, and between two lines about how far it is.
const CHECK_EVERY: u64 = 50;
const TELL_EVERY: u64 = 100;
/// Longest wait for the answers of a round.
const ROUND_MOST: Duration = Duration::from_secs(120);

/// One test at a time: they would slow each other down.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Totals {
    kills: u64,
    starts_killed: u64,
    forgotten: u64,
    answered: u64,
    lost: u64,
    longest: Duration,
}

#[test]
fn always_loses_nothing_and_halves_nothing() {
    rounds("always");
}

#[test]
fn everysec_loses_a_second_at_most_and_halves_nothing() {
    rounds("everysec");
}

struct Rounds {
    arenas: PathBuf,
    dir: PathBuf,
    folder: tempfile::TempDir,
    _disk: tempfile::TempDir,
    mode: &'static str,
    random: Random,
    totals: Totals,
}

fn rounds(mode: &'static str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (kills, began) = (load::kills(KILLS), Instant::now());
    let folder = folder();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let mut all = Rounds {
        arenas: folder.path().join("arenas"),
        dir: disk.path().join("log"),
        folder,
        _disk: disk,
        mode,
        random: Random(load::seed(u64::from(mode == "always"))),
        totals: Totals::default(),
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(Client::new).collect();
    let (mut forgets, mut killed_at) = (false, began);
    loop {
        let mut server = all.spawn();
        server.wait();
        for client in &mut clients {
            all.compare(client, &server, forgets, killed_at);
        }
        if all.totals.kills == kills {
            break;
        }
        killed_at = all.load_and_kill(&mut clients, server);
        all.check();
        let is_last_chance = all.totals.kills == kills && all.totals.forgotten == 0;
        forgets = all.random.draw(2) == 0 || is_last_chance;
        if forgets {
            std::fs::remove_dir_all(&all.arenas).expect("the folder is ours");
            all.totals.forgotten += 1;
        }
        if all.random.draw(10) == 0 {
            let server = all.spawn();
            std::thread::sleep(Duration::from_millis(all.random.draw(START_MS)));
            server.kill();
            all.totals.starts_killed += 1;
        }
        if all.totals.kills.is_multiple_of(TELL_EVERY) {
            eprintln!("{}", all.line(began));
        }
    }
    eprintln!("{}", all.line(began));
    assert!(all.totals.answered > 100 * kills, "that is no load");
    assert!(kills == 0 || all.totals.forgotten > 0, "memory never went");
}

impl Rounds {
    fn spawn(&self) -> Server {
        let dir = self.dir.to_str().expect("a path of ours");
        let flags = [
            ["--maxmemory", "256mb"],
            ["--appendonly", "yes"],
            ["--appendfsync", self.mode],
            ["--dir", dir],
            ["--journal-size", "4mb"],
            ["--log-file-size", "2mb"],
            ["--log-on-tmpfs", "yes"], // wherever the build is
            ["--partitions", "4"],
            ["--shards", "2"],
        ];
        Server::spawn(self.folder.path(), &flags.concat())
    }

    /// Compares what the server has with what was answered.
    fn compare(&mut self, client: &mut Client, server: &Server, forgets: bool, killed: Instant) {
        let mode = self.mode;
        let found = client.find(&mut server.connect());
        let found = found.unwrap_or_else(|what| panic!("{mode}, half of a command: {what}"));
        let lost = client.lost(found);
        let may_lose = forgets && mode != "always";
        assert!(lost == 0 || may_lose, "{mode}, memory gone: {forgets}: {lost} answers are lost");
        if let Some(answered_at) = client.answered_at(found) {
            let ago = killed.saturating_duration_since(answered_at);
            let most = MOST_LOST + load::slack(SLACK_MS);
            assert!(ago < most, "{lost} are lost, the first answered {ago:?} before the kill");
            self.totals.longest = self.totals.longest.max(ago);
        }
        self.totals.answered += client.answered();
        self.totals.lost += lost;
        client.go_on_from(found);
    }

    /// Lets the clients write until the wanted number of answers has come, and kills the server.
    fn load_and_kill(&mut self, clients: &mut [Client], server: Server) -> Instant {
        let mean = load::number("NIGH_KILL_WRITES", WRITES);
        let wanted = mean / 4 + self.random.draw(mean * 3 / 2 + 1);
        let answers = AtomicU64::new(0);
        let extra = Duration::from_micros(self.random.draw(3_000));
        let killed_at = std::thread::scope(|scope| {
            for client in clients {
                let (address, answers) = (("127.0.0.1", server.port), &answers);
                scope.spawn(move || client.write(address, answers));
            }
            let began = Instant::now();
            while answers.load(Relaxed) < wanted {
                assert!(began.elapsed() < ROUND_MOST, "no answers: {}", server.said());
                std::thread::sleep(Duration::from_micros(500));
            }
            std::thread::sleep(extra);
            let killed_at = Instant::now();
            server.kill();
            killed_at
        });
        self.totals.kills += 1;
        killed_at
    }

    /// Now and then: all bytes of arenas and log are as they should be.
    fn check(&self) {
        if !self.totals.kills.is_multiple_of(CHECK_EVERY) {
            return;
        }
        for folder in [&self.arenas, &self.dir] {
            assert_whole(folder);
        }
    }

    fn line(&self, began: Instant) -> String {
        let Totals { kills, starts_killed, forgotten, answered, lost, longest } = self.totals;
        format!(
            "{}: {kills} kills and {starts_killed} of starts, memory gone {forgotten} times, \
             {answered} acknowledged writes, {lost} lost, at most {} ms old; {} s",
            self.mode,
            longest.as_millis(),
            began.elapsed().as_secs()
        )
    }
}
