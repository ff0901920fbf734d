//! A thousand local clients at once, on a server that may take little: what they cost it.

use super::{Host, LIBRARY, SOON, bulk};
use crate::support::load::number;
use crate::support::local::figure;
use nigh_client::{Address, Client, ClientOptions, Frame, LocalUse};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;
/// Descriptors of the server, and its addresses, KiB: 24 GiB.
const LIMITS: [&str; 2] = ["-n 20000", "-v 25165824"];
/// Descriptors of this process: a client has one for its socket, a second one of it, the arena, the
/// rings.
const OWN_FILES: u64 = 8 * CLIENTS as u64;
/// Private memory of the server for each client that rests: its connection, and what the allocator
/// keeps. Its rings are shared memory.
const PRIVATE_MOST_KIB: u64 = 64;

/// Lets this process have so many descriptors.
pub(super) fn allow_files(files: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|it| it < files) {
        let enough = Rlimit { current: Some(files), maximum };
        setrlimit(Resource::Nofile, enough).expect("ulimit -Hn is large enough");
    }
}

fn attach(host: &Host) -> Client {
    let options = ClientOptions { local: LocalUse::Required, ..ClientOptions::default() };
    Client::connect_with(&Address::unix(&host.path), options).expect("attached")
}

#[test]
fn a_thousand_clients_attach_rest_and_leave() {
    // The server may open 20,000 files and have 24 GiB of addresses. A thousand clients attach, and
    // each writes and reads. While they rest they take no time, two descriptors and one mapping
    // each, and their rings. When they leave, nothing of them stays.
    allow_files(OWN_FILES);
    let host = Host::start_under(&LIMITS, crate::support::folder(), &["--shards", "2"]);
    let host = host.unwrap_or_else(|said| panic!("it ended: {said}"));
    let _witness = attach(&host);
    let rest = Duration::from_millis(number("NIGH_LOCAL_REST_MS", 500));
    for round in 0..number("NIGH_LOCAL_ROUNDS", 1) {
        let before = host.holds_at_rest();
        let without_ms = host.least_spent(rest); // much where a machine is slow
        let kib = ["RssAnon:", "RssShmem:"].map(|name| host.server.memory_kib(name));
        let began = Instant::now();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| attach(&host)).collect();
        let attaching = began.elapsed();
        for (n, client) in clients.iter_mut().enumerate() {
            let (key, value) = (format!("k{n}"), format!("{round}:{n}"));
            client.set(key.as_bytes(), value.as_bytes()).expect("room");
            let found = client.get(key.as_bytes()).expect("an answer");
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
        host.wait_for_listed(CLIENTS + 1);
        assert_eq!(host.figures("clients"), CLIENTS as i64 + 1);
        std::thread::sleep(Duration::from_millis(100));
        let spent_ms = host.least_spent(rest);
        let now = host.holds_at_rest();
        let each = |now: usize, before: usize| (now - before) as f64 / CLIENTS as f64;
        let (files, maps) = (each(now.0, before.0), each(now.1, before.1));
        let grown = ["RssAnon:", "RssShmem:"].map(|name| host.server.memory_kib(name));
        let grown = [0, 1].map(|at| grown[at].saturating_sub(kib[at]) as f64 / CLIENTS as f64);
        eprintln!(
            "{CLIENTS} clients attached in {attaching:?}; each has {files} descriptors, {maps} \
             mappings, {:.1} KiB private, {:.1} KiB of its rings touched, {} bytes of rings; \
             {spent_ms} ms of CPU time in {rest:?} of rest; {} KiB of addresses",
            grown[0],
            grown[1],
            host.figures("ring-bytes") / (CLIENTS as i64 + 1),
            host.server.memory_kib("VmSize:"),
        );
        assert!(
            u128::from(spent_ms) <= rest.as_millis() / 5 + 2 * u128::from(without_ms),
            "{spent_ms} ms of CPU time for nothing, {without_ms} before"
        );
        assert!((files, maps) == (2.0, 1.0), "{files} descriptors, {maps} mappings each");
        assert!(grown[0] <= PRIVATE_MOST_KIB as f64, "{} KiB of private memory each", grown[0]);
        drop(clients);
        host.wait_for_holds(before);
        let began = Instant::now();
        while host.figures("clients") > 1 {
            assert!(began.elapsed() < SOON, "they have left");
        }
    }
}

/// A library whose function never ends, and what a connection too many is told.
const ENDLESS: &str =
    "#!js name=endless\nexport function endless() { for (;;); }\nendless.flags = [\"no-writes\"];";
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

#[test]
fn connections_that_a_busy_shard_has_yet_to_take_are_counted() {
    // Shard 1 runs a function for long. Half of the connections of the Unix socket are to be its,
    // and wait there: they count, so `maxclients` and the limit of open files hold. Once they took
    // all descriptors of the server, and no write found one.
    const MOST: usize = 10;
    const COME: usize = 40;
    let flags = ["--shards", "2", "--maxclients", "10", "--function-time-limit-ms", "600000"];
    let host = Host::start(&flags);
    assert_eq!(host.server.call(&["FUNCTION", "LOAD", ENDLESS]), bulk("endless"));
    // They take turns at the shards.
    let mut clients = [host.attach(), host.attach()];
    clients.sort_by_key(|client| figure(&client.reply, "shard"));
    let [mut free, mut busy] = clients;
    let calls = std::thread::spawn(move || busy.call_bytes(&[b"FCALL_RO", b"endless", b"0"]));
    let began = Instant::now();
    let nothing_runs = |stats: Frame| stats.elements().is_none_or(|it| it[1] == Frame::Null);
    while nothing_runs(free.call(&["FUNCTION", "STATS"])) {
        assert!(began.elapsed() < SOON, "the function runs");
    }
    let connect = |_| UnixStream::connect(&host.path).expect("it listens");
    let mut come: Vec<UnixStream> = (0..COME).map(connect).collect();
    let mut refused = 0;
    let began = Instant::now();
    while refused < COME - (MOST - 2) {
        assert!(began.elapsed() < SOON, "{refused} of {COME} are refused");
        come.retain_mut(|stream| {
            stream.set_nonblocking(true).expect("a socket takes it");
            let mut text = [0; TOO_MANY.len()];
            let told = stream.read(&mut text).is_ok();
            assert!(!told || text == TOO_MANY, "{:?}", String::from_utf8_lossy(&text));
            refused += usize::from(told);
            !told
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(free.call(&["SET", "key", "value"]), Frame::Simple(b"OK".to_vec()));
    drop(host);
    calls.join().expect("it doesn't panic").expect_err("the server was ended");
}

#[test]
fn functions_run_under_a_limit_of_addresses_or_the_server_says_what_it_needs() {
    // V8 reserves addresses. With 24 GiB functions run, beside local clients. With 2 GiB there are
    // too few: the server ends at its start, by one error that says so.
    let host = Host::start_under(&LIMITS, crate::support::folder(), &["--shards", "2"]);
    let host = host.unwrap_or_else(|said| panic!("it ended: {said}"));
    assert_eq!(host.server.call(&["FUNCTION", "LOAD", LIBRARY]), bulk("lib"));
    let mut client = attach(&host);
    client.set(b"n", b"21").expect("room");
    assert_eq!(client.fcall("twice", &[b"n"], &[]).expect("a reply"), Frame::Integer(42));
    assert_eq!(client.get(b"n").expect("an answer").as_deref(), Some(&b"42"[..]));
    drop(host);
    let refused = Host::start_under(&["-v 2097152"], crate::support::folder(), &["--shards", "1"]);
    let said = refused.err().expect("2 GiB are too few");
    let last = said.trim_end().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("address space") && !said.contains("panicked"), "{said}");
}
