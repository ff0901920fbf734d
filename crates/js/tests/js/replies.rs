//! Results that use `db` while they are encoded: the reply is the same as for plain data of the
//! same values.

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits};

/// Results in all; some hundred nodes each.
const RESULTS: usize = 120;
/// Calls of a batch: one that writes into its neighbour's reply shows there.
const BATCH: usize = 12;

/// `result(db, [seed, way])` makes a result of random shape: `lazy` with getters, traps, iterators,
/// toJSON and promises that use every method of db and of Records; `plain` the same values as mere
/// data.
const LIBRARY: &str = r"
const generator = (seed) => {
  let state = Number(seed) * 2654435761 >>> 0 || 1;
  return (n) => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) % n;
  };
};

// The values of k*, p:* and j never change; no other code reads the keys that these functions
// write.
const noise = (db, n) => {
  const record = db.get('k' + n % 4);
  const methods = [
    () => db.get('k1'), () => db.get(n), () => db.text('k2'), () => db.json('j'), () => db.exists('k3'),
    () => db.exists(new Uint8Array([107, 49])), () => db.ttl('k1'), () => db.ttl('nothing'),
    () => db.scan('p:').keys.length, () => db.scan('').keys, () => db.scan('p:', 3), () => db.now(),
    () => db.set('w' + n, 'x'.repeat(n % 301)), () => db.set('w' + n, record), () => db.set(n, 1.5),
    () => db.set('w' + n, new Uint8Array(n % 71)), () => db.delete('w' + n), () => db.delete('nothing'),
    () => db.incr('c' + n % 7), () => db.incr('c' + n % 7, n), () => db.expire('c' + n % 7, 1e6 + n),
    () => db.incr('k1'), () => db.set({}, 1), () => db.scan('p:', -1), () => db.json('k1'),
    () => record.u8(0), () => record.u16(0), () => record.u32(0), () => record.i32(0), () => record.f32(0),
    () => record.f64(0), () => record.u8(1e9), () => record.text(), () => record.bytes(), () => record.json(),
    () => record.byteLength, () => console.log({ toJSON: () => db.scan('p:').keys }),
  ];
  for (let i = 0; i <= n % 3; i++) {
    try { methods[(n * 7 + i * 13) % methods.length](); } catch { /* its error is not what is looked at */ }
  }
};

const leaves = (db, n) => [
  () => n, () => -n, () => n / 7, () => 'x'.repeat(n % 13), () => null, () => n % 2 === 0, () => BigInt(n) ** 9n,
  () => 'h\u00e9\u20ac' + n, () => new Uint8Array([n, 13, 10]), () => db.text('k' + n % 4),
  () => db.get('k' + n % 4), () => db.get('k1').bytes(), () => db.json('j'), () => db.exists('k' + n % 9),
  () => db.scan('p:').keys.sort(), () => db.scan('one:').keys, () => db.incr('own' + n), () => db.ttl('k2'),
  () => { db.set('mine' + n, 'v' + n); return db.get('mine' + n); },
  () => JSON.stringify({ a: 1, toJSON() { noise(db, n + 1); return [n, db.scan('one:').keys]; } }),
  () => [...{ *[Symbol.iterator]() { yield 1; noise(db, n + 2); yield db.scan('one:').keys[0]; } }],
  () => { if (n % 5 === 0) throw new Error('given up at ' + n); return n; },
][n % 22]();

const PARENTS = ['array', 'object', 'map', 'set', 'bare'];
const describe = (random, depth) => {
  if (depth === 0 || random(4) === 0) return { kind: 'leaf', n: random(100000), way: random(6) };
  const nodes = [];
  for (let i = random(7); i >= 0; i--) nodes.push(describe(random, depth - 1));
  return { kind: PARENTS[random(5)], nodes, n: random(100000), way: random(6) };
};

const plain = (db, node) => {
  noise(db, node.n);
  if (node.kind === 'leaf') {
    const value = leaves(db, node.n);
    return typeof value === 'object' && value !== null && 'u8' in value ? value.text() : value;
  }
  const values = [];
  for (const child of node.nodes) values.push(plain(db, child));
  switch (node.kind) {
    case 'array': return values;
    case 'map': return new Map(values.map((value, i) => ['key' + i, value]));
    case 'set': return new Set(values.map((value) => [value]));
    default: return Object.fromEntries(values.map((value, i) => ['a'.repeat(i) + 'b', value]));
  }
};

// A child, made when it is looked at.
const made = (db, node) => {
  if (node.way === 3) return (async () => { noise(db, node.n); await null; return lazyValue(db, node); })();
  if (node.way === 4) return Promise.resolve({ then(f) { noise(db, node.n); f(lazyValue(db, node)); } });
  noise(db, node.n);
  return lazyValue(db, node);
};
const getter = (db, node) => ({ get: () => made(db, node), enumerable: true, configurable: true });
const trapped = (db, node, target) => new Proxy(target, {
  get: (t, key, self) => { noise(db, node.n + 3); return Reflect.get(t, key, self); },
  has: (t, key) => { noise(db, node.n + 4); return Reflect.has(t, key); },
  ownKeys: (t) => { noise(db, node.n + 5); return Reflect.ownKeys(t); },
  getOwnPropertyDescriptor: (t, key) => { noise(db, node.n + 6); return Reflect.getOwnPropertyDescriptor(t, key); },
  getPrototypeOf: (t) => { noise(db, node.n + 7); return Reflect.getPrototypeOf(t); },
});
const lazyValue = (db, node) => {
  if (node.kind === 'leaf') return leaves(db, node.n);
  const inside = (child) => Object.defineProperty([], 0, getter(db, child));
  switch (node.kind) {
    case 'map': return new Map(node.nodes.map((child, i) => ['key' + i, inside(child)]));
    case 'set': return new Set(node.nodes.map(inside));
    default: {
      const target = node.kind === 'array' ? [] : node.kind === 'bare' ? Object.create(null) : {};
      node.nodes.forEach((child, i) => {
        Object.defineProperty(target, node.kind === 'array' ? i : 'a'.repeat(i) + 'b', getter(db, child));
      });
      return node.way >= 4 ? trapped(db, node, target) : target;
    }
  }
};
// As lazyValue() has each value of a Map in an array, so has this.
const wrapped = (value) => value instanceof Map
  ? new Map([...value].map(([key, member]) => [key, [wrapped(member)]]))
  : value instanceof Set ? new Set([...value].map(([member]) => [wrapped(member)]))
  : Array.isArray(value) ? value.map(wrapped)
  : value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype
    ? Object.fromEntries(Object.entries(value).map(([key, member]) => [key, wrapped(member)])) : value;

export const result = (db, [seed, way]) => {
  const node = describe(generator(seed), 3);
  if (node.kind === 'leaf') node.way = 0;
  return way === 'lazy' ? made(db, node) : wrapped(plain(db, node));
};
export const canary = () => 'c'.repeat(37);
";

fn bench() -> Bench {
    let mut bench = Bench::with(FunctionLimits { call_ms: 60_000, ..patient() });
    bench.add("t", LIBRARY);
    for n in 0..4usize {
        bench.put(&format!("k{n}"), "value ".repeat(n * n * 40 + 2));
    }
    bench.put("j", r#"{"x":[1,2,{"y":"z"}],"w":null}"#);
    bench.put("one:key", "1");
    for n in 0..60 {
        bench.put(&format!("p:{n}:{}", "é".repeat(n)), "1");
    }
    bench.put(&format!("p:{}", "long".repeat(12_000)), "1");
    bench
}

/// Replies to `result` with each of the seeds, in batches, every second one in RESP3, with canaries
/// between.
fn replies(way: &str) -> Vec<String> {
    let mut bench = bench();
    let seeds: Vec<String> = (0..RESULTS).map(|seed| seed.to_string()).collect();
    let mut replies = Vec::new();
    for batch in seeds.chunks(BATCH) {
        let args: Vec<[&[u8]; 2]> =
            batch.iter().map(|seed| [seed.as_bytes(), way.as_bytes()]).collect();
        let with_canary = |(n, args)| {
            [
                Call { function: b"result", args, resp3: n % 2 == 1, ..Call::default() },
                call("canary"),
            ]
        };
        let args = args.iter().map(<[&[u8]; 2]>::as_slice);
        let calls: Vec<Call<'_>> = args.enumerate().flat_map(with_canary).collect();
        let given = bench.run(&calls);
        for pair in given.chunks(2) {
            assert_eq!(pair[1], format!("$37\r\n{}\r\n", "c".repeat(37)), "beside {:?}", pair[0]);
            replies.push(pair[0].clone());
        }
    }
    replies
}

#[test]
fn a_scan_in_a_getter_leaves_the_reply_right() {
    // The smallest: the getter runs when the reply has come to a place that no word begins at.
    let mut bench = Bench::of(
        "export const f = (db) => ({ a: 'x', get b() { return db.scan('p').keys; } });
         export const canary = () => 'fine';",
    );
    bench.put("p1", "1");
    let replies = bench.run(&[call("f"), call("canary")]);
    assert_eq!(replies[0], "*4\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nb\r\n*1\r\n$2\r\np1\r\n");
    assert_eq!(replies[1], "$4\r\nfine\r\n");
}

#[test]
fn whatever_db_does_inside_a_result_leaves_the_reply_right() {
    // Random shapes, made twice: as code that runs while it is encoded, and as plain data.
    let (lazy, plain) = (replies("lazy"), replies("plain"));
    let mut failed = 0;
    for (seed, (lazy, plain)) in lazy.iter().zip(&plain).enumerate() {
        assert_eq!(lazy, plain, "result {seed}");
        failed += usize::from(plain.starts_with('-'));
    }
    let bytes: usize = plain.iter().map(String::len).sum();
    assert!(
        bytes > 100_000 && failed > 5 && failed < RESULTS / 2,
        "{bytes} bytes, {failed} errors"
    );
}
