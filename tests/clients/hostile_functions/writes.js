#!js name=writes
// Writes: too many, too long, under names that aren't theirs, after the call's end, half.

let kept;

/** A write, and no end. */
export const write_and_spin = (db) => {
  db.set("evil:1", "1");
  for (let i = 0; i < 200; i++) db.set("data:" + i, "evil");
  for (;;);
};
/** A write, and an error. */
export const write_and_throw = (db) => {
  for (let i = 0; i < 200; i++) db.delete("data:" + i);
  throw new Error("no");
};
/** A write, and a result that can't be sent. */
export const write_and_symbol = (db) => {
  db.set("data:7", "evil");
  return Symbol("s");
};
/** Keys without end. */
export const write_keys = (db) => {
  for (let i = 0; ; i++) db.set("evil:" + i, i);
};
/** The same key without end. */
export const write_same = (db) => {
  for (let i = 0; ; i++) db.set("evil:same", i);
};
/** Values of 20 MB. */
export const write_long = (db) => {
  const big = db.get("big:20");
  for (let i = 0; ; i++) db.set("evil:" + i, big);
};
/** A value of half a gigabyte. */
export const write_longest = (db) => db.set("evil:1", "a".repeat(2 ** 29 - 24));
/** The same two bytes a unit. */
export const write_wide = (db) => db.set("evil:1", "\u0800".repeat(2 ** 28));
/** A key that is too long, again and again. */
export const write_long_key = (db) => {
  for (;;) {
    try {
      db.set("evil:" + "k".repeat(2 ** 28), 1);
    } catch {}
  }
};
/** A number as key and value. */
export const write_numbers = (db) => {
  for (let i = 0; ; i++) db.set(i, 10n ** 1000000n);
};
/** Writes behind the call, by a promise that isn't waited for. */
export const write_later = (db) => {
  Promise.resolve().then(() => db.set("data:7", "evil")).then(() => { for (;;); });
  return 1;
};
/** The db of an earlier call. */
export const write_kept_prepare = (db) => {
  kept = db;
  return 1;
};
export const write_kept = () => kept.set("data:7", "evil");
/** In a getter of the result of a later call. */
export const write_kept_getter_prepare = (db) => {
  kept = db;
  return 1;
};
export const write_kept_getter = () => ({ get a() { return kept.set("data:7", "evil"); } });
/** A function that promised not to write. */
export const write_forbidden = (db) => db.set("data:7", "evil");
write_forbidden.flags = ["no-writes"];
/** One whose value changes while it is written. */
export const write_changing = (db) => {
  const value = { toString() { db.delete("data:7"); return "x"; }, valueOf() { db.delete("data:7"); return 1; } };
  db.set("evil:1", value);
};
/** Increments up to the end of numbers. */
export const write_increments = (db) => {
  db.set("evil:n", String(2 ** 53 - 1));
  db.incr("evil:n");
};
/** Expiry far away and long ago. */
export const write_expiry = (db) => {
  for (const ms of [Infinity, -Infinity, NaN, 2 ** 53, -(2 ** 53), 1e308]) {
    try {
      db.expire("data:7", ms);
    } catch {}
  }
  throw new Error("and nothing of it");
};
/** All data deleted by a scan, and no end. */
export const write_deletes = (db) => {
  for (let cursor = 0; ; ) {
    const page = db.scan("", cursor);
    for (const key of page.keys) db.delete(key);
    cursor = page.cursor;
  }
};
/** A buffer that changes after it was written. */
export const write_buffer = (db) => {
  const u = new Uint8Array(2 ** 20).fill(65);
  db.set("evil:1", u);
  u.fill(66);
  if (db.get("evil:1").u8(0) !== 65) db.set("data:7", "evil");
  throw new Error("and nothing of it");
};
