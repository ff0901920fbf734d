#!js name=graph
// Walks a graph that is stored as adjacency lists: the key is a node's id (`107`), the value the ids of
// its friends, each a little-endian uint32. A walk of depth 3 reads about a thousand values; as GETs
// that is a thousand round trips, as a function it is one.
//
//   redis-cli -x FUNCTION LOAD < examples/functions/graph.js
//   redis-cli FCALL_RO countFriends 0 107 3
//
// The first line names the library. Every exported function can be called by its name, as
// `fn(db, args, keys)`: `args` are what follows the keys in FCALL, as strings; `keys` the declared keys.

/**
 * Number of paths of length 1..depth that begin at `id`.
 * FCALL_RO countFriends 0 <id> <depth>
 */
export function countFriends(db, [id, depth]) {
  const walk = (key, d) => {
    // A Record is a cursor over the bytes where they lie: nothing is copied, nothing is parsed. It is
    // good until the call ends. A number as a key means its decimal string: 107 reads what `GET 107` reads.
    const friends = db.get(key);
    if (friends === undefined) return 0;
    const count = friends.byteLength >> 2;
    let sum = count;
    if (d > 1) for (let i = 0; i < count; i++) sum += walk(friends.u32(i), d - 1);
    return sum;
  };
  return walk(Number(id), Number(depth));
}
// A promise to write nothing. It makes FCALL_RO possible, and db.set and the like throw.
countFriends.flags = ["no-writes"];

/**
 * Ids of the friends of `id`'s friends that `id` doesn't know yet, with the number of friends in common;
 * the best known first, at most `limit` of them: [[id, common], …].
 * FCALL_RO friendsOfFriends 0 <id> [limit]
 */
export function friendsOfFriends(db, [id, limit = "10"]) {
  const me = Number(id);
  const friends = db.get(me);
  if (friends === undefined) return [];
  const known = new Set([me]);
  for (let i = 0; i < friends.byteLength >> 2; i++) known.add(friends.u32(i));

  const common = new Map();
  for (let i = 0; i < friends.byteLength >> 2; i++) {
    const theirs = db.get(friends.u32(i));
    if (theirs === undefined) continue;
    for (let k = 0; k < theirs.byteLength >> 2; k++) {
      const other = theirs.u32(k);
      if (!known.has(other)) common.set(other, (common.get(other) ?? 0) + 1);
    }
  }
  // Arrays become RESP arrays, numbers integers. The order among equals is by id: replies are stable.
  return [...common].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, Number(limit));
}
friendsOfFriends.flags = ["no-writes"];

/**
 * Adds friends to a node, and keeps the list sorted and free of doubles. Returns the number of friends.
 * FCALL addFriends 1 <id> <friend> [<friend> …]
 */
export function addFriends(db, args, [id]) {
  const ids = new Set();
  const friends = db.get(id);
  for (let i = 0; friends !== undefined && i < friends.byteLength >> 2; i++) ids.add(friends.u32(i));
  for (const arg of args) {
    const friend = Number(arg);
    // A thrown error is the reply, and drops what this call has written: all or nothing. An upper-case
    // first word is the error's code, else it is ERR.
    if (!Number.isInteger(friend) || friend < 0 || friend >= 2 ** 32) {
      throw new Error(`BADID '${arg}' is not the id of a node`);
    }
    ids.add(friend);
  }
  const list = new DataView(new ArrayBuffer(ids.size * 4));
  [...ids].sort((a, b) => a - b).forEach((friend, i) => list.setUint32(i * 4, friend, true));
  db.set(id, list);
  return ids.size;
}
