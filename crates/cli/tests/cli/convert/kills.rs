//! Conversions that are interrupted or killed at any moment.

use super::{
    arguments, assert_converts, assert_whole, beside, compare, fill, oracle, partitions_at, start,
};
use crate::support::{NIGH, SIGKILL, assert_one_sentence, folder, stderr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of kills, unless `NIGH_KILLS` is set.
const KILLS: u64 = 10;
/// Most conversions that get a signal until one gets it while keys are copied.
const TRIES: u32 = 20;
/// Longest time of a conversion: a debug build on a busy machine needs less.
const END: Duration = Duration::from_secs(60);

/// SIGINT while keys are copied ends the conversion with one sentence. The data is as it was, and
/// the copy is gone.
#[test]
fn an_interrupt_leaves_all_as_it_was() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let oracle = oracle();
    fill(folder.path(), 1, &oracle);
    let inode = || dir.metadata().expect("it is there").ino();
    // On a busy machine the signal may come after the last key.
    for _ in 0..TRIES {
        let (before, there) = (inode(), partitions_at(&dir));
        let output = convert_and_interrupt(&dir, there % 5 + 1);
        assert!(!beside(&dir).exists());
        if output.status.success() {
            continue;
        }
        assert_one_sentence(&output, &["interrupted", "as it was"]);
        assert_eq!((inode(), partitions_at(&dir)), (before, there));
        return compare(&start(folder.path(), there), &oracle);
    }
    panic!("{TRIES} signals came too late");
}

fn convert_and_interrupt(dir: &Path, partitions: usize) -> std::process::Output {
    let mut child = Command::new(NIGH)
        .args(arguments(dir, partitions))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    // The program catches signals before it copies the second step.
    let copy = beside(dir).join("default.0.arena");
    let begin = Instant::now();
    while !copy.metadata().is_ok_and(|found| found.blocks() * 512 > 128 << 10)
        && child.try_wait().expect("it is our child").is_none()
    {
        assert!(begin.elapsed() < END, "no copy begins");
    }
    let pid = rustix::process::Pid::from_child(&child);
    // Its process number stays its own until we have waited for it.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    child.wait_with_output().expect("it is our child")
}

/// The moment at which a conversion is killed.
enum Moment {
    /// After this time.
    After(Duration),
    /// As soon as the folder of the copy is there.
    Begun,
    /// After the folders are swapped, while the old data is being removed.
    Swapped,
}

/// Runs a conversion and kills it at this moment. True if it was killed before its end.
fn convert_and_kill(dir: &Path, partitions: usize, moment: &Moment) -> bool {
    let inode = || dir.metadata().map(|found| found.ino()).expect("there is always a folder");
    let before = inode();
    kill_when(&arguments(dir, partitions), |time| match moment {
        Moment::After(at) => time >= *at,
        Moment::Begun => beside(dir).exists(),
        Moment::Swapped => inode() != before,
    })
}

/// Runs the program with these words, and kills it once `is_time`, which is told how long it has
/// run. True if it was killed before its end; else it did what it should.
pub(crate) fn kill_when(words: &[String], is_time: impl Fn(Duration) -> bool) -> bool {
    let begin = Instant::now();
    let mut child = Command::new(NIGH)
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    while !is_time(begin.elapsed()) && child.try_wait().expect("it is our child").is_none() {
        assert!(begin.elapsed() < END, "the moment of {words:?} never comes");
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("it is our child");
    let (status, said) = (output.status, stderr(&output));
    let was_killed = status.signal() == Some(SIGKILL);
    assert!(was_killed || status.success(), "{words:?} failed: ({status}) {said}");
    assert!(!said.contains("panicked"), "{words:?}: ({status}) {said}");
    was_killed
}

/// One conversion after the other is killed, at any moment. The folder then holds the old data or
/// the new, whole, and the next conversion starts from it as from any other.
#[test]
fn killed_conversions_leave_old_or_new_data_whole() {
    let kills = std::env::var("NIGH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let folder = folder();
    let dir = folder.path().join("arenas");
    let oracle = oracle();
    fill(folder.path(), 1, &oracle);
    let begin = Instant::now();
    assert_converts(&dir, 2);
    let whole = begin.elapsed();
    let (mut killed, mut old, mut new, mut leftovers, mut random) = (0, 0, 0, 0, 7u64);
    for round in 0..kills {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let before = partitions_at(&dir);
        let wanted = before % 5 + 1;
        let share = f64::from(u32::try_from(random >> 40).expect("24 bits")) / f64::from(1 << 24);
        let moment = match round % 4 {
            1 => Moment::Begun,
            2 => Moment::Swapped,
            _ => Moment::After(whole.mul_f64(share)),
        };
        killed += u64::from(convert_and_kill(&dir, wanted, &moment));
        assert_whole(&dir);
        let found = partitions_at(&dir);
        assert!(found == before || found == wanted, "{found} partitions, neither of both");
        (old, new) = if found == before { (old + 1, new) } else { (old, new + 1) };
        let left = beside(&dir).exists();
        leftovers += u64::from(left);
        let server = start(folder.path(), found);
        assert!(!beside(&dir).exists(), "the server has removed what was left");
        compare(&server, &oracle);
    }
    eprintln!("{killed} of {kills} killed: {old} left the old data, {new} the new");
    assert!(
        kills < KILLS || killed > 0 && old > 0 && new > 0 && leftovers > 0,
        "{killed} killed, {old} old, {new} new, {leftovers} left something"
    );
    // The last conversion isn't killed.
    let wanted = partitions_at(&dir) % 5 + 1;
    assert_converts(&dir, wanted);
    assert!(!beside(&dir).exists());
    compare(&start(folder.path(), wanted), &oracle);
}
