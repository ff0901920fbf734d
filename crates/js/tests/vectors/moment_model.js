// The moments of tests/js/moment_model.rs, in the world of find_model.js: two keys are read at one
// moment, beside a writer whose numbers and times pass 2^32. So each look at a word of 64 bits can
// meet halves of two values.
//
// The stores have the order of crates/shm/src/index/moment.rs: begun, (intent,) stamps, `prev`
// before its entry, committed. A word of 64 bits is one store.

const HALF = 4294967296;
const wide = (word, value) => [word, value | 0, word + 1, Math.floor(value / HALF)];
const begun = (n) => wide(80, n);
const committed = (n) => wide(82, n);
const clock = (ms) => wide(84, ms);
const clearStamp = (n) => wide(86, n);
const stamp = (hash, n) => wide(1024 + ((hash & 1023) << 1), n);
const intent = (ref) => [67, ref];

const LATE = 1.5 * HALF; // no clock of a story comes so far
const CLEARED = table(3, 0);

// A story's stores. With some of them comes the number of the state that every later read sees at
// least: a change of one key shows when its entry does, of several when it is committed.
class Changes {
  constructor() {
    this.steps = [];
  }
  add(store, seen) {
    this.steps.push([store, seen]);
    return this;
  }
  put(key, version, seen) {
    this.add([(key.refs[version] << 2) + 6, key.refs[version - 1]]);
    return this.add([key.at + 1, key.refs[version]], seen);
  }
}

// Of each story: versions of the keys `a` and `b`, each with its number behind `n` and its expiry, of
// which the first are there at the beginning; the changes behind number `n` and time `c`; and the
// states that there are, by versions of both, -1 for none. `backwards`: `b` is also read first.
const MOMENTS = {
  // A key, then the other.
  single: {
    versions: () => ({ a: [[-9], [1]], b: [[-8], [2]] }),
    changes: ({ a, b, n }) => new Changes()
      .add(begun(n + 1)).put(a, 1, 1).add(committed(n + 1))
      .add(begun(n + 2)).put(b, 1, 2).add(committed(n + 2)),
    states: [[0, 0], [1, 0], [1, 1]],
  },
  // One key, then both at once.
  commit: {
    versions: () => ({ a: [[-9], [1], [2]], b: [[-8], [3]] }),
    changes: ({ a, b, n }) => new Changes()
      .add(begun(n + 1)).put(a, 1, 1).add(committed(n + 1))
      .add(begun(n + 3)).add(intent(99)).put(a, 2).put(b, 1).add(committed(n + 3), 2).add(intent(0)),
    states: [[0, 0], [1, 0], [2, 1]],
    backwards: true,
  },
  // A key goes; so does a third one, with the same stamp.
  removed: {
    versions: () => ({ a: [[-9]], b: [[-8], [1]] }),
    changes: ({ a, b, n }) => new Changes()
      .add(begun(n + 1)).put(b, 1, 1).add(committed(n + 1))
      .add(begun(n + 2)).add(stamp(a.hash, n + 2)).add([a.at + 1, DELETED], 2).add(committed(n + 2))
      .add(begun(n + 3)).add(stamp(a.hash, n + 3)).add(committed(n + 3)),
    states: [[0, 0], [0, 1], [-1, 1]],
  },
  // All keys go, twice.
  cleared: {
    versions: () => ({ a: [[-9]], b: [[-8], [1]] }),
    changes: ({ b, n }) => new Changes()
      .add(begun(n + 1)).put(b, 1, 1).add(committed(n + 1))
      .add(begun(n + 2)).add(clearStamp(n + 2)).add(state(4, CLEARED), 2).add(committed(n + 2))
      .add(begun(n + 3)).add(clearStamp(n + 3)).add(committed(n + 3)),
    states: [[0, 0], [0, 1], [-1, -1]],
    backwards: true,
  },
  // A key is over from the beginning on, while time goes on.
  over: {
    versions: (c) => ({ a: [[-9, c - 100]], b: [[-8], [1]] }),
    changes: ({ b, n, c }) => new Changes()
      .add(clock(c + 1)).add(begun(n + 1)).put(b, 1, 1).add(committed(n + 1)).add(clock(c + 2)),
    states: [[-1, 0], [-1, 1]],
  },
  // A key gets more time before its time is over.
  renewed: {
    versions: (c) => ({ a: [[-9, c], [1, LATE]], b: [[-8], [2]] }),
    changes: ({ a, b, n, c }) => new Changes()
      .add(begun(n + 1)).put(a, 1, 1).add(committed(n + 1)).add(clock(c + 1))
      .add(begun(n + 2)).put(b, 1, 2).add(committed(n + 2)).add(clock(c + 2)),
    states: [[0, 0], [1, 0], [1, 1]],
  },
};

// The key's versions, with numbers behind n. Its entry is the last of its home line but one.
function versionsOf(plain, load, text, first, n, versions) {
  const hash = load(text);
  const refs = versions.map(([lsn, expiry = 0], i) => {
    const ref = record(plain, first + i, text);
    const fields = [...wide((ref << 2) + 2, n + lsn), ...wide((ref << 2) + 4, expiry)];
    for (let at = 0; at < fields.length; at += 2) plain[fields[at]] = fields[at + 1];
    return ref;
  });
  return { text, hash, refs, at: entryOf(1, 1, hash, 6) };
}

// Reads the keys at one moment, with the stores before the loads that `bursts` names. What it has
// read, or undefined; how many loads there were; and which states are too old for it.
function readWith(model, steps, bursts) {
  const { prelude, plain, arena, keys } = model;
  const undo = [];
  let loads = 0;
  let next = 0;
  let burst = 0;
  let least = 0;
  watch = () => {
    while (burst < bursts.length && bursts[burst][0] === loads) {
      for (let left = bursts[burst][1]; left > 0; left--, next++) {
        const [store, seen] = steps[next];
        if (loads === 0 && seen !== undefined) least = seen;
        for (let i = 0; i < store.length; i += 2) {
          undo.push(store[i], plain[store[i]]);
          plain[store[i]] = store[i + 1];
        }
      }
      burst++;
    }
    loads++;
  };
  prelude.begin();
  let found;
  try {
    prelude.takeMoment(arena);
    if (!prelude.isUntold()) found = keys.map((key) => prelude.find(key.text));
  } catch (error) {
    if (!`${error}`.includes("TRYAGAIN")) throw error;
  }
  watch = null;
  if (prelude.isUntold()) found = undefined;
  for (let i = undo.length - 2; i >= 0; i -= 2) plain[undo[i]] = undo[i + 1];
  return [found, loads, least];
}

// All orders of one story, which passes 2^32 behind `n` and `c`.
function tryMoments(name, partitions, n, c, backwards) {
  const story = MOMENTS[name];
  const { prelude, load } = world(partitions);
  const texts = ["k", "longer than 8"];
  while (partitions > 1 && prelude.placeOf(load(texts[0])) !== prelude.placeOf(load(texts[1]))) texts[1] += ".";
  const arena = prelude.arenas[partitions > 1 ? prelude.placeOf(load(texts[0])) >> 4 : 0];
  const plain = [...arenaOf.values()].find((words) => words !== null && words.buffer === bufferOf(arena));
  const put = (store) => {
    for (let i = 0; i < store.length; i += 2) plain[store[i]] = store[i + 1];
  };
  const versions = story.versions(c);
  const a = versionsOf(plain, load, texts[0], 0, n, versions.a);
  const b = versionsOf(plain, load, texts[1], 8, n, versions.b);
  [state(2, table(1, 1)), begun(n), committed(n), clock(c), entry(a.at, a.hash, a.refs[0]),
    entry(b.at, b.hash, b.refs[0])].forEach(put);
  const model = { prelude, plain, arena, keys: backwards ? [b, a] : [a, b] };
  const { steps } = story.changes({ a, b, n, c });
  const states = story.states.map(([x, y]) => [x < 0 ? 0 : a.refs[x], y < 0 ? 0 : b.refs[y]]);
  if (backwards) states.forEach((pair) => pair.reverse());
  let orders = 0;
  let told = 0;
  const extend = (bursts, from, left) => {
    const [found, loads, least] = readWith(model, steps, bursts);
    orders++;
    if (found !== undefined) {
      told++;
      if (!states.slice(least).some(([x, y]) => x === found[0] && y === found[1])) {
        throw new Error(`${name}: ${found} is no state behind ${least} of ${JSON.stringify(states)}, ` +
          `${partitions} ${n} ${c} ${backwards}: ${JSON.stringify(bursts)}`);
      }
    }
    if (bursts.length === BURSTS) return;
    for (let at = from; at < loads; at++) {
      for (let count = 1; count <= left; count++) extend([...bursts, [at, count]], at + 1, left - count);
    }
  };
  extend([], 0, steps.length);
  return [orders, told];
}

// Where numbers and clock stand at the beginning: the first change or tick passes 2^32, or the last.
const BEGINNINGS = [[HALF - 1, HALF - 1], [HALF - 3, HALF - 2]];

export function moments(db, [name, partitions]) {
  let orders = 0;
  let told = 0;
  for (const backwards of MOMENTS[name].backwards ? [false, true] : [false]) {
    for (const [n, c] of BEGINNINGS) {
      const sums = tryMoments(name, +partitions, n, c, backwards);
      orders += sums[0];
      told += sums[1];
    }
  }
  return [orders, told];
}
