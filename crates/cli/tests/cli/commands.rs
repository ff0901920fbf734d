//! shell, call, fn and check, run as a user runs them.

use crate::support::{
    NIGH, Server, assert_one_sentence, folder, free_port, nigh, nigh_with, stderr, stdout,
};
use nigh_resp::frame::Frame;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// The shell runs lines from stdin one after the other. `\help` works, as does redis-cli's `help`,
/// and a failed line makes the exit code 1.
#[test]
fn shell_runs_lines_from_stdin() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let shell = |input: &str| nigh_with(&["shell", "--connect", &port], input);
    let output =
        shell("SET k \"a b\\n\"\nGET k\n\nMGET k none\n\\help strlen\nHELP strlen\nQUIT\nGET k\n");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let expected = "OK\n\"a b\\n\"\n1) \"a b\\n\"\n2) (nil)\nSTRLEN key\n";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(text.matches("STRLEN key\n").count(), 2, "{text}");
    let output = shell("SET k\nGET k\n");
    assert!(stdout(&output).starts_with("(error) ERR wrong number of arguments"));
    assert_one_sentence(&output, &["1 of 2 commands failed"]);
}

/// `nigh fn` loads a function from a file, lists and deletes it; `nigh call` calls it.
#[test]
fn functions_are_loaded_called_and_deleted() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let file = folder.path().join("lib.js");
    let path = file.to_str().expect("UTF-8");
    let source = "#!js name=pair\n/** Joins. */\nexport function join(db, args, keys) {\n  \
                  return keys.concat(args).join('+');\n}\n";
    std::fs::write(&file, source).expect("the folder is ours");
    let run = |arguments: &[&str]| {
        let output = nigh(&[arguments, &["--connect", &port]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(run(&["fn", "load", path]).contains("pair is loaded"));
    let listed = run(&["fn", "list", "--code"]);
    for part in ["pair", "  join", "export function join"] {
        assert!(listed.contains(part), "{listed}");
    }
    assert_eq!(run(&["call", "join", "--key", "a", "--key", "b", "c", "-1"]), "a+b+c+-1\n");
    let again = nigh(&["fn", "load", path, "--connect", &port]);
    assert_one_sentence(&again, &["lib.js", "already exists"]);
    run(&["fn", "load", "--replace", path]);
    run(&["fn", "delete", "pair"]);
    let gone = nigh(&["call", "join", "--connect", &port]);
    assert_one_sentence(&gone, &["ERR Function not found; to send a command, write nigh call -- "]);
}

/// The error said to give a password, and not how.
#[test]
fn a_password_that_is_missing_is_asked_for_by_its_flag() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    assert_eq!(server.call(&["CONFIG", "SET", "requirepass", "secret"]).error(), None);
    let told = ["asks for a password: give one by --password or NIGH_PASSWORD, and a user"];
    let call = &["call", "--connect", &port, "--", "PING"];
    let export = &["export", "--connect", &port];
    let dump = folder.path().join("dump.rdb");
    std::fs::write(&dump, b"REDIS0009\0\x01a\x011\xff\0\0\0\0\0\0\0\0")
        .expect("the folder is ours");
    let import = &["import", dump.to_str().expect("UTF-8"), "--connect", &port];
    for words in [
        &["get", "key", "--connect", &port][..],
        call,
        &["fn", "list", "--connect", &port],
        &["top", "--connect", &port],
        export,
        import,
    ] {
        assert_one_sentence(&nigh(words), &told);
    }
    // Of a source it is another flag.
    let source = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = format!("redis://{}", source.local_addr().expect("it is bound"));
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = source.accept().expect("it connects");
        let _ = stream.read(&mut [0; 1024]).expect("REPLCONF");
        stream.write_all(b"-NOAUTH Authentication required.\r\n").expect("it reads");
    });
    let told = "asks for a password: give one by --source-password or NIGH_SOURCE_PASSWORD";
    assert_one_sentence(&nigh(&["import", &address, "--connect", &port]), &[told]);
    serving.join().expect("it was asked");
}

/// A password in the environment took the place of the one in an address that was named. Of two
/// that are named none is taken.
#[test]
fn an_address_that_is_named_wins_over_the_environment() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port;
    assert_eq!(server.call(&["CONFIG", "SET", "requirepass", "right"]).error(), None);
    let address = format!("redis://:right@127.0.0.1:{port}");
    let run = |words: &[&str]| {
        let mut nigh = Command::new(NIGH);
        nigh.args(words).env("NIGH_PASSWORD", "wrong").env("NIGH_SOURCE_PASSWORD", "wrong");
        nigh.output().expect("the binary runs")
    };
    for words in
        [&["call", "--connect", &address, "--", "PING"][..], &["get", "k", "--connect", &address]]
    {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    }
    let output = run(&["import", &address, "--connect", &address]);
    assert_one_sentence(&output, &["unknown command 'PSYNC'"]);
    for words in [
        &["fn", "list", "--connect", &address, "--password", "right"][..],
        &["import", &address, "--source-password", "right"],
    ] {
        let output = nigh(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("has a password: give one of them"),
            "{}",
            stderr(&output)
        );
    }
}

/// The connection that a SHUTDOWN closes was an error of `nigh call`. In the shell a SHUTDOWN that
/// had no answer passed for done.
#[test]
fn a_shutdown_has_no_reply() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let mut shell = Command::new(NIGH)
        .args(["shell", "--timeout", "1", "--connect", &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let (mut lines, mut said) =
        (shell.stdin.take().expect("it is piped"), shell.stdout.take().expect("it is piped"));
    lines.write_all(b"GET k\n").expect("it reads");
    said.read_exact(&mut [0; 6]).expect("it is connected");
    server.signal(Signal::STOP);
    lines.write_all(b"SHUTDOWN\n").expect("it reads");
    drop(lines);
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("UTF-8");
    assert!(rest.contains("(error)") && rest.contains("didn't answer within 1s"), "{rest}");
    assert_one_sentence(&shell.wait_with_output().expect("it ends"), &["1 of 2 commands failed"]);
    server.kill();
    for shell in [false, true] {
        let server = Server::start(folder.path());
        let port = server.port.to_string();
        let output = match shell {
            false => nigh(&["call", "--connect", &port, "--", "Shutdown", "NOSAVE"]),
            true => nigh_with(&["shell", "--connect", &port], "SHUTDOWN\n"),
        };
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        server.ended();
    }
}

/// The error names file, library, line and column of a syntax error.
#[test]
fn broken_libraries_are_located() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let file = folder.path().join("broken.js");
    std::fs::write(&file, "#!js name=bad\n\nexport function f() {\n  return 1 +;\n}\n")
        .expect("ours");
    let path = file.to_str().expect("UTF-8");
    let output = nigh(&["fn", "load", path, "--connect", &port]);
    assert_one_sentence(&output, &["broken.js", "bad", "line 4, column 13"]);
}

/// call prints any command's reply, for people or for programs.
#[test]
fn call_sends_any_command() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let call = |words: &[&str]| {
        let output = nigh(&[&["call", "--connect", &port], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(call(&["--", "SET", "a", "x y"]), "OK\n");
    assert_eq!(call(&["--", "GET", "a"]), "x y\n");
    assert_eq!(call(&["--quoted", "--", "GET", "a"]), "\"x y\"\n");
    let nothing = nigh(&["call", "--connect", &free_port().to_string(), "--", "PING"]);
    assert_one_sentence(&nothing, &["nothing listens"]);
}

/// A flag that a command doesn't heed is wrong usage: `call --read-only` wrote all the same, and
/// `--local` asked the memory whatever server was named.
#[test]
fn no_flag_of_call_or_get_is_passed_over() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let refused = |words: &[&str], flag: &str| {
        let output = nigh(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(flag), "{words:?}: {}", stderr(&output));
    };
    for flags in [&["--read-only"][..], &["--key", "k"]] {
        let call = ["call", "--connect", &port];
        refused(&[&call[..], flags, &["--", "SET", "k", "v"]].concat(), flags[0]);
    }
    assert_eq!(server.call(&["EXISTS", "k"]).integer(), Some(0));
    for words in [&["get", "k"][..], &["mget", "k"], &["scan"], &["top"]] {
        for flags in
            [&["--connect", &port][..], &["--password", "x"], &["--timeout", "3"], &["--resp2"]]
        {
            refused(&[words, &["--local", "/nowhere"], flags].concat(), flags[0]);
        }
    }
}

/// `nigh check` lists the arenas of a stopped server as whole, and names one with changed bytes as
/// damaged.
#[test]
fn check_finds_damage() {
    let folder = folder();
    let server = Server::start(folder.path());
    let arenas = folder.path().join("arenas");
    let path = arenas.to_str().expect("UTF-8");
    let mut connection = server.connect();
    let sets = (0..100).map(|n| ["SET".to_owned(), format!("key:{n}"), format!("value of {n}")]);
    connection.pipeline(sets).expect("the server is up");
    let running = nigh(&["check", path]);
    assert_eq!(running.status.code(), Some(0), "{}", stderr(&running));
    let text = stdout(&running);
    let line = text.lines().find(|line| line.contains("default.0.arena")).expect("it is listed");
    assert!(line.contains(" 100 ") && line.contains(" running "), "{line}");
    assert!(
        stdout(&running).ends_with("2 arenas, in use and not judged\n"),
        "{}",
        stdout(&running)
    );
    drop(connection);
    server.kill();
    let whole = nigh(&["check", path]);
    assert_eq!(whole.status.code(), Some(0), "{}{}", stdout(&whole), stderr(&whole));
    let text = stdout(&whole);
    let line = text.lines().find(|line| line.contains("default.0.arena")).expect("it is listed");
    assert!(line.contains(" 100 ") && line.ends_with("whole"), "{line}");
    let file = arenas.join("default.0.arena");
    let mut bytes = std::fs::read(&file).expect("it is ours");
    let at = bytes.windows(7).position(|window| window == b"key:50v" || window == b"key:50\0");
    bytes[at.expect("the key lies in the arena")] ^= 1;
    std::fs::write(&file, bytes).expect("it is ours");
    let damaged = nigh(&["check", path]);
    assert_one_sentence(&damaged, &["1 of 2 arenas are damaged"]);
    assert!(stdout(&damaged).contains("damaged"), "{}", stdout(&damaged));
}

/// A pipe with the name of a file held `nigh check` up for ever. Each user may put one into a
/// folder in `/dev/shm`, where all checks found it.
#[test]
fn check_waits_for_no_pipe() {
    let folder = folder();
    for name in ["lock", "default.0.arena", "journal.0", "manifest", "meta"] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("the folder is ours");
        std::fs::write(path.join("default.1.arena"), "").expect("the folder is ours");
        let pipe = path.join(name);
        mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is ours");
        let output = nigh(&["check", path.to_str().expect("UTF-8")]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", stdout(&output));
    }
}

/// Without folders the check looked into those of all users. It names them now, and shows no
/// control characters.
#[test]
fn check_names_folders_of_other_users() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let theirs = tempfile::Builder::new().prefix("nigh-test-\u{1b}[2J-").tempdir_in("/dev/shm");
    let theirs = theirs.expect("tmpfs is there");
    std::fs::write(theirs.path().join("default.0.arena"), "").expect("it is ours yet");
    std::os::unix::fs::chown(theirs.path(), Some(12_345), None).expect("it is ours yet");
    // Other tests' folders are there, too, so nothing is said of its exit code.
    let text = stdout(&nigh(&["check"]));
    let shown = theirs.path().to_str().expect("UTF-8").escape_debug().to_string();
    let line = format!("{shown}: not judged: it belongs to user 12345");
    assert!(text.contains(&line) && !text.contains('\u{1b}'), "{text}");
    let named = nigh(&["check", theirs.path().to_str().expect("UTF-8")]);
    assert_one_sentence(&named, &["1 of 1 arenas are damaged"]);
}

/// Without folders the check goes on behind one that it can't read, as another user's in /dev/shm.
/// It stopped there. (The lock is a link to itself, which the superuser can't open either.)
#[test]
fn check_goes_on_behind_a_folder_that_it_cannot_read() {
    let make = |prefix: &str| {
        tempfile::Builder::new().prefix(prefix).tempdir_in("/dev/shm").expect("tmpfs is there")
    };
    let (first, second) = (make("nigh-test-check-1-"), make("nigh-test-check-2-"));
    std::os::unix::fs::symlink("lock", first.path().join("lock")).expect("the folder is ours");
    let arena = second.path().join("foreign.arena");
    std::fs::write(&arena, "").expect("the folder is ours");
    // Other tests' folders are there, too, so nothing is said of its exit code.
    let text = stdout(&nigh(&["check"]));
    let lock = first.path().join("lock");
    let line = format!("{}: not judged: can't open {}", first.path().display(), lock.display());
    assert!(text.contains(&line), "{text}");
    assert!(text.contains(&arena.display().to_string()), "{text}");
    // A folder that is named must be judged.
    let named = nigh(&["check", first.path().to_str().expect("UTF-8")]);
    assert_one_sentence(&named, &["can't open", lock.to_str().expect("UTF-8")]);
}

/// A folder that isn't there is named in one sentence, which says each cause once. `check` printed
/// the head of its table first; `restore` told of a log file `.`, and the system's error twice.
#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = folder();
    let name = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (missing, file) = (name("missing"), name("file"));
    std::fs::write(&file, "save = \"900 1\"\n").expect("the folder is ours");
    for named in [&missing, &file] {
        let sentence = format!("nigh: there is no folder {named}: name ");
        for words in [&["check", named][..], &["restore", named, &name("new")]] {
            let output = nigh(words);
            assert_one_sentence(&output, &[&sentence]);
            assert_eq!((stdout(&output).as_str(), stderr(&output).lines().count()), ("", 1));
        }
    }
    let nothing = folder.path().to_str().expect("UTF-8");
    let checked = nigh(&["check", nothing]);
    assert_one_sentence(&checked, &[&format!("nigh: {nothing} has neither arenas nor a log")]);
    assert_eq!(stdout(&checked), "");
    let port = free_port().to_string();
    let imported = nigh(&["import", &file, "--connect", &port]);
    assert_one_sentence(&imported, &[r#"its first bytes are "save = \"900 1\"\n"#]);
    // The source of an import is named once, and nobody is told to start a `nigh serve` there.
    let source = format!("redis://127.0.0.1:{port}");
    let sentence = format!(
        "nigh: import ended after 0 writes: nothing listens at 127.0.0.1:{port}: start the server \
         to import from, or name another\n"
    );
    let imported = nigh(&["import", &source, "--connect", &port]);
    assert_eq!((stderr(&imported), stdout(&imported)), (sentence, String::new()));
    let bare = format!("127.0.0.1:{port}");
    let imported = nigh(&["import", &bare, "--connect", &port]);
    assert_one_sentence(&imported, &[&format!("a running server is named redis://{bare}")]);
    let alone = nigh(&["get", "key", "--connect", &port]);
    let sentence = format!(
        "nigh: nothing listens at 127.0.0.1:{port}: start a server with `nigh serve`, or name another \
         address\n"
    );
    assert_eq!(stderr(&alone), sentence, "what programs are told has no place here");
}

/// Nigh gives no replica's snapshot: the error named SAVE, which Nigh hasn't.
#[test]
fn an_import_from_nigh_says_how_its_data_is_copied() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    let imported = nigh(&["import", &format!("redis://127.0.0.1:{port}"), "--connect", &port]);
    let told = ["ERR unknown command 'PSYNC'", "`nigh export` gives to `redis-cli --pipe`)"];
    assert_one_sentence(&imported, &told);
}

/// A command whose stderr nobody reads, as in `nigh … 2>&1 | head`, has its own exit code. It
/// panicked at the first line that it had to say.
#[test]
fn a_reader_of_errors_that_goes_changes_nothing() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.port.to_string();
    for (words, code) in [
        (&["check", "missing"][..], 1),
        (&["export", "--connect", &port], 0),
        (&["get", "key", "--connect", "no address:x"], 2),
    ] {
        let mut nigh = Command::new(NIGH);
        nigh.args(words).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = nigh.spawn().expect("the binary runs");
        drop(child.stderr.take());
        let ended = child.wait().expect("it ends");
        assert_eq!(ended.code(), Some(code), "{words:?}");
    }
}

/// A client sends again what only reads. It can't ask a server for that at each call, so it has a
/// list of its own.
#[test]
fn a_client_knows_what_only_reads() {
    let folder = folder();
    let server = Server::start(folder.path());
    let Frame::Array(commands) = server.call(&["COMMAND"]) else { panic!("no array") };
    assert!(commands.len() > 50);
    for command in &commands {
        let Frame::Array(command) = command else { panic!("{command:?}") };
        let [name, _, Frame::Array(flags), ..] = &command[..] else { panic!("{command:?}") };
        let name = name.bytes().expect("a name");
        let has =
            |word: &[u8]| flags.iter().any(|it| matches!(it, Frame::Simple(it) if it == word));
        let reads = nigh_client::reads_only(name);
        assert!(if reads { !has(b"write") } else { !has(b"readonly") }, "{command:?}");
    }
}

/// The version is the package's.
#[test]
fn version_is_printed() {
    let output = nigh(&["--version"]);
    assert_eq!(stdout(&output), format!("nigh {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(nigh(&[]).status.code(), Some(2));
}
