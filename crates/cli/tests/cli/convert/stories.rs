//! Stories of users: their data is converted and served, or the conversion is refused.

use super::{
    assert_converts, assert_whole, beside, compare, convert, fill, names, oracle, partitions_at,
    start,
};
use crate::support::{NIGH, Server, assert_one_sentence, folder, nigh, stderr, stdout};
use nigh_client::Frame;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One partition becomes four, then three. The folder looks like a server's, nothing is damaged,
/// and the next server has every key, expiry and function, and takes writes.
#[test]
fn converted_data_is_whole_and_served() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let mut oracle = oracle();
    fill(folder.path(), 1, &oracle);
    for partitions in [4, 3] {
        let said = assert_converts(&dir, partitions);
        assert!(said.contains(&format!("{partitions} now")), "{said}");
        assert!(
            said.contains(&format!("20,00{}", oracle.len() % 10)) && !said.contains("expired"),
            "{said}"
        );
        let mut expected: Vec<String> =
            (0..partitions).map(|n| format!("default.{n}.arena")).collect();
        expected.splice(0..0, ["_system.0.arena".to_owned()]);
        expected.extend(["lock", "manifest"].map(ToOwned::to_owned));
        assert_eq!(names(&dir), expected);
        assert!(!beside(&dir).exists());
        let mode =
            |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(mode(&dir), 0o700);
        for name in expected {
            assert_eq!(mode(&dir.join(&name)), 0o600, "{name}");
        }
        assert_whole(&dir);
        let server = start(folder.path(), partitions);
        compare(&server, &oracle);
        let (key, value) = (format!("after:{partitions}"), b"written".to_vec());
        assert_eq!(server.call(&["SET", &key, "written"]).error(), None);
        oracle.insert(key, (value, -1));
        server.kill();
    }
}

/// Arenas can grow to twice the memory that they were made for. A server whose `maxmemory` is more
/// says so, and names a command that makes the arenas larger.
#[test]
fn arenas_are_made_larger() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let start = |memory| Server::start_with(folder.path(), &["--maxmemory", memory]);
    let memory = |server: &Server| {
        let reply = server.call(&["CONFIG", "GET", "maxmemory"]);
        let text = reply.elements().expect("name and value")[1].bytes().expect("text").to_vec();
        String::from_utf8(text).expect("a number").parse::<u64>().expect("a number") >> 20
    };
    let server = start("64mb");
    assert_eq!((server.call(&["SET", "a", "1"]).error(), memory(&server)), (None, 64));
    server.kill();
    let server = start("512mb");
    assert_eq!(memory(&server), 128);
    server.kill();
    let path = dir.to_str().expect("UTF-8");
    let output = nigh(&["convert", "--shm-dir", path, "--maxmemory", "512mb"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_whole(&dir);
    let server = start("512mb");
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
    assert_eq!(memory(&server), 512);
    drop(server);
    for (words, said) in [(["--maxmemory", "much"], "maxmemory"), (["--maxmemory", "1mb"], "8mb")] {
        assert_one_sentence(
            &nigh(&[&["convert", "--shm-dir", path][..], &words].concat()),
            &[said],
        );
    }
}

/// A server that is started with another number of partitions names a command. The command works as
/// it is printed, and then the server starts.
#[test]
fn the_command_that_a_refused_server_names_works() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = start(folder.path(), 1);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    assert_eq!(server.call(&["SET", "gone", "1", "PX", "1"]).error(), None);
    server.kill();
    std::thread::sleep(Duration::from_millis(5));
    let path = dir.to_str().expect("UTF-8");
    let port = crate::support::free_port().to_string();
    let flags = ["--shm-dir", path, "--partitions", "5", "--appendonly", "no"];
    let refused = nigh(&[&["serve", "--port", &port], &flags[..]].concat());
    assert_one_sentence(&refused, &["--partitions 1", "nigh convert"]);
    let text = stderr(&refused);
    let command = text.split('`').find(|part| part.starts_with("nigh convert")).expect("a command");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let output = nigh(&words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    let counts: Vec<Vec<&str>> = said.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(counts.contains(&vec!["keys", "1"]), "{said}");
    // If the server hasn't deleted the expired key, the copy leaves it out and counts it.
    assert!(counts.contains(&vec!["libraries", "0"]), "{said}");
    let server = start(folder.path(), 5);
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(1));
}

/// The copy leaves out keys that expired while no server ran, and the summary counts them.
#[test]
fn keys_whose_time_is_over_are_left_out_and_counted() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = start(folder.path(), 1);
    // All at once, so that on a slow machine too they expire only after the server has ended.
    let sets = (0..100).map(|n| {
        let mut command = vec!["SET".to_owned(), format!("key:{n}"), "v".to_owned()];
        command.extend((n < 30).then(|| ["PX", "1500"].map(str::to_owned)).into_iter().flatten());
        command
    });
    let replies = server.connect().pipeline(sets.collect::<Vec<_>>()).expect("the server is up");
    assert!(replies.iter().all(|reply| reply.error().is_none()), "{replies:?}");
    server.kill();
    std::thread::sleep(Duration::from_millis(1600));
    let said = assert_converts(&dir, 2);
    let lines: Vec<Vec<&str>> = said.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(
        lines.contains(&vec!["keys", "70"]) && lines.contains(&vec!["expired", "30"]),
        "{said}"
    );
    let server = start(folder.path(), 2);
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(70));
}

/// If a conversion is impossible, one sentence says why, and nothing changes. A conversion with
/// nothing to do is no failure.
#[test]
fn what_cannot_be_converted_is_said() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let path = dir.to_str().expect("UTF-8");
    assert_one_sentence(&convert(&dir, 2), &["there is no folder", path]);
    std::fs::create_dir(&dir).expect("the folder is ours");
    assert_one_sentence(&convert(&dir, 2), &["no arenas", "default", path]);
    assert!(names(&dir).is_empty(), "no lock is left where no server was");
    let server = start(folder.path(), 3);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    for partitions in [2, 3] {
        assert_one_sentence(&convert(&dir, partitions), &["server", path, "stop it"]);
    }
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
    server.kill();
    for partitions in [0, 65] {
        assert_one_sentence(&convert(&dir, partitions), &[&partitions.to_string(), "1 to 64"]);
    }
    let output = nigh(&["convert", "--shm-dir", path, "--partitions", "2", "--tenant", "other"]);
    assert_one_sentence(&output, &["no arenas", "other"]);
    let output = nigh(&["convert", "--shm-dir", path, "--partitions", "2", "--tenant", "a/b"]);
    assert_one_sentence(&output, &["a/b"]);
    let before = dir.metadata().expect("it is there").ino();
    let said = assert_converts(&dir, 3);
    assert!(said.contains("nothing to do"), "{said}");
    assert_eq!(dir.metadata().expect("it is there").ino(), before);
    std::fs::create_dir(dir.join("mine")).expect("the folder is ours");
    assert_one_sentence(&convert(&dir, 2), &["mine", "move it"]);
    std::fs::remove_dir(dir.join("mine")).expect("it is empty");
    assert!(!beside(&dir).exists());
    let server = start(folder.path(), 3);
    assert_eq!(server.call(&["GET", "a"]).bytes(), Some(&b"1"[..]));
}

/// A conversion removes the leftovers of an interrupted one, even if it has nothing else to do. It
/// doesn't remove a folder in use, nor files that no conversion makes.
#[test]
fn leftovers_of_conversions_go_and_nothing_else() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = start(folder.path(), 2);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    server.kill();
    let left = beside(&dir);
    let left_over = || {
        std::fs::create_dir(&left).expect("the folder is ours");
        for name in ["lock", "default.0.arena", "default.1.arena.new"] {
            std::fs::write(left.join(name), "half").expect("the folder is ours");
        }
    };
    left_over();
    assert!(assert_converts(&dir, 2).contains("nothing to do"));
    assert!(!left.exists());
    left_over();
    assert_converts(&dir, 4);
    assert!(!left.exists());
    left_over();
    let notes = left.join("notes");
    std::fs::write(&notes, "mine").expect("the folder is ours");
    assert_one_sentence(&convert(&dir, 2), &[notes.to_str().expect("UTF-8"), "move it"]);
    assert_eq!(names(&left).len(), 4, "all is still there");
    std::fs::remove_file(&notes).expect("it is there");
    let lock = std::fs::File::open(left.join("lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    assert_one_sentence(&convert(&dir, 2), &[left.to_str().expect("UTF-8"), "stop it"]);
    assert_eq!(names(&left).len(), 3, "all is still there");
    drop(lock);
    assert_converts(&dir, 1);
    assert!(!left.exists());
    std::fs::write(&left, "a file").expect("the folder is ours");
    assert_one_sentence(&convert(&dir, 2), &["in the way", left.to_str().expect("UTF-8")]);
}

/// The leftovers of an interrupted conversion take as much memory as the data. They once stayed
/// until the next conversion; now the next server removes them. It keeps files that no conversion
/// makes, and serves all the same.
#[test]
fn a_server_removes_what_a_conversion_left() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    start(folder.path(), 2).kill();
    let left = beside(&dir);
    std::fs::create_dir(&left).expect("the folder is ours");
    for name in ["lock", "manifest", "default.0.arena", "default.1.arena.new", "notes"] {
        std::fs::write(left.join(name), "half").expect("the folder is ours");
    }
    let server = start(folder.path(), 2);
    assert!(server.said().contains("notes is in the way"), "{}", server.said());
    drop(server);
    assert_eq!(names(&left).len(), 5, "all is still there");
    std::fs::remove_file(left.join("notes")).expect("it is there");
    let server = start(folder.path(), 2);
    assert!(server.said().contains("removed what a conversion left"), "{}", server.said());
    assert!(!left.exists());
}

/// Files that don't belong to the tenant stay in the folder, and owner and group stay the same.
#[test]
fn other_files_and_the_owner_are_kept() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = start(folder.path(), 1);
    assert_eq!(server.call(&["SET", "a", "1"]).error(), None);
    server.kill();
    std::fs::write(dir.join("notes"), "mine").expect("the folder is ours");
    std::fs::write(dir.join("other.0.arena"), "another tenant's").expect("the folder is ours");
    let owner =
        |path: &Path| path.metadata().map(|found| (found.uid(), found.gid())).expect("there");
    let mut expected = owner(&dir);
    if expected.0 == 0 {
        // Only root can give things away.
        expected = (65_534, 65_534);
        for path in names(&dir).iter().map(|name| dir.join(name)).chain([dir.clone()]) {
            std::os::unix::fs::chown(path, Some(expected.0), Some(expected.1))
                .expect("we are root");
        }
    }
    // The folder may be named by a link: the conversion follows the link, and the link stays.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).expect("the folder is ours");
    assert_converts(&link, 2);
    assert!(link.is_symlink() && !beside(&dir).exists());
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("it is still there");
    assert_eq!(
        (read("notes").as_str(), read("other.0.arena").as_str()),
        ("mine", "another tenant's")
    );
    assert_eq!(partitions_at(&dir), 2);
    for path in names(&dir).iter().map(|name| dir.join(name)).chain([dir.clone()]) {
        assert_eq!(owner(&path), expected, "{}", path.display());
    }
}

/// Keys of one tag don't fit in a partition's share. One sentence names a remedy, the data is as it
/// was, and the copy is gone. With the remedy, the conversion succeeds.
#[test]
fn a_partition_that_overflows_changes_nothing() {
    let folder = folder();
    let dir = folder.path().join("arenas");
    let server = Server::start_with(folder.path(), &["--maxmemory", "64mb"]);
    let mut connection = server.connect();
    let value = "v".repeat(10_000);
    for n in 0..1400 {
        let reply =
            connection.call(["SET", &format!("{{t}}{n}"), &value]).expect("the server is up");
        assert_eq!(reply.error(), None);
    }
    server.kill();
    assert_one_sentence(&convert(&dir, 8), &["of 8", "no room", "--maxmemory", "as it was"]);
    assert!(!beside(&dir).exists());
    assert_eq!(partitions_at(&dir), 1);
    assert_whole(&dir);
    let server = Server::start_with(folder.path(), &["--maxmemory", "128mb"]);
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(1400));
    server.kill();
    assert_converts(&dir, 8);
    let server = start(folder.path(), 8);
    assert_eq!(server.call(&["DBSIZE"]), Frame::Integer(1400));
}

/// The command that runs another one with mounts of its own. `None` where that isn't permitted, as
/// in most containers: the tests about mounts can't run there.
pub(crate) fn way_to_mount(folder: &Path) -> Option<&'static [&'static str]> {
    let root = folder.metadata().expect("it is there").uid() == 0;
    let way: &[&str] = if root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    let mount = ["mount", "-t", "tmpfs", "none"];
    let tried = Command::new("unshare").args(way).args(mount).arg(folder).output();
    let may = tried.expect("util-linux is there").status.success();
    if !may {
        eprintln!("nothing can be mounted here: this story is left out");
    }
    may.then_some(way)
}

/// Copies the arenas to `to` on a tmpfs of its own and converts `of`; both paths are relative to
/// the mount. The tmpfs ends with the shell. Before that, the shell lists both folders.
fn convert_mounted(
    way: &[&str],
    folder: &Path,
    size: &str,
    [to, of]: [&str; 2],
) -> std::process::Output {
    let script = "mount -t tmpfs -o \"size=$1\" none \"$2\" && mkdir -p \"$2/$4\" && cp -a \"$3/.\" \"$2/$4\" || exit 77
        \"$6\" convert --shm-dir \"$2/$5\" --partitions 2; code=$?
        ls \"$2\" \"$2/$5\"; exit $code";
    let point = folder.join("mounted");
    std::fs::create_dir(&point).expect("the folder is ours");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    Command::new("unshare")
        .args(way)
        .args(["sh", "-c", script, "sh", size])
        .args([path(&point), path(&folder.join("arenas"))])
        .args([to, of, NIGH])
        .output()
        .expect("util-linux is there")
}

/// If a file system has too little room for both copies, a sentence with both figures says so
/// before anything is written. With enough room, the conversion succeeds.
#[test]
fn a_file_system_without_room_for_both_is_said() {
    let folder = folder();
    let Some(way) = way_to_mount(folder.path()) else { return };
    // The data has 14 MB in large values alone.
    fill(folder.path(), 1, &oracle());
    let output = convert_mounted(way, folder.path(), "24m", ["arenas", "arenas"]);
    assert_one_sentence(&output, &["needs about", "bytes", "only", "free"]);
    let there = stdout(&output);
    assert!(there.contains("default.0.arena") && !there.contains("convert"), "{there}");
    std::fs::remove_dir(folder.path().join("mounted")).expect("nothing is mounted here");
    let output = convert_mounted(way, folder.path(), "64m", ["arenas", "arenas"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let there = stdout(&output);
    assert!(there.contains("default.1.arena") && !there.contains("convert"), "{there}");
}

/// A mount point can't be swapped. A sentence says so before anything is copied.
#[test]
fn a_mount_point_is_refused() {
    let folder = folder();
    let Some(way) = way_to_mount(folder.path()) else { return };
    start(folder.path(), 1).kill();
    let output = convert_mounted(way, folder.path(), "64m", ["", ""]);
    assert_one_sentence(&output, &["mounted is a mount point", "outside"]);
    assert!(stdout(&output).contains("default.0.arena"), "{}", stdout(&output));
}
