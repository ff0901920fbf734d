//! `nigh top --local`: what the arenas of a folder say, live, without a server's help.
//!
//! ```text
//! /dev/shm/nigh-6379   2 partitions   1,000,000 keys
//! part  written by         keys  expiring  live MiB  backed MiB  changes/s  MiB/s  not on disk
//!    0           3      500,000         0        80         120     40,000    5.0            -
//! ```
//!
//! Invariants:
//! 1. Nothing is written, and nobody is asked: it shows a server at work, and one that is down.
//! 2. Counters are the owner's own; nothing is walked over.

use super::drawing::{ScreenLine, Style};
use super::screen::{Screen, Wake};
use crate::lookup;
use crate::output::Output;
use crate::render::thousands;
use anyhow::Result;
use nigh_shm::{ForeignArenas, ForeignCounters};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// A look at the arenas.
struct ArenasLook {
    at: Instant,
    counters: Vec<ForeignCounters>,
}

/// Shows the arenas until `q`, or once.
pub(super) fn run(folder: &Path, interval: Duration, is_live: bool) -> Result<()> {
    let arenas = lookup::arenas(folder)?;
    let mut before = ArenasLook::of(&arenas);
    if !is_live {
        std::thread::sleep(interval);
        let mut out = Output::new();
        for line in lines(folder, &arenas, &before, &ArenasLook::of(&arenas)) {
            writeln!(out, "{}", line.text)?;
        }
        return Ok(());
    }
    let screen = Screen::take()?;
    let mut now = ArenasLook::of(&arenas);
    loop {
        let mut shown = lines(folder, &arenas, &before, &now);
        shown.push(ScreenLine { style: Style::Plain, text: "q leaves".to_owned() });
        let size = screen.size();
        shown.truncate(size.rows.unwrap_or(usize::MAX));
        for line in &mut shown {
            line.text = line.text.chars().take(size.columns).collect();
        }
        screen.show(&shown)?;
        match screen.wait(interval)? {
            Wake::Quit => return Ok(()),
            Wake::Resized => {}
            Wake::Time => before = std::mem::replace(&mut now, ArenasLook::of(&arenas)),
        }
    }
}

impl ArenasLook {
    fn of(arenas: &ForeignArenas) -> ArenasLook {
        let partitions = 0..arenas.partitions();
        let counters = partitions.map(|it| arenas.arena(it).counters()).collect();
        ArenasLook { at: Instant::now(), counters }
    }
}

fn lines(
    folder: &Path,
    arenas: &ForeignArenas,
    before: &ArenasLook,
    now: &ArenasLook,
) -> Vec<ScreenLine> {
    let keys: u64 = now.counters.iter().map(|it| it.keys).sum();
    let folder = crate::render::printable(folder.as_os_str().as_encoded_bytes());
    let title = |text: String| ScreenLine { style: Style::Title, text };
    let mut lines = vec![
        title(format!(
            "{folder}   {} partition(s)   {} keys",
            arenas.partitions(),
            thousands(keys as f64)
        )),
        title(format!(
            "{:>4} {:>10} {:>13} {:>11} {:>10} {:>11} {:>12} {:>9} {:>13}",
            "part",
            "written by",
            "keys",
            "expiring",
            "live MiB",
            "backed MiB",
            "changes/s",
            "MiB/s",
            "not on disk"
        )),
    ];
    let seconds = (now.at - before.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for (partition, (before, now)) in before.counters.iter().zip(&now.counters).enumerate() {
        let arena = arenas.arena(partition);
        if let Err(error) = arena.check() {
            let text = format!("{partition:>4} {error}");
            lines.push(ScreenLine { style: Style::Alarm, text });
            continue;
        }
        let changes = now.committed_lsn.saturating_sub(before.committed_lsn) as f64 / seconds;
        let appended = mib(now.appended_bytes.saturating_sub(before.appended_bytes)) / seconds;
        let unsynced = match now.durable_lsn {
            0 => "-".to_owned(),
            durable => thousands(now.committed_lsn.saturating_sub(durable) as f64),
        };
        let text = format!(
            "{partition:>4} {:>10} {:>13} {:>11} {:>10.0} {:>11.0} {:>12} {appended:>9.1} {unsynced:>13}",
            arena.incarnation() / 2,
            thousands(now.keys as f64),
            thousands(now.expires as f64),
            mib(now.live_bytes),
            mib(now.backed_bytes),
            thousands(changes),
        );
        lines.push(ScreenLine { style: Style::Plain, text });
    }
    lines
}
