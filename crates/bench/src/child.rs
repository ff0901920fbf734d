//! A server in a child process, with a private directory in tmpfs, and one on a disk if it wants.
//!
//! ```text
//! Program ── path of nigh ──► ServerProcess::nigh ───► child process, port, directories
//! any program and flags ────► ServerProcess::start ─┘      kill ⇄ restart, pause ⇄ resume
//! ```
//!
//! Invariants:
//! 1. Dropping a [`ServerProcess`] stops the process and removes the directories, also after an
//!    error, and also while the process is killed or stands still. The thread that starts
//!    one watches for signals ([`crate::interrupt`]), so that it is dropped then too.
//! 2. The server's output is kept in the directory in tmpfs. If the server doesn't start, or can't
//!    be connected to, its last lines are part of the error.
//!
//! A server belongs to the thread that started it.

use crate::interrupt;
use anyhow::{Context, Result, bail};
use nigh_client::{Address, Connection, ConnectionOptions, Frame};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Arenas lie here: a tmpfs on every Debian.
const TMPFS: &str = "/dev/shm";
/// The longest time that a server takes to start.
const START: Duration = Duration::from_secs(20);
/// Time between two checks whether the server is up, or has ended.
const POLL: Duration = Duration::from_millis(10);
/// Time between two questions to a server that starts again: a start takes some 100 ms.
const ASK: Duration = Duration::from_millis(1);
/// Time for a server to stop by itself; then it is killed.
const STOP: Duration = Duration::from_secs(3);
/// Name of the file with a server's output.
const OUTPUT: &str = "log";
/// Attempts to start. Another process may take the chosen port before the server listens on it.
const PORTS: usize = 3;

/// The command that builds `nigh` with the profile of this program.
const BUILD: &str = if cfg!(debug_assertions) {
    "cargo build -p nigh-cli"
} else {
    "cargo build --release -p nigh-cli"
};

/// The option that names the server's program.
#[derive(clap::Args)]
pub(crate) struct Program {
    /// Server's program [default: the nigh beside this program]
    #[arg(long, value_name = "PATH")]
    nigh: Option<PathBuf>,
}

impl Program {
    /// The absolute path of the program.
    ///
    /// # Errors
    /// There is no file at that path.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let path = match &self.nigh {
            Some(path) => std::path::absolute(path).context("the path of --nigh is empty")?,
            None => std::env::current_exe()
                .context("can't find this program's own file")?
                .with_file_name("nigh"),
        };
        if !path.is_file() {
            bail!("{} isn't there: build it with `{BUILD}`, or name one by --nigh", path.display());
        }
        Ok(path)
    }
}

/// A running server. Dropping it stops the process and removes the directories.
pub(crate) struct ServerProcess {
    process: Child,
    /// The command with all its arguments.
    words: Vec<String>,
    address: Address,
    directory: TempDir,
    disk: Option<TempDir>,
}

impl ServerProcess {
    /// Starts `program` with `arguments` and waits until it answers PING. In all of them `{port}`
    /// becomes a free port, `{dir}` the private directory in tmpfs, and `{disk}` a private
    /// directory in `disk`.
    pub(crate) fn start(
        program: &[String],
        arguments: &[String],
        disk: Option<&Path>,
    ) -> Result<Self> {
        let mut last = None;
        for _ in 0..PORTS {
            interrupt::check()?;
            match Self::attempt(program, arguments, disk) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no port was tried")?)
    }

    /// Starts `nigh serve` with the flags `extra`, behind the words of `prefix` (`taskset -c 0`).
    pub(crate) fn nigh(nigh: &Path, prefix: &[String], extra: &[String]) -> Result<Self> {
        Self::nigh_on(nigh, prefix, extra, None)
    }

    /// The same, with a private directory in `disk`.
    pub(crate) fn nigh_on(
        nigh: &Path,
        prefix: &[String],
        extra: &[String],
        disk: Option<&Path>,
    ) -> Result<Self> {
        let mut program = prefix.to_vec();
        program.push(nigh.to_str().context("the path of nigh isn't UTF-8")?.to_owned());
        let mut arguments: Vec<String> =
            ["serve", "--port", "{port}", "--shm-dir", "{dir}/arenas"].map(Into::into).into();
        arguments.extend_from_slice(extra);
        Self::start(&program, &arguments, disk)
    }

    fn attempt(program: &[String], arguments: &[String], disk: Option<&Path>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let make = |parent: &Path| {
            tempfile::Builder::new()
                .prefix("nigh-own-")
                .tempdir_in(parent)
                .with_context(|| format!("can't make a directory in {}", parent.display()))
        };
        let directory = make(Path::new(TMPFS))?;
        let disk = disk.map(make).transpose()?;
        let path = |directory: &TempDir| {
            let path = directory.path().to_str().map(str::to_owned);
            path.context("a path that isn't UTF-8")
        };
        let in_tmpfs = path(&directory)?;
        let on_disk = disk.as_ref().map(path).transpose()?.unwrap_or_default();
        let fill = |text: &String| {
            let text = text.replace("{port}", &port.to_string()).replace("{dir}", &in_tmpfs);
            text.replace("{disk}", &on_disk)
        };
        let words: Vec<String> = program.iter().chain(arguments).map(fill).collect();
        let process = spawn(&words, directory.path())?;
        let address = Address::tcp("127.0.0.1", port);
        let mut server = Self { process, words, address, directory, disk };
        server.first_reply(&["PING"], POLL)?;
        Ok(server)
    }

    /// Asks until a reply comes that isn't an error. Returns this reply.
    fn first_reply(&mut self, question: &[&str], pause: Duration) -> Result<Frame> {
        let start = Instant::now();
        while start.elapsed() < START {
            interrupt::check()?;
            if let Some(status) = self.process.try_wait()? {
                bail!("the server didn't start ({status}): {}", self.said());
            }
            if let Ok(mut connection) =
                Connection::connect(&self.address, &ConnectionOptions::default())
                && let Ok(reply) = connection.call(question)
                && reply.error().is_none()
            {
                return Ok(reply);
            }
            std::thread::sleep(pause);
        }
        bail!("the server didn't answer within {} s: {}", START.as_secs(), self.said())
    }

    /// Ends the process by SIGKILL. Its files stay.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill().context("can't kill a server")?;
        self.process.wait().context("can't wait for a killed server")?;
        Ok(())
    }

    /// Starts a killed server again, in the same directories. Returns the reply to `question`, and
    /// the time from the start of the process to this reply.
    pub(crate) fn restart(&mut self, question: &[&str]) -> Result<(Duration, Frame)> {
        let start = Instant::now();
        self.process = spawn(&self.words, self.directory.path())?;
        let reply = self.first_reply(question, ASK)?;
        Ok((start.elapsed(), reply))
    }

    /// Makes the process and its children stand still.
    pub(crate) fn pause(&self) -> Result<()> {
        // Behind this the process begins no child, so none is missed.
        self.signal(Signal::STOP)?;
        // Its threads stand a little later.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.process)), options)?;
        if let Some(status) = status.filter(|status| !status.stopped()) {
            let how = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (_, Some(signal)) => format!("signal {signal}"),
                _ => "nobody knows how".to_owned(),
            };
            bail!("the server has ended ({how}); {}", self.told());
        }
        self.children()?.into_iter().try_for_each(|child| send(child, Signal::STOP))
    }

    /// Makes a process go on that stands still, and its children.
    pub(crate) fn resume(&self) -> Result<()> {
        self.children()?.into_iter().try_for_each(|child| send(child, Signal::CONT))?;
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        send(Pid::from_child(&self.process), signal)
    }

    /// Children that the process's main thread has begun, as Redis does.
    fn children(&self) -> Result<Vec<Pid>> {
        let id = self.process.id();
        let path = format!("/proc/{id}/task/{id}/children");
        let text = std::fs::read_to_string(&path).with_context(|| format!("can't read {path}"))?;
        let ids = text.split_whitespace().filter_map(|word| word.parse().ok());
        Ok(ids.filter_map(Pid::from_raw).collect())
    }

    /// What the process has printed since its last start.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(OUTPUT)).unwrap_or_default()
    }

    /// The last lines of the server's output.
    fn said(&self) -> String {
        let text = self.output();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }

    /// Which server it is, and what it said last: for errors.
    pub(crate) fn told(&self) -> String {
        format!("`{}` at {} said last: {}", self.words.join(" "), self.address, self.said())
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let options = ConnectionOptions::default();
        Connection::connect(&self.address, &options).with_context(|| self.told())
    }

    /// The private directory in tmpfs.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The private directory on a disk.
    pub(crate) fn disk(&self) -> Option<&Path> {
        self.disk.as_ref().map(TempDir::path)
    }
}

/// Starts the command `words`. Its output goes to a file in `directory`.
fn spawn(words: &[String], directory: &Path) -> Result<Child> {
    let output = File::create(directory.join(OUTPUT)).context("can't write the server's output")?;
    let (name, arguments) = words.split_first().context("a command without words")?;
    Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("can't start {name}"))
}

/// Sends a signal to a process, which may have ended.
fn send(process: Pid, signal: Signal) -> Result<()> {
    match kill_process(process, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("can't send a signal to a server"),
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        let _ = self.resume();
        if let Ok(mut connection) =
            Connection::connect(&self.address, &ConnectionOptions::default())
        {
            // Errors don't matter here: a server that doesn't stop is killed below.
            let _ = connection.set_timeout(Some(STOP));
            let _ = connection.call(&["SHUTDOWN", "NOSAVE"]);
        }
        let start = Instant::now();
        while start.elapsed() < STOP {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The reply.
///
/// # Errors
/// The reply is an error reply.
pub(crate) fn accepted(reply: Frame) -> Result<Frame> {
    match reply.error() {
        Some(text) => bail!("the server refused: {}", String::from_utf8_lossy(text)),
        None => Ok(reply),
    }
}
