//! Calls from end to end: arguments in, reads, replies out.
#![allow(clippy::cast_possible_truncation, reason = "small numbers in tests")]

use crate::common::{Bench, call};
use nigh_js::Call;

#[test]
fn a_function_gets_its_arguments_and_replies() {
    // The first FCALL: text in, text out.
    let mut bench =
        Bench::of("export function hi(db, [name], [key]) { return `hi ${name} ${key}`; }");
    let call = Call { function: b"hi", args: &[b"you"], keys: &[b"k"], ..Call::default() };
    assert_eq!(bench.run(&[call]), ["$8\r\nhi you k\r\n"]);
}

#[test]
fn a_function_reads_what_lies_in_the_arena() {
    // Keys of every length find their records; the values come back whole.
    let mut bench = Bench::of(
        "export function get(db, [key]) { return db.text(key); }\n\
                               export function num(db, [key]) { return db.text(Number(key)); }",
    );
    let keys: Vec<String> = (0..70).map(|n| "abcdefghij".repeat(8)[..n].to_owned()).collect();
    for key in &keys {
        bench.put(key, format!("value of {key}"));
    }
    for key in &keys {
        let value = format!("value of {key}");
        assert_eq!(bench.call("get", &[key]), format!("${}\r\n{value}\r\n", value.len()));
    }
    for n in [
        0u64,
        7,
        10,
        99,
        100,
        107,
        999,
        1000,
        4038,
        9999,
        10_000,
        54_321,
        100_000,
        999_999,
        1_000_000,
        1_234_567,
        9_999_999,
        10_000_000,
        99_999_999,
        100_000_000,
        9_007_199_254_740_991,
    ] {
        bench.put(&n.to_string(), format!("#{n}"));
        let expected = format!("#{n}");
        let reply = format!("${}\r\n{expected}\r\n", expected.len());
        assert_eq!(bench.call("num", &[&n.to_string()]), reply);
        assert_eq!(bench.call("get", &[&n.to_string()]), reply);
    }
    assert_eq!(bench.call("get", &["missing"]), "$-1\r\n");
    assert_eq!(bench.call("num", &["-5"]), "$-1\r\n");
}

#[test]
fn keys_that_look_alike_are_told_apart() {
    // Numbers whose hashes are kept in one place, keys that differ in padding only, and strings
    // that are no ASCII: each reads its own record, again and again.
    let mut bench = Bench::of(
        "export const all = (db) => { const found = []; for (let round = 0; round < 300; round++) {\n\
           found.length = 0;\n\
           for (const key of [7, 4103, 8199, 100007, 10000007, 99999999, '7', 'a', 'a\\0', 'a\\0\\0', 'é', 'ab€', 'longer than eight', 'nothing', 40960007])\n\
             found.push(db.text(key) ?? '-', db.exists(key) ? 1 : 0); } return found.join(' '); };",
    );
    for key in ["7", "4103", "100007", "10000007", "99999999", "a", "a\0\0", "é", "ab€"] {
        bench.put(key, format!("<{}>", key.len()));
    }
    bench.world.arenas[0].put(b"8199", b"expires later", crate::common::NOW_MS + 1);
    bench.world.arenas[0].put(b"longer than eight", b"has expired", crate::common::NOW_MS - 1);
    let found = "<1> 1 <4> 1 expires later 1 <6> 1 <8> 1 <8> 1 <1> 1 <1> 1 - 0 <3> 1 <2> 1 <5> 1 - 0 - 0 - 0";
    assert_eq!(bench.call("all", &[]), format!("${}\r\n{found}\r\n", found.len()));
}

#[test]
fn an_unknown_function_is_refused_in_its_place() {
    // Order in a batch is kept around refusals.
    let mut bench = Bench::of("export function one() { return 1; }");
    let replies = bench.run(&[call("one"), call("none"), call("one")]);
    assert_eq!(replies, [":1\r\n", "-ERR Function not found\r\n", ":1\r\n"]);
}
