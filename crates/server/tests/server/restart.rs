//! Servers that stop, and what the next one finds.

use crate::common::{Client, TestServer, config};
use nigh_server::{ServeError, Server};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A server is stopped and another is started on its folder: the keys, expiries and libraries are
/// there.
#[test]
fn next_server_adopts_the_arenas() {
    let settings = config(&[]);
    let mut first = TestServer::from(settings.clone());
    let mut client = first.connect();
    for number in 0..1000 {
        client.says(&format!("SET k{number} {number}"), "+OK\r\n");
    }
    client.says("SET e 1 EX 1000", "+OK\r\n");
    first.stop_and_keep();
    let second = TestServer::from(settings.clone());
    let mut client = second.connect();
    assert_eq!(client.number("DBSIZE"), 1001);
    assert_eq!(client.text("GET k999"), "999");
    assert!(client.number("TTL e") > 900);
    drop(second);
    let mut fresh = settings;
    fresh.set("fresh", "yes").expect("a setting");
    assert_eq!(TestServer::from(fresh).connect().number("DBSIZE"), 0);
}

/// The server before ran while the machine's clock was a day ahead. For that day no key that was to
/// be gone in some time was, and a shard without partitions told another TTL than their owner.
#[test]
fn time_goes_on_behind_a_clock_that_was_ahead() {
    const CLOCK_AT: u64 = 336; // docs/formats/arena.md
    const DAY_MS: u64 = 86_400_000;
    let settings = config(&[("shards", "2"), ("partitions", "1")]);
    let mut first = TestServer::from(settings.clone());
    first.connect().says("SET k v", "+OK\r\n");
    first.stop_and_keep();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    let ahead_ms = u64::try_from(now.as_millis()).expect("a time") + DAY_MS;
    for entry in first.dir.read_dir().expect("it stays") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|it| it == "arena") {
            let file = File::options().write(true).open(&path).expect("it is ours");
            file.write_all_at(&ahead_ms.to_le_bytes(), CLOCK_AT).expect("a write");
        }
    }
    let second = TestServer::from(settings);
    let mut clients: Vec<_> = (0..8).map(|_| second.connect()).collect();
    clients[0].says("SET lock x PX 300", "+OK\r\n");
    clients[0].says("SET e 1 EX 100", "+OK\r\n");
    for client in &mut clients {
        assert!((90..=100).contains(&client.number("TTL e")), "whichever shard answers");
    }
    assert_eq!(clients[0].text("GET k"), "v");
    let is_gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        clients[0].number("EXISTS lock") == 0
    });
    assert!(is_gone, "it was to be gone in 300 ms");
    let told: u64 = clients[0].info("stats", "clock_ahead_ms").parse().expect("a number");
    assert!((DAY_MS - 600_000..=DAY_MS).contains(&told), "{told}");
}

/// `fresh` starts empty over what is there.
#[test]
fn fresh_server_starts_empty() {
    let mut settings = config(&[]);
    let mut first = TestServer::from(settings.clone());
    first.connect().says("SET k v", "+OK\r\n");
    first.stop_and_keep();
    settings.set("fresh", "yes").expect("a setting");
    assert_eq!(TestServer::from(settings).connect().number("DBSIZE"), 0);
}

/// Two writers of one arena would destroy it: the second server is refused and the first goes on.
#[test]
fn second_server_on_a_folder_is_refused() {
    let settings = config(&[]);
    let server = TestServer::from(settings.clone());
    let error = Server::start(settings).err().expect("refused");
    assert!(matches!(error, ServeError::FolderInUse { .. }), "{error}");
    assert_eq!(server.connect().text("PING"), "PONG");
}

/// A port that is taken, a folder that can't be made, and more memory than there is: one sentence
/// each.
#[test]
fn faults_at_the_start_are_told() {
    let server = TestServer::start();
    let port = server.port().to_string();
    let error = Server::start(config(&[("port", &port)])).err().expect("refused").to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")) && !error.contains('\n'), "{error}");
    assert!(error.ends_with("; choose another with --port"), "{error}");
    let settings = config(&[("metrics-port", &port)]);
    let dir = settings.shm_dir(0);
    let error = Server::start(settings).err().expect("refused").to_string();
    let _ = std::fs::remove_dir_all(dir);
    assert!(error.ends_with("; choose another with --metrics-port"), "{error}");
    let error = Server::start(config(&[("bind", "192.0.2.1")])).err().expect("refused").to_string();
    assert!(error.ends_with("; choose another with --bind"), "{error}");
    let settings = config(&[("unixsocket", "/proc/nigh.sock")]);
    let error = Server::start(settings).err().expect("refused").to_string();
    assert!(error.ends_with("; choose another with --unixsocket"), "{error}");
    let error = Server::start(config(&[("shm-dir", "/proc/nigh")])).err().expect("refused");
    assert!(matches!(error, ServeError::Folder { .. }), "{error}");
    let settings = config(&[("maxmemory", "64gb")]);
    let dir = settings.shm_dir(0);
    let error = Server::start(settings).err().expect("refused");
    assert!(matches!(error, ServeError::TooLittleMemory { .. }), "{error}");
    let _ = std::fs::remove_dir_all(dir);
}

/// SHUTDOWN keeps the arenas, SHUTDOWN NOSAVE removes all that is in memory. A log on disk stays,
/// and has the data.
#[test]
fn shutdown_keeps_or_removes_the_arenas() {
    let disk = tempfile::tempdir().expect("a folder");
    let log = disk.path().join("log").display().to_string();
    let logged = [
        ("appendonly", "yes"),
        ("dir", log.as_str()),
        ("log-on-tmpfs", "yes"),
        ("journal-size", "1mb"),
        ("log-file-size", "1mb"),
    ];
    for own in [&[][..], &logged] {
        let settings = config(own);
        let has_log = !own.is_empty();
        for (command, stays) in [("SHUTDOWN", true), ("SHUTDOWN NOSAVE", false)] {
            let mut server = TestServer::from(settings.clone());
            let mut client = server.connect();
            client.says("SET k v", "+OK\r\n");
            client.send(format!("{command}\r\n"));
            assert!(client.is_closed());
            server.wait();
            assert_eq!(server.dir.exists(), stays, "{command}, {own:?}");
            if stays {
                std::mem::forget(server); // for the next one; it has stopped
            }
        }
        let server = TestServer::from(settings);
        server.connect().says("EXISTS k", if has_log { ":1\r\n" } else { ":0\r\n" });
    }
}

/// A Unix socket serves like a port, with the permissions that were asked for, and goes with the
/// server.
#[test]
fn unix_socket_serves() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    let path = format!("/tmp/nigh-test-{}.sock", std::process::id());
    let server = TestServer::with(&[("unixsocket", &path), ("unixsocketperm", "600")]);
    let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    stream.write_all(b"PING\r\n").expect("it reads");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"+PONG\r\n");
    drop(server);
    assert!(!std::path::Path::new(&path).exists());
}

/// Descriptors that a client sends aren't taken: the shard that reads the bytes beside them closed
/// them, and the close of a socket may take as long as its sender wants.
#[test]
fn a_unix_socket_takes_no_descriptors() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd;
    let path = format!("/tmp/nigh-test-{}-descriptors.sock", std::process::id());
    let _server = TestServer::with(&[("unixsocket", &path)]);
    let stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    let sent = [std::io::stderr()];
    let sent = [sent[0].as_fd()];
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&sent)));
    let bytes = [std::io::IoSlice::new(b"PING\r\n")];
    let outcome = sendmsg(&stream, &bytes, &mut beside, SendFlags::empty());
    // Linux has an option for that since 6.16.
    let (own, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    match nigh_shm::local::refuse_descriptors(own.as_fd()) {
        Ok(()) => assert_eq!(outcome, Err(rustix::io::Errno::PERM)),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOPROTOOPT.raw_os_error()))
        }
    }
}

/// Metrics are served over HTTP when a port is set.
#[test]
fn metrics_are_served() {
    use std::io::{Read, Write};
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let server = TestServer::with(&[("metrics-port", &port.to_string())]);
    let mut client = Client::connect(server.port());
    client.says("SET k v", "+OK\r\n");
    let begin = std::time::Instant::now();
    loop {
        let mut text = String::new();
        // A tick copies the numbers.
        if let Ok(mut http) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            http.write_all(request).expect("it reads");
            http.read_to_string(&mut text).expect("it answers");
        }
        if text.contains("nigh_keys 1") {
            assert!(text.contains("nigh_commands_total{command=\"set\"} 1"), "{text}");
            return;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A file with the number of a partition that there isn't, whatever is in it: the server doesn't
/// start, whichever number of partitions is asked for, and says which file is too many, by which
/// other one, and what to do. Without that file all is as it was.
#[test]
fn a_partition_too_many_is_named() {
    let mut server = TestServer::with(&[("shards", "3"), ("partitions", "7")]);
    let dir = server.dir.clone();
    let mut client = server.connect();
    (0..100).for_each(|number| client.says(&format!("SET k{number} v"), "+OK\r\n"));
    server.stop_and_keep();
    let other = TestServer::with(&[("shards", "1"), ("partitions", "8")]);
    let text = dir.to_str().expect("text").to_owned();
    let stray = dir.join("default.7.arena");
    let of_eight = std::fs::read(other.dir.join("default.7.arena")).expect("it is there");
    for (content, says) in
        [(&of_eight[..], "one of 8 partition(s)"), (b"junk", "is damaged"), (b"", "is damaged")]
    {
        std::fs::write(&stray, content).expect("a file");
        for wanted in ["7", "8", "1"] {
            let config = crate::common::config(&[("shm-dir", &text), ("partitions", wanted)]);
            let Err(error) = nigh_server::Server::start(config) else { panic!("one too many") };
            let error = error.to_string();
            let found = format!(
                "{} is none of the 7 partition(s), 0 to 6, that {} says there are",
                stray.display(),
                dir.join("default.0.arena").display()
            );
            let told = [&*found, says, "move it to another directory", "--fresh"];
            assert!(told.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains("--partitions"), "{error}");
        }
    }
    std::fs::remove_file(&stray).expect("it is there");
    let again = TestServer::with(&[("shm-dir", &text), ("shards", "3"), ("partitions", "7")]);
    again.connect().says("DBSIZE", ":100\r\n");
}
