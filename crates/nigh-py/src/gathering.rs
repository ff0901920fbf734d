//! What a pipeline has gathered, and by which connection it watches keys.
//!
//! ```text
//! gathers ── watch ──> at once ── multi ──> gathers, guarded ── execute ──> gathers
//! ```
//!
//! Plain data: any thread.

use crate::open_client::OpenClient;
use crate::request::Request;
use std::sync::Arc;

/// The state of a pipeline.
#[derive(Default)]
pub(crate) struct Gathering {
    pub(crate) requests: Vec<Request>,
    /// The connection that was sent a WATCH.
    pub(crate) watcher: Option<Arc<OpenClient>>,
    /// `multi` was called: what is gathered is a transaction.
    pub(crate) is_multi: bool,
}

impl Gathering {
    /// By which commands are sent at once, not gathered.
    pub(crate) fn at_once(&self) -> Option<Arc<OpenClient>> {
        self.watcher.clone().filter(|_| !self.is_multi)
    }
}
