//! `db.get` remembers the records of keys that are numbers. A call sees every write all the same.

use crate::common::{Bench, NOW_MS, call};

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

/// A generator of stories, the same each time.
struct Dice(u64);
impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Steps on number keys, each an operation's letter and its key; what each saw.
const PLAY: &str = r#"
const see = (record) => record === undefined ? "-" : String.fromCharCode(record.u8(0));
export function play(db, steps) {
  let seen = "";
  for (const step of steps) {
    const key = Number(step.slice(2));
    switch (step[0]) {
      case "g": seen += see(db.get(key)); break;
      case "e": seen += db.exists(key) ? "+" : "-"; break;
      case "t": seen += db.ttl(key) === undefined ? "-" : "+"; break;
      case "s": db.set(key, step[1]); seen += "s"; break;
      case "d": seen += db.delete(key) ? "+" : "-"; break;
    }
  }
  return seen;
}"#;

#[test]
fn whatever_was_asked_of_a_place_before_each_number_finds_its_own_record() {
    // Numbers that share a place in what is remembered, asked for in all ways and in all orders, by
    // calls of one batch and of the next, with writes between. `exists` once left the place to the
    // next number as it was, so that `get` found the record of n - 4096; so did a value that lies
    // in a run and isn't remembered.
    let mut bench = Bench::of(PLAY);
    let keys: Vec<u64> = (0..4).flat_map(|lap| [5, 6].map(|n| n + 4096 * lap)).collect();
    let mut dice = Dice(7);
    let mut there: std::collections::BTreeMap<u64, char> = std::collections::BTreeMap::new();
    for round in 0..200 {
        let letter = |n: usize| char::from(b'a' + u8::try_from(n).unwrap());
        for _ in 0..dice.below(3) {
            let (key, value) = (keys[dice.below(8)], letter(dice.below(26)));
            // Some are long enough for a run.
            let length = if dice.below(3) == 0 { 40_000 } else { 5 };
            bench.put(&key.to_string(), value.to_string().repeat(length));
            there.insert(key, value);
        }
        let (mut calls, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (mut steps, mut seen) = (Vec::new(), String::new());
            let writes = dice.below(3) == 0;
            for _ in 0..8 {
                let key = keys[dice.below(8)];
                let kind = b"gggeetsd"[dice.below(if writes { 8 } else { 6 })];
                let value = letter(dice.below(26));
                let is_there = if there.contains_key(&key) { '+' } else { '-' };
                seen.push(match kind {
                    b'g' => there.get(&key).copied().unwrap_or('-'),
                    b's' => {
                        there.insert(key, value);
                        's'
                    }
                    b'd' => {
                        there.remove(&key);
                        is_there
                    }
                    _ => is_there,
                });
                steps.push(format!("{}{value}{key}", char::from(kind)));
            }
            calls.push(steps);
            expected.push(format!("$8\r\n{seen}\r\n"));
        }
        let args: Vec<Vec<&[u8]>> =
            calls.iter().map(|steps| steps.iter().map(|step| step.as_bytes()).collect()).collect();
        let batch: Vec<_> =
            args.iter().map(|args| nigh_js::Call { args, ..call("play") }).collect();
        assert_eq!(bench.run(&batch), expected, "round {round}: {calls:?}");
    }
}
