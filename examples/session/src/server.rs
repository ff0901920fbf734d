//! The server of a run: one that is there, or a child process with a folder of its own.

use anyhow::{Context, Result, bail};
use nigh_client::{Address, Connection, ConnectionOptions};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for a server that starts.
const START: Duration = Duration::from_secs(60);
/// Where arenas and sockets are made.
const TMPFS: &str = "/dev/shm";

/// A server's address; dropping it ends the server if it is a child.
pub(crate) struct Server {
    pub(crate) address: Address,
    child: Option<(Child, TempDir)>,
}

impl Server {
    /// A server that is there.
    pub(crate) fn there(address: Address) -> Server {
        Server { address, child: None }
    }

    /// Starts `nigh`, without a log.
    pub(crate) fn nigh(program: &Path) -> Result<Server> {
        Server::start(program, |folder| {
            let arenas = format!("{folder}/arenas");
            let words = ["serve", "--port", "0", "--appendonly", "no", "--shm-dir", &arenas];
            words.map(str::to_owned).to_vec()
        })
    }

    /// Starts `redis-server`, without a log and without snapshots.
    pub(crate) fn redis(program: &Path) -> Result<Server> {
        Server::start(program, |folder| {
            let words = ["--port", "0", "--appendonly", "no", "--save", "", "--dir", folder];
            words.map(str::to_owned).to_vec()
        })
    }

    fn start(program: &Path, words: impl FnOnce(&str) -> Vec<String>) -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("session-example-").tempdir_in(TMPFS);
        let folder = folder.with_context(|| format!("can't make a folder in {TMPFS}"))?;
        let (socket, log) = (folder.path().join("socket"), folder.path().join("log"));
        let output = File::create(&log).context("can't write the server's output")?;
        let child = Command::new(program)
            .args(words(folder.path().to_str().context("a path that isn't UTF-8")?))
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        let mut server = Server { address: Address::unix(socket), child: Some((child, folder)) };
        server.wait(&log)?;
        Ok(server)
    }

    /// Waits until it answers.
    fn wait(&mut self, log: &Path) -> Result<()> {
        let begin = Instant::now();
        let said = || std::fs::read_to_string(log).unwrap_or_default();
        while begin.elapsed() < START {
            if let Some((child, _)) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!("the server didn't start ({status}): {}", said());
            }
            if let Ok(mut connection) =
                Connection::connect(&self.address, &ConnectionOptions::default())
                && connection.call(["PING"]).is_ok_and(|reply| reply.error().is_none())
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server didn't answer within {START:?}: {}", said())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            // It has nothing that anybody needs.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
