//! The class of the machine, and the day. No names or paths of it.
//!
//! Invariant: a fact that can't be read is called unknown; it is no error.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// The machine and the day.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) system: String,
    /// The kind of file system that the folder is on.
    pub(crate) file_system: String,
    pub(crate) date: String,
    /// Mean number of runnable threads in the minute before.
    pub(crate) load: String,
}

impl Machine {
    /// Looks at this one, which will write in this folder.
    pub(crate) fn look(dir: &Path) -> Machine {
        let unknown = || "unknown".to_owned();
        let memory = field("/proc/meminfo", "MemTotal", ':')
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
            .map(|kib| format!("{} GiB", (kib + (1 << 19)) >> 20));
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next().map(str::to_owned));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let kernel = release.as_deref().and_then(|text| text.trim().split('-').next());
        let file_system = printed(Command::new("df").arg("--output=fstype").arg(dir));
        // Below a title.
        let file_system = file_system.and_then(|text| text.lines().last().map(str::to_owned));
        Machine {
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(unknown),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or_else(unknown),
            kernel: kernel.map_or_else(unknown, str::to_owned),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(unknown),
            file_system: file_system.unwrap_or_else(unknown),
            date: printed(Command::new("date").arg("+%F")).unwrap_or_else(unknown),
            load: load.unwrap_or_else(unknown),
        }
    }
}

/// The value of a line that begins with a name.
fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
}

/// What a program prints.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
