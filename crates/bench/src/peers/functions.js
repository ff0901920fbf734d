#!js name=bench
/** Does nothing: what a call costs. */
export function noop() {
  return 1;
}
noop.flags = ["no-writes"];

/** Looks one record up, and answers with its length. */
export function readOne(db, args, [key]) {
  return db.get(key).byteLength;
}
readOne.flags = ["no-writes"];
