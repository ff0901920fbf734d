//! The rows with a log: Nigh and Redis write each change to files of their own on a disk.
//!
//! ```text
//! Nigh     --appendonly yes --appendfsync MODE   arena and journal in tmpfs, log on the disk
//! Redis    --appendonly yes --appendfsync MODE   append-only files on the disk
//! no log   Nigh without a log
//! ```
//!
//! Invariants:
//! 1. Only the contestant whose turn it is runs; the others stand still. So syncs, compaction and
//!    rewriting, which go on behind the replies, take time from their own server only.
//! 2. Before a row of GETs all keys are loaded and synced.

use super::arena::{Room, record_bytes};
use super::contest::{Args, ResultRow, RowTarget, pinned, start_redis, words};
use super::runner::{Runner, fill, in_turn, refill};
use crate::child::{ServerProcess, accepted};
use crate::interrupt;
use anyhow::{Result, bail};
use indicatif::ProgressBar;
use nigh_client::Frame;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time in which a sync begins behind a change, and a bit more.
const SYNCED: Duration = Duration::from_millis(1200);
/// Time between two looks whether a server has still something to do.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for a server to end what it does behind its replies.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of the rows.
const CONNECTIONS: usize = 50;

const REDIS: &str = "Redis";
/// Name of the contestant that is Nigh without a log.
const BARE: &str = "no log";
const GET: &str = "GET __key__";
const SET: &str = "SET __key__ __value__";

/// A row of requests that are all alike.
struct LogPlan {
    title: &'static str,
    mode: &'static str,
    command: &'static str,
    pipeline: u64,
    /// Contestants beside Nigh.
    peers: &'static [&'static str],
    targets: &'static [RowTarget],
}

const fn plan(
    title: &'static str,
    (mode, command, pipeline): (&'static str, &'static str, u64),
    peers: &'static [&'static str],
    targets: &'static [RowTarget],
) -> LogPlan {
    LogPlan { title, mode, command, pipeline, peers, targets }
}

/// When a change is synced.
const MODES: [&str; 2] = [EVERYSEC, ALWAYS];
pub(super) const EVERYSEC: &str = "everysec";
const ALWAYS: &str = "always";

use RowTarget::Ratio;
const BOTH: &[&str] = &[REDIS, BARE];
const KEPT: &[RowTarget] = &[Ratio(BARE, 0.97)];
const PLANS: [LogPlan; 10] = [
    plan("Log everysec, GET c50 P16", (EVERYSEC, GET, 16), &[BARE], KEPT),
    plan("Log everysec, GET c50 P64", (EVERYSEC, GET, 64), &[BARE], KEPT),
    plan("Log everysec, SET c50 P1", (EVERYSEC, SET, 1), BOTH, &[Ratio("Redis", 1.3)]),
    plan("Log everysec, SET c50 P16", (EVERYSEC, SET, 16), BOTH, &[Ratio("Redis", 6.0)]),
    plan(
        "Log everysec, SET c50 P64",
        (EVERYSEC, SET, 64),
        BOTH,
        &[Ratio("Redis", 6.0), Ratio(BARE, 0.75)],
    ),
    plan("Log always, GET c50 P16", (ALWAYS, GET, 16), &[BARE], KEPT),
    plan("Log always, GET c50 P64", (ALWAYS, GET, 64), &[BARE], KEPT),
    plan("Log always, SET c50 P1", (ALWAYS, SET, 1), &["Redis"], &[Ratio("Redis", 2.0)]),
    plan("Log always, SET c50 P16", (ALWAYS, SET, 16), &["Redis"], &[Ratio("Redis", 4.0)]),
    plan("Log always, SET c50 P64", (ALWAYS, SET, 64), &["Redis"], &[Ratio("Redis", 6.0)]),
];

/// Number of runs of the wanted rows.
pub(super) fn runs(args: &Args) -> usize {
    let wanted = PLANS.iter().filter(|plan| args.wants(plan.title));
    wanted.map(|plan| (1 + plan.peers.len()) * args.pairs).sum()
}

/// Measures the wanted rows of requests.
pub(super) fn measure(
    args: &Args,
    nigh: &Path,
    bar: &ProgressBar,
    rows: &mut Vec<ResultRow>,
) -> Result<()> {
    for mode in MODES {
        let here = |plan: &&LogPlan| plan.mode == mode && args.wants(plan.title);
        let plans: Vec<&LogPlan> = PLANS.iter().filter(here).collect();
        if plans.is_empty() {
            continue;
        }
        bar.set_message("starting servers with a log");
        let wants = |name| plans.iter().any(|plan| plan.peers.contains(&name));
        let mut servers = vec![("Nigh", start_nigh(args, nigh, Some(mode))?)];
        if wants(REDIS) {
            servers.push((REDIS, start_logged_redis(args, mode)?));
        }
        if wants(BARE) {
            servers.push((BARE, start_nigh(args, nigh, None)?));
        }
        for (_, server) in &servers {
            fill(args, server)?;
            rest(server)?;
        }
        for plan in plans {
            bar.set_message(plan.title);
            rows.push(requests(args, &servers, plan, bar)?.tell(bar));
        }
    }
    Ok(())
}

/// Starts Nigh with a log in that mode, or without one. Two Nighs of a row share the arena's bytes.
pub(super) fn start_nigh(args: &Args, nigh: &Path, mode: Option<&str>) -> Result<ServerProcess> {
    let mut flags = words(&format!("--maxmemory {}", args.arena / 2));
    let disk = args.disk()?;
    flags.extend(match mode {
        Some(mode) => words(&format!("--appendonly yes --appendfsync {mode} --dir {{disk}}/log")),
        None => words("--appendonly no"),
    });
    ServerProcess::nigh_on(nigh, &pinned(), &flags, mode.map(|_| disk.as_path()))
}

/// Starts Redis with an append-only file in that mode.
pub(super) fn start_logged_redis(args: &Args, mode: &str) -> Result<ServerProcess> {
    let flags = format!("--dir {{disk}} --appendonly yes --appendfsync {mode}");
    start_redis(args, &flags, Some(&args.disk()?))
}

/// Waits until all changes are synced, and the server does nothing behind its replies.
pub(super) fn rest(server: &ServerProcess) -> Result<()> {
    std::thread::sleep(SYNCED);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        interrupt::check()?;
        let Frame::Bulk(text) = accepted(server.connect()?.call(["INFO", "persistence"])?)? else {
            bail!("INFO gave no text");
        };
        let text = String::from_utf8_lossy(&text);
        let busy = |name: &str| field(&text, name).is_some_and(|value| value != "0");
        if !busy("aof_pending_bio_fsync") && !busy("aof_rewrite_in_progress") {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    bail!("a server was still busy after {} s without requests", PATIENCE.as_secs())
}

/// The value of a field of INFO.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Measures requests that are all alike.
fn requests(
    args: &Args,
    servers: &[(&'static str, ServerProcess)],
    plan: &LogPlan,
    bar: &ProgressBar,
) -> Result<ResultRow> {
    let time = args.run_time()?;
    let sets = plan.command == SET;
    let takes_part = |name: &str| name == "Nigh" || plan.peers.contains(&name);
    let servers: Vec<_> = servers.iter().filter(|(name, _)| takes_part(name)).collect();
    let mut rooms: Vec<_> = servers.iter().map(|(name, _)| room_of(name, args)).collect();
    let mut runners = Vec::new();
    for (name, server) in &servers {
        if sets && *name != REDIS {
            // Earlier rows have appended an unknown number of records.
            refill(args, server)?;
            rest(server)?;
        }
        let shape = (CONNECTIONS, plan.pipeline);
        runners.push(Runner::new(name, server, args, plan.command, shape)?);
    }
    let (mut refills, mut total) = (0, 0);
    for run in 0..=args.pairs {
        let short = sets && rooms.iter().flatten().any(Room::is_short);
        for (at, (_, server)) in servers.iter().enumerate() {
            if let Some(room) = rooms[at].as_mut().filter(|_| short) {
                refill(args, server)?;
                rest(server)?;
                room.refill(args.keys);
                refills += usize::from(at == 0);
            }
        }
        let warms_up = run == 0;
        in_turn(&mut runners, if warms_up { time / 4 } else { time })?;
        for (room, runner) in rooms.iter_mut().zip(&runners) {
            room.iter_mut().for_each(|room| room.add(runner.last()));
        }
        if warms_up {
            runners.iter_mut().try_for_each(Runner::forget)?;
        } else {
            total += runners[0].last();
            bar.inc(runners.len() as u64);
        }
    }
    let contestants = runners.into_iter().map(Runner::finish).collect();
    let mut note = String::new();
    if sets {
        note = format!(
            "{total} SETs on Nigh of {} B a record into an arena of {} MiB, flushed and loaded \
             again {refills} times between runs",
            record_bytes(),
            args.arena >> 21,
        );
    }
    Ok(ResultRow {
        title: plan.title,
        command: format!("{} -c {CONNECTIONS} -P {}", plan.command, plan.pipeline),
        unit: "per second",
        contestants,
        targets: plan.targets.to_vec(),
        less_wins: false,
        note,
    })
}

/// The room of a contestant's arena. Redis has none: it overwrites in place.
fn room_of(name: &str, args: &Args) -> Option<Room> {
    (name != REDIS).then(|| Room::new(args.arena / 2, args.keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Redis's SETs counted as Nigh's do, and no refill took them back: all later runs of a row
    /// began with one.
    #[test]
    fn redis_is_never_short_of_room() {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let Cli { args } = Cli::parse_from(["peers"]);
        assert!(room_of(REDIS, &args).is_none());
        assert!(["Nigh", BARE].iter().all(|name| room_of(name, &args).is_some()));
    }

    /// A field is found by its whole name.
    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text = "# Persistence\r\naof_enabled:1\r\naof_current_size:64\r\naof_current:2\r\n";
        assert_eq!(field(text, "aof_current"), Some("2"));
        assert_eq!(field(text, "aof_current_size"), Some("64"));
        assert_eq!(field(text, "aof"), None);
    }

    /// The titles tell the rows apart, and `--only Log` selects all of them.
    #[test]
    fn titles_are_unique() {
        let mut titles: Vec<_> = PLANS.iter().map(|plan| plan.title).collect();
        assert!(titles.iter().all(|title| title.starts_with("Log ")));
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), PLANS.len());
    }
}
