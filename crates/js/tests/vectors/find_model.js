// The world of tests/find_model.rs: words that count their loads, a writer's stores between them,
// and what a find may answer. It stands in front of the prelude's files in one module; `attach` is
// theirs.

const SLOT_WORDS = 1 << 14; // of 64 KiB
const WORDS = 16 * SLOT_WORDS;

let watch = null; // called before each load of an arena's word
const arenaOf = new Map(); // buffer -> its plain words

// In Int32Array's place: over an arena's buffer it tells of each load.
class Watched {
  constructor(buffer, offset, length) {
    const words = new Int32Array(buffer, offset, length);
    if (!arenaOf.has(buffer)) return words;
    arenaOf.set(buffer, words);
    return new Proxy(words, {
      get(target, index) {
        if (watch !== null) watch();
        return target[index];
      },
    });
  }
}

const RECORDS_AT = 8 * SLOT_WORDS;
const RECORD_WORDS = 16;
const DELETED = 1;
const MOVED = 2;

// Writes a record at place `n`; its reference.
function record(words, n, key) {
  const at = RECORDS_AT + n * RECORD_WORDS;
  words[at + 7] = key.length | 1 << 16;
  for (let i = 0; i < key.length; i++) words[at + 8 + (i >> 2)] |= key.charCodeAt(i) << (i % 4 << 3);
  return at >> 2;
}

// Of the table in slot `slot` with 2^log2 lines: its word, and the entry `n` of a hash's home line.
const table = (slot, log2) => slot << 6 | log2;
const entryOf = (slot, log2, hash, n) =>
  slot * SLOT_WORDS + (hash & (1 << log2) - 1) * 16 + 2 * n;

// Records of keys that are like the story's.
const LIKE_REF = [50, 60].map((n) => RECORDS_AT + n * RECORD_WORDS >> 2);

// One store of several words, of which no reader sees a half: [word, value, word, value …]. A
// writer stores an entry so, and epoch with current table.
const state = (epoch, current) => [64, epoch, 65, current];
const entry = (at, hash, ref) => [at, hash, at + 1, ref];

// Each story: the words at its beginning, and its stores. `h` is the key's hash, `ref` its record,
// `again` a newer record; `others` are hashes that fill its home line before it.
const STORIES = {
  growth: {
    begin: (h, ref) => [state(2, table(1, 0)), entry(entryOf(1, 0, h, 0), h, ref)],
    stores: (h, ref) => [
      [66, table(1, 0)],
      state(3, table(2, 1)),
      entry(entryOf(2, 1, h, 0), h, ref),
      [entryOf(1, 0, h, 0) + 1, MOVED],
      state(4, table(2, 1)),
    ],
    finds: (ref) => [ref],
  },
  // It moves to a table with a full line before it, and then the next growth begins.
  twice: {
    begin: (h, ref, again, others) => [
      [66, table(1, 0)],
      state(3, table(2, 1)),
      entry(entryOf(1, 0, h, 0), h, ref),
      ...others.map((other, n) => entry(entryOf(2, 1, h, n), other, RECORDS_AT + 40 * RECORD_WORDS >> 2)),
    ],
    stores: (h, ref) => [
      entry(entryOf(2, 1, h + 1, 0), h, ref),
      [entryOf(1, 0, h, 0) + 1, MOVED],
      state(4, table(2, 1)),
      [66, table(2, 1)],
      state(5, table(3, 2)),
      entry(entryOf(3, 2, h, 0), h, ref),
      [entryOf(2, 1, h + 1, 0) + 1, MOVED],
    ],
    finds: (ref) => [ref],
  },
  // Its record changes, also while it moves.
  overwrite: {
    begin: (h, ref) => [state(2, table(1, 0)), entry(entryOf(1, 0, h, 3), h, ref)],
    stores: (h, ref, again) => [
      [entryOf(1, 0, h, 3) + 1, again],
      [66, table(1, 0)],
      state(3, table(2, 1)),
      entry(entryOf(2, 1, h, 5), h, again),
      [entryOf(1, 0, h, 3) + 1, MOVED],
      [entryOf(2, 1, h, 5) + 1, ref],
    ],
    finds: (ref, again) => [ref, again],
  },
  // All goes at once, in the middle of a growth; the key comes back.
  clear: {
    begin: (h, ref) => [
      [66, table(1, 0)],
      state(3, table(2, 1)),
      entry(entryOf(1, 0, h, 0), h, ref),
    ],
    stores: (h, ref, again) => [
      entry(entryOf(2, 1, h, 0), h, ref),
      [entryOf(1, 0, h, 0) + 1, MOVED],
      state(6, table(3, 0)),
      entry(entryOf(3, 0, h, 7), h, again),
    ],
    finds: (ref, again) => [ref, 0, again],
  },
  // It goes, and another key takes its entry, twice: those differ from it in one half each.
  taken: {
    begin: (h, ref) => [state(2, table(1, 0)), entry(entryOf(1, 0, h, 3), h, ref)],
    stores: (h, ref, again, [one, other]) => [
      [entryOf(1, 0, h, 3) + 1, DELETED],
      entry(entryOf(1, 0, h, 3), one, LIKE_REF[0]),
      [entryOf(1, 0, h, 3) + 1, DELETED],
      entry(entryOf(1, 0, h, 3), other, LIKE_REF[1]),
    ],
    finds: (ref) => [ref, 0],
  },
};

// One key of each way of finding: digits, a short text, a long one.
const KEYS = [[107, "107"], ["k", "k"], ["abcdefgh", "abcdefgh"], ["longer than 8", "longer than 8"]];

function world(partitions) {
  const buffers = [];
  for (let i = 0; i < partitions; i++) {
    const buffer = new ArrayBuffer(WORDS * 4);
    arenaOf.set(buffer, null);
    const words = new Int32Array(buffer);
    words[3] = 16; // slots of 2^16 bytes
    words[12] = 0x1234567;
    words[65] = 0;
    buffers.push(buffer);
  }
  let prelude;
  // Stands for the C++ callbacks, which load keys that aren't short.
  const load = (text) => {
    for (let i = 0; i < text.length; i++) prelude.B[prelude.KEY_AT + i] = text.charCodeAt(i);
    for (let i = 0; i < 4; i++) prelude.B[prelude.KEY_AT + text.length + i] = 0;
    prelude.I[prelude.KEY_LENGTH] = text.length;
    const hash = prelude.hashLong(text.length);
    if (partitions > 1) prelude.I[prelude.PLACE] = prelude.placeOf(hash);
    return hash;
  };
  const foreign = buffers.map(() => true);
  prelude = attach({ key: load }, {
    ioBuffer: new ArrayBuffer(16384),
    arenaBuffers: buffers,
    foreign,
    numbersBuffer: new ArrayBuffer(262144),
  });
  return { prelude, load };
}

// Finds `key` with the stores before the loads that `bursts` names: [load, number of stores] each.
// The answer, and how many loads there were.
function findWith(prelude, key, plain, stores, bursts) {
  const undo = [];
  let loads = 0;
  let next = 0;
  let burst = 0;
  const step = () => {
    while (burst < bursts.length && bursts[burst][0] === loads) {
      for (let n = bursts[burst][1]; n > 0; n--, next++) {
        const store = stores[next];
        for (let i = 0; i < store.length; i += 2) {
          undo.push(store[i], plain[store[i]]);
          plain[store[i]] = store[i + 1];
        }
      }
      burst++;
    }
    loads++;
  };
  watch = step;
  const ref = prelude.find(key);
  watch = null;
  for (let i = undo.length - 2; i >= 0; i -= 2) plain[undo[i]] = undo[i + 1];
  return [ref, loads];
}

// Bursts of the writer: three took minutes and found no more.
const BURSTS = 2;

// All orders.
function tryAll(prelude, key, plain, stores, finds, name) {
  let orders = 0;
  const attempt = (bursts) => {
    const [ref, loads] = findWith(prelude, key, plain, stores, bursts);
    orders++;
    if (!finds.includes(ref)) {
      throw new Error(`${name}: ${key} is ${ref}, not one of ${finds}: ${JSON.stringify(bursts)}`);
    }
    return loads;
  };
  const extend = (bursts, from, left) => {
    const loads = attempt(bursts);
    if (bursts.length === BURSTS) return;
    for (let at = from; at < loads; at++) {
      for (let n = 1; n <= left; n++) extend([...bursts, [at, n]], at + 1, left - n);
    }
  };
  extend([], 0, stores.length);
  return orders;
}

export function play(db, [name, count]) {
  const story = STORIES[name];
  let orders = 0;
  for (const [key, text] of KEYS) {
    const { prelude, load } = world(+count);
    const hash = load(text);
    const arena = prelude.arenas[+count > 1 ? prelude.placeOf(hash) >> 4 : 0];
    const plain = [...arenaOf.values()].find((words) => words !== null && words.buffer === bufferOf(arena));
    const ref = record(plain, 0, text);
    const again = record(plain, 1, text);
    record(plain, 40, text + "x");
    // As long as it: other from the end on, or in the first byte alone.
    record(plain, 50, `${text.slice(0, -1)}~`);
    record(plain, 60, `~${text.slice(1)}`);
    // Of other keys, with the same home line in each table.
    const others = [];
    for (let i = 1; i <= 8; i++) others.push(hash + (i << 8) | 0);
    const put = (store) => {
      for (let i = 0; i < store.length; i += 2) plain[store[i]] = store[i + 1];
    };
    story.begin(hash, ref, again, others).forEach(put);
    orders += tryAll(prelude, key, plain, story.stores(hash, ref, again, others), story.finds(ref, again), name);
    // Another key with the same hash's line, that never is there.
    const absent = typeof key === "number" ? key + 1 : text.slice(0, -1) + "?";
    orders += tryAll(prelude, absent, plain, story.stores(hash, ref, again, others), [0], name);
  }
  return orders;
}

// The buffer behind an arena's words, which are a proxy.
function bufferOf(arena) {
  for (const [buffer, words] of arenaOf) {
    if (words !== null && words[63] === 0) {
      words[63] = 1;
      const same = arena.words[63] === 1;
      words[63] = 0;
      if (same) return buffer;
    }
  }
  return undefined;
}
