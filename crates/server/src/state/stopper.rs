//! Stops the shards from another thread, and says what is left of the arenas.
//!
//! Any thread.

use crate::state::shared::{Shared, Stop};
use std::sync::Arc;

/// Stops the shards from another thread.
#[derive(Clone)]
pub(crate) struct Stopper(pub(crate) Arc<Shared>);

impl Stopper {
    /// Asks the shards to stop after their turn, keeping the arenas.
    pub(crate) fn stop(&self) {
        self.0.stop(Stop::Keep);
    }

    /// Tells the log what is left when all has ended.
    pub(crate) fn tell_end(&self) {
        let (is_well, left) = self.left();
        if is_well {
            tracing::info!("ended: {left}");
        } else {
            tracing::error!("ended: {left}");
        }
    }

    /// What is left of the arenas, in words; true if that is what was asked for.
    pub(crate) fn left(&self) -> (bool, String) {
        match (self.0.arenas(), self.0.stopping()) {
            (None, _) => (true, "no arena was opened".to_owned()),
            (Some(arenas), Some(Stop::Remove)) => arenas.removed(),
            (Some(arenas), _) => arenas.left(),
        }
    }
}
