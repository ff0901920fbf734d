// Finds the reference of a key's record in the index (docs/formats/arena.md).
//
//   key ── hash, place ──> near way ── found, or surely missing ──> reference or 0
//                             └── can't tell ──> far way ─────────────────┘
//
// Both ways have one result. The near way looks into the key's home line, in the first window,
// while the index doesn't grow. The far way decides all other cases: it knows both tables, all
// lines and all windows.
//
// With several arenas, loading a key sets I[PLACE] to the key's arena. The reference that a find
// returns belongs to that arena, so it is used before the next key is loaded.
//
// Invariants, while writers work on other threads:
// 1. A find loads a tag before the tag's reference, and always compares the key in the record. So a
//    torn pair of tag and reference either mismatches or leads to the new record.
// 2. A miss counts only if the epoch after it is the epoch before it. A hit needs no such check.
// 3. Of a foreign arena, a find returns the version at the call's moment. If it can't tell that
//    version, the attempt is over, whatever the function catches.
// 4. A record that a call has found stays: the runtime's thread holds a pin while the call runs.

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
    // The old table's word has a meaning only while the epoch is odd.
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

// Whether the line has an EMPTY entry: then the next lines have no key that belongs here. Only a
// miss asks this.
function hasEmpty(words, start) {
  for (let at = start + 1; at < start + LINE_WORDS; at += 2) if (words[at] === 0) return true;
  return false;
}

// The words of the window that has record `ref` of the arena at I[PLACE].
function wordsOf(ref) {
  const window = SEVERAL ? I[PLACE] + (ref >>> 28) : ref >>> 28;
  return window === 0 ? A : windowOf(window).i32;
}

// Whether record `ref` has the key at KEY_AT.
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

// Whether a record with this expiry has ended: as in Redis, once the time is past it.
function expired(low, high) {
  if ((low | high) === 0) return false;
  return high >>> 0 < nowHigh >>> 0 || (high === nowHigh && low >>> 0 < nowLow >>> 0);
}

// `ref`, or 0 if the record has expired.
function alive(ref) {
  const words = wordsOf(ref);
  const at = (ref & 0xfffffff) << 2;
  const low = words[at + REC_EXPIRY_LOW];
  const high = words[at + REC_EXPIRY_HIGH];
  if ((low | high) !== 0 && expired(low, high)) return 0;
  return ref;
}

// --- the moment at which a call reads a foreign arena (docs/formats/arena.md) ---
const VIEW = !SEVERAL && foreign[0]; // several arenas: `foreign` of each says it
const LOOKS_MAX = 10000; // looks during one commit, which takes some microseconds
const VERSIONS_MAX = 256; // versions of a key
var untold = false; // a find of this attempt couldn't tell
var untoldLow = 0; // partitions with such a find, a bit for each
var untoldHigh = 0;

// A word of 64 bits that only rises; Infinity if it rises during the look. The models of
// tests/js/moment_model.rs run this text, and wrong ones in its place.
function wordAt(words, at) {
  const high = words[at + 1];
  const low = words[at];
  return words[at + 1] === high ? high * 4294967296 + (low >>> 0) : Infinity;
}

// Chooses the call's moment: a committed LSN all of whose changes this thread sees.
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

// Notes that this attempt can't tell something of an arena. Either too much has changed since the
// moment, or a key's time is over by this batch's clock and not yet by the owner's.
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

// Whether the arena's owner has stored its time and stands still until the batch is over.
function standsStill(arena) {
  const partition = arena.place >> WINDOWS_SHIFT;
  return (I[partition < 32 ? IN_STILL_LOW : IN_STILL_HIGH] >>> (partition & 31) & 1) !== 0;
}

// The version that was current at the moment, for record `ref` of the arena at I[PLACE]; or 0.
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
      // The key's time is over by the batch's clock alone. A client that knows this clock must not
      // see the key any more, so its owner has to say.
      return expired(low, high) && !standsStill(arena) ? leaveUntold(arena) : ref;
    }
    ref = words[at + REC_PREV];
    if (ref === 0) return absentThen(arena, hash);
  }
  return leaveUntold(arena);
}

// 0 for a key that is missing now, if it was missing at the moment too.
function absentThen(arena, hash) {
  const words = arena.words;
  const at = STAMPS_WORD + ((hash & STAMPS_MASK) << 1);
  if (wordAt(words, at) > arena.lsn || wordAt(words, CLEAR_STAMP_WORD) > arena.lsn) leaveUntold(arena);
  return 0;
}

// Turns a reference (or 0) from the index into what the call sees at its moment.
function told(ref, hash) {
  if (SEVERAL ? placedArena().foreign : VIEW) return ref === 0 ? absentThen(placedArena(), hash) : then(ref, hash);
  return ref === 0 ? 0 : alive(ref);
}

// The first window of the arena at I[PLACE]; notes that the call reads this arena.
function enterWords() {
  const arena = placedArena();
  if (arena.reader !== I[STATE]) beginReading(arena);
  return arena.words;
}

// The near way. The reference of the first entry with this tag in the home line; 0 if surely no
// record has the tag; -1 if only the far way can tell.
function nearRef(hash) {
  const words = SEVERAL ? enterWords() : A;
  const shift = SEVERAL ? placedArena().slotShift : SLOT_SHIFT;
  const seen = words[EPOCH_WORD];
  const current = words[CURRENT_WORD];
  // The second operand is 0 if there is a table and it lies in the first window.
  if ((seen & 1 | (current - 1) >>> 38 - shift) !== 0) return -1;
  const home = ((current >>> 6 << shift - 2) & 0x3fffffff) +
    ((hash & (1 << current) - 1) << LINE_WORDS_SHIFT); // the low 5 bits shift: log2 of the lines
  let at = home;
  if (words[at] !== hash && words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash &&
    words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash && words[at += 2] !== hash) {
    // If the last entry is EMPTY, no key of this line is in a later one. Writers mostly fill it
    // last.
    return words[home + LINE_WORDS - 1] === 0 && words[EPOCH_WORD] === seen ? 0 : -1;
  }
  const ref = words[at + 1];
  return (ref - LAST_RESERVED_REF - 1) >>> 0 < NEAR_REFS ? ref : -1;
}

// The record of a key of 1 to 8 bytes, or 0. The two words are zero-padded, as in records.
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

// The far way: the record of the key at KEY_AT, or 0.
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

var keyHash = 0; // hash of the key at KEY_AT

// Puts the bytes of any key at KEY_AT, zero-padded to 4, and their hash into keyHash. Returns the
// number of bytes. With several arenas, I[PLACE] becomes the key's place.
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

// The string for the key at KEY_AT in maps: one character for each byte.
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

// The four decimal digits of 0 <= n < 10000 as characters, the first in the low byte. Products
// stand for the quotients by 10, 100 and 1000: exact in this range, and independent of each other.
function fourDigits(n) {
  const tens = imul(n, 52429) >>> 19;
  const hundreds = imul(n, 5243) >>> 19;
  const thousands = imul(n, 8389) >>> 23;
  // A digit is its quotient less ten times the next one. Multiplied out, each quotient occurs once.
  return (0x30303030 + (n << 24) - imul(tens, (10 << 24) - (1 << 16)) -
    imul(hundreds, (10 << 16) - (1 << 8)) - imul(thousands, (10 << 8) - 1)) | 0;
}

// Functions use the same numbers as keys again and again, for example in graphs. N keeps the last
// number of each residue: n + 1, the hash of its digits, the digits in two words, and the record
// that db.get found, with the moment of that find.
const N = new Int32(numbersBuffer);
const NUMBERS_MASK = 4095;
const KEPT_WORDS_SHIFT = 3;
const K_HASH = 1;
const K_LOW = 2;
const K_HIGH = 3;
const K_MOMENT = 4; // 0: nothing was found
const K_VALUE = 5; // offset of the value in the first window / 8
const K_LENGTH = 6; // length of the value; -1: there is no record
const MOMENT = NUMBERS_MASK + 1 << KEPT_WORDS_SHIFT; // word of the current moment
const NUMBER_END = 100000000; // eight digits

// Only this thread writes to an arena that isn't foreign, and never while a function runs. Within
// one batch the clock stands. So between two commits of one batch, a find of the same key has the
// same result.
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

// Whether findNumber() takes this key.
function isShortNumber(key) {
  return (key | 0) === key && key >= 0 && key < NUMBER_END;
}

// The record of a string of 1 to 8 characters, or 0. To read so few is cheaper than to cross into
// C++. For 16 that holds only if the string is flat, and a concatenated one is not.
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
