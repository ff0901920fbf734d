//! Connections of their own for pipelines that watch keys.
//!
//! ```text
//! watch ── an idle one, else a new one ── WATCH ──> server
//! execute, unwatch ──> idle again
//! ```
//!
//! 1. One belongs to one pipeline at a time: another's EXEC would end its WATCH.
//! 2. One attaches once: when its attachment is over, so is its WATCH, and each call says so.
//! 3. One that is idle watches nothing.
//! 4. A call waits for one timeout at most. When an idle one gets no reply, its server stands
//!    still, and the others would get none either: all are given up.
//! 5. The lock around the idle ones is held by threads that have the interpreter's lock, and run no
//!    Python code meanwhile.
//!
//! Any thread that has the interpreter's lock.

use crate::errors;
use crate::open_client::OpenClient;
use nigh_client::{Address, ClientOptions, Frame};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Idle connections that are kept: each has descriptors, and rings in memory.
const IDLE_MOST: usize = 8;

/// The connections of a client.
pub(crate) struct Watchers {
    address: Address,
    options: ClientOptions,
    /// `None` when the client is closed.
    idle: Mutex<Option<Vec<Arc<OpenClient>>>>,
}

impl Watchers {
    /// None yet. They connect as a client with these options does.
    pub(crate) fn new(address: Address, options: ClientOptions) -> Watchers {
        let options = ClientOptions { attach_once: true, ..options };
        Watchers { address, options, idle: Mutex::new(Some(Vec::new())) }
    }

    /// One that was sent this WATCH, and the reply.
    pub(crate) fn watch(
        &self,
        py: Python<'_>,
        words: &[&[u8]],
    ) -> PyResult<(Arc<OpenClient>, Frame)> {
        for _ in 0..IDLE_MOST {
            let Some(watcher) = self.idle().as_mut().and_then(Vec::pop) else { break };
            match watcher.request(py, words) {
                Ok(reply) => return Ok((watcher, reply)),
                // It has rested, and the server has ended since then. Nothing was sent.
                Err(error) if error.is_instance_of::<errors::WatchError>(py) => {}
                Err(error) => {
                    if let Some(idle) = self.idle().as_mut() {
                        idle.clear();
                    }
                    return Err(error);
                }
            }
        }
        let watcher = Arc::new(OpenClient::connect(py, &self.address, self.options.clone())?);
        let reply = watcher.request(py, words)?;
        Ok((watcher, reply))
    }

    /// Takes one back that watches nothing any more.
    pub(crate) fn give_back(&self, watcher: Arc<OpenClient>) {
        if let Some(idle) = self.idle().as_mut().filter(|idle| idle.len() < IDLE_MOST) {
            idle.push(watcher);
        }
    }

    /// Ends the idle ones, and keeps no more.
    pub(crate) fn close(&self) {
        drop(self.idle().take());
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Arc<OpenClient>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
