#!js name=time
// Code that doesn't end, or that ends late, and what it does so that nobody can stop it.

/** The plain loop. */
export const loop = () => {
  for (;;);
};
/** A loop whose turn is a native function alone: no function of JavaScript is ever entered. */
export const native_loop = () => {
  const b = Uint8Array.prototype.fill.bind(new Uint8Array(2 ** 22), 7);
  for (;;) b();
};
/** A finally block that goes on when its try block is stopped. */
export const finally_loop = () => {
  for (;;) {
    try {
      for (;;);
    } catch {
      continue;
    } finally {
      for (;;);
    }
  }
};
/** A generator whose return never comes. */
export const generator_return = () => {
  function* g() {
    try {
      yield 1;
    } finally {
      for (;;) yield 2;
    }
  }
  for (const x of g()) if (x === 1) break;
  for (;;) for (const x of g()) if (x === 2) continue;
};
/** Two generators that delegate to each other through a thousand levels. */
export const delegating = () => {
  function* g(n) {
    if (n > 0) yield* g(n - 1);
    for (;;) yield n;
  }
  let sum = 0;
  for (const x of g(1000)) sum += x;
  return sum;
};
/** A sort whose order changes its mind. */
export const sort_without_order = () => {
  const a = Array.from({ length: 2 ** 18 }, (_, i) => i);
  for (;;) a.sort(() => Math.random() - 0.5);
};
/** A comparison that makes the array longer. */
export const sort_that_grows = () => {
  const a = [3, 1, 2];
  for (;;) {
    a.sort((x, y) => {
      a.push(...a.slice(0, 1000));
      return x - y;
    });
  }
};
/** A comparison that empties the array and detaches what is compared. */
export const sort_that_empties = () => {
  const a = Array.from({ length: 2 ** 17 }, (_, i) => ({ valueOf: () => ((a.length = 0), i) }));
  for (;;) {
    a.sort((x, y) => x - y);
    a.length = 2 ** 17;
    a.fill(1);
  }
};
/** Typed arrays are sorted natively. */
export const sort_of_floats = () => {
  const u = new Float64Array(2 ** 23).map((_, i) => (i * 7919) % 10007);
  for (;;) u.sort();
};
/** A number of digits that is never printed in time. */
export const digits = () => (2n ** (2n ** 25n)).toString().length;
/** And one that is never read. */
export const digits_read = () => BigInt("9".repeat(2 ** 23)) % 7n;
/** Powers of numbers of megabytes. */
export const powers = () => {
  let n = 3n;
  for (;;) n = n ** 3n % (1n << 8000000n);
};
/** The greatest common divisor of two long numbers. */
export const divisor = () => {
  let [a, b] = [3n ** 4000000n, 7n ** 2000000n];
  while (b !== 0n) [a, b] = [b, a % b];
  return a;
};
/** Shifts move all of a number each time. */
export const shifts = () => {
  let n = 1n << 100000000n;
  for (;;) n = (n >> 1n) ^ n;
};
/** A property that a chain of 500,000 prototypes doesn't have. */
export const long_chain = () => {
  let o = {};
  for (let i = 0; i < 300000; i++) o = Object.create(o);
  let n = 0;
  for (;;) if ("missing" in o) n++;
};
/** instanceof walks the same way. */
export const long_instanceof = () => {
  let o = {};
  for (let i = 0; i < 300000; i++) o = Object.create(o);
  const f = function () {};
  let n = 0;
  for (;;) if (o instanceof f) n++;
};
/** Each name of a switch is compared. */
export const long_switch = () => {
  const a = "a".repeat(2 ** 23) + "b";
  const b = "a".repeat(2 ** 23) + "c";
  const d = "a".repeat(2 ** 23) + "d";
  let n = 0;
  for (;;) {
    switch (a) {
      case b:
      case d:
        break;
      default:
        n++;
    }
  }
};
/** A text that is asked as a number, again and again. */
export const number_of_spaces = () => {
  const s = " ".repeat(2 ** 26);
  let n = 0;
  for (;;) n += +s;
};
/** A text as a key of an object has to be looked up by its content. */
export const text_as_key = () => {
  const o = {};
  for (let i = 0; ; i++) o["a".repeat(2 ** 22) + i] = 1;
};
/** Text in a Map is hashed whole. */
export const text_in_map = () => {
  const m = new Map();
  for (let i = 0; ; i++) m.has("a".repeat(2 ** 24) + (i % 7));
};
/** Keys that all have one hash: V8's hash of integers in a dictionary is seeded, of these it isn't. */
export const colliding_numbers = () => {
  const m = new Map();
  for (let i = 0; i < 2 ** 18; i++) m.set(i * 2 ** 32 + 0.5, i);
  let n = 0;
  for (;;) n += m.get(7.5) ?? 1;
};
/** A set that grows while it is walked over. */
export const growing_set = () => {
  const s = new Set([0]);
  for (const x of s) s.delete(x), s.add(x + 1);
};
/** The same by forEach, which is native. */
export const growing_map = () => {
  const m = new Map([[0, 0]]);
  m.forEach((v, k) => {
    m.delete(k);
    m.set(k + 1, v);
  });
};
/** A search of dates in what is none. */
export const dates = () => {
  const s = "(".repeat(2 ** 24);
  for (;;) Date.parse(s);
};
/** A text of 2^28 units is turned around in steps. */
export const code_points = () => [..."\u{1f600}".repeat(2 ** 24)].reverse().join("").length;
/** Locale functions copy the text to ICU. */
export const locales = () => {
  const s = "\u0130".repeat(2 ** 20 - 1);
  for (;;) s.toLocaleLowerCase("tr");
};
/** Each comparison by a locale makes a collator. */
export const collators = () => {
  for (let i = 0; ; i++) "a".localeCompare("b", "de-u-co-phonebk-x-" + i);
};
/** Each date by a locale makes a formatter. */
export const formatters = () => {
  for (let i = 0; ; i++) new Date(i).toLocaleString("de", { timeZone: "Asia/Tokyo", era: "long" });
};
/** Pages of a scan that ends nowhere. */
export const scans = (db) => {
  for (let cursor = 0; ; ) cursor = db.scan("data:", cursor).cursor;
};
/** Reads of a value of 20 MB, a copy each. */
export const copies = (db) => {
  for (let n = 0; ; n++) db.get("big:20").bytes();
};
/** Texts of it. */
export const decoded = (db) => {
  for (let n = 0; ; n++) db.text("big:20");
};
/** 20 MB of digits are one number of JSON. */
export const parsed = (db) => {
  for (;;) db.json("big:20");
};
/** An increment of what has 20 MB. */
export const incremented = (db) => {
  for (;;) {
    try {
      db.incr("big:20");
    } catch {}
  }
};
/** Statements in a row, without a loop: 4,000 fills of 64 MB. */
export const straight = () => {
  const b = Uint8Array.prototype.fill.bind(new Uint8Array(2 ** 26), 7);
  /*ROW b();*/
};
/** The same with comparisons. */
export const straight_compare = () => {
  const a = "a".repeat(2 ** 26) + "b";
  const c = "a".repeat(2 ** 26) + "c";
  /*ROW a===c;*/
};
/** The same with copies of an array. */
export const straight_spread = () => {
  const a = new Array(2 ** 20).fill(1);
  let b;
  /*ROW b=[...a];*/
};
/** The same with a pattern that takes a while. */
export const straight_test = () => {
  const b = RegExp.prototype.test.bind(/(a*)*b/, "a".repeat(18));
  /*ROW b();*/
};
