//! The rows of restarts: a server is killed and started again, with its memory or from its log.
//!
//! ```text
//! memory there   load all keys ─► SIGKILL ─► start ─► first reply
//! log only       all is synced ─► SIGKILL ─► arenas and journals are removed ─► start ─► …
//! ```
//!
//! Invariants:
//! 1. The clock runs from the start of the process to the value of a key, over a new connection.
//! 2. After each start all keys are there.

use super::contest::{Args, Contestant, KEY_BYTES, ResultRow, RowTarget, VALUE_BYTES};
use super::logged::{EVERYSEC, rest, start_logged_redis, start_nigh};
use super::runner::{fill, fill_with};
use crate::child::{ServerProcess, accepted};
use crate::drawn_keys::RecordShape;
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use nigh_client::Frame;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::Path;

const ADOPTED: &str = "Log, restart after SIGKILL, memory there";
const REBUILT: &str = "Log, restart after SIGKILL, log only";
const SMALL: &str = "Log, recovery of values of 100 B";
const LARGE: &str = "Log, recovery of values of 64 KiB";
/// Bytes of large values.
const LARGE_BYTES: usize = 64 << 10;
/// For one large value there are so many small ones: a log of large values is longer, but small
/// enough for the arena.
const SMALL_PER_LARGE: u64 = 64;
/// Name of the contestant whose log isn't in the system's page cache.
const COLD: &str = "Nigh, log not in the page cache";

/// One start from the log.
struct Rebuild {
    /// From the start of the process to the first reply.
    reply_ms: f64,
    /// Bytes of the log by the time that the server takes to read it.
    mb_per_second: f64,
}

/// Number of starts for the wanted rows.
pub(super) fn runs(args: &Args) -> usize {
    let starts = [(ADOPTED, 1), (REBUILT, 3), (SMALL, 2), (LARGE, 2)];
    let wanted = starts.iter().filter(|(title, _)| args.wants(title));
    wanted.map(|(_, starts)| starts * args.pairs).sum()
}

/// Measures the wanted rows of restarts.
pub(super) fn measure(
    args: &Args,
    nigh: &Path,
    bar: &ProgressBar,
    rows: &mut Vec<ResultRow>,
) -> Result<()> {
    if args.wants(ADOPTED) {
        bar.set_message(ADOPTED);
        rows.push(adopted(args, nigh, bar)?.tell(bar));
    }
    if args.wants(REBUILT) || args.wants(SMALL) {
        bar.set_message(REBUILT);
        let server = start_nigh(args, nigh, Some(EVERYSEC))?;
        fill(args, &server)?;
        let [warm, cold] = rebuilds(args, server, args.keys, bar)?;
        if args.wants(REBUILT) {
            rows.push(first_replies(args, &warm, &cold, bar)?.tell(bar));
        }
        if args.wants(SMALL) {
            if args.wants(REBUILT) {
                bar.inc(2 * args.pairs as u64); // the same starts, counted for both rows
            }
            rows.push(recovery(SMALL, args.keys, VALUE_BYTES, &warm, &cold).tell(bar));
        }
    }
    if args.wants(LARGE) {
        bar.set_message(LARGE);
        let keys = (args.keys / SMALL_PER_LARGE).max(1);
        let server = start_nigh(args, nigh, Some(EVERYSEC))?;
        fill_with(&server, keys, LARGE_BYTES)?;
        let [warm, cold] = rebuilds(args, server, keys, bar)?;
        rows.push(recovery(LARGE, keys, LARGE_BYTES, &warm, &cold).tell(bar));
    }
    Ok(())
}

/// Starts with the arenas and journals of a server that was killed just after its last reply.
fn adopted(args: &Args, nigh: &Path, bar: &ProgressBar) -> Result<ResultRow> {
    let mut server = start_nigh(args, nigh, Some(EVERYSEC))?;
    let mut times = Vec::new();
    for _ in 0..args.pairs {
        fill(args, &server)?;
        server.kill()?;
        times.push(start_again(&mut server, args.keys)?);
        bar.inc(1);
    }
    Ok(ResultRow {
        title: ADOPTED,
        command: format!("SET of {} keys, SIGKILL at once, start, GET until a reply", args.keys),
        unit: "ms",
        contestants: vec![Contestant { name: "Nigh", rates: times, latency_us: None }],
        targets: vec![RowTarget::AtMost(300.0)],
        less_wins: true,
        note: "changes of the last moment are in the journal only".to_owned(),
    })
}

/// Starts with nothing but the log, whose files are in the page cache, or aren't.
fn rebuilds(
    args: &Args,
    mut server: ServerProcess,
    keys: u64,
    bar: &ProgressBar,
) -> Result<[Vec<Rebuild>; 2]> {
    let mut starts = [Vec::new(), Vec::new()];
    let arenas = server.directory().join("arenas");
    for _ in 0..args.pairs {
        for (cold, starts) in [false, true].into_iter().zip(&mut starts) {
            rest(&server)?;
            server.kill()?;
            std::fs::remove_dir_all(&arenas)
                .with_context(|| format!("can't remove {}", arenas.display()))?;
            if cold {
                forget_files(server.disk().context("a server without a log")?)?;
            }
            let reply_ms = start_again(&mut server, keys)?;
            let (bytes, ms) = replayed(&server.output())
                .context("the server's output doesn't tell what it has read of its log")?;
            ensure!(bytes > 0.0, "the server has read nothing of its log");
            starts.push(Rebuild { reply_ms, mb_per_second: bytes / ms / 1000.0 });
            bar.inc(1);
        }
    }
    Ok(starts)
}

/// The row of first replies, with starts of Redis for the same data.
fn first_replies(
    args: &Args,
    warm: &[Rebuild],
    cold: &[Rebuild],
    bar: &ProgressBar,
) -> Result<ResultRow> {
    let mut redis = start_logged_redis(args, EVERYSEC)?;
    fill(args, &redis)?;
    let mut times = Vec::new();
    for _ in 0..args.pairs {
        rest(&redis)?;
        redis.kill()?;
        times.push(start_again(&mut redis, args.keys)?);
        bar.inc(1);
    }
    let ms = |starts: &[Rebuild]| starts.iter().map(|start| start.reply_ms).collect();
    let named = [("Nigh", ms(warm)), ("Redis", times), (COLD, ms(cold))];
    Ok(ResultRow {
        title: REBUILT,
        command: format!("SET of {} keys, synced, SIGKILL, start, GET until a reply", args.keys),
        unit: "ms",
        contestants: contestants(named),
        targets: vec![RowTarget::AtMost(1000.0)],
        less_wins: true,
        note: "arenas and journals are removed before the start; Redis reads the commands of its \
               append-only file, after Nigh's runs"
            .to_owned(),
    })
}

fn recovery(
    title: &'static str,
    keys: u64,
    value_bytes: usize,
    warm: &[Rebuild],
    cold: &[Rebuild],
) -> ResultRow {
    let rates = |starts: &[Rebuild]| starts.iter().map(|start| start.mb_per_second).collect();
    ResultRow {
        title,
        command: format!("SET of {keys} keys, values of {value_bytes} B; start from the log only"),
        unit: "MB per second",
        contestants: contestants([("Nigh", rates(warm)), (COLD, rates(cold))]),
        targets: vec![RowTarget::PerSecond(1000.0)],
        less_wins: false,
        note: "bytes of the log ÷ time until it is open, by the server's line `the log is open`"
            .to_owned(),
    }
}

fn contestants<const N: usize>(named: [(&'static str, Vec<f64>); N]) -> Vec<Contestant> {
    let contestant = |(name, rates)| Contestant { name, rates, latency_us: None };
    named.into_iter().map(contestant).collect()
}

/// Starts a killed server and compares the number of its keys; returns the time to the first
/// reply, in ms.
fn start_again(server: &mut ServerProcess, keys: u64) -> Result<f64> {
    let shape = RecordShape::new(KEY_BYTES, 0, keys)?;
    let mut key = [0; KEY_BYTES];
    shape.key(keys - 1, &mut key);
    let (time, reply) = server.restart(&["GET", std::str::from_utf8(&key)?])?;
    ensure!(matches!(reply, Frame::Bulk(_)), "a key is missing after a start: {reply:?}");
    let count = accepted(server.connect()?.call(["DBSIZE"])?)?;
    ensure!(count == Frame::Integer(i64::try_from(keys)?), "{count:?} keys of {keys} are there");
    Ok(time.as_secs_f64() * 1000.0)
}

/// Bytes of the log and ms, from the server's line.
fn replayed(output: &str) -> Option<(f64, f64)> {
    let line = output.lines().find(|line| line.contains("the log is open"))?;
    let number = |name: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        word.parse::<f64>().ok()
    };
    Some((number("replayed_bytes=")?, number("ms=")?.max(1.0)))
}

/// Makes the system forget the synced files under `directory`.
fn forget_files(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_files(&path)?;
        } else {
            fadvise(File::open(&path)?, 0, None, Advice::DontNeed)
                .with_context(|| format!("can't drop {} from the cache", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes and time are read from the server's own line.
    #[test]
    fn the_line_of_the_open_log_is_read() {
        let output = "INFO serve: begins\nINFO log_threads: the log is open dir=d adopted=0 \
                      rebuilt=1 completed=0 replayed_bytes=158000000 ms=200 base=None\n";
        assert_eq!(replayed(output), Some((158e6, 200.0)));
        assert_eq!(replayed("INFO serve: ready"), None);
    }
}
