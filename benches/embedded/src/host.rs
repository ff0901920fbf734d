//! An engine's process, as the conductor sees it.
//!
//! 1. The process stands still (SIGSTOP) unless it has an order: what its background threads do
//!    takes time from its own figures only.
//! 2. Each wait for an answer has an end.
//! 3. Dropping it kills the process, and waits for it.

use crate::engines::{EngineKind, Place};
use crate::protocol::{Answer, Done, Order};
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time for one order: a fill of ten million keys by the slowest engine.
const ANSWER_MOST: Duration = Duration::from_secs(1800);
/// Time between two looks whether somebody wants the run to end.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of a block in the count of a file's blocks.
const BLOCK_BYTES: u64 = 512;

/// A running engine.
pub(crate) struct Host {
    pub(crate) kind: &'static EngineKind,
    /// How long the opening took.
    pub(crate) opened: Done,
    place: Place,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// Bytes of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Footprint {
    /// Blocks of the files in its folder.
    pub(crate) disk: u64,
    /// Memory of the process's own.
    pub(crate) private: u64,
    /// Pages of files that the process maps, other than a tmpfs's.
    pub(crate) mapped: u64,
    /// Blocks of its files in a tmpfs.
    pub(crate) tmpfs: u64,
}

impl Host {
    /// Starts an engine's process on a folder. With `first_get` the opening includes a read.
    pub(crate) fn start(kind: &'static EngineKind, place: &Place, first_get: bool) -> Result<Host> {
        for dir in [&place.dir, &place.memory_dir] {
            std::fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["engine", "--name", kind.name, "--keys", &place.keys.to_string()]);
        command.arg("--dir").arg(&place.dir).arg("--memory-dir").arg(&place.memory_dir);
        command.args(place.strong.then_some("--strong"));
        command.args(first_get.then_some("--first-get"));
        // A group of its own: Ctrl-C is for the conductor, which tells its processes.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("an engine's process can't be started")?;
        let orders = child.stdin.take().context("no pipe")?;
        let output = child.stdout.take().context("no pipe")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let opened = Done { operations: 0, nanos: 0, beside: 0 };
        let mut host = Host { kind, opened, place: place.clone(), child, orders, answers };
        host.opened = host.answer()?;
        host.signal(Signal::STOP)?;
        Ok(host)
    }

    /// Has the engine do something.
    pub(crate) fn order(&mut self, order: &Order) -> Result<Done> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.signal(Signal::CONT)?;
        self.orders.write_all(line.as_bytes())?;
        let done = self.answer()?;
        self.signal(Signal::STOP)?;
        Ok(done)
    }

    /// Whether its writes wait for the disk.
    pub(crate) fn is_strong(&self) -> bool {
        self.place.strong
    }

    /// Lets it run for a while without an order. A process that stood still has to find out what
    /// time it is: Nigh holds writes back while its disk is two seconds late, as it seems to be
    /// then.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        self.signal(Signal::CONT)?;
        std::thread::sleep(time);
        self.signal(Signal::STOP)
    }

    /// Closes the database; the process ends.
    fn close(mut self) -> Result<()> {
        self.signal(Signal::CONT)?;
        let line = serde_json::to_string(&Order::Close)? + "\n";
        self.orders.write_all(line.as_bytes())?;
        self.answer()?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("{} ended with {status}", self.kind.name);
        }
        Ok(())
    }

    /// Ends the process, by SIGKILL or by a close, and opens the database again.
    pub(crate) fn opened_again(self, by_kill: bool) -> Result<Host> {
        let (kind, place) = (self.kind, self.place.clone());
        match by_kill {
            true => drop(self),
            false => self.close()?,
        }
        Host::start(kind, &place, true)
    }

    fn answer(&mut self) -> Result<Done> {
        let begin = Instant::now();
        while begin.elapsed() < ANSWER_MOST {
            crate::interrupt::check()?;
            match self.answers.recv_timeout(LOOK) {
                Ok(line) => {
                    let answer: Answer = serde_json::from_str(&line)?;
                    return answer.map_err(|text| anyhow!("{text}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    bail!("{}'s process ended: {status}", self.kind.name);
                }
            }
        }
        bail!("{} gave no answer within {ANSWER_MOST:?}", self.kind.name)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process has a number")?;
        kill_process(pid, signal).with_context(|| format!("{} is gone", self.kind.name))
    }

    /// What the database takes now.
    pub(crate) fn footprint(&self) -> Result<Footprint> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
        };
        Ok(Footprint {
            disk: blocks(&self.place.dir)?,
            private: bytes("RssAnon:").context("no RssAnon")?,
            mapped: bytes("RssFile:").context("no RssFile")?,
            tmpfs: blocks(&self.place.memory_dir)?,
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that the files below a folder take. A file may go meanwhile: an engine merges its files
/// when it likes.
fn blocks(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        sum += match entry.metadata() {
            Ok(about) if about.is_dir() => blocks(&entry.path())?,
            Ok(about) => about.blocks() * BLOCK_BYTES,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(sum)
}
