//! SIGTERM and SIGINT: a clean end.
//!
//! A thread of its own waits for them, so that they are taken while functions keep the shards busy. It ends
//! those and wakes the shards, which stop after their turn. If one doesn't, the process ends without it: the
//! arenas survive that as they survive SIGKILL.

use crate::Stopper;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the shard has to end its turn: many times what a turn takes, less than the ten seconds after
/// which container managers kill.
const GRACE: Duration = Duration::from_secs(3);

/// The thread that waits for signals.
pub(crate) struct Watcher {
    handle: Handle,
    /// Dropped when the shard has ended.
    running: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to wait.
    pub(crate) fn start(stopper: Stopper) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let (running, ended) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("nigh-signals".to_owned()).spawn(move || {
                let Some(signal) = signals.forever().next() else { return };
                let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                tracing::info!("{name}: shutting down, the arenas stay");
                stopper.stop();
                if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
                    tracing::warn!("a shard is still busy: ending without it, the arenas stay");
                    // Without destructors, which would pull V8 from under the function.
                    signal_hook::low_level::exit(0);
                }
            })?;
        Ok(Self { handle, running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.running.take());
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
