//! Ctrl-C and SIGTERM: they end a run between two looks, so that its servers and their folders go.
//!
//! Any thread. What waits or goes round asks [`check`]; where nobody has asked to [`watch`], the
//! signals end the process.

use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the signals are only noted.
pub(crate) fn watch() -> Result<()> {
    let wanted = WANTED.get_or_init(Default::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(wanted))?;
    }
    Ok(())
}

/// An error if one of the signals has come.
pub(crate) fn check() -> Result<()> {
    if WANTED.get().is_some_and(|wanted| wanted.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}
