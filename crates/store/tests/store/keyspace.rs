//! Corners of the commands about keys, expiries and the keyspace, as Redis 7.0.15 answers them.

use nigh_shm::WriteError;
use nigh_store::{JOURNAL_FULL, Keyspace, Op, Scarce, Turn};

use crate::machine::Machine;
use crate::support::{Fixture, Resp2, START_MS};

const SYNTAX: &str = "-ERR syntax error";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";

/// A key of 65,535 bytes is a key. With one byte more, writes refuse it and reads miss it.
#[test]
fn keys_end_at_65535_bytes() {
    let mut fixture = Fixture::new();
    let longest = vec![b'k'; 65_535];
    let longer = vec![b'k'; 65_536];
    let refused = b"-ERR key is longer than 65535 bytes\r\n";
    assert_eq!(fixture.bytes(&[b"SET", &longest, b"v"]), b"+OK\r\n");
    assert_eq!(fixture.bytes(&[b"GET", &longest]), b"$1\r\nv\r\n");
    assert_eq!(fixture.bytes(&[b"SET", &longer, b"v"]), refused);
    assert_eq!(fixture.bytes(&[b"INCR", &longer]), refused);
    assert_eq!(fixture.bytes(&[b"MSET", b"a", b"1", &longer, b"v"]), refused);
    assert_eq!(fixture.bytes(&[b"RENAME", &longest, &longer]), refused);
    assert_eq!(fixture.bytes(&[b"GET", &longer]), b"$-1\r\n");
    assert_eq!(fixture.bytes(&[b"DEL", &longer]), b":0\r\n");
    assert_eq!(fixture.bytes(&[b"EXPIRE", &longer, b"1"]), b":0\r\n");
    assert_eq!(fixture.run("EXISTS a"), ":0", "MSET is all or nothing");
    assert_eq!(fixture.run("DBSIZE"), ":1");
}

/// RENAME and COPY take value and expiry along.
#[test]
fn rename_and_copy_take_all_along() {
    Fixture::new().script(&[
        ("RENAME a b", "-ERR no such key"),
        ("RENAMENX a b", "-ERR no such key"),
        ("SET a 1 EX 10", "+OK"),
        ("RENAME a a", "+OK"),
        ("RENAMENX a a", ":0"),
        ("RENAME a b", "+OK"),
        ("TTL b", ":10"),
        ("EXISTS a", ":0"),
        ("SET a 2", "+OK"),
        ("RENAMENX b a", ":0"),
        ("RENAME b a", "+OK"),
        ("MGET a b", "*2 $1 1 $-1"),
        ("RENAMENX a b", ":1"),
        ("DBSIZE", ":1"),
        ("COPY b b", "-ERR source and destination objects are the same"),
        ("COPY b c", ":1"),
        ("TTL c", ":10"),
        ("SET d 4", "+OK"),
        ("COPY b d", ":0"),
        ("COPY b d replace", ":1"),
        ("MGET b c d", "*3 $1 1 $1 1 $1 1"),
        ("TTL d", ":10"),
        ("COPY n e", ":0"),
        ("COPY b e DB 0", ":1"),
        ("COPY b e DB 1", "-ERR DB index is out of range"),
        ("COPY b e DB x", NOT_AN_INTEGER),
        (
            "COPY b e DB 99999999999",
            "-ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
        ("COPY b e DB", SYNTAX),
        ("COPY b e INTO 0", SYNTAX),
        ("COPY b e FOO", SYNTAX),
    ]);
}

/// EXPIRE and its kin: conditions, limits, and times that are over.
#[test]
fn expiries_are_set_under_conditions() {
    let mut fixture = Fixture::new();
    fixture.script(&[
        ("EXPIRE n 10", ":0"),
        ("SET a v", "+OK"),
        ("EXPIRE a 10 XX", ":0"),
        ("EXPIRE a 10 GT", ":0"),
        ("EXPIRE a 10 LT", ":1"),
        ("EXPIRE a 20 NX", ":0"),
        ("EXPIRE a 10 GT", ":0"),
        ("EXPIRE a 20 GT", ":1"),
        ("EXPIRE a 20 LT", ":0"),
        ("EXPIRE a 15 XX LT", ":1"),
        ("TTL a", ":15"),
        ("PEXPIRE a 1500", ":1"),
        ("TTL a", ":2"),
        ("PEXPIRE a 1499", ":1"),
        ("TTL a", ":1"),
        ("EXPIREAT a 1700000100", ":1"),
        ("PTTL a", ":100000"),
        ("PEXPIREAT a 1700000000777", ":1"),
        ("PTTL a", ":777"),
        ("PEXPIRETIME a", ":1700000000777"),
        ("EXPIRETIME a", ":1700000001"),
        ("PERSIST a", ":1"),
        ("PERSIST a", ":0"),
        ("PERSIST n", ":0"),
        ("TTL a", ":-1"),
        ("PTTL n", ":-2"),
        ("EXPIRETIME n", ":-2"),
        ("PEXPIRETIME a", ":-1"),
        ("EXPIRE a x", NOT_AN_INTEGER),
        ("EXPIRE a 1 FOO", "-ERR Unsupported option FOO"),
        (
            "EXPIRE a 1 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("EXPIRE a 1 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE a x FOO", "-ERR Unsupported option FOO"),
        ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE n -9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
        ("EXPIREAT a 9223372036854776", "-ERR invalid expire time in 'expireat' command"),
        ("PEXPIREAT a 9223372036854775807", ":1"),
        ("PERSIST a", ":1"),
        ("EXPIRE a 0", ":1"),
        ("EXISTS a", ":0"),
        ("SET a v", "+OK"),
        ("EXPIRE a -1 GT", ":0"),
        ("EXPIRE a -1 LT", ":1"),
        ("EXISTS a", ":0"),
        ("SET a v", "+OK"),
        ("PEXPIREAT a 1700000000000", ":1"),
        ("DBSIZE", ":0"),
    ]);
}

/// A key lives through the millisecond of its expiry, and is gone with the next, for every command.
#[test]
fn keys_whose_time_is_over_are_gone() {
    let mut fixture = Fixture::new();
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(fixture.run(&format!("SET {key} 1 PX 100")), "+OK");
    }
    fixture.now_ms = START_MS + 100;
    assert_eq!(fixture.run("GET a"), "$1 1");
    assert_eq!(fixture.run("PTTL a"), ":0");
    fixture.now_ms += 1;
    fixture.script(&[
        ("GET a", "$-1"),
        ("INCR b", ":1"),
        ("TTL b", ":-1"),
        ("SETNX c 2", ":1"),
        ("RENAME d x", "-ERR no such key"),
        ("DEL e", ":0"),
        ("KEYS f", "*0"),
        ("PERSIST f", ":0"),
        ("TYPE f", "+none"),
    ]);
    let stats = fixture.turn(|store, _| store.stats());
    assert_eq!((stats.keys, stats.expires), (2, 0));
    assert_eq!(stats.expired_keys, 6);
}

/// Keys that no command meets any more go by themselves.
#[test]
fn active_expiry_removes_what_nobody_meets() {
    let mut fixture = Fixture::new();
    for n in 0..500 {
        fixture.run(&format!("SET dead{n} v PX 10"));
        fixture.run(&format!("SET alive{n} v"));
    }
    for _ in 0..200 {
        fixture.now_ms += 100;
        fixture.end_turn();
    }
    let stats = fixture.turn(|store, _| store.stats());
    assert_eq!((stats.keys, stats.expires, stats.expired_keys), (500, 0, 500));
    assert_eq!(fixture.run("DBSIZE"), ":500");
}

/// Long values that expire at one moment are gone within a round, ten seconds, however many there
/// are. A step that ended early, at a MiB of records, passed for a whole one, so that what it had
/// left had to wait for another round: values of 64 KB went at a MiB for each turn of the clock.
#[test]
fn long_values_expire_within_a_round() {
    let mut fixture = Fixture::new();
    let value = vec![b'v'; 64_000];
    for n in 0..600 {
        let key = format!("dead{n}");
        fixture.bytes(&[b"SET", key.as_bytes(), &value, b"PX", b"10000"]);
    }
    assert_eq!(fixture.run("DBSIZE"), ":600");
    fixture.now_ms += 10_001;
    fixture.end_turn();
    for _ in 0..20 {
        fixture.now_ms += 500;
        fixture.run("SET alive v");
        let more = |fixture: &mut Fixture| {
            let more = fixture.turn(|store, turn| store.maintain(turn).more);
            fixture.participant.quiescent();
            more
        };
        let _ = (0..1000).take_while(|_| more(&mut fixture)).count();
    }
    let stats = fixture.turn(|store, _| store.stats());
    assert_eq!((stats.keys, stats.expires, stats.expired_keys), (1, 0, 600));
}

/// OBJECT derives what Redis remembers; the file of the type says where they differ.
#[test]
fn object_tells_of_values() {
    let mut fixture = Fixture::new();
    let value44 = "x".repeat(44);
    fixture.run(&format!("SET e {value44}"));
    fixture.run(&format!("SET r {value44}x"));
    fixture.script(&[
        ("SET i 9999", "+OK"),
        ("SET j 10000", "+OK"),
        ("SET z 007", "+OK"),
        ("OBJECT ENCODING i", "$3 int"),
        ("OBJECT encoding e", "$6 embstr"),
        ("OBJECT ENCODING r", "$3 raw"),
        ("OBJECT ENCODING z", "$6 embstr"),
        ("OBJECT ENCODING n", "$-1"),
        ("OBJECT REFCOUNT i", ":2147483647"),
        ("OBJECT REFCOUNT j", ":1"),
        ("OBJECT REFCOUNT n", "$-1"),
        ("OBJECT IDLETIME i", ":0"),
        ("OBJECT FREQ n", "$-1"),
        ("OBJECT FOO i", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
        ("OBJECT FREQ", "-ERR wrong number of arguments for 'object|freq' command"),
        ("OBJECT HELP x", "-ERR wrong number of arguments for 'object|help' command"),
    ]);
    assert!(
        fixture.run("OBJECT FREQ i").starts_with("-ERR An LFU maxmemory policy is not selected")
    );
    assert!(fixture.run("OBJECT HELP").starts_with("*15 +OBJECT <subcommand> ["));
}

/// FLUSHALL empties all at once; with a wrong option it changes nothing.
#[test]
fn flushing_empties_the_keyspace() {
    let mut fixture = Fixture::new();
    for how in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHDB sync"] {
        fixture.script(&[
            ("MSET a 1 b 2", "+OK"),
            ("EXPIRE a 10", ":1"),
            ("FLUSHALL NOW", SYNTAX),
            ("FLUSHDB SYNC ASYNC", SYNTAX),
            ("DBSIZE", ":2"),
            (how, "+OK"),
            ("DBSIZE", ":0"),
            ("GET a", "$-1"),
            ("SET a 3", "+OK"),
            ("MGET a b", "*2 $1 3 $-1"),
        ]);
    }
}

/// Commands that read count hits and misses; commands that write don't.
#[test]
fn hits_and_misses_are_counted_as_redis_does() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    for (command, hits, misses) in [
        ("GET a", 1, 0),
        ("GET n", 0, 1),
        ("MGET a n a", 2, 1),
        ("EXISTS a n", 1, 1),
        ("TOUCH a", 1, 0),
        ("STRLEN n", 0, 1),
        ("GETRANGE a 0 -1", 1, 0),
        ("TTL a", 1, 0),
        ("TYPE n", 0, 1),
        ("OBJECT ENCODING a", 1, 0),
        ("COPY a b", 1, 0),
        ("GETEX a", 1, 0),
        ("GETSET a 1", 1, 0),
        ("SET a 1 GET", 1, 0),
        ("SET a 1 NX", 0, 0),
        ("SETNX a 1", 0, 0),
        ("INCR a", 0, 0),
        ("EXPIRE a 100", 0, 0),
        ("PERSIST a", 0, 0),
        ("APPEND a x", 0, 0),
        ("RENAME a c", 0, 0),
        ("DEL c", 0, 0),
        ("GETDEL b", 1, 0),
        ("RANDOMKEY", 0, 0),
        ("SCAN 0", 0, 0),
    ] {
        fixture.turn(|store, _| store.reset_stats());
        fixture.run(command);
        let stats = fixture.turn(|store, _| store.stats());
        assert_eq!((stats.keyspace_hits, stats.keyspace_misses), (hits, misses), "{command}");
    }
}

/// Every command that passes the command table gets a reply, and no panic.
#[test]
fn hostile_arguments_get_replies() {
    let mut fixture = Fixture::new();
    let words: [&[u8]; 10] = [
        b"",
        b"\0",
        b"\xff\xfe\r\n",
        b"-9223372036854775808",
        b"9223372036854775807",
        b"EX",
        b"a",
        b"COUNT",
        b"[",
        b"0",
    ];
    for op in Op::ALL {
        let name = op.name().as_bytes();
        let mut seed = 5_usize;
        for _ in 0..200 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let count = 3 + (seed >> 20) % 4;
            let mut args = vec![name];
            args.extend((0..count).map(|n| words[(seed >> (n * 5 + 9)) % words.len()]));
            let reply = fixture.bytes(&args);
            assert!(reply.ends_with(b"\r\n"), "{op:?} {args:?}");
        }
    }
}

/// FLUSHALL over two partitions, and the journal has room for one clearing. It once said so in its
/// reply only, so the server couldn't let the command wait. Now the keyspace tells it, and the
/// command may come again as a whole.
#[test]
fn a_flush_of_several_partitions_waits_for_the_journal() {
    let mut machine = Machine::started(1, 2);
    (0..20).for_each(|n| assert_eq!(machine.run(&format!("SET key{n} v")), "+OK"));
    let now_ms = machine.clock_ms();
    let running = machine.running();
    let pin = running.participant.pin();
    let turn = Turn { now_ms, pin: &pin, random: 1 };
    let (keyspace, journal) = (&mut running.keyspace, &running.logs[0].journal);
    let limit = |bytes| {
        journal.file().set_limit(bytes);
        journal.leave();
    };
    let flush = |keyspace: &mut Keyspace| {
        let mut out = Resp2::default();
        keyspace.apply_to_owned(Op::FlushAll, &[b"FLUSHALL"], &mut out);
        (String::from_utf8(out.0).expect("text"), keyspace.take_busy())
    };
    let is_empty = |keyspace: &Keyspace| [0, 1].map(|part| keyspace.reader(part).keys() == 0);
    let refused = (format!("-{JOURNAL_FULL}\r\n"), Some(Scarce::Journal));
    // One clearing takes 64 bytes, and asks for twice as many; in a transaction too.
    limit(journal.tail() + 127);
    assert_eq!(flush(keyspace), refused);
    let store = keyspace.part_mut(0);
    store.begin();
    store.apply(Op::FlushAll, &[b"FLUSHALL"], &turn, &mut Resp2::default());
    assert_eq!(store.commit(&turn), Err(WriteError::JournalFull));
    assert_eq!(store.take_busy(), Some(Scarce::Journal));
    assert_eq!(is_empty(keyspace), [false, false]);
    limit(journal.tail() + 128);
    assert_eq!(flush(keyspace), refused);
    assert_eq!(is_empty(keyspace), [true, false]);
    limit(u64::MAX);
    assert_eq!(flush(keyspace), ("+OK\r\n".to_owned(), None));
    assert_eq!(is_empty(keyspace), [true, true]);
}
