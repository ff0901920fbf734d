//! A log that ends while it is backed up: the backup is stopped, and has left nothing, or it was
//! complete before, and is whole.

use super::{assert_whole, back_up, slow, start, status, text, wait_until};
use crate::support::{Server, folder};
use nigh_client::Frame;
use std::path::Path;
use std::time::Instant;

/// Backups of a log that ends at some moment of them; one more has its time.
const TRIALS: u32 = 16;
const KEYS: usize = 60;

fn set_log(server: &Server, on: &str) {
    let reply = server.call(&["CONFIG", "SET", "appendonly", on]);
    assert_eq!(reply, Frame::Simple(b"OK".to_vec()), "{on}: {}", server.said());
}

/// Begins the log anew, and waits until it counts.
fn begin_log(server: &Server) {
    set_log(server, "yes");
    let reply = server.call(&["WAITAOF", "1", "0", "0"]);
    let local = reply.elements().and_then(|all| all.first()?.integer());
    assert_eq!(local, Some(1), "{reply:?}");
}

fn begin_backup(server: &Server, dir: &Path) -> Result<(), String> {
    let reply = server.call(&["BACKUP", dir.to_str().expect("UTF-8")]);
    reply.error().map_or(Ok(()), |error| Err(String::from_utf8_lossy(error).into_owned()))
}

fn has_left_nothing(dir: &Path) -> bool {
    !dir.exists() && !dir.with_extension("new").exists()
}

#[test]
fn a_log_that_ends_stops_its_backup() {
    let folder = folder();
    let server = slow(folder.path());
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    begin_backup(&server, &a).expect("it begins");
    wait_until("it copies", || text(&status(&server, "state")) == "copying");
    set_log(&server, "no");
    // Nobody reads the log any more: its files go.
    assert_eq!(text(&status(&server, "state")), "failed");
    let cause = text(&status(&server, "error"));
    assert!(cause.contains("stopped"), "{cause}");
    assert!(has_left_nothing(&a));
    let refused = begin_backup(&server, &b).expect_err("there is no log");
    assert!(refused.contains("no whole log"), "{refused}");
    begin_log(&server);
    server.call(&["CONFIG", "SET", "backup-rate", "0"]);
    back_up(&server, &b);
    assert_whole(&b);
    assert!(has_left_nothing(&a));
}

#[test]
fn a_log_that_ends_at_any_moment_of_a_backup_leaves_a_whole_one_or_none() {
    let folder = folder();
    let server = start(folder.path(), &folder.path().join("data"));
    let mut connection = server.connect();
    for key in 0..KEYS {
        let reply = connection.call(["SET", &format!("k{key}"), &"v".repeat(20_000)]);
        assert_eq!(reply.expect("up"), Frame::Simple(b"OK".to_vec()));
    }
    // How long one takes on this machine, now.
    let begun = Instant::now();
    back_up(&server, &folder.path().join("whole"));
    let whole = begun.elapsed();
    let mut complete = 0;
    for trial in 0..=TRIALS {
        let dir = folder.path().join(format!("b{trial}"));
        // The log counts a moment before it can be backed up.
        wait_until("it begins", || match begin_backup(&server, &dir) {
            Ok(()) => true,
            Err(refused) => {
                assert!(refused.contains("no whole log"), "{refused}");
                false
            }
        });
        if trial == TRIALS {
            wait_until("it is complete", || text(&status(&server, "state")) == "complete");
        } else {
            std::thread::sleep(whole * trial / TRIALS);
        }
        set_log(&server, "no");
        match &*text(&status(&server, "state")) {
            "complete" => {
                assert_whole(&dir);
                complete += 1;
            }
            state => {
                assert_eq!(state, "failed", "trial {trial}");
                assert!(has_left_nothing(&dir), "trial {trial}: {}", server.said());
            }
        }
        begin_log(&server);
    }
    eprintln!("{complete} of {} backups were complete before their log ended", TRIALS + 1);
    assert!(complete > 0);
    assert!(!server.said().contains("panicked"), "{}", server.said());
}
