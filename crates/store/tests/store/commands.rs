//! Corners of the commands that read and write values, as Redis 7.0.15 answers them.

use crate::support::{Fixture, START_MS};

const SYNTAX: &str = "-ERR syntax error";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// SET takes its options in any order and case, and refuses those that contradict each other.
#[test]
fn set_takes_all_options() {
    let mut fixture = Fixture::new();
    fixture.script(
        &[
            ("SET a 1", "+OK"),
            ("GET a", "$1 1"),
            ("SET a 2 NX", "$-1"),
            ("SET b 2 XX", "$-1"),
            ("SET a 3 xx GET", "$1 1"),
            ("SET a 4 NX GET", "$1 3"),
            ("GET a", "$1 3"),
            ("SET c 1 NX GET", "$-1"),
            ("GET c", "$1 1"),
            ("SET n 1 XX GET", "$-1"),
            ("GET n", "$-1"),
            ("SET a 5 EX 100", "+OK"),
            ("TTL a", ":100"),
            ("SET a 6 KEEPTTL", "+OK"),
            ("PTTL a", ":100000"),
            ("SET a 7 GET KEEPTTL", "$1 6"),
            ("PTTL a", ":100000"),
            ("SET a 8", "+OK"),
            ("TTL a", ":-1"),
            ("SET a 9 PX 1500", "+OK"),
            ("PTTL a", ":1500"),
            ("SET a 9 EXAT 1700000100", "+OK"),
            ("PTTL a", ":100000"),
            ("SET a 9 PXAT 1700000000001", "+OK"),
            ("PTTL a", ":1"),
            ("SET a 9 EX 10 EX 20", "+OK"),
            ("TTL a", ":20"),
            ("SET a ''", "+OK"),
            ("GET a", "$0 "),
            ("SET '' x", "+OK"),
            ("GET ''", "$1 x"),
        ]
        .map(|(command, wanted)| (command, wanted.trim_end())),
    );
    for options in [
        "NX XX",
        "XX NX",
        "EX",
        "EX 1 PX 1",
        "EX 1 KEEPTTL",
        "KEEPTTL PX 1",
        "FOO",
        "PERSIST",
        "PX",
        "EXAT 1 PXAT 2",
        "GETX",
        "NXX",
    ] {
        assert_eq!(fixture.run(&format!("SET z 1 {options}")), SYNTAX, "{options}");
    }
    assert_eq!(fixture.run("EXISTS z"), ":0");
}

/// An expiry that isn't a positive number of milliseconds is refused, and nothing is stored.
#[test]
fn impossible_expiries_of_set_are_refused() {
    let mut fixture = Fixture::new();
    for (command, name) in [
        ("SET a 1 EX 0", "set"),
        ("SET a 1 EX -1", "set"),
        ("SET a 1 PX -5", "set"),
        ("SET a 1 EX 9223372036854775807", "set"),
        ("SET a 1 PX 9223372036854775807", "set"),
        ("SET a 1 EXAT 9223372036854776", "set"),
        ("SETEX a 0 1", "setex"),
        ("SETEX a 9223372036854775 1", "setex"),
        ("PSETEX a -1 1", "psetex"),
    ] {
        let wanted = format!("-ERR invalid expire time in '{name}' command");
        assert_eq!(fixture.run(command), wanted, "{command}");
    }
    for command in
        ["SET a 1 EX x", "SET a 1 EX 1.5", "SETEX a +1 v", "SET a 1 EX 99999999999999999999"]
    {
        assert_eq!(fixture.run(command), NOT_AN_INTEGER, "{command}");
    }
    assert_eq!(fixture.run("EXISTS a"), ":0");
    fixture.script(&[
        ("SET a 1 PXAT 9223372036854775807", "+OK"),
        ("PEXPIRETIME a", ":9223372036854775807"),
        ("SET b 1 PXAT 5", "+OK"),
        ("GET b", "$-1"),
        ("SETEX c 7 v", "+OK"),
        ("TTL c", ":7"),
        ("PSETEX c 7 v", "+OK"),
        ("PTTL c", ":7"),
    ]);
}

/// A value whose time is over is stored nowhere, not even until it is looked at: readers in other
/// processes may rely on that. The replies are as if it had come and gone.
#[test]
fn a_value_that_is_over_is_never_there() {
    let mut fixture = Fixture::new();
    let lsn = |fixture: &mut Fixture| fixture.turn(|store, _| store.stats().data.lsn);
    fixture.script(&[("SET n v PXAT 1", "+OK"), ("SET n v EXAT 1 GET", "$-1")]);
    fixture.script(&[("SET n v PXAT 1 NX", "+OK"), ("SET n v PXAT 1 XX", "$-1")]);
    assert_eq!(lsn(&mut fixture), 0, "nothing was published");
    for command in ["SET a 2 PXAT 1", "SET a 2 EXAT 1", "SET a 2 PXAT 1 XX"] {
        fixture.script(&[("SET a 1", "+OK"), (command, "+OK"), ("DBSIZE", ":0")]);
    }
    fixture.script(&[("SET a 1", "+OK"), ("SET a 2 PXAT 1 NX", "$-1"), ("GET a", "$1 1")]);
    fixture.script(&[("SET a 2 PXAT 1 GET", "$1 1"), ("DBSIZE", ":0")]);
    assert_eq!(lsn(&mut fixture), 8, "four times a key came and went");
    // In a transaction too.
    fixture.run("SET a 1");
    fixture.turn(|store, _| store.begin());
    fixture.script(&[("SET a 2 PXAT 1", "+OK"), ("GET a", "$-1"), ("SET n v PXAT 1", "+OK")]);
    fixture.script(&[("DBSIZE", ":0"), ("SET b 1", "+OK"), ("DBSIZE", ":1")]);
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    fixture.script(&[("EXISTS a n", ":0"), ("DBSIZE", ":1")]);
    // What is over with this millisecond is still there.
    fixture.script(&[(&format!("SET a v PXAT {START_MS}"), "+OK"), ("PTTL a", ":0")]);
}

/// The old commands do the same as SET's options, with their own replies.
#[test]
fn old_commands_of_set_answer_their_way() {
    Fixture::new().script(&[
        ("SETNX a 1", ":1"),
        ("SETNX a 2", ":0"),
        ("GETSET a 3", "$1 1"),
        ("GETSET b 3", "$-1"),
        ("EXPIRE a 10", ":1"),
        ("GETSET a 4", "$1 3"),
        ("TTL a", ":-1"),
        ("GETDEL a", "$1 4"),
        ("GETDEL a", "$-1"),
    ]);
}

/// GETEX reads, and changes the expiry if told.
#[test]
fn getex_reads_and_sets_the_expiry() {
    let mut fixture = Fixture::new();
    fixture.script(&[
        ("SET a v", "+OK"),
        ("GETEX a", "$1 v"),
        ("TTL a", ":-1"),
        ("GETEX a EX 10", "$1 v"),
        ("TTL a", ":10"),
        ("GETEX a", "$1 v"),
        ("TTL a", ":10"),
        ("GETEX a PERSIST", "$1 v"),
        ("TTL a", ":-1"),
        ("GETEX a PX 0", "-ERR invalid expire time in 'getex' command"),
        ("GETEX a PX x", NOT_AN_INTEGER),
        ("GETEX a NX", SYNTAX),
        ("GETEX a KEEPTTL", SYNTAX),
        ("GETEX a PERSIST EX 1", SYNTAX),
        ("GETEX a EX 1 PERSIST", SYNTAX),
        ("GETEX a PERSIST PERSIST", "$1 v"),
        ("GETEX n EX 0", "$-1"),
        ("GETEX n FOO", SYNTAX),
        ("GETEX a PXAT 1700000000005", "$1 v"),
        ("PTTL a", ":5"),
        ("GETEX a EXAT 1", "$1 v"),
        ("EXISTS a", ":0"),
    ]);
}

/// Many keys in one command: order and duplicates are kept, MSETNX is all or nothing.
#[test]
fn several_keys_at_once() {
    let mut fixture = Fixture::new();
    fixture.script(&[
        ("MSET a 1 b 2 a 3", "+OK"),
        ("MGET a b c a", "*4 $1 3 $1 2 $-1 $1 3"),
        ("MSETNX c 1 a 1", ":0"),
        ("EXISTS c", ":0"),
        ("MSETNX c 1 d 1 c 2", ":1"),
        ("GET c", "$1 2"),
        ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command"),
        ("EXPIRE a 10", ":1"),
        ("MSET a 1", "+OK"),
        ("TTL a", ":-1"),
        ("EXISTS a a b n", ":3"),
        ("TOUCH a a n", ":2"),
        ("DEL a a n", ":1"),
        ("UNLINK b c d", ":3"),
        ("DBSIZE", ":0"),
    ]);
    let keys: Vec<String> = (0..100).map(|n| format!("k{n} {n}")).collect();
    assert_eq!(fixture.run(&format!("MSET {}", keys.join(" "))), "+OK");
    let names: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let names = names.join(" ");
    let wanted: Vec<String> =
        (0..100).map(|n: u32| format!("${} {n}", n.to_string().len())).collect();
    assert_eq!(fixture.run(&format!("MGET {names}")), format!("*100 {}", wanted.join(" ")));
    assert_eq!(fixture.run(&format!("EXISTS {names}")), ":100");
    assert_eq!(fixture.run(&format!("DEL {names} {names}")), ":100");
    assert_eq!(fixture.run("DBSIZE"), ":0");
}

/// Counters stay within 64 bits, keep the expiry, and refuse values that aren't numbers.
#[test]
fn counters_count() {
    Fixture::new().script(&[
        ("INCR a", ":1"),
        ("INCRBY a 41", ":42"),
        ("DECR a", ":41"),
        ("DECRBY a 1", ":40"),
        ("DECRBY a -2", ":42"),
        ("GET a", "$2 42"),
        ("EXPIRE a 10", ":1"),
        ("INCR a", ":43"),
        ("TTL a", ":10"),
        ("INCRBY a x", NOT_AN_INTEGER),
        ("DECRBY a -9223372036854775808", "-ERR decrement would overflow"),
        ("SET a 9223372036854775807", "+OK"),
        ("INCR a", "-ERR increment or decrement would overflow"),
        ("GET a", "$19 9223372036854775807"),
        ("SET a -9223372036854775808", "+OK"),
        ("DECR a", "-ERR increment or decrement would overflow"),
        ("INCRBY a 9223372036854775807", ":-1"),
        ("SET a 01", "+OK"),
        ("INCR a", NOT_AN_INTEGER),
        ("SET a ''", "+OK"),
        ("INCR a", NOT_AN_INTEGER),
        ("INCRBY n -5", ":-5"),
    ]);
}

/// Floats are added as Redis adds them, in 80 bits.
#[test]
fn floats_are_added_in_80_bits() {
    Fixture::new().script(&[
        ("SET a 0.1", "+OK"),
        ("INCRBYFLOAT a 0.2", "$3 0.3"),
        ("INCRBYFLOAT a 1e2", "$5 100.3"),
        ("INCRBYFLOAT a -100.3", "$1 0"),
        ("INCRBYFLOAT n 3.0", "$1 3"),
        ("EXPIRE n 10", ":1"),
        ("INCRBYFLOAT n 0.5", "$3 3.5"),
        ("TTL n", ":10"),
        ("INCRBYFLOAT n x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT n nan", "-ERR value is not a valid float"),
        ("INCRBYFLOAT n inf", "-ERR increment would produce NaN or Infinity"),
        ("SET t text", "+OK"),
        ("INCRBYFLOAT t 1", "-ERR value is not a valid float"),
        ("GET n", "$3 3.5"),
    ]);
}

/// Parts of values, with offsets from either end.
#[test]
fn parts_of_values() {
    let mut fixture = Fixture::new();
    fixture.script(&[
        ("APPEND a Hello", ":5"),
        ("EXPIRE a 10", ":1"),
        ("APPEND a -World", ":11"),
        ("TTL a", ":10"),
        ("STRLEN a", ":11"),
        ("STRLEN n", ":0"),
        ("GETRANGE a 0 4", "$5 Hello"),
        ("GETRANGE a -5 -1", "$5 World"),
        ("GETRANGE a 0 -1", "$11 Hello-World"),
        ("GETRANGE a 3 1", "$0"),
        ("GETRANGE a -1 -3", "$0"),
        ("GETRANGE a -100 2", "$3 Hel"),
        ("GETRANGE a 9 100", "$2 ld"),
        ("GETRANGE a 11 12", "$0"),
        ("GETRANGE a -100 -100", "$1 H"),
        ("GETRANGE a -9223372036854775808 9223372036854775807", "$11 Hello-World"),
        ("SUBSTR a 1 2", "$2 el"),
        ("GETRANGE a x 1", NOT_AN_INTEGER),
        ("GETRANGE n 0 -1", "$0"),
        ("SETRANGE a 6 There", ":11"),
        ("GET a", "$11 Hello-There"),
        ("TTL a", ":10"),
        ("SETRANGE a 10 ee!", ":13"),
        ("GET a", "$13 Hello-Theree!"),
        ("SETRANGE a 3 ''", ":13"),
        ("SETRANGE n 3 ''", ":0"),
        ("SETRANGE n 536870912 ''", ":0"),
        ("EXISTS n", ":0"),
        ("SETRANGE a -1 x", "-ERR offset is out of range"),
        ("SETRANGE a x y", NOT_AN_INTEGER),
        ("SETRANGE a 536870912 x", TOO_LONG),
        ("SETRANGE n 9223372036854775807 x", TOO_LONG),
        ("EXISTS n", ":0"),
        ("APPEND n ''", ":0"),
        ("EXISTS n", ":1"),
    ]);
    fixture.run("DEL n");
    assert_eq!(fixture.run("SETRANGE n 100000 x"), ":100001");
    let wanted = [&b"$100001\r\n"[..], &[0; 100_000], b"x\r\n"].concat();
    assert!(fixture.bytes(&[b"GET", b"n"]) == wanted, "the gap is zeros");
}

/// No value gets longer than 512 MiB, and a refused write leaves the value as it was.
#[test]
fn values_end_at_512_mib() {
    let mut fixture = Fixture::with_capacity(64 << 20);
    fixture.run("SET a x");
    // Zeros that no command reads cost no memory.
    let longer = vec![0; (512 << 20) + 1];
    let wanted = format!("{TOO_LONG}\r\n");
    assert_eq!(fixture.bytes(&[b"APPEND", b"a", &longer[1..]]), wanted.as_bytes());
    assert_eq!(fixture.bytes(&[b"SET", b"a", &longer]), wanted.as_bytes());
    assert_eq!(fixture.bytes(&[b"MSET", b"a", b"1", b"b", &longer]), wanted.as_bytes());
    assert_eq!(fixture.run("GET a"), "$1 x");
}

/// Values of all sizes are read as they were written, also those in runs of their own.
#[test]
fn values_of_all_sizes_come_back() {
    let mut fixture = Fixture::new();
    for size in [0, 1, 15, 16, 17, 1000, 4096, 65_536, 131_072, 131_073, 1 << 20, 5_000_001] {
        let value: Vec<u8> = (0..size).map(|n: usize| n.to_le_bytes()[n % 3]).collect();
        assert_eq!(fixture.bytes(&[b"SET", b"v", &value]), b"+OK\r\n");
        let wanted = [format!("${size}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert!(fixture.bytes(&[b"GET", b"v"]) == wanted, "{size} bytes");
        assert_eq!(fixture.run("RENAME v w"), "+OK");
        assert_eq!(fixture.run("EXPIRE w 100"), ":1");
        assert_eq!(fixture.run("COPY w u REPLACE"), ":1");
        assert!(fixture.bytes(&[b"GET", b"w"]) == wanted, "{size} bytes, renamed, with expiry");
        assert_eq!(fixture.run("DEL w"), ":1");
        assert!(fixture.bytes(&[b"GET", b"u"]) == wanted, "{size} bytes, copied");
    }
}
