//! `nigh import`: fills a running server from an RDB file, an AOF, or a running Redis.
//!
//! 1. The exit code is 0 only if everything is in the server, or `--skip-others` said that it
//!    needn't.
//! 2. A fault ends it, with how far it got. What was written before is there. A file is read
//!    through first, so that a damaged one changes nothing.
//! 3. SIGINT and SIGTERM end the writing of a file between two writes, as a fault does. A second
//!    one ends the process at once. So does the first while nothing is written yet, or while the
//!    source is another process, for which it may wait.

use crate::interrupt::Interrupt;
use crate::output::{say, tell};
use crate::render::thousands;
use crate::target::{ServerFlags, refuse_flags};
use anyhow::{Context, bail};
use clap::error::Error;
use clap::{ArgMatches, Command};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use nigh_transfer::{ImportOptions, Imported, Origin, Progress, import};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Options of `nigh import`.
#[derive(clap::Args)]
#[command(after_help = "\
Sources: an RDB file (also - for one on stdin); an AOF: a file, or the folder that Redis's
appenddirname names; a running Redis or Valkey, redis://[[user:]password@]host[:port][/database] or
unix:PATH, which is copied as a replica does, at one moment.

A file is read through first: a damaged one changes nothing. From stdin and from a server data is
written as it comes, and --replace removes the server's keys before.

Strings are imported with their expiry. Other types, other databases and libraries of functions are
counted and named. An AOF that does more than set and remove keys needs an empty server, and may keep
keys longer than their expiry until it has ended.")]
pub(crate) struct Args {
    /// RDB file, AOF or its folder, redis://host:port, unix:PATH, or - for an RDB on stdin
    source: Origin,
    #[command(flatten)]
    target: ServerFlags,
    /// Database of the source to import, if its address has none
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    db: u64,
    /// Remove all keys of the server first
    #[arg(long)]
    replace: bool,
    /// Succeed even if something can't be imported; it is named all the same
    #[arg(long)]
    skip_others: bool,
    /// Import an AOF that ends within a command, up to there
    #[arg(long)]
    allow_truncated: bool,
    /// Password of a running source, if its address has none
    #[arg(long, env = "NIGH_SOURCE_PASSWORD", hide_env_values = true)]
    source_password: Option<String>,
}

/// Refuses flags that have no meaning for the source.
pub(crate) fn check_flags(matches: &ArgMatches, command: &mut Command) -> Result<(), Error> {
    let mut refuse = |flag: &str, why: &str| refuse_flags(&[flag], matches, command, why);
    match matches.get_one::<Origin>("source") {
        Some(Origin::Server { address, db }) => {
            refuse("allow_truncated", "is about an AOF, and the source is a running server")?;
            if address.password.is_some() {
                let why = "isn't needed, since the source's address has a password: give one of \
                           them";
                refuse("source_password", why)?;
            }
            if let Some(db) = db {
                refuse("db", &format!("isn't needed, since the source names database {db}"))?;
            }
            Ok(())
        }
        source => {
            if matches!(source, Some(Origin::Stdin)) {
                refuse("allow_truncated", "is about an AOF, and stdin is read as an RDB")?;
            }
            refuse("source_password", "is about a running source, and this one is a file")
        }
    }
}

/// Imports.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let begin = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let stop = Arc::new(AtomicBool::new(false));
    let options = ImportOptions {
        db: args.db,
        replace: args.replace,
        allow_truncated: args.allow_truncated,
        source_password: args.source_password.clone(),
        now_ms: i64::try_from(now.as_millis()).context("the clock is beyond all years")?,
        stop: Arc::clone(&stop),
    };
    let bar = ProgressBar::no_length();
    let connect = || args.target.connect();
    let mut is_caught = false;
    let show = &mut |progress: Progress| {
        if !progress.is_survey && !is_caught && matches!(args.source, Origin::Path(_)) {
            Interrupt::catch_first(&stop);
            is_caught = true;
        }
        draw(&bar, progress, begin);
    };
    let (imported, outcome) = import(&args.source, &options, &connect, show);
    bar.finish_and_clear();
    if outcome.is_ok() || imported.written > 0 {
        print(&imported, begin);
    }
    for line in imported.left_out.lines() {
        tell!("left out: {line}");
    }
    if imported.cut_bytes > 0 && outcome.is_ok() {
        tell!("left out: the last {} bytes of the AOF, no whole command", imported.cut_bytes);
    }
    if let Err(error) = outcome {
        let writes = thousands(imported.written as f64);
        let hint = if imported.has_put_off {
            "; keys may stay longer than their expiry: import again with --replace"
        } else {
            ""
        };
        bail!("import ended after {writes} writes: {error}{hint}");
    }
    if imported.left_out.count() > 0 && !args.skip_others {
        bail!("not everything is imported: left out are {}", imported.left_out);
    }
    Ok(())
}

/// The counts, on stdout.
fn print(imported: &Imported, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    let line = |what: &str, count: u64| say!("{what:<12} {:>15}", thousands(count as f64));
    line("written", imported.written);
    line("expired", imported.over);
    line("left out", imported.left_out.count());
    say!("{:<12} {seconds:>15.2}", "seconds");
}

fn draw(bar: &ProgressBar, progress: Progress, begin: Instant) {
    if bar.is_hidden() {
        return;
    }
    if bar.position() == 0 {
        let template = match progress.total_bytes {
            Some(_) => "{bar:24} {bytes}/{total_bytes}  {msg}",
            None => "{spinner} {bytes}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if let Some(total) = progress.total_bytes {
            bar.set_length(total);
        }
    }
    bar.set_position(progress.bytes);
    let seconds = begin.elapsed().as_secs_f64().max(0.001);
    let elapsed_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = HumanBytes(progress.bytes.saturating_mul(1000) / elapsed_ms);
    bar.set_message(match progress.is_survey {
        true => format!("looking whether it is whole, {rate}/s"),
        false => format!(
            "{} written, {}/s, {rate}/s",
            thousands(progress.written as f64),
            thousands((progress.written as f64 / seconds).round())
        ),
    });
}
