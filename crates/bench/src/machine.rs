//! The machine, the day and the versions of a comparison.
//!
//! Invariant: a fact that can't be read is called unknown; it is no error.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// The machine, the day, the server's version.
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) date: String,
    pub(crate) nigh: String,
    /// Mean number of runnable threads in the last minute, before the servers start.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn look(nigh: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let field = |path: &str, name: &str, separator: char| {
            let text = std::fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
        };
        let nigh = version(nigh.as_os_str(), "");
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next().map(str::to_owned));
        let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() / DAY);
        let memory = field("/proc/meminfo", "MemTotal", ':')
            .and_then(|kib| kib.trim_end_matches(" kB").parse::<f64>().ok())
            .map(|kib| format!("{:.0} GiB", kib / f64::from(1 << 20)));
        Self {
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(unknown),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or_else(unknown),
            kernel: kernel.map_or_else(unknown, |text| text.trim().to_owned()),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(unknown),
            date: date(days),
            nigh: nigh.unwrap_or_else(unknown),
            load: load.unwrap_or_else(unknown),
        }
    }
}

/// The version that `program` prints: the first word after the name that begins with `mark`,
/// without the mark. "nigh 0.1.0"; "Redis server v=7.0.15 sha=…", whose mark is `v=`.
pub(crate) fn version(program: &OsStr, mark: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().skip(1).find_map(|word| word.strip_prefix(mark)).map(str::to_owned)
}

/// The date of a day, which counts from 1970-01-01. The algorithm is Hinnant's `civil_from_days`
/// (howardhinnant.github.io/date_algorithms.html), for dates after 1970.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates at leap days and at the end of a year are right.
    #[test]
    fn dates_are_right() {
        for (days, text) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
        ] {
            assert_eq!(date(days), text);
        }
    }
}
