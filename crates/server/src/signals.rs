//! Signals: SIGTERM and SIGINT are a clean end, SIGHUP is nothing.
//!
//! A thread of its own waits for them from the start. While nothing serves yet, it ends the process
//! at once, which harms a log that is being read as little as SIGKILL does. (Their usual effect
//! would do, but the first process of a container has none.)
//!
//! The thread takes them while functions keep the shards busy. It ends those and wakes the shards,
//! which stop after their turn. If one doesn't, the process ends without it: the arenas survive
//! that as they survive SIGKILL. When all have stopped, the logs write and sync what is left. That
//! has no limit of time here: container managers and init systems have one, which operators set.
//!
//! SIGHUP comes when the terminal goes, or to have logs reopened. The log is on stderr, so
//! there is none to reopen, and settings change by CONFIG SET: it is ignored, with a word in the
//! log, as Redis ignores it.

use crate::state::shared::{Shared, Stop};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the shards have to end their turns: many times what a turn takes, less than the ten
/// seconds after which container managers kill.
const GRACE: Duration = Duration::from_secs(3);

/// The thread that waits for signals.
pub(crate) struct Watcher {
    handle: Handle,
    /// What serves; there when something does.
    shared: Arc<OnceLock<Arc<Shared>>>,
    /// Held while shards may run, by what serves, and here until that has begun.
    pub(crate) running: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to wait.
    pub(crate) fn start() -> io::Result<Self> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let (told, ended) = mpsc::channel();
        let shared: Arc<OnceLock<Arc<Shared>>> = Arc::default();
        let known = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nigh-signals".to_owned());
        let thread = thread.spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => tracing::info!(
                        "SIGHUP: ignored; the log is on stderr, and CONFIG SET changes settings"
                    ),
                    _ => return end(signal, known.get().map(Arc::as_ref), &ended),
                }
            }
        })?;
        Ok(Self { handle, shared, running: Some(told), thread: Some(thread) })
    }

    /// From now on signals end this server.
    pub(crate) fn watch(&self, shared: Arc<Shared>) {
        assert!(self.shared.set(shared).is_ok(), "one server is watched");
    }
}

fn end(signal: i32, shared: Option<&Shared>, ended: &mpsc::Receiver<()>) {
    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
    let Some(shared) = shared else {
        tracing::info!("{name}: ending before the server is ready; what it starts from stays");
        low_level::exit(0);
    };
    tracing::info!("{name}: ending");
    shared.stop(Stop::Keep);
    if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("a shard is still busy after {GRACE:?}: ending without it");
        shared.tell_end();
        // Without destructors, which would pull V8 from under the function.
        low_level::exit(0);
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
