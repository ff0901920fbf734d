//! `nigh restore` that is interrupted. What it makes of a backup is tested in `backup`.

use crate::support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Values of the log, and the bytes of each: enough to be copied when the signal comes.
const VALUES: usize = 64;
const VALUE_BYTES: usize = 1 << 20;
/// Most restores that get a signal until one gets it while files are copied.
const TRIES: u32 = 20;
/// Longest time of a restore: a debug build on a busy machine needs less.
const END: Duration = Duration::from_secs(60);

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A backup of a server's log.
fn back_up(folder: &Path, backup: &Path) {
    let log = folder.join("log");
    let flags = ["--maxmemory", "256mb", "--appendonly", "yes", "--log-on-tmpfs", "yes", "--dir"];
    let server = Server::start_with(folder, &[&flags[..], &[path(&log)]].concat());
    let value = "v".repeat(VALUE_BYTES);
    let sets = (0..VALUES).map(|n| ["SET".to_owned(), format!("key:{n}"), value.clone()]);
    server.connect().pipeline(sets).expect("the server is up");
    let output = nigh(&["backup", "--connect", &server.port.to_string(), path(backup)]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(&output), server.said());
}

/// Restores, with SIGINT when the first file of the copy is there.
fn restore_and_interrupt(backup: &Path, into: &Path) -> Output {
    let mut child = Command::new(NIGH)
        .args(["restore", path(backup), path(into)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let has_files = || {
        let names = std::fs::read_dir(into).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(|name| name != "lock")
    };
    let begin = Instant::now();
    while !has_files() && child.try_wait().expect("it is our child").is_none() {
        assert!(begin.elapsed() < END, "no copy begins");
    }
    // Its process number stays its own until we have waited for it.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    child.wait_with_output().expect("it is our child")
}

/// A restore that was interrupted left what it had copied, and the next one into that folder was
/// refused. It says one sentence, and leaves nothing: no folder where none was, nor those above,
/// and an empty one as it was.
#[test]
fn an_interrupted_restore_leaves_nothing() {
    let folder = folder();
    let (backup, above) = (folder.path().join("backup"), folder.path().join("restored"));
    let into = above.join("here").join("and there");
    back_up(folder.path(), &backup);
    for is_there in [false, true] {
        // On a busy machine the signal may come after the end.
        let stopped = (0..TRIES).find_map(|_| {
            let _ = std::fs::remove_dir_all(&above);
            if is_there {
                std::fs::create_dir_all(&into).expect("the folder is ours");
            }
            let output = restore_and_interrupt(&backup, &into);
            (!output.status.success()).then_some(output)
        });
        let output = stopped.expect("a signal comes in time");
        assert_one_sentence(&output, &["restored", "stopped before it was complete"]);
        assert_eq!((above.exists(), into.exists()), (is_there, is_there));
        if is_there {
            assert_eq!(std::fs::read_dir(&into).expect("it is there").count(), 0);
        }
    }
    let output = nigh(&["restore", path(&backup), path(&into)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
