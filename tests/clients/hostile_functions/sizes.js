#!js name=sizes
// One step that touches very much at once: V8 doesn't look for a stop inside most of these.

const flat = (unit, count) => {
  const s = unit.repeat(count);
  s.charCodeAt(7); // joins the parts
  return s;
};
const NEEDLE = "a".repeat(2 ** 13) + "b" + "a".repeat(2 ** 13);

/** JSON of an object that holds the bytes of a record: 8 MB. */
export const json_of_bytes = (db) => JSON.stringify({ data: db.get("big:8").bytes() });
/** The same with 20 MB, and in an array. */
export const json_of_more_bytes = (db) => JSON.stringify([{ data: db.get("big:20").bytes() }]);
/** A line of the log that is made of 8 MB. */
export const log_of_bytes = (db) => console.log(db.get("big:8").bytes());
/** The same, deeper, with 20 MB. */
export const log_of_more_bytes = (db) => console.log({ a: [db.get("big:20").bytes()] });
/** Each byte becomes a property. */
export const spread_of_bytes = (db) => ({ ...db.get("big:8").bytes() });
/** All keys are listed before the first turn. */
export const forin_of_bytes = (db) => {
  for (const k in db.get("big:20").bytes()) return k;
};
/** 16 KB that nearly are in 16 MB, everywhere. */
export const search_for_long = () => flat("a", 2 ** 24).search(NEEDLE);
export const test_for_long = () => new RegExp(NEEDLE).test(flat("a", 2 ** 24));
export const matchall_for_long = () => [...flat("a", 2 ** 24).matchAll(NEEDLE)];
export const exec_for_long = () => new RegExp(NEEDLE).exec(flat("a", 2 ** 24));
/** An array-like that says that it has 2^28 elements: each is asked for, and they were gathered in a list. */
export const view_of_arraylike = () => new Uint8Array({ length: 2 ** 28 });
/** Each byte is taken for a descriptor. */
export const properties_of_bytes = () => Object.defineProperties({}, new Uint8Array(2 ** 25).fill(0));
/** Bytes that say that concat is to take them apart. */
export const concat_of_bytes = () => {
  const bytes = new Uint8Array(2 ** 25);
  bytes[Symbol.isConcatSpreadable] = true;
  return [].concat(bytes, bytes, bytes).length;
};
/** A pair for each of 8 M elements. */
export const entries_of_millions = () => Object.entries(new Array(8e6).fill(1)).length;
/** Each turn copies all properties there are. */
export const growing_spread = () => {
  let o = {};
  for (let i = 0; i < 2000; i++) o = { ...o, ["k" + i]: i };
  return 1;
};
/** Each turn fills 16 MB. */
export const fill_loop = () => {
  const u = new Uint8Array(2 ** 24);
  for (let i = 0; ; i++) u.fill(i);
};
/** Two texts that differ at the end, compared again and again. */
export const compare_loop = () => {
  const a = flat("a", 2 ** 24) + "b";
  const b = flat("a", 2 ** 24) + "c";
  let n = 0;
  while (a !== b) n++;
  return n;
};
/** Steps that take minutes, one after another: each keeps what it runs on. */
const endless = () => new RegExp(NEEDLE).exec(flat("a", 2 ** 26));
export const fifth_stuck_before_1 = () => endless();
export const fifth_stuck_before_2 = () => endless();
export const fifth_stuck_before_3 = () => endless();
export const fifth_stuck_before_4 = () => endless();
export const fifth_stuck = () => endless();
/** The same again and again. */
export const stuck_again_before_1 = () => endless();
export const stuck_again_before_2 = () => stuck_again_before_1();
export const stuck_again = () => stuck_again_before_1();
