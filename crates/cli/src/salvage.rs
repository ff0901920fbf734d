//! `nigh check FOLDER --salvage OUT`: what can be saved of a damaged log, as a log of its own.
//!
//! ```text
//! FOLDER (locked, only read) ──> OUT.new ── whole, read back ──> OUT
//! ```
//!
//! 1. OUT gets its name when it is whole. It is empty before, or isn't there.
//! 2. All that is lost is named on stdout. The exit code is 3 if something is, and 1 if there is no
//!    copy.
//! 3. The copy gets its meta last. A salvage that was cut off before leaves OUT.new without meta:
//!    no server takes that, and the next salvage into OUT begins it anew. An OUT.new with meta may
//!    be a log, and is left alone.

use crate::check_log;
use crate::output::say;
use crate::render::thousands;
use anyhow::{Context, Result, bail, ensure};
use nigh_log::{LogSettings, RealChance, RealClock, RealFolder, World, list};
use nigh_store::{LogSalvage, SalvagedShard, salvage_log};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Saves what can be saved of the log in a folder that nobody serves.
pub(crate) fn run(folder: &Path, out: &Path) -> Result<()> {
    ensure!(check_log::is_log(folder), "{} has no log", folder.display());
    let place = SalvagePlace::of(folder, out)?;
    let folders = place.begin()?;
    let saved =
        salvage_log(&world(RealFolder::open_to_read(folder)?), &world(folders), settings(folder)?);
    let saved = match saved {
        Ok(saved) => saved,
        Err(error) => {
            place.give_up();
            return Err(error.into());
        }
    };
    place.publish()?;
    let has_lost = tell(&saved, folder, out);
    say!(
        "`nigh serve --appendonly yes --dir {}` serves it, with an --shm-dir that has no arenas",
        out.display()
    );
    if has_lost {
        bail!(SomethingLost { out: out.to_owned() });
    }
    Ok(())
}

/// There is a copy, which lacks something.
#[derive(Debug)]
pub(crate) struct SomethingLost {
    out: PathBuf,
}

impl std::error::Error for SomethingLost {}

impl fmt::Display for SomethingLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "something is lost, as said above; {} has the rest", self.out.display())
    }
}

/// Files of the copy are as long as those of the log.
fn settings(folder: &Path) -> Result<LogSettings> {
    let failed = || format!("can't look into {}", folder.display());
    let most = LogSettings::default().file_bytes;
    let mut file_bytes = 0;
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().to_string_lossy().ends_with(".log") {
            file_bytes = entry.metadata().with_context(failed)?.len().max(file_bytes);
        }
    }
    // A file of one long frame says nothing of the others.
    let least = 1 << 20;
    Ok(LogSettings { file_bytes: file_bytes.next_multiple_of(4096).clamp(least, most) })
}

fn world(folder: RealFolder) -> World<RealFolder> {
    World {
        storage: Arc::new(folder),
        clock: Arc::new(RealClock::new()),
        chance: Arc::new(RealChance),
    }
}

/// Where the copy comes to lie.
struct SalvagePlace {
    out: PathBuf,
    new: PathBuf,
    above: PathBuf,
}

impl SalvagePlace {
    fn of(folder: &Path, out: &Path) -> Result<SalvagePlace> {
        let shown = out.display();
        // The folder that a link names is replaced, not the link.
        let out = match out.is_symlink() {
            true => &out.canonicalize().with_context(|| format!("can't look at {shown}"))?,
            false => out,
        };
        let name = out.file_name().with_context(|| format!("{shown} names no folder"))?;
        let above = match out.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let failed = || format!("can't look at {}", above.display());
        let above = above.canonicalize().with_context(failed)?;
        let out = above.join(name);
        let own = folder.canonicalize()?;
        let inside = above.starts_with(&own) || out.canonicalize().is_ok_and(|out| out == own);
        ensure!(!inside, "{shown} is the log's own folder, or in it: name another one");
        if out.symlink_metadata().is_ok() {
            let entries = std::fs::read_dir(&out).with_context(|| format!("can't use {shown}"))?;
            ensure!(entries.count() == 0, "{shown} isn't empty: name a new folder");
        }
        let mut new = name.to_owned();
        new.push(".new");
        Ok(SalvagePlace { new: above.join(new), out, above })
    }

    /// Makes the folder that gets the name in the end. One that an earlier salvage left goes.
    fn begin(&self) -> Result<RealFolder> {
        let shown = self.new.display();
        if self.new.symlink_metadata().is_ok() {
            let left = RealFolder::open_to_read(&self.new).and_then(|folder| list(&folder));
            // A rest has no meta yet: a folder with one may be a log.
            let ours = left.is_ok_and(|left| left.others.is_empty() && !left.meta);
            ensure!(ours, "{shown} is in the way: move it, or name another folder");
            // Nobody else is at it: the lock is taken.
            let _held = RealFolder::open(&self.new, false)?;
            std::fs::remove_dir_all(&self.new).with_context(|| format!("can't remove {shown}"))?;
        }
        RealFolder::open(&self.new, true).with_context(|| format!("can't make {shown}"))
    }

    fn give_up(&self) {
        // A rest is removed by the next salvage into this folder.
        let _ = std::fs::remove_dir_all(&self.new);
    }

    fn publish(&self) -> Result<()> {
        let failed = || format!("can't rename {} to {}", self.new.display(), self.out.display());
        std::fs::rename(&self.new, &self.out).with_context(failed)?;
        let above = std::fs::File::open(&self.above).and_then(|above| above.sync_all());
        above.with_context(|| format!("can't sync {}", self.above.display()))
    }
}

/// Prints what was saved and what is lost. Whether something is.
fn tell(saved: &LogSalvage, folder: &Path, out: &Path) -> bool {
    let hex = |id: [u8; 16]| format!("{:032x}", u128::from_be_bytes(id));
    say!("{}: the log {}", folder.display(), hex(saved.meta.id));
    say!("{}: what was saved of it, as the log {}", out.display(), hex(saved.id));
    for shard in &saved.shards {
        tell_shard(saved, shard);
    }
    let has_lost = saved.shards.iter().any(SalvagedShard::has_lost);
    if has_lost && saved.shards.len() > 1 {
        say!(
            "    the shards were cut each at its own point: a function's writes may be there without \
             what it read or wrote on another shard"
        );
    }
    has_lost
}

fn tell_shard(salvage: &LogSalvage, shard: &SalvagedShard) {
    let SalvagedShard { chain, saved, changes, dropped } = shard;
    let name = |stream| check_log::name_of(&salvage.meta, stream);
    let changes = thousands(*changes as f64);
    let number = chain.shard;
    match &saved.bad {
        Some(bad) => say!(
            "    shard {number}: {changes} changes saved; cut at {}, offset {}: {}",
            bad.file,
            bad.position,
            bad.what
        ),
        None if saved.sum.is_none() => say!("    shard {number}: nothing could be saved"),
        None => {
            say!("    shard {number}: {changes} changes saved, all that a start would have")
        }
    }
    // Behind a torn end lies only what was promised to nobody.
    let what = if shard.has_lost() { "lost" } else { "torn, promised to nobody" };
    for file in &saved.files {
        match (file.position, file.bytes) {
            (0, _) => say!("        {what}: {}, all of it", file.file),
            (position, 0) => {
                say!("        {what}: {} from offset {position} on, if there was more", file.file);
            }
            (position, bytes) => say!(
                "        {what}: {} from offset {position} on, {} bytes",
                file.file,
                thousands(bytes as f64)
            ),
        }
    }
    for lost in &saved.lsns {
        say!(
            "        {what}: {}: LSNs {} to {}, and what was behind",
            name(lost.stream),
            lost.first,
            lost.last
        );
    }
    for again in &saved.again {
        say!("        lost: {}: older records, LSNs {}", name(again.stream), ranges(&again.lsns));
    }
    if saved.unnamed {
        say!(
            "        lost: files before {} went, whose records were written again behind the cut; \
             those in frames that can't be read have no name here",
            saved.oldest
        );
    }
    for key in dropped {
        say!(
            "        lost: {}: key \"{}\", LSN {}, whose value stood on a lost one (removed as LSN \
             {})",
            name(key.stream),
            key.key.escape_ascii(),
            key.lsn,
            key.removed_lsn
        );
    }
    for (stream, lsn) in &saved.last {
        say!("        {}: saved up to LSN {lsn}", name(*stream));
    }
}

/// Rising numbers, neighbours as one range.
fn ranges(numbers: &[u64]) -> String {
    let ranges = numbers.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [first, .., last] => format!("{first} to {last}"),
        one => one.first().map(ToString::to_string).unwrap_or_default(),
    });
    ranges.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&[1, 2, 3, 5, 8, 9]), "1 to 3, 5, 8 to 9");
    }
}
