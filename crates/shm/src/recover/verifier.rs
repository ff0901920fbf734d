//! Verifying an arena without changing it: what `nigh check` runs.
//!
//! 1. The file is opened and mapped read-only; every byte is copied out before it is believed.
//! 2. Findings are bounded; the rest are counted.
//! 3. The report lists exactly what adoption refuses: both go by the survey. What
//!    adoption ends or gives back by itself is no finding; that it may lack memory for that, or
//!    find another owner's name, is none of the file's faults.
//! 4. A record with a wrong sum is no such finding: a writer adopts it, and all others are served.
//!    It is listed by itself.
//! 5. While a writer is at work, findings may be false: what was checked had changed. The report
//!    says whether anything was committed meanwhile.
//!
//! Any thread, any process.

use crate::check::checker::{FormatChecker, WholeRecord};
use crate::check::survey::{Survey, survey};
use crate::error::ArenaError;
use crate::error::io;
use crate::format::format_fault::{Finding, FormatFault};
use crate::format::header_info::header_of;
use crate::format::header_info::{incarnation_fault, length_fault};
use crate::format::layout::{Geometry, header, record as r};
use crate::format::regular_file::open_regular;
use crate::format::words::SharedWords;
use crate::memory::file_mapping::FileMapping;
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;

/// Findings that a report lists at most.
const FINDINGS_MAX: usize = 100;
/// Bad records that it lists at most: each of them is to be written anew by its key.
const BAD_RECORDS_MAX: usize = 10_000;

/// The result of [`verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaReport {
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
    /// Records whose sum, or whose value's, is wrong. They are served as they are.
    pub bad_records: Vec<BadRecord>,
    /// How many more there are.
    pub more_bad_records: u64,
}

/// A record with a wrong sum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Where it, or its value, lies, and which sum it has and should have.
    pub finding: Finding,
}

impl ArenaReport {
    fn note(&mut self, fault: &FormatFault) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more_findings += 1;
            return;
        }
        self.findings.push(fault.into());
    }

    fn note_bad(&mut self, key: Vec<u8>, fault: &FormatFault) {
        if self.bad_records.len() >= BAD_RECORDS_MAX {
            self.more_bad_records += 1;
            return;
        }
        self.bad_records.push(BadRecord { key, finding: fault.into() });
    }
}

/// Checks every record that the index or an unfinished commit names (place, length, hash, key, run,
/// sums), and that no slot is used for two things.
///
/// # Errors
/// If the file can't be read, or its header makes no sense.
pub fn verify(path: &Path) -> Result<ArenaReport, ArenaError> {
    let info = header_of(path)?;
    let failed =
        |source| ArenaError::Io { path: path.to_path_buf(), doing: "opening the file", source };
    let file = open_regular(path).map_err(failed)?;
    let file_bytes = file.metadata().map_err(failed)?.len();
    let usable = file_bytes.min(info.g.address_bytes) & !(info.g.slot_bytes() - 1);
    let mut report = ArenaReport {
        partition: info.partition,
        partitions: info.partitions,
        incarnation: info.incarnation,
        capacity_bytes: info.g.capacity_bytes,
        file_bytes,
        tenant: info.tenant,
        ..ArenaReport::default()
    };
    if let Some(fault) = incarnation_fault(info.incarnation) {
        report.note(&fault);
    }
    if let Some(fault) = length_fault(&info.g, usable) {
        report.note(&fault);
        return Ok(report);
    }
    let len = usize::try_from(usable).map_err(|_| io(path, "mapping the file", Errno::NOMEM))?;
    let mapping =
        FileMapping::read_only(&file, len).map_err(|e| io(path, "mapping the file", e))?;
    let words = mapping.words();
    let before = words.load64(header::COMMITTED_LSN, Acquire);
    let state = words.load64(header::INDEX_STATE, Acquire);
    let found = survey(&words, &info.g, usable, info.seed, &mut |fault| {
        report.note(&fault);
        Ok(())
    });
    let found = found.map_err(|fault| fault.at(path))?;
    compare_sums(&words, (&info.g, usable, info.seed), &found, &mut report);
    (report.keys, report.expires) = (found.entries, found.expires);
    (report.live_bytes, report.growing) = (found.live_bytes, found.growing);
    report.index_lines = found.current.map_or(0, |table| table.lines);
    report.unfinished_commit = words.load32(header::INTENT, Acquire) != 0;
    words.fence(Acquire);
    report.changed_meanwhile = words.load64(header::COMMITTED_LSN, Acquire) != before
        || words.load64(header::INDEX_STATE, Acquire) != state;
    Ok(report)
}

/// Compares the sums of all records that the index names and that are whole otherwise.
fn compare_sums<W: SharedWords>(
    words: &W,
    (g, end, seed): (&Geometry, u64, u32),
    found: &Survey,
    report: &mut ArenaReport,
) {
    let sums = FormatChecker::new(words, g, end, seed);
    for table in [found.old, found.current].into_iter().flatten() {
        let mut compare = |whole: Result<WholeRecord, FormatFault>| {
            if let Ok(whole) = whole
                && let Err(fault) = sums.sum(&whole)
            {
                let mut key = vec![0; whole.head.key_len.into()];
                words.copy_out(whole.offset + r::KEY, &mut key);
                report.note_bad(key, &fault);
            }
            Ok(())
        };
        let walked = FormatChecker::new(words, g, end, seed).records(table, &mut compare);
        walked.expect("nothing ends this walk");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_report_has_no_room_for_is_counted() {
        let mut report = ArenaReport::default();
        let fault = FormatFault::new(0, "word", 1, 2);
        (0..FINDINGS_MAX + 3).for_each(|_| report.note(&fault));
        (0..BAD_RECORDS_MAX + 2).for_each(|_| report.note_bad(Vec::new(), &fault));
        assert_eq!((report.findings.len(), report.more_findings), (FINDINGS_MAX, 3));
        assert_eq!((report.bad_records.len(), report.more_bad_records), (BAD_RECORDS_MAX, 2));
    }
}
