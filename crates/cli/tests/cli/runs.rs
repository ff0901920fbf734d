//! `nigh run` on databases of the library, run as a user runs it.

use crate::databases::{CAPACITY, folder, open, path};
use crate::support::{NIGH, assert_one_sentence, nigh, stderr, stdout};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Writes command files into a folder, and runs them there.
fn run(dir: &Path, files: &[(&str, &str)], flags: &[&str]) -> Output {
    let mut paths = Vec::new();
    for (name, text) in files {
        let file = dir.join(name);
        std::fs::write(&file, text).expect("the folder is ours");
        paths.push(path(&file).to_owned());
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let common = ["run", "--capacity", CAPACITY, "--dir", path(dir)];
    nigh(&[&common[..], flags, &paths].concat())
}

/// A number of a JSON object: `run` writes each name once, but for those of the operations.
fn number(json: &serde_json::Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(serde_json::Value::as_f64).expect(pointer)
}

/// Files run at the same time, each in its thread, and share the database that both name. The table
/// and the JSON object count what they did.
#[test]
fn files_share_the_database_that_they_name() {
    const KEYS: usize = 5_000;
    let folder = folder();
    let [first, second] = ["a", "b"].map(|side| {
        let mut text = "open store\n".to_owned();
        for n in 0..KEYS {
            let _ = writeln!(text, "puts {side}{n} {n}\nget {side}{n}");
        }
        text + "close\n"
    });
    let output = run(folder.path(), &[("1.tst", &first), ("2.tst", &second)], &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let expected = [("open", 2), ("puts", 2 * KEYS), ("get", 2 * KEYS), ("close", 2)];
    for (name, count) in expected {
        assert_eq!(number(&json, &format!("/operations/{name}/count")), count as f64, "{json}");
        let times = ["total_ms", "per_second", "p50_us", "max_us"];
        let time = |it| number(&json, &format!("/operations/{name}/{it}"));
        assert!(times.iter().all(|it| time(it) > 0.0), "{json}");
    }
    assert_eq!(number(&json, "/found"), 2.0 * KEYS as f64);
    assert_eq!(number(&json, "/commands"), 4.0 * KEYS as f64 + 4.0);
    let db = open(&folder.path().join("store"));
    for key in ["a0", "b4999"] {
        assert_eq!(db.get(key.as_bytes()).expect("a read").as_deref(), Some(&key.as_bytes()[1..]));
    }
    drop(db);
    let again = [("3.tst", "open store\nget a1\nget none\nopen other\nget a1\n")];
    let table = stdout(&run(folder.path(), &again, &[]));
    for part in ["open                2", "get                 3", "1 of 3 gets found their key"] {
        assert!(table.contains(part), "{table}");
    }
    assert!(table.contains("5 commands of 1 files in ") && !table.contains("puts"), "{table}");
    let printed = stdout(&run(folder.path(), &again, &["--print"]));
    assert!(printed.starts_with("a1 : 1\nnone isn't there\na1 isn't there\n"), "{printed}");
}

/// Cores that this thread may use.
fn allowed_cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None).expect("a thread may ask");
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// Cores of the threads that run files and are kept on theirs: a thread's name ends with its core.
fn cores_of_files(pid: u32) -> Vec<usize> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let core = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let core = of("Name:\tnigh-core-")?;
        (of("Cpus_allowed_list:\t") == Some(core)).then(|| core.parse().ok())?
    };
    threads.filter_map(core).collect()
}

/// Each file's thread stays on a core that the process may use, and is told to. As long as nobody
/// reads what the files print, their threads are there to be looked at.
#[test]
fn each_file_stays_on_a_core() {
    let folder = folder();
    let text = "open store\n".to_owned() + &"get none\n".repeat(20_000);
    let file = folder.path().join("gets.tst");
    std::fs::write(&file, text).expect("the folder is ours");
    let allowed = allowed_cores();
    let args = ["run", "--capacity", CAPACITY, "--dir", path(folder.path())];
    let mut command = Command::new(NIGH);
    command.args(args).args(["--print", path(&file), path(&file)]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built");
    let mut printed = child.stdout.take().expect("it is piped");
    // No file is begun before each has its core. The one that opens the database leaves that
    // meanwhile.
    printed.read_exact(&mut [0; 4096]).expect("a file prints");
    let begin = Instant::now();
    let mut cores = cores_of_files(child.id());
    while cores.len() < 2 && begin.elapsed() < Duration::from_secs(10) {
        cores = cores_of_files(child.id());
    }
    assert_eq!(cores.len(), 2, "a thread for each file is kept on its core");
    cores.sort_unstable();
    cores.dedup();
    assert_eq!(cores.len(), allowed.len().min(2), "they share one: {cores:?}");
    assert!(cores.iter().all(|core| allowed.contains(core)), "{cores:?} of {allowed:?}");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).expect("UTF-8");
    assert!(child.wait().expect("it is our child").success());
    let told: Vec<String> = cores.iter().map(usize::to_string).collect();
    let told = format!("on cores {} (", told.join(", "));
    assert!(rest.contains(&told), "{told} isn't in {:?}", rest.lines().last());
    // A process inherits the cores of the thread that starts it.
    let last = *allowed.last().expect("this thread runs");
    let narrow = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).expect("it is among them");
        let text = "open store\n";
        run(folder.path(), &[("1.tst", text), ("2.tst", text), ("3.tst", text)], &["--json"])
    });
    let output = narrow.join().expect("it doesn't panic");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["cores"], serde_json::json!([last]), "{json}");
}

/// A file as a program writes it: all of its 100,000 lines count.
#[test]
fn all_lines_of_a_generated_file_count() {
    /// Each has two lines.
    const PAIRS: usize = 49_999;
    let folder = folder();
    let mut text = "open store\n".to_owned();
    for n in 0..PAIRS {
        let found = if n % 2 == 0 { n / 2 } else { n + PAIRS };
        let _ = writeln!(text, "puts key{n} value{n}\nget key{found}");
    }
    text.push_str("close\n");
    assert_eq!(text.lines().count(), 100_000);
    let output = run(folder.path(), &[("it.tst", &text)], &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (name, count) in [("open", 1), ("puts", PAIRS), ("get", PAIRS), ("close", 1)] {
        assert_eq!(number(&json, &format!("/operations/{name}/count")), count as f64, "{json}");
    }
    assert_eq!(number(&json, "/commands"), 100_000.0);
    assert_eq!(number(&json, "/found"), PAIRS.div_ceil(2) as f64);
    let db = open(&folder.path().join("store"));
    assert_eq!(db.stats().expect("stats").keys, PAIRS as u64);
    assert_eq!(db.get(b"key49998").expect("a read").as_deref(), Some(&b"value49998"[..]));
}

/// `--strong`, DragonDB's `-STRONG`, and `-STRONG` behind a name make each write reach the disk
/// before the next one; without them few syncs do for all.
#[test]
fn strong_files_sync_for_each_write() {
    const PUTS: usize = 50;
    let folder = folder();
    let syncs = |name: &str, strong: &str, flags: &[&str]| {
        let puts: String = (0..PUTS).map(|n| format!("puts {n} {n}\n")).collect();
        let text = format!("open {name}{strong}\n{puts}");
        let output = run(folder.path(), &[("it.tst", &text)], &[flags, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        number(&json, "/syncs")
    };
    for (name, strong, flags) in
        [("a", "", &["--strong"][..]), ("b", "", &["-STRONG"]), ("c", " -STRONG", &[])]
    {
        let syncs = syncs(name, strong, flags);
        assert!(syncs >= PUTS as f64, "{syncs} of {name}");
    }
    let syncs = syncs("d", "", &[]);
    assert!(syncs < PUTS as f64 / 2.0, "{syncs}");
}

/// Nothing runs if a line of any file is broken; the error names the line, and what is expected.
#[test]
fn nothing_runs_if_a_line_is_broken() {
    let folder = folder();
    let files = [("good.tst", "open store\nputs a 1\n"), ("bad.tst", "open store\n\nputs a\n")];
    let output = run(folder.path(), &files, &[]);
    assert_one_sentence(
        &output,
        &["nothing was run", "bad.tst, line 3: expected puts KEY VALUE, found `puts a`"],
    );
    assert!(!folder.path().join("store").exists());
    let missing = nigh(&["run", path(&folder.path().join("none.tst"))]);
    assert_one_sentence(&missing, &["nothing was run", "none.tst can't be read"]);
    let no_folder = nigh(&["run", "--dir", "/none", path(&folder.path().join("good.tst"))]);
    assert_one_sentence(&no_folder, &["/none is no folder: name one by --dir"]);
    assert_eq!(nigh(&["run"]).status.code(), Some(2));
    assert_eq!(run(folder.path(), &files[..1], &["-STRANGE"]).status.code(), Some(2));
}

/// A command that fails ends its file alone. The error says where, and how far the file came; the
/// table has what was run.
#[test]
fn a_failed_command_ends_its_file() {
    let folder = folder();
    let long = format!("open store\nputs a 1\nputs {} 2\nputs b 3\n", "k".repeat(65_536));
    let files = [("long.tst", &*long), ("good.tst", "open store\nputs c 4\nclose\n")];
    let output = run(folder.path(), &files, &[]);
    assert_one_sentence(
        &output,
        &["long.tst, line 3, after 2 of 4 commands: a key of 65536 bytes is longer"],
    );
    assert!(stdout(&output).contains("5 commands of 2 files"), "{}", stdout(&output));
    let held = open(&folder.path().join("store"));
    let there = |key: &[u8]| held.get(key).expect("a read").is_some();
    assert!(there(b"a") && there(b"c") && !there(b"b"));
    let busy = run(folder.path(), &files[1..], &[]);
    assert_one_sentence(&busy, &["good.tst, line 1, after 0 of 3 commands", "is open in process"]);
}
