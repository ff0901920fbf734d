//! Reads of several partitions are answered, and right, however fast their keys change: what a
//! reader can't tell itself of another shard's partition, that shard tells, or stands still for.
//!
//! `NIGH_MOMENT_SECONDS` makes the stories as long as one likes.

use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rounds in which what must happen once is waited for.
const ROUNDS_MAX: u32 = 10;
/// `both` reads keys one after the other; `slow` takes its time between them, `long` some 20 ms;
/// `kept` writes what it has read so; `spin` never ends, at the owner of its key.
const LIBRARY: &str = "#!js name=untold\n\
    const wait = () => { let x = 0; for (let i = 0; i < 20000; i++) x += i % 7; return x; };\n\
    export const both = (db, keys) => keys.map((key) => db.text(key) ?? null);\n\
    export const slow = (db, keys) => keys.map((key) => { wait(); return db.text(key) ?? null; });\n\
    export const kept = (db, args, [to]) => { const all = slow(db, args); db.set(to, all.join()); return all; };\n\
    export const long = (db, keys) => keys.map((key) => { for (let i = 0; i < 1000; i++) wait(); return db.text(key) ?? null; });\n\
    export const spin = () => { for (;;); };\n\
    both.flags = ['no-writes'];\n\
    long.flags = ['no-writes'];\n\
    slow.flags = ['no-writes'];\n";

fn server() -> (TestServer, Client) {
    server_with(&[])
}

fn server_with(more: &[(&str, &str)]) -> (TestServer, Client) {
    let settings = [&[("shards", "2"), ("partitions", "2")], more].concat();
    let server = TestServer::with(&settings);
    let mut client = server.connect();
    client.send(request(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]));
    client.expect("$6\r\nuntold\r\n");
    (server, client)
}

/// A key of each partition: its tag.
fn tags(client: &mut Client) -> [String; 2] {
    client.one_of_each().map(|key| format!("{{{key}}}"))
}

fn words(command: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    request(&words)
}

/// What a read answered, in order.
fn texts(frame: &Frame) -> Vec<Option<String>> {
    let values = frame.elements().unwrap_or_else(|| panic!("no values: {frame:?}"));
    values.iter().map(|value| Some(String::from_utf8_lossy(value.bytes()?).into_owned())).collect()
}

/// A thread that fails stops the others.
struct Stops<'a>(&'a AtomicBool);
impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a thread does until it is told that the story is over.
type Work<'a> = Box<dyn FnOnce(&AtomicBool) + Send + 'a>;

/// Lets all work run until the story is over: it is told when.
fn for_a_while(all_work: Vec<Work<'_>>) {
    let seconds = std::env::var("NIGH_MOMENT_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for work in all_work {
            let stop = &stop;
            scope.spawn(move || {
                let _stops = Stops(stop);
                work(stop);
            });
        }
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Sends the same commands again and again, some pipelines at a time.
fn at_full_speed(mut client: Client, commands: &[String], stop: &AtomicBool) {
    let pipeline: Vec<u8> = commands.iter().flat_map(|command| words(command)).collect();
    client.send(&pipeline);
    while !stop.load(Ordering::Relaxed) {
        client.send(&pipeline);
        for _ in commands {
            let reply = client.reply();
            assert!(reply.error().is_none(), "{reply:?}");
        }
    }
}

/// The owner of a key sleeps when the key's time comes. Whoever reads it at another shard, with a
/// key of that one, once that time is over, finds it gone: it was told TRYAGAIN by functions. MGET
/// finds the others in their order.
#[test]
fn a_key_that_is_over_while_its_owner_sleeps_is_gone_for_all() {
    let (server, mut client) = server();
    let [here, there] = tags(&mut client);
    let (mut near, mut owner) = (server.connect_to_owner(&here), server.connect_to_owner(&there));
    near.says(&format!("SET {here}a A"), "+OK\r\n");
    near.says(&format!("SET {here}b B"), "+OK\r\n");
    owner.says(&format!("SET {there}c C"), "+OK\r\n");
    for round in 0..40 {
        owner.says(&format!("SET {there}x gone PX 8"), "+OK\r\n");
        // Longer than that, with the time in whole ms; not so long that the owner has looked by
        // itself.
        std::thread::sleep(Duration::from_millis(10));
        let keys = format!("{here}b {there}c {there}x {here}none {here}a");
        let expected = [Some("B"), Some("C"), None, None, Some("A")];
        let command = match round % 4 {
            0 => format!("MGET {keys}"),
            1 => format!("FCALL_RO both 0 {keys}"),
            2 => format!("FCALL kept 1 {here}to {keys}"),
            _ => {
                assert_eq!(near.number(&format!("EXISTS {keys}")), 3);
                owner.says(&format!("SET {there}x gone PX 8"), "+OK\r\n");
                std::thread::sleep(Duration::from_millis(10));
                assert_eq!(near.number(&format!("TOUCH {keys}")), 3);
                continue;
            }
        };
        let reply = near.ask(&split(&command));
        let found = texts(&reply);
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{round}");
    }
    let asked =
        |client: &mut Client, field: &str| client.info("nigh", field).parse::<u64>().unwrap();
    let moved = asked(&mut client, "reads_moved_to_owner");
    let stills = asked(&mut client, "function_calls_with_owners_still");
    eprintln!("{moved} reads were moved, owners stood still {stills} times");
    assert!(moved > 0 && stills > 0, "the owners slept");
}

fn split(text: &str) -> Vec<&[u8]> {
    text.split(' ').map(str::as_bytes).collect()
}

/// 10,000 keys a second expire in two partitions, and one key of each is written without pause.
/// Functions that read these and a key that isn't there, MGET and EXISTS: all are answered.
#[test]
fn nobody_is_told_to_try_again_for_writes_and_expiries() {
    let (server, mut client) = server();
    let tags = tags(&mut client);
    // Beside what stays, as in a store that is used: the index is far larger than what comes and
    // goes at a time.
    for n in 0..20_000 {
        client.send(words(&format!("SET {}s{n} v", tags[n % 2])));
    }
    (0..20_000).for_each(|_| client.expect("+OK\r\n"));
    let expired = client.info("stats", "expired_keys").parse::<u64>().unwrap();
    let answers = AtomicU64::new(0);
    let mut expirer = server.connect();
    let expiring = |stop: &AtomicBool| {
        let client = &mut expirer;
        let begun = Instant::now();
        for step in 0u64.. {
            // 100 of both partitions each 10 ms.
            let commands = (0..100).flat_map(|n| {
                let n = step * 100 + n;
                words(&format!("SET {}e{n} v PX 50", tags[usize::from(n % 2 == 1)]))
            });
            client.send(commands.collect::<Vec<u8>>());
            for _ in 0..100 {
                let reply = client.reply();
                assert!(
                    reply.error().is_none(),
                    "{:?}",
                    reply.error().map(String::from_utf8_lossy)
                );
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let next = begun + Duration::from_millis(10) * u32::try_from(step + 1).unwrap();
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let writer = server.connect();
    let writing = |stop: &AtomicBool| {
        let commands: Vec<String> =
            (0..64).map(|n| format!("SET {}hot {n}", tags[n % 2])).collect();
        at_full_speed(writer, &commands, stop);
    };
    let reading = |tag: usize| {
        let (mut client, tags, answers) = (server.connect_to_owner(&tags[tag]), &tags, &answers);
        move |stop: &AtomicBool| {
            let [a, b] = tags;
            while !stop.load(Ordering::Relaxed) {
                let keys = format!("{a}hot {b}none {b}hot {a}none");
                for command in [format!("FCALL_RO both 0 {keys}"), format!("MGET {keys}")] {
                    let found = texts(&client.ask(&split(&command)));
                    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
                    assert_eq!(there, [true, false, true, false], "{found:?}");
                }
                assert_eq!(client.number(&format!("EXISTS {keys}")), 2);
                answers.fetch_add(3, Ordering::Relaxed);
            }
        }
    };
    for tag in &tags {
        client.says(&format!("SET {tag}hot 0"), "+OK\r\n");
    }
    let readers = [0, 1].map(|tag| Box::new(reading(tag)) as Work<'_>);
    let others = [Box::new(expiring) as Work<'_>, Box::new(writing)];
    for_a_while(readers.into_iter().chain(others).collect());
    let expired = client.info("stats", "expired_keys").parse::<u64>().unwrap() - expired;
    let answers = answers.load(Ordering::Relaxed);
    let stills = client.info("nigh", "function_calls_with_owners_still");
    let moved = client.info("nigh", "reads_moved_to_owner");
    eprintln!("{answers} answers, {expired} expired, {stills} times still, {moved} reads moved");
    assert!(answers > 30 && expired > 300, "{answers} answers, {expired} expired");
}

/// Two keys of each partition are set together and deleted together, without pause. A function that
/// takes long between reading them can't find a moment of which both can be told: it is answered
/// all the same, and finds both the same. So does one that writes, though another stands behind it
/// in the pipeline, and one in a transaction; and MGET.
#[test]
fn what_changes_too_fast_is_read_while_its_owner_stands_still() {
    let (server, mut client) = server();
    let tags = tags(&mut client);
    let answers = AtomicU64::new(0);
    let writing = |tag: usize| {
        let (client, tag) = (server.connect_to_owner(&tags[tag]), &tags[tag]);
        move |stop: &AtomicBool| {
            let mut commands = Vec::new();
            for n in 0..16 {
                let set = [format!("SET {tag}x {n}"), format!("SET {tag}y {n}")];
                let lot = [vec!["MULTI".to_owned()], set.to_vec(), vec!["EXEC".to_owned()]];
                commands.extend(lot.concat());
                commands.push(format!("DEL {tag}x {tag}y"));
            }
            at_full_speed(client, &commands, stop);
        }
    };
    let check = |frame: &Frame| {
        let found = texts(frame);
        assert!(found[0] == found[1] && found[2] == found[3], "{found:?}");
        answers.fetch_add(1, Ordering::Relaxed);
    };
    let reading = |tag: usize| {
        let (mut client, tags, check) = (server.connect_to_owner(&tags[tag]), &tags, &check);
        move |stop: &AtomicBool| {
            let ([a, b], to) = (tags, format!("{}to", tags[tag]));
            let keys = format!("{a}x {a}y {b}x {b}y");
            while !stop.load(Ordering::Relaxed) {
                check(&client.ask(&split(&format!("FCALL_RO slow 0 {keys}"))));
                check(&client.ask(&split(&format!("MGET {keys}"))));
                let kept = words(&format!("FCALL kept 1 {to} {keys}"));
                client.send([&kept[..], &kept[..], &words(&format!("GET {to}"))].concat());
                check(&client.reply());
                let last = client.reply();
                check(&last);
                let joined: Vec<String> =
                    texts(&last).into_iter().map(Option::unwrap_or_default).collect();
                assert_eq!(client.reply().bytes(), Some(joined.join(",").as_bytes()));
                client.send(
                    [
                        &words("MULTI")[..],
                        &kept[..],
                        &words(&format!("SET {to} 1")),
                        &words("EXEC"),
                    ]
                    .concat(),
                );
                client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n");
                check(&client.reply().elements().expect("two replies")[0]);
            }
        }
    };
    // Whether it happens in one round hangs on how much of the cores the others leave.
    let mut stood_still = false;
    for _ in 0..ROUNDS_MAX {
        let readers = [0, 1].map(|tag| Box::new(reading(tag)) as Work<'_>);
        let writers = [0, 1].map(|tag| Box::new(writing(tag)) as Work<'_>);
        for_a_while(readers.into_iter().chain(writers).collect());
        stood_still = client.info("nigh", "function_calls_with_owners_still") != "0";
        if stood_still {
            break;
        }
    }
    let answers = answers.load(Ordering::Relaxed);
    eprintln!("{answers} answers");
    assert!(
        answers > 50 && stood_still,
        "{answers} answers, and no owner was asked to stand still"
    );
}

/// A server whose calls end after two seconds, with a key of one partition whose time is over while
/// its owner is in such a call: so the other shard can't be told of it for as long.
struct Busy {
    server: TestServer,
    client: Client,
    here: String,
    over: String,
    owner: Client,
}

impl Busy {
    fn new() -> Busy {
        let (server, mut client) = server_with(&[("function-time-limit-ms", "2000")]);
        let [here, there] = tags(&mut client);
        client.says(&format!("SET {here}a A"), "+OK\r\n");
        let owner = server.connect_to_owner(&there);
        Busy { server, client, here, over: format!("{there}x"), owner }
    }

    /// The owner is busy from now on.
    fn begin(&mut self) {
        let over = &self.over;
        self.owner.says(&format!("SET {over} gone PX 100"), "+OK\r\n");
        self.owner.send(words(&format!("FCALL spin 1 {over}")));
        std::thread::sleep(Duration::from_millis(300));
    }

    fn end(&mut self) {
        assert!(self.owner.reply().error().is_some(), "it is stopped");
    }

    fn stills(&mut self) -> u64 {
        self.client.info("nigh", "function_calls_with_owners_still").parse().unwrap()
    }
}

/// More clients than a turn serves wait for the same owner to stand still: those beyond a turn's
/// number were forgotten.
#[test]
fn more_callers_than_a_turn_takes_are_all_answered() {
    let mut busy = Busy::new();
    let mut callers: Vec<Client> =
        (0..1100).map(|_| busy.server.connect_to_owner(&busy.here)).collect();
    let call = words(&format!("FCALL_RO both 0 {} {}a", busy.over, busy.here));
    let mut at_once = 0;
    for _ in 0..ROUNDS_MAX {
        let before = busy.stills();
        busy.begin();
        callers.iter_mut().for_each(|caller| caller.send(&call));
        for caller in &mut callers {
            assert_eq!(texts(&caller.reply()), [None, Some("A".to_owned())]);
        }
        busy.end();
        at_once = busy.stills() - before;
        if at_once > 1024 {
            break;
        }
    }
    assert!(at_once > 1024, "{at_once} waited at once");
}

/// A transaction comes again when others stand still. What isn't about data was done when it came
/// first: it isn't done again, and is answered as it was then. FUNCTION LOAD said that there was
/// such a library, which it had loaded itself, and what stood before HELLO was answered in the new
/// protocol.
#[test]
fn a_transaction_that_comes_again_loads_its_library_once() {
    let mut busy = Busy::new();
    let (mut client, here) = (busy.server.connect_to_owner(&busy.here), busy.here.clone());
    busy.begin();
    client.says("MULTI", "+OK\r\n");
    client.says(&format!("GET {here}none"), "+QUEUED\r\n");
    client.says("HELLO 3", "+QUEUED\r\n");
    client.send(request(&[b"FUNCTION", b"LOAD", b"#!js name=again\nexport const f = () => 1;"]));
    client.expect("+QUEUED\r\n");
    client.says(&format!("FCALL both 0 {} {here}a", busy.over), "+QUEUED\r\n");
    client.send(words("EXEC"));
    busy.end();
    client.expect("*4\r\n$-1\r\n");
    assert!(client.reply().error().is_none(), "HELLO");
    client.expect("$5\r\nagain\r\n*2\r\n_\r\n$1\r\nA\r\n");
    assert!(busy.stills() > 0, "it came once only");
    assert_eq!(client.info("commandstats", "cmdstat_hello").split(',').next(), Some("calls=1"));
}

/// EXEC of a command that asks all shards, and of a function that no moment can tell: it runs when
/// all have answered, and again when the owner stands still. Once it asked all shards again then,
/// for ever.
#[test]
fn a_transaction_that_asks_all_shards_runs_while_an_owner_stands_still() {
    let (server, mut client) = server_with(&[("function-time-limit-ms", "5000")]);
    let [here, there] = tags(&mut client);
    let mut near = server.connect_to_owner(&here);
    let writer = server.connect_to_owner(&there);
    let writing = |stop: &AtomicBool| {
        let commands: Vec<String> = ["SET {}x 1", "DEL {}x", "SET {}y 1", "DEL {}y"]
            .map(|command| command.replace("{}", &there))
            .to_vec();
        at_full_speed(writer, &commands, stop);
    };
    let asking = |stop: &AtomicBool| {
        for _ in 0..3 {
            let exec = [
                words("MULTI"),
                words(&format!("SET {here}a A")),
                words("INFO server"),
                words(&format!("FCALL long 0 {there}x {there}y {there}x")),
                words("EXEC"),
            ];
            near.send(exec.concat());
            near.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
            let found = texts(&near.reply().elements().expect("three replies")[2]);
            assert!(found.len() == 3 && found[0] == found[2], "{found:?}");
        }
        stop.store(true, Ordering::Relaxed);
    };
    for_a_while(vec![Box::new(writing), Box::new(asking)]);
    let stills = client.info("nigh", "function_calls_with_owners_still").parse::<u64>().unwrap();
    // One each; more if a turn had no time for one.
    assert!((1..=6).contains(&stills), "owners stood still {stills} times for 3 transactions");
}
