//! `nigh export`: all strings of a running server as commands.
//!
//! 1. A file gets its name only when all of it is on disk, so a part is never taken for the whole.
//!    Until then it has a name that nothing else has: exports to one name don't meet, and the last
//!    is kept.
//! 2. Nothing else is replaced: a link stays, and the file that it names is written; a device or a
//!    FIFO takes the bytes as they come.
//! 3. Only its owner may read a new file, as a backup. One that is replaced keeps its permissions.

use crate::output::{Output, tell};
use crate::render::thousands;
use crate::target::ServerFlags;
use anyhow::{Context, Result, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use nigh_transfer::{ExportError, Exported, export};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Most names of a part that are tried: exports that a kill cut off leave theirs.
const PARTS_MAX: u32 = 1000;

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
        let failed = |error| match error {
            ExportError::Write(cause) => {
                anyhow::Error::new(cause).context(format!("can't write {}", args.file.display()))
            }
            other => other.into(),
        };
        to_path(&args.file, |out| export(&mut connection, out, show).map_err(failed))?
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

/// Writes to what the path names.
fn to_path(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Exported>,
) -> Result<Exported> {
    let name = path.display();
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let lost = || format!("can't write {name}: it is a link to what can't be found");
    match path.metadata() {
        Ok(found) if found.is_dir() => bail!("can't write {name}: it is a folder; name a file"),
        Ok(found) if !found.is_file() => to_taker(path, write),
        Ok(_) if is_link => to_file(&path.canonicalize().with_context(lost)?, write),
        Err(error) if is_link => Err(error).with_context(lost),
        _ => to_file(path, write),
    }
}

/// Writes into what takes bytes and keeps no file: a device, or a FIFO, whose reader is awaited.
fn to_taker(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Exported>,
) -> Result<Exported> {
    let failed = || format!("can't write {}", path.display());
    let file = File::options().write(true).open(path).with_context(failed)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
    let exported = write(&mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error()).with_context(failed)?;
    match file.sync_all() {
        // Most of them have nothing that could be synced.
        Err(error) if error.kind() != ErrorKind::InvalidInput => Err(error).with_context(failed),
        _ => Ok(exported),
    }
}

/// Writes a file under another name, and gives it its name when it is whole and on disk.
fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Exported>,
) -> Result<Exported> {
    let (part, file) = part_of(path)?;
    let failed = || format!("can't write {}", part.display());
    let written = (|| {
        if let Ok(replaced) = path.metadata() {
            file.set_permissions(replaced.permissions()).with_context(failed)?;
        }
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let exported = write(&mut out)?;
        let file = out.into_inner().map_err(|error| error.into_error()).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        std::fs::rename(&part, path).with_context(|| format!("can't write {}", path.display()))?;
        Ok(exported)
    })();
    let exported = match written {
        Ok(exported) => exported,
        Err(error) => {
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
    };
    // Its name must be on disk, too.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("{} is written, but may not be on disk", path.display()))?;
    Ok(exported)
}

/// Makes the file that gets the name `path` in the end: beside it, by a name that nothing has.
fn part_of(path: &Path) -> Result<(PathBuf, File)> {
    let name = path.file_name().context("that is no name of a file")?;
    for number in 1..=PARTS_MAX {
        let mut name = name.to_owned();
        name.push(format!(".part-{}-{number}", std::process::id()));
        let part = path.with_file_name(name);
        match File::options().write(true).create_new(true).mode(0o600).open(&part) {
            Ok(file) => return Ok((part, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("can't write {}", part.display()));
            }
        }
    }
    let name = path.display();
    bail!("{name}.part-… are {PARTS_MAX} files of exports that were cut off: remove them")
}
