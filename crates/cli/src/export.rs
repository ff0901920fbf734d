//! `nigh export`: all strings of a running server as commands.
//!
//! A file gets its name only when all of it is on disk, so a part is never taken for the whole.

use crate::output::{Output, tell};
use crate::render::thousands;
use crate::target::ServerFlags;
use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use nigh_transfer::{Exported, export};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Options of `nigh export`.
#[derive(clap::Args)]
#[command(after_help = "\
Writes a command for each key: SET key value, with PXAT and its expiry if it has one. `redis-cli \
--pipe` and `nigh import` take them.

It isn't one moment: each key that is there from begin to end is in the file, with a value that it
had meanwhile; a key that comes, changes or goes may be in it or not. Libraries of functions aren't
in it.")]
pub(crate) struct Args {
    /// File to write, or - for stdout
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    target: ServerFlags,
}

/// Exports.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut connection = args.target.connect()?;
    let begin = Instant::now();
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let show = &mut |exported: &Exported| {
        let (keys, bytes) = (thousands(exported.keys as f64), HumanBytes(exported.bytes));
        bar.set_message(format!("{keys} keys, {bytes}"));
        bar.tick();
    };
    let exported = if args.file == Path::new("-") {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, Output::new());
        let exported = export(&mut connection, &mut out, show)?;
        out.flush().context("can't write")?;
        exported
    } else {
        to_file(&args.file, |out| Ok(export(&mut connection, out, show)?))?
    };
    bar.finish_and_clear();
    for line in exported.left_out.lines() {
        tell!("left out: {line}");
    }
    let gone = match exported.gone {
        0 => String::new(),
        gone => format!(", {} went meanwhile", thousands(gone as f64)),
    };
    let seconds = begin.elapsed().as_secs_f64();
    let (keys, bytes) = (thousands(exported.keys as f64), thousands(exported.bytes as f64));
    tell!("{keys} keys exported in {seconds:.2} s, {bytes} bytes{gone}");
    anyhow::ensure!(
        exported.left_out.count() == 0,
        "not everything is exported: left out are {}",
        exported.left_out
    );
    Ok(())
}

/// Writes a file under another name, and gives it its name when it is whole and on disk.
fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Exported>,
) -> Result<Exported> {
    let mut name = path.file_name().context("that is no name of a file")?.to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let failed = || format!("can't write {}", part.display());
    let written = (|| {
        let mut out =
            BufWriter::with_capacity(BUFFER_BYTES, File::create(&part).with_context(failed)?);
        let exported = write(&mut out)?;
        let file = out.into_inner().map_err(|error| error.into_error()).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        std::fs::rename(&part, path).with_context(|| format!("can't write {}", path.display()))?;
        Ok(exported)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}
