//! Conversions of data with a log that are killed at any moment, or that find no room on the disk.

use super::kills::kill_when;
use super::logged::{
    Content, assert_converts, assert_one_generation, compare, content, log_of, partitions_of_log,
    spawn, start, store, words,
};
use super::stories::way_to_mount;
use super::{beside, partitions_at};
use crate::support::{NIGH, assert_one_sentence, folder, stderr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of kills, unless `NIGH_KILLS` is set.
const KILLS: u64 = 12;
/// Keys of a test's data.
const KEYS: u64 = 1500;

/// The moment at which a conversion is killed.
#[derive(Debug)]
enum Moment {
    /// After this time.
    After(Duration),
    /// When the log is that of the copy, before or while the arenas are swapped.
    Named,
    /// After the arenas' folders are swapped, while the old data is being removed.
    Swapped,
}

/// Runs a conversion and kills it at this moment. True if it was killed before its end.
fn convert_and_kill(folder: &Path, partitions: usize, moment: &Moment) -> bool {
    let (arenas, meta) = (folder.join("arenas"), log_of(folder).join("meta"));
    let swapped = || arenas.metadata().map(|found| found.ino()).ok();
    let named = || std::fs::read_to_string(&meta).unwrap_or_default();
    let wanted = format!("tenant 1 default {partitions} ");
    let before = swapped();
    let words =
        [words(folder, partitions), ["--maxmemory", "256mb"].map(Into::into).into()].concat();
    kill_when(&words, |time| match moment {
        Moment::After(at) => time >= *at,
        Moment::Named => named().contains(&wanted),
        Moment::Swapped => before.is_some() && swapped() != before,
    })
}

/// One conversion after the other is killed, at any moment, on memory that survived and without.
/// What then is there is the old data or the new, whole: a server starts from it, as does the next
/// conversion. All that was acknowledged is there, also by the log alone.
#[test]
fn killed_conversions_with_a_log_lose_nothing() {
    let kills = std::env::var("NIGH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let folder = folder();
    let folder = folder.path();
    let arenas = folder.join("arenas");
    let mut all = content(KEYS);
    let server = start(folder, 1);
    store(&server, &all);
    server.kill();
    let begin = Instant::now();
    assert_converts(folder, 2, &[]);
    let whole = begin.elapsed();
    let (mut killed, mut old, mut new, mut built, mut random) = (0, 0, 0, 0, 11u64);
    for round in 0..kills {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let before = partitions_of_log(folder);
        let wanted = before % 5 + 1;
        let share = f64::from(u32::try_from(random >> 40).expect("24 bits")) / f64::from(1 << 24);
        let moment = match round % 4 {
            1 => Moment::Named,
            2 => Moment::Swapped,
            _ => Moment::After(whole.mul_f64(share)),
        };
        if round % 6 == 5 {
            std::fs::remove_dir_all(&arenas).expect("it is there");
        }
        killed += u64::from(convert_and_kill(folder, wanted, &moment));
        let found = partitions_of_log(folder);
        let at = format!("round {round}, {moment:?}: {before} to {wanted}, found {found}");
        assert!(found == before || found == wanted, "{at}");
        (old, new) = if found == before { (old + 1, new) } else { (old, new + 1) };
        if round % 3 == 2 {
            // Another conversion goes on from there.
            assert_converts(folder, found % 5 + 1, &["--maxmemory", "256mb"]);
        }
        let found = partitions_of_log(folder);
        let said = spawn(folder, found + 1).ended();
        assert!(said.contains(&format!("start with --partitions {found}")), "{at}: {said}");
        let server = start(folder, found);
        built += u64::from(!server.said().contains("rebuilt=0"));
        compare(&server, &all, &at);
        assert!(!beside(&arenas).exists(), "{at}: the server has removed what was left");
        assert_eq!(partitions_at(&arenas), found, "{at}: {:?}", super::names(&arenas));
        assert_one_generation(folder, &at);
        // What the log lacks is in the journals.
        let more = Content::from([
            (format!("round:{round}"), (vec![b'r'; 200_000], -1)),
            (format!("small:{round}"), (format!("{random}").into_bytes(), -1)),
        ]);
        store(&server, &more);
        all.extend(more);
        server.kill();
    }
    eprintln!("{killed} of {kills} killed: {old} left the old data, {new} the new; {built} built");
    assert!(
        kills < KILLS || killed > 0 && old > 0 && new > 0,
        "{killed} killed, {old} old, {new} new, {built} built"
    );
    std::fs::remove_dir_all(&arenas).expect("it is there");
    let found = partitions_of_log(folder);
    compare(&start(folder, found), &all, "by the log alone");
}

/// The arenas are swapped behind the renaming of `meta`. A kill between the two leaves arenas that
/// aren't the log's, in more partitions than there are now: a server builds its own from the log,
/// and what is too many goes.
#[test]
fn arenas_of_before_the_renaming_are_built_anew() {
    let folder = folder();
    let folder = folder.path();
    let arenas = folder.join("arenas");
    let all = content(300);
    let server = start(folder, 3);
    store(&server, &all);
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let kept = folder.join("kept");
    let copied = Command::new("cp").arg("-a").args([&arenas, &kept]).status();
    assert!(copied.expect("coreutils are there").success());
    assert_converts(folder, 2, &[]);
    let journals = |dir: &Path| {
        let names = super::names(dir).into_iter().filter(|name| name.starts_with("journal."));
        names.map(|name| dir.join(name)).collect::<Vec<_>>()
    };
    // The journals stay where they are, in both folders.
    for journal in journals(&arenas) {
        let name = journal.file_name().expect("it has one");
        std::fs::copy(&journal, kept.join(name)).expect("both are there");
    }
    let back = || {
        std::fs::remove_dir_all(&arenas).expect("it is there");
        let copied = Command::new("cp").arg("-a").args([&kept, &arenas]).status();
        assert!(copied.expect("coreutils are there").success());
        assert_eq!(partitions_at(&arenas), 3);
    };
    back();
    let said = assert_converts(folder, 2, &[]);
    assert!(said.contains("nothing to do"), "{said}");
    let server = start(folder, 2);
    let said = server.said();
    assert!(said.contains("rebuilt=3") && said.contains("a conversion had left"), "{said}");
    compare(&server, &all, "built anew");
    assert_eq!(partitions_at(&arenas), 2);
    server.kill();
    // A conversion goes on from there too.
    back();
    assert_converts(folder, 4, &[]);
    compare(&start(folder, 4), &all, "converted again");
}

/// The disk of the log has no room for the new one: one sentence says so, the copy is gone, and all
/// is as it was. With room, the same command works.
#[test]
fn a_disk_without_room_for_the_log_changes_nothing() {
    let folder = folder();
    let folder = folder.path();
    let Some(way) = way_to_mount(folder) else { return };
    let all = content(1000);
    let server = start(folder, 1);
    store(&server, &all);
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    // The log goes to a disk of its own, which ends with the shell, and comes back from there.
    let script = "log=$1; shift; mv \"$log\" \"$log.kept\" && mkdir \"$log\" || exit 77
        mount -t tmpfs -o size=\"$1\" none \"$log\" && cp -a \"$log.kept/.\" \"$log\" || exit 77; shift
        \"$@\"; code=$?
        rm -r \"$log.kept\" && cp -a \"$log\" \"$log.kept\"; umount \"$log\"; rmdir \"$log\"; mv \"$log.kept\" \"$log\"
        exit $code";
    let bytes: u64 = super::names(&log_of(folder))
        .iter()
        .map(|name| log_of(folder).join(name).metadata().expect("it is there").len())
        .sum();
    let convert_on = |size: u64| {
        let output = Command::new("unshare")
            .args(way)
            .args(["sh", "-c", script, "sh"])
            .arg(log_of(folder))
            .arg(size.to_string())
            .arg(NIGH)
            .args(words(folder, 3))
            .output();
        output.expect("util-linux is there")
    };
    let output = convert_on(bytes + (3 << 20));
    assert_one_sentence(&output, &["the log in", "as it was"]);
    assert_eq!((partitions_of_log(folder), partitions_at(&folder.join("arenas"))), (1, 1));
    assert!(!beside(&folder.join("arenas")).exists());
    assert_one_generation(folder, "refused");
    let server = start(folder, 1);
    compare(&server, &all, "as it was");
    server.kill();
    let output = convert_on(4 * bytes + (16 << 20));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    compare(&start(folder, 3), &all, "with room");
}

/// The folder of the log can only be read: a sentence says so, and nothing is changed.
#[test]
fn a_log_that_cannot_be_changed_is_refused() {
    let folder = folder();
    let folder = folder.path();
    let Some(way) = way_to_mount(folder) else { return };
    let all = content(10);
    let server = start(folder, 1);
    store(&server, &all);
    server.kill();
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 77
        shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(way)
        .args(["sh", "-c", script, "sh"])
        .arg(log_of(folder))
        .arg(NIGH)
        .args(words(folder, 3))
        .output()
        .expect("util-linux is there");
    let log = log_of(folder).display().to_string();
    assert_one_sentence(&output, &[&log, "can't be changed", "Read-only file system"]);
    assert_eq!(partitions_at(&folder.join("arenas")), 1);
    let server = start(folder, 1);
    compare(&server, &all, "as it was");
}
