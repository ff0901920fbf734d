//! The row of growing values: one connection appends to one value.
//!
//! Invariant: Nigh and Redis append the same pieces in the same pipelines. The value's first and
//! last length are the same too.

use super::contest::{Args, Contestant, ResultRow, RowTarget, Servers};
use crate::child::{ServerProcess, accepted};
use crate::interrupt;
use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use nigh_client::{Connection, Frame};
use std::time::Instant;

/// Title of the row.
pub(super) const APPEND: &str = "APPEND of 1 KB to a value of 1 to 64 MiB";
const KEY: &str = "growing";
/// Bytes of a piece.
const PIECE_BYTES: usize = 1024;
const FROM_BYTES: usize = 1 << 20;
const TO_BYTES: usize = 64 << 20;
/// Requests in one pipeline.
const PIPELINE: usize = 16;

/// Measures the growth of a value.
pub(super) fn measure(args: &Args, servers: &Servers, bar: &ProgressBar) -> Result<ResultRow> {
    // After earlier rows the arena may be nearly full.
    accepted(servers.nigh.connect()?.call(["FLUSHALL"])?)?;
    let contestants = [("Nigh", &servers.nigh), ("Redis", &servers.redis)];
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..args.pairs {
        for ((_, server), rates) in contestants.iter().zip(&mut rates) {
            rates.push(grow(server)?);
            bar.inc(1);
        }
    }
    let named = contestants.into_iter().zip(rates);
    Ok(ResultRow {
        title: APPEND,
        command: format!("APPEND {KEY} PIECE -c 1 -P {PIPELINE}; whole values, in turn"),
        unit: "per second",
        contestants: named
            .map(|((name, _), rates)| Contestant { name, rates, latency_us: None })
            .collect(),
        targets: vec![RowTarget::Ratio("Redis", 0.5)],
        less_wins: false,
        note: "at most twice Redis's time".to_owned(),
    })
}

/// Grows one value; returns APPENDs per second.
fn grow(server: &ServerProcess) -> Result<f64> {
    let mut connection: Connection = server.connect()?;
    let first = vec![b'f'; FROM_BYTES];
    accepted(connection.call([b"SET", KEY.as_bytes(), &first])?)?;
    let piece = vec![b'p'; PIECE_BYTES];
    let pieces = (TO_BYTES - FROM_BYTES) / PIECE_BYTES;
    let begin = Instant::now();
    let mut len = FROM_BYTES;
    for _ in 0..pieces / PIPELINE {
        interrupt::check()?;
        for _ in 0..PIPELINE {
            connection.send([b"APPEND", KEY.as_bytes(), &piece])?;
        }
        connection.flush()?;
        for _ in 0..PIPELINE {
            len += PIECE_BYTES;
            let reply = connection.receive()?;
            ensure!(reply == Frame::Integer(i64::try_from(len)?), "APPEND answered {reply:?}");
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    accepted(connection.call(["DEL", KEY])?)?;
    Ok(pieces as f64 / seconds)
}
