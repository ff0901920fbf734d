//! strace on a server: tells its system calls, delays them or has them fail.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait until it is attached.
const SOON: Duration = Duration::from_secs(20);

/// strace on processes or threads. Dropping it lets them go on.
pub(crate) struct Strace(Child);

impl Strace {
    /// Attaches it, with arguments that say to whom, and what it does; it tells that to the file
    /// `said`. None if strace isn't there, or may not: the caller tests nothing then, and this has
    /// said so.
    pub(crate) fn attach(args: &[&str], said: &Path) -> Option<Strace> {
        let file = std::fs::File::create(said).expect("the folder is ours");
        let mut command = Command::new("strace");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let Ok(child) = command.spawn() else {
            eprintln!("strace isn't here: nothing is tested");
            return None;
        };
        let (mut strace, begin) = (Strace(child), Instant::now());
        loop {
            let text = std::fs::read_to_string(said).unwrap_or_default();
            if text.contains(" attached") {
                return Some(strace);
            }
            if strace.0.try_wait().expect("it is our child").is_some() {
                eprintln!("strace may not: nothing is tested: {text}");
                return None;
            }
            assert!(begin.elapsed() < SOON, "strace does nothing: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let begin = Instant::now();
        // One whose process was killed may not end by itself.
        while begin.elapsed() < Duration::from_secs(1) && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
