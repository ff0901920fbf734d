//! `nigh backup`: has a running server copy its log, and waits until the copy is complete.
//!
//! ```text
//! BACKUP DIR ──> number ── BACKUP STATUS number, five times a second ──> complete | failed
//! ```
//!
//! 1. The exit code is 0 only if the server says that the backup is complete: it has read it back.
//! 2. If this program is interrupted, the backup goes on: `BACKUP CANCEL` stops it.

use crate::output::{say, tell};
use crate::render::{printable, thousands};
use crate::target::{ServerFlags, accepted};
use anyhow::{Context, Result, bail, ensure};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use nigh_client::{Connection, Frame};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Between two lines about how far it is, if stderr is no terminal.
const TELL: Duration = Duration::from_secs(5);

/// Options of `nigh backup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ServerFlags,
    /// Folder for the backup, on the server's machine; a backup of this log that is there is
    /// replaced, and what it has already isn't copied again
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// What the server says of a backup.
#[derive(Debug, Default)]
struct Status {
    state: String,
    error: String,
    done_bytes: u64,
    all_bytes: u64,
    reused_bytes: u64,
    files: u64,
    reused_files: u64,
    bytes: u64,
    stood_us: u64,
    us: u64,
}

/// Backs up.
pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = std::path::absolute(&args.dir).context("the folder has no absolute path")?;
    let dir = dir.to_str().context("the folder's path isn't UTF-8")?;
    let mut connection = args.target.connect()?;
    let number = match accepted(connection.call(["BACKUP", dir])?)? {
        Frame::Integer(number) => number.to_string(),
        other => bail!("the server answers BACKUP with {other:?}"),
    };
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{msg} {bytes} of {total_bytes}")?);
    let mut told: Option<Instant> = None;
    let status = loop {
        let status = ask(&mut connection, &number)?;
        match status.state.as_str() {
            "complete" | "failed" => break status,
            _ => {}
        }
        if !bar.is_hidden() {
            bar.set_length(status.all_bytes);
            bar.set_position(status.done_bytes);
            bar.set_message(status.state);
        } else if told.is_none_or(|at| at.elapsed() >= TELL) {
            // For those who keep what it says.
            let Status { state, done_bytes, all_bytes, .. } = status;
            tell!("{state} {} of {}", HumanBytes(done_bytes), HumanBytes(all_bytes));
            told = Some(Instant::now());
        }
        std::thread::sleep(LOOK);
    };
    bar.finish_and_clear();
    ensure!(status.state == "complete", "no backup: {}", printable(status.error.as_bytes()));
    let line = |what: &str, count: u64| say!("{what:<12} {:>15}", thousands(count as f64));
    say!("{dir}: complete, and read back");
    line("files", status.files);
    line("as before", status.reused_files);
    line("bytes", status.bytes);
    say!("{:<12} {:>15.2}", "seconds", status.us as f64 / 1e6);
    say!("{:<12} {:>15.2}", "stood, ms", status.stood_us as f64 / 1e3);
    if status.reused_bytes > 0 {
        tell!("{} were there already", HumanBytes(status.reused_bytes));
    }
    Ok(())
}

fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(frame.bytes().unwrap_or_default()).into_owned()
}

fn ask(connection: &mut Connection, number: &str) -> Result<Status> {
    let lost = "the server answers, but knows nothing of the backup: it was restarted";
    let pairs = match accepted(connection.call(["BACKUP", "STATUS", number])?)? {
        Frame::Map(pairs) => pairs,
        Frame::Array(words) => {
            let pairs = words.as_chunks::<2>().0.iter();
            pairs.map(|[name, value]| (name.clone(), value.clone())).collect()
        }
        _ => bail!(lost),
    };
    let mut status = Status::default();
    for (name, value) in pairs {
        let text = text(&value);
        let count = match value {
            Frame::Integer(count) => u64::try_from(count).unwrap_or(0),
            _ => 0,
        };
        match self::text(&name).as_str() {
            "state" => status.state = text,
            "error" => status.error = text,
            "done-bytes" => status.done_bytes = count,
            "all-bytes" => status.all_bytes = count,
            "reused-bytes" => status.reused_bytes = count,
            "files" => status.files = count,
            "reused-files" => status.reused_files = count,
            "bytes" => status.bytes = count,
            "stood-usec" => status.stood_us = count,
            "usec" => status.us = count,
            _ => {}
        }
    }
    Ok(status)
}
