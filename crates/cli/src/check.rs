//! `nigh check`: which arenas lie in tmpfs, and whether they are whole; and logs: see `check_log`.
//!
//! ```text
//! /dev/shm/nigh-6379/   lock            held by a running server
//!                       default.0.arena ─► nigh_shm::verify ─► a line of the table, findings
//! ```
//!
//! Invariants:
//! 1. The check changes nothing: it opens arenas read-only. Nothing that has the name of a file
//!    holds it up.
//! 2. It holds a folder's lock, shared, while it verifies the folder, so no server starts to write
//!    meanwhile. It lists the folder of a running server without a verdict.
//! 3. It judges the files that a server would open, by the same walk: each arena, and whether the
//!    arenas of a folder belong together and none is missing. It lists other files named `.arena`.
//! 4. The exit code is 1 if a server would refuse the folder, or if a record's checksum is wrong.
//! 5. A folder that was found and can't be read, or is neither this user's nor root's, is listed
//!    without a verdict: anybody may make one. One that was named and can't be read ends the check.

use crate::check_log;
use crate::output::{say, whole_text};
use crate::render::thousands;
use crate::salvage;
use anyhow::{Context, Result, bail, ensure};
use nigh_shm::edition1::version_of;
use nigh_shm::layout::VERSION;
use nigh_shm::{ArenaReport, BadRecord, DAMAGE_ADVICE, ForeignReader, open_regular, verify};
use nigh_store::{MANIFEST, TMPFS};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The beginning of the folders' names.
const PREFIX: &[u8] = b"nigh-";
/// The file that a running server holds locked.
const LOCK: &str = "lock";
/// The end of an arena's file name.
const EXTENSION: &str = "arena";
/// Most findings that are printed for one arena.
const FINDINGS: usize = 20;
/// Most bytes of a key that are printed.
const KEY_BYTES: usize = 100;

/// Options of `nigh check`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folders with arenas, or of a log [default: all /dev/shm/nigh-*]
    #[arg(value_name = "FOLDER")]
    folders: Vec<PathBuf>,

    /// Save what can be saved of the damaged log in FOLDER into OUT, a new folder, as a log of its
    /// own. FOLDER stays as it is. Exit code 0: nothing is lost; 3: something is, as it says; 1:
    /// there is no OUT
    #[arg(long, value_name = "OUT")]
    salvage: Option<PathBuf>,
}

/// The verdict on an arena.
enum ArenaVerdict {
    /// It is as a server leaves it, or has no verdict.
    Whole,
    /// This number of its records have wrong checksums. A server serves it.
    Bad(u64),
    /// A server refuses it.
    Damaged,
    /// It is of another version of the format, which a server refuses.
    OtherVersion,
}

/// Whether a server uses a folder.
enum Holder {
    Server,
    /// We hold the lock, shared, until this is dropped; `None` if the folder has no lock file.
    Nobody(Option<File>),
}

/// Lists and verifies.
pub(crate) fn run(args: &Args) -> Result<()> {
    for folder in &args.folders {
        let name = folder.display();
        ensure!(folder.is_dir(), "there is no folder {name}: name one with arenas, or of a log");
        ensure!(has_data(folder), "{name} has neither arenas nor a log: name a folder that has");
    }
    if let Some(out) = &args.salvage {
        let [folder] = &args.folders[..] else {
            bail!("--salvage takes the folder of one log");
        };
        return match holder(folder)? {
            Holder::Nobody(_held) => salvage::run(folder, out),
            Holder::Server => bail!("{} is in use: stop its server first", folder.display()),
        };
    }
    let mut sum = Sum::default();
    let folders = match args.folders.is_empty() {
        true => found(&mut sum)?,
        false => args.folders.clone(),
    };
    say!(
        "{:<44} {:<10} {:>11} {:>15} {:>11} {:<8} state",
        "arena",
        "tenant",
        "keys",
        "live bytes",
        "incarnation",
        "server"
    );
    let logs: Vec<_> = folders.iter().filter(|folder| check_log::is_log(folder)).collect();
    for folder in &folders {
        let looked = holder(folder).and_then(|holder| Ok((holder, arenas_in(folder)?)));
        let (holder, arenas) = match looked {
            Ok(looked) => looked,
            Err(error) if args.folders.is_empty() => {
                say!("{}: not judged: {}", shown(folder), whole_text(&error));
                sum.unread += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_served = matches!(holder, Holder::Server);
        if check_log::is_log(folder) {
            sum.refused += u32::from(check_log::check(folder, is_served)?);
            continue;
        }
        sum.refused += u32::from(check_log::check_journals(folder, is_served));
        sum.refused += u32::from(!logs.is_empty() && !check_log::belong(folder, &logs, is_served));
        let mut is_other_version = false;
        for path in arenas {
            sum.arenas += 1;
            sum.served += u32::from(is_served);
            match arena(&path, &holder) {
                ArenaVerdict::Whole => {}
                ArenaVerdict::Bad(records) => sum.bad += records,
                ArenaVerdict::Damaged => sum.damaged += 1,
                ArenaVerdict::OtherVersion => is_other_version = true,
            }
        }
        if matches!(holder, Holder::Nobody(_)) {
            let faults = nigh_store::faults_of(folder);
            faults.iter().for_each(|fault| say!("    {fault}"));
            sum.refused += u32::from(is_other_version || !faults.is_empty());
            sum.is_other_version |= is_other_version;
        }
    }
    sum.judge(!logs.is_empty())
}

/// What was found in all folders.
#[derive(Default)]
struct Sum {
    arenas: u32,
    /// Arenas that a server uses.
    served: u32,
    /// Folders that weren't looked into.
    unread: u32,
    damaged: u32,
    /// What no server would take.
    refused: u32,
    /// Arenas of another version of the format weren't judged.
    is_other_version: bool,
    /// Records with wrong checksums.
    bad: u64,
}

impl Sum {
    /// Says that all is whole, or what isn't.
    fn judge(&self, has_log: bool) -> Result<()> {
        let Sum { arenas, served, unread, damaged, refused, is_other_version, bad } = *self;
        if damaged > 0 {
            bail!("{damaged} of {arenas} arenas are damaged: {DAMAGE_ADVICE}");
        }
        if refused > 0 {
            let is_whole = arenas > 0 && !is_other_version;
            let whole = if is_whole { ", though the arenas are whole" } else { "" };
            bail!("no server would take {refused} folder(s){whole}: see above");
        }
        if bad > 0 {
            bail!(
                "{bad} records have wrong checksums: a server serves them as they are, so write \
                 these keys anew or delete them"
            );
        }
        match (arenas, served) {
            (0, _) if unread > 0 => {}
            (0, _) if !has_log => say!("no arenas and no log"),
            (0, _) => {}
            (_, 0) => say!("{arenas} arenas, none damaged"),
            (_, served) if served == arenas => say!("{arenas} arenas, in use and not judged"),
            (_, served) => {
                say!("{arenas} arenas, none damaged but for {served} in use, not judged")
            }
        }
        if unread > 0 {
            say!("{unread} folder(s) not judged");
        }
        Ok(())
    }
}

/// Prints an arena's line and findings.
fn arena(path: &Path, holder: &Holder) -> ArenaVerdict {
    let name = shown(path);
    if matches!(holder, Holder::Server) {
        served_arena(path, &name);
        return ArenaVerdict::Whole;
    }
    let server = "none";
    let is_named = |name: &str| nigh_store::arena_of_name(name).is_some();
    if !path.file_name().and_then(|name| name.to_str()).is_some_and(is_named) {
        say!("{name:<44} {:<10} {:>39} {server:<8} not judged: no server gives this name", "?", "");
        return ArenaVerdict::Whole;
    }
    let version = version_of(path).ok().flatten();
    let other = match version {
        Some(1) => Some("format version 1, which `nigh convert` reads".to_owned()),
        Some(newer) if newer > VERSION => {
            Some(format!("format version {newer}: a newer server wrote it"))
        }
        _ => None,
    };
    if let Some(other) = other {
        say!("{name:<44} {:<10} {:>39} {server:<8} not judged: {other}", "?", "");
        return ArenaVerdict::OtherVersion;
    }
    let report = match verify(path) {
        Ok(report) => report,
        Err(error) => {
            say!("{name:<44} {:<10} {:>39} {server:<8} damaged: {error}", "?", "");
            return ArenaVerdict::Damaged;
        }
    };
    let ArenaReport { keys, live_bytes, findings, more_findings, incarnation, .. } = &report;
    let bad = report.bad_records.len() as u64 + report.more_bad_records;
    let (state, verdict) = match (findings.is_empty(), bad) {
        (true, 0) => ("whole", ArenaVerdict::Whole),
        (true, _) => ("bad records", ArenaVerdict::Bad(bad)),
        (false, _) => ("damaged", ArenaVerdict::Damaged),
    };
    line(&name, &report.tenant, [*keys, *live_bytes, *incarnation], server, state);
    for finding in findings.iter().take(FINDINGS) {
        say!("    at {:#x}: {}", finding.offset, finding.what);
    }
    let more = *more_findings + findings.len().saturating_sub(FINDINGS) as u64;
    if more > 0 {
        say!("    and {more} more");
    }
    for BadRecord { key, finding, .. } in &report.bad_records {
        let (key, rest) = key.split_at(key.len().min(KEY_BYTES));
        let dots = if rest.is_empty() { "" } else { "..." };
        say!("    key \"{}\"{dots} at {:#x}: {}", key.escape_ascii(), finding.offset, finding.what);
    }
    if report.more_bad_records > 0 {
        say!("    and {} more bad records", report.more_bad_records);
    }
    verdict
}

/// Prints the line of an arena that a server uses, as that counts.
fn served_arena(path: &Path, name: &str) {
    let (server, state) = ("running", "in use, not judged");
    match ForeignReader::open(path) {
        Ok(reader) => {
            let counters = reader.counters();
            let numbers = [counters.keys, counters.live_bytes, reader.incarnation()];
            line(name, &reader.info().tenant, numbers, server, state);
        }
        Err(error) => say!("{name:<44} {:<10} {:>39} {server:<8} {state}: {error}", "?", ""),
    }
}

/// Prints an arena's line: keys, live bytes and incarnation are its numbers.
fn line(name: &str, tenant: &str, numbers: [u64; 3], server: &str, state: &str) {
    let [keys, live_bytes, incarnation] = numbers;
    say!(
        "{name:<44} {:<10} {:>11} {:>15} {incarnation:>11} {server:<8} {state}",
        tenant.escape_debug().to_string(),
        thousands(keys as f64),
        thousands(live_bytes as f64),
    );
}

/// A path for people.
fn shown(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = !path.contains(char::is_control);
    if is_plain { path } else { path.escape_debug().to_string() }
}

/// The folders in tmpfs of this user and of root, since nobody else can change what is in them
/// while it is looked at. Those of others are named.
fn found(sum: &mut Sum) -> Result<Vec<PathBuf>> {
    let own = rustix::process::geteuid().as_raw();
    let failed = || format!("can't look into {TMPFS}");
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(TMPFS).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let is_named = path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX));
        let Ok(there) = path.symlink_metadata() else { continue };
        if !is_named || !path.is_dir() {
            continue;
        }
        if ![own, 0].contains(&there.uid()) {
            let owner = there.uid();
            say!("{}: not judged: it belongs to user {owner}: name it to check it", shown(&path));
            sum.unread += 1;
            continue;
        }
        folders.push(path);
    }
    folders.sort();
    Ok(folders)
}

/// Whether there is anything to look at in a folder; one that can't be read is told of later.
fn has_data(folder: &Path) -> bool {
    let Ok(mut there) = std::fs::read_dir(folder) else { return true };
    let is_ours = |name: &str| {
        [LOCK, MANIFEST].contains(&name) || name.ends_with(".arena") || name.starts_with("journal.")
    };
    check_log::is_log(folder)
        || there.any(|it| it.is_ok_and(|it| is_ours(&it.file_name().to_string_lossy())))
}

/// The arenas in a folder.
fn arenas_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("can't look into {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a server holds the folder's lock.
fn holder(folder: &Path) -> Result<Holder> {
    let path = folder.join(LOCK);
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Holder::Nobody(None));
        }
        Err(error) => return Err(error).with_context(|| format!("can't open {}", path.display())),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Holder::Nobody(Some(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Holder::Server),
        Err(error) => Err(error).with_context(|| format!("can't lock {}", path.display())),
    }
}
