#!js name=counter
// Counters. A function runs alone on its shard from its first line to its last, so reading and then
// writing needs no lock, no WATCH and no retry.
//
//   redis-cli -x FUNCTION LOAD < examples/functions/counter.js
//   redis-cli FCALL hit 1 page:home
//   redis-cli FCALL take 1 tickets 2 100
//   redis-cli FCALL allow 1 api:alice 5 60000

/**
 * Adds to a counter that any client can also GET, INCR and DEL. Returns the new value.
 * FCALL hit 1 <key> [by]
 */
export function hit(db, [by = "1"], [key]) {
  // incr makes the key if it is missing, keeps its expiry, and throws if the value is no integer.
  return db.incr(key, Number(by));
}

/**
 * Takes `count` of at most `limit`: never more, whoever calls at the same time. Returns what is left, or
 * an error SOLDOUT, and then nothing has changed.
 * FCALL take 1 <key> <count> <limit>
 */
export function take(db, [count, limit], [key]) {
  const [wanted, most] = [Number(count), Number(limit)];
  if (!Number.isInteger(wanted) || wanted < 1) throw new Error("a count is a positive integer");
  // Nothing is more than NaN: without a limit all would be sold.
  if (!Number.isInteger(most)) throw new Error("a limit is an integer");
  const taken = db.incr(key, wanted);
  // Too late to say no? Not at all: the increment stands in the call's write set only, and an error
  // drops the write set.
  if (taken > most) throw new Error(`SOLDOUT ${most - (taken - wanted)} left`);
  return most - taken;
}

/**
 * Lets at most `limit` calls through in a window of `window` ms, which begins with the first of them.
 * Returns [allowed, left, ms until the window ends].
 * FCALL allow 1 <key> <limit> <window>
 */
export function allow(db, [limit, window], [key]) {
  const count = db.incr(key);
  if (count === 1) db.expire(key, Number(window));
  const left = Number(limit) - count;
  // The count of refused calls is kept too: `GET key` tells how often somebody knocked.
  return [left >= 0, Math.max(left, 0), db.ttl(key)];
}
