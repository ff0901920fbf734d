// From a key to the reference of its record: xxHash32 and the index (docs/formats/arena.md).
//
// There are two ways with one result. The near one looks in the key's home line in the first window,
// while the index does not grow. What that does not decide goes the far way, which knows all: both
// tables, all lines, all windows.
//
// If there are several arenas, I[PLACE] is set to the key's, before it is looked for. What a find has
// returned is a reference in that arena until the next key is loaded.
//
// Invariants, with writers at work on other threads:
// 1. A tag is loaded before its reference, and the key in the record is always compared: so a torn pair
//    either mismatches or is the new record.
// 2. A miss counts only if the epoch is the same after it as before; a hit needs nothing more.
// 3. Where another thread writes, what is found is what it was at the call's moment of the arena; what can't be told
//    ends the attempt, whatever the function catches.
// 4. What a call has found stays: the runtime's thread holds a pin as long as it runs.

// --- xxHash32 ---
const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f | 0;
const P5 = 0x165667b1 | 0;
const SHORT_START = (SEED + P5) | 0;

function hashWord(h, word) {
  h = (h + imul(word, P3)) | 0;
  return imul((h << 17) | (h >>> 15), P4);
}

function hashTail(h, word, bytes) {
  for (; bytes > 0; bytes--) {
    h = (h + imul(word & 255, P5)) | 0;
    h = imul((h << 11) | (h >>> 21), P1);
    word >>>= 8;
  }
  return avalanche(h);
}

function avalanche(h) {
  h = imul(h ^ (h >>> 15), P2);
  h = imul(h ^ (h >>> 13), P3);
  return h ^ (h >>> 16);
}

// Of 1 to 8 bytes in two little-endian words.
function hashShort(low, high, length) {
  let h = (SHORT_START + length) | 0;
  if (length < 4) return hashTail(h, low, length);
  h = hashWord(h, low);
  if (length === 8) return avalanche(hashWord(h, high));
  return hashTail(h, high, length & 3);
}

const LANE_A = (SEED + P1 + P2) | 0;
const LANE_B = (SEED + P2) | 0;
const LANE_C = SEED;
const LANE_D = (SEED - P1) | 0;

function mergeLanes(a, b, c, d) {
  return (((a << 1) | (a >>> 31)) + ((b << 7) | (b >>> 25)) + ((c << 12) | (c >>> 20)) +
    ((d << 18) | (d >>> 14))) | 0;
}

function hashLane(v, word) {
  v = (v + imul(word, P2)) | 0;
  return imul((v << 13) | (v >>> 19), P1);
}

// Of the bytes at KEY_AT.
function hashLong(length) {
  let at = KEY_AT >> 2;
  let left = length;
  let h = SHORT_START;
  if (length >= 16) {
    let a = LANE_A;
    let b = LANE_B;
    let c = LANE_C;
    let d = LANE_D;
    for (; left >= 16; left -= 16) {
      a = hashLane(a, I[at]);
      b = hashLane(b, I[at + 1]);
      c = hashLane(c, I[at + 2]);
      d = hashLane(d, I[at + 3]);
      at += 4;
    }
    h = mergeLanes(a, b, c, d);
  }
  h = (h + length) | 0;
  for (; left >= 4; left -= 4) h = hashWord(h, I[at++]);
  return hashTail(h, I[at], left);
}

// --- the partition of a key ---

// First window of the arena in which keys of this hash are: (hash as u64 * PARTITIONS) >> 32, by halves.
function placeOf(hash) {
  const low = imul(hash & 0xffff, PARTITIONS) >>> 16;
  return (imul(hash >>> 16, PARTITIONS) + low) >>> 16 << WINDOWS_SHIFT;
}

// Is one of the eight bytes a '{'? All are below 128.
function hasBrace(low, high) {
  return (((low ^ 0x7b7b7b7b) - 0x01010101 | (high ^ 0x7b7b7b7b) - 0x01010101) & 0x80808080) !== 0;
}

// --- the index ---
function openTables(arena) {
  const words = arena.words;
  const shift = arena.slotShift;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const seen = words[EPOCH_WORD];
    const current = words[CURRENT_WORD];
    const old = words[OLD_WORD];
    if (words[EPOCH_WORD] !== seen) continue;
    const slot = current >>> 6;
    arena.table = windowOf(arena.place + (slot >>> 32 - shift)).i32;
    arena.tableBase = (slot << shift - 2) & 0x3fffffff;
    arena.tableMask = current === 0 ? -1 : (1 << (current & 63)) - 1;
    // While the epoch is even, the old table's word means nothing.
    const growing = (seen & 1) !== 0 && old !== 0;
    const oldSlot = old >>> 6;
    arena.oldTable = growing ? windowOf(arena.place + (oldSlot >>> 32 - shift)).i32 : words;
    arena.oldBase = (oldSlot << shift - 2) & 0x3fffffff;
    arena.oldMask = growing ? (1 << (old & 63)) - 1 : -1;
    arena.epoch = seen;
    return;
  }
  return leaveUntold(arena);
}

// Has the line an EMPTY entry, so that no key that is there was pushed past it? Asked after a miss only.
function hasEmpty(words, start) {
  for (let at = start + 1; at < start + LINE_WORDS; at += 2) if (words[at] === 0) return true;
  return false;
}

// The words of the window in which record `ref` of the arena at I[PLACE] lies.
function wordsOf(ref) {
  const window = SEVERAL ? I[PLACE] + (ref >>> 28) : ref >>> 28;
  return window === 0 ? A : windowOf(window).i32;
}

// Is the key of record `ref` the one at KEY_AT?
function sameKey(ref, length) {
  const words = wordsOf(ref);
  const at = (ref & 0xfffffff) << 2;
  if ((words[at + REC_META] & 0xffff) !== length) return false;
  const count = (length + 3) >> 2;
  for (let i = 0; i < count; i++) {
    if (words[at + REC_KEY + i] !== I[(KEY_AT >> 2) + i]) return false;
  }
  return true;
}

function probe(words, base, mask, hash, length) {
  let line = hash & mask;
  for (let probes = 0; probes < MAX_PROBES; probes++) {
    const start = base + (line << LINE_WORDS_SHIFT);
    for (let at = start; at < start + LINE_WORDS; at += 2) {
      if (words[at] !== hash) continue;
      const ref = words[at + 1];
      if (ref >>> 0 > LAST_RESERVED_REF && sameKey(ref, length)) return ref;
    }
    if (hasEmpty(words, start)) return 0;
    line = (line + 1) & mask;
  }
  return 0;
}

var nowLow = 0; // Unix ms of the batch
var nowHigh = 0;

// Has a record with this expiry ended? Like Redis: once the time has passed it.
function expired(low, high) {
  if ((low | high) === 0) return false;
  return high >>> 0 < nowHigh >>> 0 || (high === nowHigh && low >>> 0 < nowLow >>> 0);
}

// ref, or 0 if the record has expired.
function alive(ref) {
  const words = wordsOf(ref);
  const at = (ref & 0xfffffff) << 2;
  const low = words[at + REC_EXPIRY_LOW];
  const high = words[at + REC_EXPIRY_HIGH];
  if ((low | high) !== 0 && expired(low, high)) return 0;
  return ref;
}

// --- the moment at which a call reads an arena that another thread writes (docs/formats/arena.md) ---
const VIEW = !SEVERAL && foreign[0]; // of several arenas each tells by itself
const LOOKS_MAX = 10000; // while a commit goes on, which takes some microseconds
const VERSIONS_MAX = 256; // of a key
var untold = false; // of the attempt, whatever the function catches
var untoldLow = 0; // in which partitions, a bit for each
var untoldHigh = 0;

// A word of 64 bits that only rises; Infinity if it rises meanwhile.
function wordAt(words, at) {
  const high = words[at + 1];
  const low = words[at];
  return words[at + 1] === high ? high * 4294967296 + (low >>> 0) : Infinity;
}

// Chooses the moment: a committed number with which all that it counts is to be seen.
function takeMoment(arena) {
  const words = arena.words;
  for (let i = 0; i < LOOKS_MAX; i++) {
    const begun = wordAt(words, BEGUN_WORD); // SYNC(moment)
    const intent = words[INTENT_WORD];
    const lsn = wordAt(words, COMMITTED_WORD);
    if (lsn === Infinity || (intent === 0 && lsn < begun)) continue;
    arena.lsn = lsn;
    arena.clock = wordAt(words, CLOCK_WORD);
    if (arena.clock !== Infinity && wordAt(words, COMMITTED_WORD) === lsn) return;
  }
  noteUntold(arena);
}

// Something of an arena can't be told: so much has changed since the moment, or, if a key's time is over by our clock
// and not by its owner's, until that is told.
function noteUntold(arena) {
  untold = true;
  const partition = arena.place >> WINDOWS_SHIFT;
  if (partition < 32) untoldLow |= 1 << partition;
  else untoldHigh |= 1 << partition - 32;
}

function leaveUntold(arena) {
  noteUntold(arena);
  throw new ErrorConstructor("TRYAGAIN the keys are changing too fast");
}

// Has the owner of an arena told its time, and stands still until the batch is over?
function standsStill(arena) {
  const partition = arena.place >> WINDOWS_SHIFT;
  return (I[partition < 32 ? IN_STILL_LOW : IN_STILL_HIGH] >>> (partition & 31) & 1) !== 0;
}

// The version of record `ref` of the arena at I[PLACE] that was current at the moment, or 0.
function then(ref, hash) {
  const arena = placedArena();
  for (let i = 0; i < VERSIONS_MAX; i++) {
    const words = wordsOf(ref);
    const at = (ref & 0xfffffff) << 2;
    if (words[at + REC_LSN_HIGH] * 4294967296 + (words[at + REC_LSN_LOW] >>> 0) <= arena.lsn) {
      const low = words[at + REC_EXPIRY_LOW];
      const high = words[at + REC_EXPIRY_HIGH];
      if ((low | high) === 0) return ref;
      if ((high >>> 0) * 4294967296 + (low >>> 0) < arena.clock) return 0;
      // Over by our clock alone: a reader that has just been told of another time must not meet it any more.
      return expired(low, high) && !standsStill(arena) ? leaveUntold(arena) : ref;
    }
    ref = words[at + REC_PREV];
    if (ref === 0) return absentThen(arena, hash);
  }
  return leaveUntold(arena);
}

// 0 for a key that isn't there, if it wasn't at the moment either.
function absentThen(arena, hash) {
  const words = arena.words;
  const at = STAMPS_WORD + ((hash & STAMPS_MASK) << 1);
  if (wordAt(words, at) > arena.lsn || wordAt(words, CLEAR_STAMP_WORD) > arena.lsn) leaveUntold(arena);
  return 0;
}

// What the index says of a key, 0 if nothing, as the call sees it.
function told(ref, hash) {
  if (SEVERAL ? placedArena().foreign : VIEW) return ref === 0 ? absentThen(placedArena(), hash) : then(ref, hash);
  return ref === 0 ? 0 : alive(ref);
}

// The first window of the arena at I[PLACE], which the call from now on has looked into.
function enterWords() {
  const arena = placedArena();
  if (arena.reader !== I[STATE]) beginReading(arena);
  return arena.words;
}

// The reference in the first entry of the home line that has this tag; 0 if surely no record has it;
// -1 if only the far way can tell.
function nearRef(hash) {
  const words = SEVERAL ? enterWords() : A;
  const shift = SEVERAL ? placedArena().slotShift : SLOT_SHIFT;
  const seen = words[EPOCH_WORD];
  const current = words[CURRENT_WORD];
  // The second is 0 if there is a table and it lies in the first window.
  if ((seen & 1 | (current - 1) >>> 38 - shift) !== 0) return -1;
  const home = ((current >>> 6 << shift - 2) & 0x3fffffff) +
    ((hash & (1 << current) - 1) << LINE_WORDS_SHIFT); // the low 5 bits shift: log2 of the lines
  let at = home;
  if (words[at] !== hash && words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash &&
    words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash) {
    // While the last entry is EMPTY, no key that is there was pushed past the line. Mostly it is the last to be filled.
    return words[home + LINE_WORDS - 1] === 0 && words[EPOCH_WORD] === seen ? 0 : -1;
  }
  const ref = words[at + 1];
  return (ref - LAST_RESERVED_REF - 1) >>> 0 < NEAR_REFS ? ref : -1;
}

// The record of a key of 1 to 8 bytes, zero-padded as in records, or 0.
function findShort(hash, low, high, length) {
  const ref = nearRef(hash);
  if (ref > 0) {
    const words = SEVERAL ? placedArena().words : A;
    const at = ref << 2;
    if ((words[at + REC_META] & 0xffff) === length && words[at + REC_KEY] === low &&
      words[at + REC_KEY + 1] === high) {
      if (SEVERAL || VIEW) return told(ref, hash) | 0;
      return (words[at + REC_EXPIRY_LOW] | words[at + REC_EXPIRY_HIGH]) === 0 ? ref : alive(ref) | 0;
    }
  } else if (ref === 0) return SEVERAL || VIEW ? told(0, hash) : 0;
  I[KEY_AT >> 2] = low;
  I[(KEY_AT >> 2) + 1] = high;
  return findFar(length, hash) | 0;
}

// The record of the key at KEY_AT (zero-padded to 4), or 0.
function findLong(length, hash) {
  const ref = nearRef(hash);
  if (ref > 0) {
    const words = SEVERAL ? placedArena().words : A;
    const at = ref << 2;
    if ((words[at + REC_META] & 0xffff) === length && sameWords(words, at + REC_KEY, (length + 3) >> 2)) {
      if (SEVERAL || VIEW) return told(ref, hash) | 0;
      return (words[at + REC_EXPIRY_LOW] | words[at + REC_EXPIRY_HIGH]) === 0 ? ref : alive(ref) | 0;
    }
  } else if (ref === 0) return SEVERAL || VIEW ? told(0, hash) : 0;
  return findFar(length, hash) | 0;
}

function sameWords(words, at, count) {
  for (let i = 0; i < count; i++) if (words[at + i] !== I[(KEY_AT >> 2) + i]) return false;
  return true;
}

// The same by the far way.
function findFar(length, hash) {
  const arena = placedArena();
  const words = arena.words;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    if (words[EPOCH_WORD] !== arena.epoch) openTables(arena);
    const seen = arena.epoch;
    if (arena.oldMask !== -1) {
      const ref = probe(arena.oldTable, arena.oldBase, arena.oldMask, hash, length);
      if (ref !== 0) return told(ref, hash);
    }
    const ref = arena.tableMask === -1 ? 0
      : probe(arena.table, arena.tableBase, arena.tableMask, hash, length);
    if (ref !== 0) return told(ref, hash);
    if (words[EPOCH_WORD] === seen) return told(0, hash);
  }
  return leaveUntold(arena);
}

// --- keys ---

var keyHash = 0; // of the key at KEY_AT

// Puts the bytes of any key at KEY_AT, zero-padded to 4, and their hash in keyHash; their number. If there
// are several arenas, I[PLACE] is the key's.
function loadKey(key) {
  if (typeof key === "string") {
    keyHash = native.key(key);
  } else if (typeof key === "number") {
    if (!NumberIsSafeInteger(key)) throw badKey(key);
    keyHash = native.key(`${key}`);
  } else if (isBytes(key)) {
    const length = native.copyIn(key, KEY_AT, KEY_BYTES_MAX);
    I[KEY_LENGTH] = length;
    if (length >= 0) {
      for (let i = 0; i < 4; i++) B[KEY_AT + length + i] = 0;
      keyHash = hashLong(length);
      if (SEVERAL) native.place(length, keyHash);
    }
  } else {
    throw badKey(key);
  }
  const length = I[KEY_LENGTH];
  if (length < 0) throw new RangeErrorConstructor("key is longer than 65535 bytes");
  return length;
}

function badKey(key) {
  const what = typeof key === "number" ? "the number " + key : nameOf(key);
  return new TypeErrorConstructor("a key is a string, a safe integer or bytes, not " + what);
}

// The string that stands for the key at KEY_AT in maps: one character for each byte.
function canonical(key, length) {
  if (typeof key === "string" && key.length === length) return key; // all ASCII
  if (typeof key === "number") return `${key}`;
  return binaryString(KEY_AT, length);
}

function binaryString(at, length) {
  let text = "";
  for (let i = 0; i < length; i++) text += StringFromCharCode(B[at + i]);
  return text;
}

// The four decimal digits of 0 <= n < 10000 as characters, the first in the low byte. The quotients by
// 10, 100 and 1000 are products, exact in this range, that don't wait for each other.
function fourDigits(n) {
  const tens = imul(n, 52429) >>> 19;
  const hundreds = imul(n, 5243) >>> 19;
  const thousands = imul(n, 8389) >>> 23;
  // A digit is its quotient less ten times the next; multiplied out, so that each quotient occurs once.
  return (0x30303030 + (n << 24) - imul(tens, (10 << 24) - (1 << 16)) -
    imul(hundreds, (10 << 16) - (1 << 8)) - imul(thousands, (10 << 8) - 1)) | 0;
}

// Numbers come again and again, in graphs for one. N keeps of the last one of each residue: n + 1, the
// hash of its digits, their two words; and what db.get found, with the moment at which it did.
const N = new Int32(numbersBuffer);
const NUMBERS_MASK = 4095;
const KEPT_WORDS_SHIFT = 3;
const K_HASH = 1;
const K_LOW = 2;
const K_HIGH = 3;
const K_MOMENT = 4; // 0: none
const K_VALUE = 5; // offset of the value in the first window / 8
const K_LENGTH = 6; // of the value; -1: there is no record
const MOMENT = NUMBERS_MASK + 1 << KEPT_WORDS_SHIFT; // the word of the moment that it is
const NUMBER_END = 100000000; // eight digits

// Nobody but this thread writes to an arena that isn't foreign, and not while functions run: between two
// commits, and within one batch, whose clock stands, what was found is found again.
const REMEMBERS = !SEVERAL && !foreign[0];

function beginMoment() {
  if (!REMEMBERS) return;
  N[MOMENT] = N[MOMENT] + 1 & 0x7fffffff;
  if (N[MOMENT] !== 0) return;
  for (let at = K_MOMENT; at < MOMENT; at += 1 << KEPT_WORDS_SHIFT) N[at] = 0;
  N[MOMENT] = 1;
}

// The record of the decimal string of 0 <= n < NUMBER_END, or 0.
function findNumber(n) {
  const length = n < 10000 ? n < 100 ? n < 10 ? 1 : 2 : n < 1000 ? 3 : 4
    : n < 1000000 ? n < 100000 ? 5 : 6 : n < 10000000 ? 7 : 8;
  const at = (n & NUMBERS_MASK) << KEPT_WORDS_SHIFT;
  if (N[at] !== n + 1) keepNumber(n, at, length);
  if (SEVERAL) I[PLACE] = placeOf(N[at + K_HASH]); // no tag is in digits
  return findShort(N[at + K_HASH], N[at + K_LOW], N[at + K_HIGH], length);
}

function keepNumber(n, at, length) {
  const top = (n / 10000) | 0;
  const last = fourDigits(n - imul(top, 10000));
  let low = last >>> ((4 - length) << 3);
  let high = 0;
  if (length > 4) {
    const shift = (8 - length) << 3; // of leading zeros
    low = (fourDigits(top) >>> shift) | last << 1 << (31 - shift);
    high = last >>> shift;
  }
  N[at] = n + 1;
  N[at + K_HASH] = hashShort(low, high, length);
  N[at + K_LOW] = low;
  N[at + K_HIGH] = high;
  N[at + K_MOMENT] = 0;
}

// Is `key` a number whose record is found by findNumber()?
function isShortNumber(key) {
  return (key | 0) === key && key >= 0 && key < NUMBER_END;
}

// The record of a string of 1 to 8 characters, or 0. Reading so few is cheaper than crossing into C++;
// of 16 only if the string is flat, which what was put together is not.
function findText(key, length) {
  let low = 0;
  let high = 0;
  let all = 0;
  for (let i = 0; i < length; i++) {
    const unit = StringCharCodeAt(key, i);
    all |= unit;
    if (i < 4) low |= unit << (i << 3);
    else high |= unit << (i << 3); // the shift counts modulo 32
  }
  if (all > 127) return findLong(loadKey(key), keyHash) | 0;
  if (SEVERAL && hasBrace(low, high)) return findLong(loadKey(key), keyHash) | 0;
  const hash = hashShort(low, high, length);
  if (SEVERAL) I[PLACE] = placeOf(hash);
  return findShort(hash, low, high, length);
}

// The record of any key in its arena, or 0.
function find(key) {
  if (typeof key === "number") {
    if (isShortNumber(key)) return findNumber(key | 0);
  } else if (typeof key === "string") {
    const length = key.length;
    if (length <= 8 && length > 0) return findText(key, length);
  }
  return findLong(loadKey(key), keyHash) | 0;
}
