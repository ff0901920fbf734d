//! What `db.get` remembers of keys that are numbers: whatever writes in between, a call sees it.

mod common;

use common::{Bench, NOW_MS, call};

const SOURCE: &str = r#"
export const read = (db, [key]) => db.text(Number(key)) ?? "none";
export const first = (db, [key]) => { const r = db.get(Number(key)); return r === undefined ? "none" : r.u8(0); };
export const write = (db, [key, value]) => { db.set(Number(key), value); };
export const drop = (db, [key]) => db.delete(Number(key));
"#;

#[test]
fn what_is_written_between_batches_is_seen() {
    let mut bench = Bench::of(SOURCE);
    assert_eq!(bench.call("first", &["7"]), "$4\r\nnone\r\n");
    bench.put("7", "a");
    assert_eq!(bench.call("first", &["7"]), ":97\r\n");
    bench.put("7", "b");
    assert_eq!(bench.call("first", &["7"]), ":98\r\n");
}

#[test]
fn a_call_sees_what_the_one_before_it_in_the_batch_committed() {
    let mut bench = Bench::of(SOURCE);
    let args = |args: &'static [&'static [u8]]| args;
    let first = nigh_js::Call { args: args(&[b"7"]), ..call("first") };
    let write = nigh_js::Call { args: args(&[b"7", b"x"]), ..call("write") };
    let drop = nigh_js::Call { args: args(&[b"7"]), ..call("drop") };
    let replies = bench.run(&[first, write, first, first, drop, first]);
    assert_eq!(
        replies,
        ["$4\r\nnone\r\n", "$-1\r\n", ":120\r\n", ":120\r\n", ":1\r\n", "$4\r\nnone\r\n"]
    );
}

#[test]
fn a_call_sees_its_own_writes() {
    let mut bench = Bench::of(
        r#"export function f(db) {
             const seen = [db.get(7)?.u8(0), db.get(8)?.u8(0)];
             db.set(7, "x");
             seen.push(db.get(7)?.u8(0), db.get(8)?.u8(0));
             db.delete(8);
             seen.push(db.get(8)?.u8(0));
             return seen.map(String).join(" ");
           }"#,
    );
    bench.put("7", "a");
    bench.put("8", "b");
    let text = "97 98 120 98 undefined";
    assert_eq!(bench.call("f", &[]), format!("${}\r\n{text}\r\n", text.len()));
}

#[test]
fn numbers_that_share_a_place_are_told_apart() {
    let mut bench = Bench::of(
        r#"export function f(db) {
             const seen = [];
             for (let round = 0; round < 2; round++)
               for (const key of [5, 4101, 8197, 12293]) seen.push(db.get(key)?.u8(0));
             return seen.map(String).join(" ");
           }"#,
    );
    bench.put("5", "a");
    bench.put("4101", "b");
    bench.put("12293", "d");
    let text = "97 98 undefined 100 97 98 undefined 100";
    assert_eq!(bench.call("f", &[]), format!("${}\r\n{text}\r\n", text.len()));
}

#[test]
fn a_record_whose_time_is_over_is_forgotten() {
    let mut bench = Bench::of(SOURCE);
    bench.world.arenas[0].put(b"7", b"a", NOW_MS + 10);
    assert_eq!(bench.call("first", &["7"]), ":97\r\n");
    bench.now_ms = NOW_MS + 11;
    assert_eq!(bench.call("first", &["7"]), "$4\r\nnone\r\n");
}

#[test]
fn a_value_is_read_whole_whether_remembered_or_not() {
    let mut bench = Bench::of(
        r#"export function f(db) {
             const texts = [];
             for (let round = 0; round < 3; round++)
               for (const key of [0, 9, 12345678, 99999999]) texts.push(db.get(key).text());
             return texts.join();
           }"#,
    );
    let values = ["", "nine", "a longer one, of several words", "z"];
    for (key, value) in ["0", "9", "12345678", "99999999"].iter().zip(values) {
        bench.put(key, value);
    }
    let text = [values.join(","), values.join(","), values.join(",")].join(",");
    assert_eq!(bench.call("f", &[]), format!("${}\r\n{text}\r\n", text.len()));
}
