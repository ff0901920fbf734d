//! A server in a child process, with a private directory in tmpfs.
//!
//! ```text
//! Program ── path of nigh ──► ServerProcess::nigh ───► child process, port, directory
//! any program and flags ────► ServerProcess::start ─┘
//! ```
//!
//! Invariants:
//! 1. Dropping a [`ServerProcess`] stops the process and removes the directory, also after an
//!    error.
//! 2. The server's output is kept in the directory. If the server doesn't start, its last lines are
//!    part of the error.
//!
//! A server belongs to the thread that started it.

use anyhow::{Context, Result, bail};
use nigh_client::{Address, Connection, Frame, Options};
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
/// Time for a server to stop by itself; then it is killed.
const STOP: Duration = Duration::from_secs(3);
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

/// A running server. Dropping it stops the process and removes the directory.
pub(crate) struct ServerProcess {
    process: Child,
    address: Address,
    directory: TempDir,
}

impl ServerProcess {
    /// Starts `program` with `arguments` and waits until it answers PING. In all of them `{port}`
    /// becomes a free port and `{dir}` the private directory.
    pub(crate) fn start(program: &[String], arguments: &[String]) -> Result<Self> {
        let mut last = None;
        for _ in 0..PORTS {
            match Self::attempt(program, arguments) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no port was tried")?)
    }

    /// Starts `nigh serve` with the flags `extra`, behind the words of `prefix` (`taskset -c 0`).
    pub(crate) fn nigh(nigh: &Path, prefix: &[String], extra: &[String]) -> Result<Self> {
        let mut program = prefix.to_vec();
        program.push(nigh.to_str().context("the path of nigh isn't UTF-8")?.to_owned());
        let mut arguments: Vec<String> =
            ["serve", "--port", "{port}", "--shm-dir", "{dir}/arenas"].map(Into::into).into();
        arguments.extend_from_slice(extra);
        Self::start(&program, &arguments)
    }

    fn attempt(program: &[String], arguments: &[String]) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = tempfile::Builder::new()
            .prefix("nigh-own-")
            .tempdir_in(TMPFS)
            .with_context(|| format!("can't make a directory in {TMPFS}"))?;
        let path = directory.path().to_str().context("a path that isn't UTF-8")?;
        let log_path = directory.path().join("log");
        let log = File::create(&log_path).context("can't write the server's log")?;
        let fill = |text: &String| text.replace("{port}", &port.to_string()).replace("{dir}", path);
        let words: Vec<String> = program.iter().chain(arguments).map(fill).collect();
        let process = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start {}", words[0]))?;
        let address = Address::tcp("127.0.0.1", port);
        let mut server = Self { process, address, directory };
        server.wait_until_up()?;
        Ok(server)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server didn't start ({status}): {}", self.said());
            }
            if let Ok(mut connection) = Connection::connect(&self.address, &Options::default())
                && connection.call(&["PING"]).is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server didn't answer within {} s: {}", START.as_secs(), self.said())
    }

    /// The last lines of the server's output.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Result<Connection> {
        Ok(Connection::connect(&self.address, &Options::default())?)
    }

    /// The private directory in tmpfs.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Ok(mut connection) = Connection::connect(&self.address, &Options::default()) {
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
