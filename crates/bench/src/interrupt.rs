//! Ctrl-C, SIGTERM and SIGHUP: they end a run between two looks, so that its servers and their
//! folders go. A SIGHUP that is ignored, as under nohup, stays so.
//!
//! Any thread. What waits or goes round asks [`check`]; where nobody has asked to [`watch`], the
//! signals end the process.

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the signals are only noted.
pub(crate) fn watch() -> Result<()> {
    let wanted = WANTED.get_or_init(Default::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal != SIGHUP || !is_ignored(signal)? {
            signal_hook::flag::register(signal, Arc::clone(wanted))?;
        }
    }
    Ok(())
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").context("can't read /proc")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    Ok(mask.context("/proc/self/status has no SigIgn")? >> (signal - 1) & 1 == 1)
}

/// An error if one of the signals has come.
pub(crate) fn check() -> Result<()> {
    if WANTED.get().is_some_and(|wanted| wanted.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}
