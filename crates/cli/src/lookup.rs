//! `nigh get`, `nigh mget` and `nigh scan`: reading keys, by a server or from its memory alone.
//!
//! ```text
//! nigh get user:1                           the server answers
//! nigh get user:1 --local /dev/shm/nigh-6379   the arenas in the folder; no server is asked
//! ```
//!
//! Invariants:
//! 1. With `--local` nothing is written and nobody is asked: a server that serves the folder isn't
//!    hindered, and one that is down isn't needed.
//! 2. Keys whose time is over, by the server's last time or by the time now, aren't shown.

use crate::output::Output;
use crate::render;
use crate::target::ServerFlags;
use anyhow::{Result, bail, ensure};
use nigh_client::{Client, ForeignValues, Frame};
use nigh_shm::layout::is_over;
use nigh_shm::{ArenaError, ForeignArenas, ForeignReader, MOST_PARTITIONS};
use nigh_store::{DEFAULT_TENANT, arena_path};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys that a step of a scan aims at.
const SCAN_COUNT: u32 = 100;

/// Where keys are read, and how they are printed.
#[derive(clap::Args)]
pub(crate) struct Lookup {
    #[command(flatten)]
    target: ServerFlags,
    /// Read the arenas in this folder (a server's shm-dir) and ask no server; it may be down
    #[arg(long, value_name = "DIR")]
    local: Option<PathBuf>,
    /// Print values as they are; this is the default unless stdout is a terminal
    #[arg(long)]
    raw: bool,
}

/// Options of `nigh get`.
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    lookup: Lookup,
    /// The key
    key: String,
}

/// Options of `nigh mget`.
#[derive(clap::Args)]
pub(crate) struct MultiGetArgs {
    #[command(flatten)]
    lookup: Lookup,
    /// The keys
    #[arg(required = true)]
    keys: Vec<String>,
}

/// Options of `nigh scan`.
#[derive(clap::Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    lookup: Lookup,
    /// Show the keys that begin so [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Print each key's value behind it, and a tab between
    #[arg(long)]
    values: bool,
}

/// Prints a key's value; nothing, or `(nil)` on a terminal, if there is none.
pub(crate) fn get(args: &GetArgs) -> Result<()> {
    let value = args.lookup.open()?.multi_get(&[args.key.as_bytes()])?;
    args.lookup.print(&frame(value.get(0)))
}

/// Prints the values of keys, all of one moment in each partition.
pub(crate) fn multi_get(args: &MultiGetArgs) -> Result<()> {
    let keys: Vec<&[u8]> = args.keys.iter().map(String::as_bytes).collect();
    let values = args.lookup.open()?.multi_get(&keys)?;
    let frames = (0..keys.len()).map(|key| frame(values.get(key)));
    args.lookup.print(&Frame::Array(frames.collect()))
}

/// Prints keys.
pub(crate) fn scan(args: &ScanArgs) -> Result<()> {
    let mut out = BufWriter::new(Output::new());
    let is_raw = args.lookup.is_raw();
    let shown = |bytes: &[u8]| if is_raw { bytes.to_vec() } else { quoted(bytes) };
    let mut source = args.lookup.open()?;
    let (mut cursor, mut written) = (0, Ok(()));
    loop {
        cursor = source.scan(args.prefix.as_bytes(), cursor, &mut |key, value| {
            let mut line = shown(key);
            if args.values {
                line.push(b'\t');
                line.extend(shown(value));
            }
            line.push(b'\n');
            if written.is_ok() {
                written = out.write_all(&line);
            }
        })?;
        std::mem::replace(&mut written, Ok(()))?;
        if cursor == 0 {
            break;
        }
    }
    Ok(out.flush()?)
}

/// What is read.
enum Source {
    Server(Box<Client>),
    Memory(ForeignArenas),
}

impl Lookup {
    fn open(&self) -> Result<Source> {
        match &self.local {
            None => Ok(Source::Server(Box::new(self.target.client()?))),
            Some(folder) => Ok(Source::Memory(arenas(folder)?)),
        }
    }

    fn is_raw(&self) -> bool {
        self.raw || !Output::new().is_terminal()
    }

    fn print(&self, frame: &Frame) -> Result<()> {
        let mut out = Output::new();
        let text =
            if self.is_raw() { render::raw(frame) } else { render::formatted(frame).into_bytes() };
        out.write_all(&text)?;
        out.write_all(b"\n")?;
        Ok(())
    }
}

impl Source {
    fn multi_get(&mut self, keys: &[&[u8]]) -> Result<ForeignValues> {
        let mut values = ForeignValues::new();
        match self {
            Source::Server(client) => client.multi_get_into(keys, &mut values)?,
            Source::Memory(arenas) => {
                arenas.multi_get_into(keys, &mut values, &mut |_, _| {})?;
                let now_ms = now_ms();
                for key in 0..keys.len() {
                    if values.version(key).is_some_and(|it| is_over(it.expiry_ms, now_ms)) {
                        values.forget(key);
                    }
                }
            }
        }
        Ok(values)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        cursor: u64,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        match self {
            Source::Server(client) => Ok(client.scan(prefix, cursor, SCAN_COUNT, found)?),
            Source::Memory(arenas) => {
                let now_ms = now_ms();
                Ok(arenas.scan(prefix, cursor, SCAN_COUNT, &mut |record| {
                    let is_live = !is_over(record.expiry_ms, now_ms);
                    if is_live {
                        found(&record.key, &record.value);
                    }
                    is_live
                })?)
            }
        }
    }
}

/// Maps the arenas of a server's folder.
pub(crate) fn arenas(folder: &Path) -> Result<ForeignArenas> {
    let first = arena(folder, 0)?;
    let partitions = first.info().partitions;
    ensure!(
        (1..=MOST_PARTITIONS).contains(&(partitions as usize)),
        "{}: the first arena says that there are {partitions} partitions: 1 to {MOST_PARTITIONS} are possible",
        folder.display()
    );
    let mut arenas = vec![first];
    for partition in 1..partitions as usize {
        arenas.push(arena(folder, partition)?);
    }
    for (partition, arena) in (0..).zip(&arenas) {
        arena.info().check_owner(folder, DEFAULT_TENANT, partition, partitions)?;
    }
    let arenas = ForeignArenas::new(arenas);
    arenas.check()?;
    Ok(arenas)
}

fn arena(folder: &Path, partition: usize) -> Result<ForeignReader> {
    match ForeignReader::open(&arena_path(folder, DEFAULT_TENANT, partition)) {
        Ok(arena) => Ok(arena),
        Err(ArenaError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => bail!(
            "{} has no arena of partition {partition}: name the folder that the server has as \
             --shm-dir (/dev/shm/nigh-PORT unless set); arenas come with the server's first start",
            folder.display()
        ),
        Err(ArenaError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            bail!("{} can't be read: {source}: run as the server's user", folder.display())
        }
        Err(error) => Err(error.into()),
    }
}

fn frame(value: Option<&[u8]>) -> Frame {
    value.map_or(Frame::Null, |value| Frame::Bulk(value.to_vec()))
}

fn quoted(bytes: &[u8]) -> Vec<u8> {
    render::formatted(&Frame::Bulk(bytes.to_vec())).into_bytes()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
