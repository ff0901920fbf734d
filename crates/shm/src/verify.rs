//! Verifying an arena without changing it: what `nigh check` runs.
//!
//! 1. The file is opened and mapped read-only; every byte is copied out before it is believed.
//! 2. Findings are bounded; the rest are counted.
//! 3. What is reported is what adoption refuses, and nothing else: both go by the survey. What adoption ends or gives back
//!    by itself is no finding; that it may lack memory for that, or find another owner's name, is none of the file's faults.
//! 4. While a writer is at work, findings may be false: what was checked had changed. The report says
//!    whether anything was committed meanwhile.
//!
//! Any thread, any process.

use crate::adopt::header_of;
use crate::check::{Fault, length_fault};
use crate::error::ArenaError;
use crate::layout::header;
use crate::region::{Mapping, io};
use crate::survey::survey;
use crate::words::Words;
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;

/// Findings that a report lists at most.
const FINDINGS_MAX: usize = 100;

/// What [`verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The tenant that the arena belongs to.
    pub tenant: String,
    /// Which partition of the tenant.
    pub partition: u32,
    /// Of how many.
    pub partitions: u32,
    /// Number of the last writer.
    pub incarnation: u64,
    /// Bytes of memory that it may use.
    pub capacity_bytes: u64,
    /// Length of the file, bytes; much of it may be holes.
    pub file_bytes: u64,
    /// Keys whose records are whole, expired ones included.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Bytes of their records and runs.
    pub live_bytes: u64,
    /// Lines of the current index table.
    pub index_lines: u64,
    /// Whether the index was growing.
    pub growing: bool,
    /// Whether a commit of several keys is to be ended by the next writer.
    pub unfinished_commit: bool,
    /// Whether a writer changed the arena meanwhile: findings may be false then.
    pub changed_meanwhile: bool,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How much more is wrong.
    pub more_findings: u64,
}

/// Something that contradicts the format.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What.
    pub what: String,
}

impl Report {
    fn note(&mut self, fault: &Fault) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more_findings += 1;
            return;
        }
        let Fault { offset, what, expected, found } = fault;
        let what = format!("{what} is {found}, expected {expected}");
        self.findings.push(Finding { offset: *offset, what });
    }
}

/// Checks every record that the index or an unfinished commit names (place, length, hash, key, run), and that no slot is
/// used for two things.
///
/// # Errors
/// If the file can't be read, or its header makes no sense.
pub fn verify(path: &Path) -> Result<Report, ArenaError> {
    let info = header_of(path)?;
    let failed =
        |source| ArenaError::Io { path: path.to_path_buf(), doing: "opening the file", source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let file_bytes = file.metadata().map_err(failed)?.len();
    let usable = file_bytes.min(info.g.address_bytes) & !(info.g.slot_bytes() - 1);
    let mut report = Report {
        partition: info.partition,
        partitions: info.partitions,
        incarnation: info.incarnation,
        capacity_bytes: info.g.capacity_bytes,
        file_bytes,
        tenant: info.tenant,
        ..Report::default()
    };
    if let Some(fault) = length_fault(&info.g, usable) {
        report.note(&fault);
        return Ok(report);
    }
    let len = usize::try_from(usable).map_err(|_| io(path, "mapping the file", Errno::NOMEM))?;
    let mapping = Mapping::read_only(&file, len).map_err(|e| io(path, "mapping the file", e))?;
    let words = mapping.words();
    let before = words.load64(header::COMMITTED_LSN, Acquire);
    let state = words.load64(header::INDEX_STATE, Acquire);
    let found = survey(&words, &info.g, usable, info.seed, &mut |fault| {
        report.note(&fault);
        Ok(())
    });
    let found = found.map_err(|fault| fault.at(path))?;
    (report.keys, report.expires) = (found.entries, found.expires);
    (report.live_bytes, report.growing) = (found.live_bytes, found.growing);
    report.index_lines = found.current.map_or(0, |table| table.lines);
    report.unfinished_commit = words.load32(header::INTENT, Acquire) != 0;
    words.fence(Acquire);
    report.changed_meanwhile = words.load64(header::COMMITTED_LSN, Acquire) != before
        || words.load64(header::INDEX_STATE, Acquire) != state;
    Ok(report)
}
