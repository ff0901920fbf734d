//! The machine, the day and the versions of a comparison.
//!
//! Invariant: a fact that can't be read is called unknown; it is no error.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

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
        let memory = field("/proc/meminfo", "MemTotal", ':')
            .and_then(|kib| kib.trim_end_matches(" kB").parse::<f64>().ok())
            .map(|kib| format!("{:.0} GiB", kib / f64::from(1 << 20)));
        Self {
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(unknown),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or_else(unknown),
            kernel: kernel.map_or_else(unknown, |text| text.trim().to_owned()),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(unknown),
            date: printed(Command::new("date").args(["-u", "+%F"])).unwrap_or_else(unknown),
            nigh: nigh.unwrap_or_else(unknown),
            load: load.unwrap_or_else(unknown),
        }
    }
}

/// The version that `program` prints: the first word after the name that begins with `mark`,
/// without the mark. "nigh 0.1.0"; "Redis server v=7.0.15 sha=…", whose mark is `v=`.
pub(crate) fn version(program: &OsStr, mark: &str) -> Option<String> {
    let text = printed(Command::new(program).arg("--version"))?;
    text.split_whitespace().skip(1).find_map(|word| word.strip_prefix(mark)).map(str::to_owned)
}

/// What a program prints.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
