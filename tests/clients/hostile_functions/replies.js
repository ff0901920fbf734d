#!js name=replies
// Results, errors and lines of the log that are long, deep, false, or run code when they are looked at.

/** A getter that reads and scans while the reply is being written. */
export const scanning_getter = (db) => ({ a: "x", get b() { return db.scan("data:").keys; }, c: "y" });
/** One that writes. */
export const writing_getter = (db) => ({ a: "x", get b() { db.set("evil:1", "1"); throw new Error("no"); } });
/** Arrays that share one array 2^30 times. */
export const wide_result = () => {
  let a = [1, 2];
  for (let i = 0; i < 30; i++) a = [a, a];
  return a;
};
/** The longest array there is. */
export const sparse_result = () => new Array(2 ** 32 - 1);
/** A Proxy that says that it is long. */
export const lying_result = () => new Proxy([], { get: (t, k) => (k === "length" ? 2 ** 53 - 1 : 1) });
/** A Proxy whose keys don't end. */
export const keys_result = () => new Proxy({}, { ownKeys: () => Array.from({ length: 2 ** 18 }, (_, i) => "k" + i) });
/** 32 MB of text: the longest result by default. */
export const long_result = () => "a".repeat(2 ** 25 - 100);
/** Half a gigabyte. */
export const too_long_result = () => "a".repeat(2 ** 29 - 24);
/** Text of two bytes a unit, three bytes each in UTF-8. */
export const wide_text_result = () => "\u0800".repeat(2 ** 24);
/** A million little strings. */
export const many_results = () => new Array(2 ** 21).fill("ab");
/** A Map that holds itself as a key. */
export const cyclic_result = () => {
  const m = new Map();
  m.set(m, [m]);
  return m;
};
/** A Map that grows while it is encoded. */
export const growing_result = () => {
  const m = new Map();
  m.set({ get a() { m.set({}, 1); return 1; } }, 1);
  return m;
};
/** An object with 2^22 indices. */
export const indices_result = () => {
  const o = {};
  for (let i = 0; i < 2 ** 22; i++) o[i] = 1;
  return o;
};
/** A buffer that another line of the result cuts off. */
export const shrinking_result = () => {
  const a = new Array(1000).fill("x");
  Object.defineProperty(a, 0, { get: () => ((a.length = 1), "y") });
  return a;
};
/** A promise of a promise of …. */
export const promised_result = async () => {
  let p = Promise.resolve(1);
  for (let i = 0; i < 2 ** 18; i++) p = Promise.resolve().then(() => p);
  return p;
};
/** A thenable that resolves to itself, ever anew. */
export const thenable_result = () => ({ then(yes) { yes({ then: this.then }); } });
/** A flood of microtasks behind a result that is there. */
export const flood_result = () => {
  const f = () => Promise.resolve().then(f).then(f);
  f();
  return 1;
};
/** Microtasks that an error's message leaves behind. */
export const flood_in_message = () => {
  throw { get message() { const f = () => Promise.resolve().then(f); f(); return "m"; } };
};
/** A message of half a gigabyte. */
export const long_message = () => {
  throw new Error("x".repeat(2 ** 29 - 100));
};
/** A message that is a second reply. */
export const forged_message = () => {
  throw new Error("a\r\n+OK\r\n$1\r\nb\r\n");
};
/** A stack that is computed for ever. */
export const stack_getter = () => {
  Error.prepareStackTrace = () => { for (;;); };
  null.x;
};
/** A stack of frames without number. */
export const stack_limit = () => {
  Error.stackTraceLimit = Infinity;
  const f = (n) => { if (n === 0) throw new Error("deep"); f(n - 1); };
  const g = (n) => { for (;;) { try { f(5000); } catch (e) { e.stack; } } };
  g();
};
/** A stack of half a gigabyte. */
export const long_stack = () => {
  const e = new Error("m");
  Object.defineProperty(e, "stack", { value: "x".repeat(2 ** 29 - 100) });
  throw e;
};
/** A cause of a cause …. */
export const causes = () => {
  let e = new Error("a");
  for (let i = 0; i < 200000; i++) e = new Error("b", { cause: e });
  throw e;
};
/** Thrown things without a text. */
export const throws_proxy = () => {
  throw new Proxy(function () {}, { get() { for (;;); } });
};
/** Lines of the log without end. */
export const log_flood = () => {
  for (;;) console.log("x".repeat(8000));
};
/** One line of half a gigabyte. */
export const log_long = () => console.log("x".repeat(2 ** 29 - 24));
/** A line of 50,000 parts, each 1 MB. */
export const log_many = () => {
  const s = "y".repeat(2 ** 20);
  console.log(...new Array(50000).fill(s));
};
/** What is logged is made to text by code. */
export const log_code = () => console.log({ toJSON() { for (;;); } });
/** 2^20 getters are logged. */
export const log_nest = () => {
  let o = {};
  for (let i = 0; i < 20; i++) { const p = o; o = { get a() { return p; }, get b() { return p; } }; }
  console.log(o);
};
/** Line ends and other bytes of control. */
export const log_forged = () => {
  console.log("a\r\n2026-01-01T00:00:00Z ERROR forged\u001b[2J\u0000");
  return 1;
};
