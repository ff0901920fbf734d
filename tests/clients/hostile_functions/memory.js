#!js name=memory
// Heap, buffers and stack: to use them up, in ways that V8 notices late.

let kept = [];

/** Arrays, each larger than the last. */
export const growing_arrays = () => {
  for (let n = 1; ; n *= 2) kept.push(new Array(n).fill(n));
};
/** One array that is told to be long. */
export const told_long = () => {
  const a = new Array(2 ** 25 - 1).fill(1.5);
  return a.map((x) => ({ x })).length;
};
/** A hole far away turns an array into a dictionary. */
export const far_hole = () => {
  const a = new Array(2 ** 22).fill(1);
  for (let i = 0; ; i++) {
    const b = a.slice();
    b[2 ** 31 + i] = 1;
    kept.push(b);
  }
};
/** All objects of a large array get a dictionary. */
export const dictionaries = () => {
  for (let i = 0; ; i++) {
    const o = { i };
    delete o.i;
    kept.push(o);
  }
};
/** Closures that keep each other alive. */
export const closures = () => {
  let f = () => 0;
  for (;;) {
    const g = f;
    const a = new Array(100);
    f = () => (a, g);
  }
};
/** The limit is met in one step: a text of half a gigabyte is joined. */
export const joined_text = () => {
  const s = "a".repeat(2 ** 29 - 24);
  return s.charCodeAt(2 ** 28);
};
/** Two bytes a unit: one gigabyte. */
export const joined_wide_text = () => {
  const s = "\u0101".repeat(2 ** 29 - 24);
  return s.charCodeAt(2 ** 28);
};
/** Many texts that share nothing. */
export const texts = () => {
  for (let i = 0; ; i++) kept.push(`${i}`.padEnd(100000, "x") + i);
};
/** A tree of text whose joining recurs. */
export const deep_text = () => {
  let s = "ab";
  for (let i = 0; i < 200000; i++) s = i % 2 ? s + "cdefghijklmno" : "cdefghijklmno" + s;
  return /z/.test(s);
};
/** Buffers up to their limit, again and again. */
export const buffers = () => {
  for (;;) {
    try {
      kept.push(new Uint8Array(2 ** 24));
    } catch {
      kept = [];
    }
  }
};
/** Small buffers cost more than their bytes. */
export const small_buffers = () => {
  for (;;) kept.push(new ArrayBuffer(1));
};
/** Buffers that are written, so that they are really there. */
export const written_buffers = () => {
  for (;;) kept.push(new Uint8Array(2 ** 22).fill(1));
};
/** Views of one buffer cost heap. */
export const views = () => {
  const b = new ArrayBuffer(8);
  for (;;) kept.push(new DataView(b));
};
/** A Map of a million Maps. */
export const maps = () => {
  const m = new Map();
  for (let i = 0; ; i++) m.set(i, new Map([[i, m]]));
};
/** What a WeakMap holds is looked at by each collection. */
export const weak_chain = () => {
  const w = new WeakMap();
  let key = {};
  kept.push(key, w);
  for (;;) {
    const next = {};
    w.set(key, next);
    key = next;
  }
};
/** Symbols that are registered stay. */
export const symbols = () => {
  for (let i = 0; ; i++) kept.push(Symbol.for("s" + i));
};
/** Names of properties are kept in V8's table of strings. */
export const names = () => {
  const o = {};
  for (let i = 0; ; i++) o["name" + i] = i;
};
/** Each object has another hidden class. */
export const classes = () => {
  for (let i = 0; ; i++) kept.push({ ["a" + i]: 1, ["b" + i]: 2, ["c" + i]: 3 });
};
/** Each regular expression is compiled when it is used. */
export const regexps = () => {
  for (let i = 0; ; i++) kept.push(new RegExp(`(a|b|${i}){${i % 1000}}`).exec("a".repeat(100)));
};
/** Errors keep their stacks. */
export const errors = () => {
  const f = (n) => (n > 0 ? f(n - 1) : new Error("x".repeat(1000)));
  for (;;) kept.push(f(100));
};
/** Numbers of megabytes. */
export const numbers = () => {
  for (let n = 1n; ; n++) kept.push(n << 8000000n);
};
/** Promises that wait for each other. */
export const promises = () => {
  let p = new Promise(() => {});
  for (;;) kept.push((p = p.then(() => 1)));
};
/** An array of itself, flattened. */
export const flattened = () => {
  let a = [1];
  for (let i = 0; i < 40; i++) a = [a, a];
  return a.flat(Infinity).length;
};
/** A text of itself. */
export const doubled = () => {
  let s = "ab";
  for (;;) s = s.replaceAll("a", "aa");
};
/** A replacement that contains all that stands before. */
export const substituted = () => "ab".repeat(2 ** 15).replaceAll("b", "$`").length;
/** The split of a long text. */
export const split = () => "a,".repeat(2 ** 24).split(",").length;
/** A pair of an array-like and a species that hands out what is too short. */
export const species = () => {
  class Short extends Array {
    static get [Symbol.species]() {
      return function () {
        return [1];
      };
    }
  }
  for (;;) kept.push(new Short(2 ** 20).fill(1).map((x) => x), new Short(1000).concat([1]));
};
/** A typed array whose species is another's buffer. */
export const typed_species = () => {
  const target = new Uint8Array(8);
  const source = new Uint8Array(2 ** 20);
  source.constructor = { [Symbol.species]: function () { return target; } };
  for (;;) {
    try {
      source.slice(0, 8);
      source.map((x) => x);
      source.filter(() => true);
    } catch {}
  }
};
/** JSON that is deep and wide. */
export const json = () => {
  let o = { a: 1 };
  for (let i = 0; i < 25; i++) o = { o, p: o };
  return JSON.stringify(o).length;
};
/** Fifty calls leave four MB each; each is within its limits, and the last finds no room. */
export const left_over_prepare = () => {
  kept.push(new Array(2 ** 19).fill(kept.length));
  return kept.length > 50 ? 1 : 0;
};
export const left_over = () => {
  for (;;) kept.push(new Array(1000));
};
/** Stack: the plain recursion. */
export const recursion = () => {
  const f = () => f() + 1;
  return f();
};
/** Recursion that catches its end and goes on: exponential. */
export const recursion_caught = () => {
  const f = () => {
    try {
      return f() + 1;
    } catch {
      return f() + 1;
    }
  };
  return f();
};
/** Through natives: a comparison, a replacer, a getter, a Proxy, a callback. */
export const recursion_natives = () => {
  const f = (n) => [1, 2].map(() => "a".replace("a", () => JSON.stringify({ toJSON: () => [2, 1].sort(() => f(n + 1)) })));
  return f(0);
};
/** A Proxy of a Proxy of … a getter. */
export const recursion_proxies = () => {
  let p = {};
  for (let i = 0; i < 200000; i++) p = new Proxy(p, {});
  return p.a;
};
/** A Proxy that is its own prototype's handler. */
export const recursion_handler = () => {
  const handler = {};
  const p = new Proxy({}, handler);
  Object.setPrototypeOf(handler, p);
  return p.a;
};
/** A bound function of a bound function …. */
export const recursion_bound = () => {
  let f = () => 1;
  for (let i = 0; i < 200000; i++) f = f.bind(null);
  return f();
};
/** An array in an array …, joined. */
export const recursion_join = () => {
  let a = [];
  for (let i = 0; i < 200000; i++) a = [a];
  return String(a);
};
/** A pattern nested deeply. */
export const recursion_pattern = () => new RegExp("(".repeat(50000) + ")".repeat(50000)).test("a");
/** JSON nested deeply, with a reviver. */
export const recursion_reviver = () => JSON.parse("[".repeat(100000) + "]".repeat(100000), (k, v) => v);
/** A class that extends a class …. */
export const recursion_classes = () => {
  let c = class {};
  for (let i = 0; i < 50000; i++) c = class extends c {};
  return new c() && 1;
};
/** Stack from the innermost call that there is room for, with a native of many arguments. */
export const recursion_arguments = () => {
  const many = new Array(60000).fill(1);
  const f = () => {
    try {
      f();
    } catch {}
    return Math.max(...many);
  };
  return f();
};
