// Db: the object `db` of user code. It returns Records (03_record.js) and gathers the write set.
//
//   db.get(key)           Record, or undefined
//   db.text(key)          value as a string, or undefined
//   db.json(key)          value parsed as JSON, or undefined
//   db.set(key, value)    clears an expiry
//   db.delete(key)        whether the key was there
//   db.exists(key)        boolean
//   db.incr(key, by = 1)  the new number; keeps the expiry
//   db.expire(key, ms)    ms from now; whether the key was there
//   db.ttl(key)           ms left; Infinity without expiry; undefined if the key is missing
//   db.scan(prefix, cursor = 0)   { cursor, keys }; the last page has the cursor 0
//   db.now()              Unix ms, the same for the whole call
//
// A key is a string (its UTF-8 bytes), a safe integer (its decimal string) or bytes. A value to
// write is a string, a number, a BigInt, bytes, or a Record.
//
// Invariants, beside that of 03_record.js:
// 1. A read looks into the call's own writes first, then into the transaction's overlay, then into
//    the key's arena.
// 2. The write set stays in the io memory until the call has ended; only then it is committed.
// 3. The write set has keys of the call's partition only, unless the function may write to all.
// 4. Getters and traps of a result call this code while the reply is being encoded. So this code
//    leaves the response of 05_encode.js alone. It runs no user code itself, so its bytes at
//    KEY_AT, TEXT_AT and SCAN_AT stay until it is done.

// --- the write set: a table of entries at WRITES_AT, then their bytes (src/io/write_set.rs) ---
const ENTRY_WORDS_SHIFT = 3;
const W_OP = 0;
const W_KEY = 1;
const W_KEY_LENGTH = 2;
const W_VALUE = 3; // io offset; of OP_EXPIRE: the place of W_REF's arena
const W_VALUE_LENGTH = 4;
const W_EXPIRY_LOW = 5;
const W_EXPIRY_HIGH = 6;
const W_REF = 7; // of OP_EXPIRE: the record whose expiry changes
const OP_PUT = 1;
const OP_DELETE = 2;
const OP_EXPIRE = 3;
const WRITE_BYTES_AT = WRITES_AT + WRITES_TABLE;

// Bits of I[PENDING].
const PENDING_WRITES = 1; // the write set isn't empty
const PENDING_OVERLAY = 2; // there is an overlay
const PENDING_CLEARED = 4; // the overlay hides the arena
const writes = new SafeMap(); // canonical key -> entry
const overlay = new SafeMap(); // canonical key -> reference in the call's arena, 0: deleted
var overlaid = false; // the overlay of the last call is still there
var writeCount = 0;
var writeEnd = WRITE_BYTES_AT;
var wanted = ""; // canonical key of the last ownWrite()
var wantedLength = 0; // number of its bytes at KEY_AT
var crossSlot = false; // the function may write to other partitions than the call's

// Loads a key. Returns the first word of its entry in the write set, or 0.
function ownWrite(key) {
  wantedLength = loadKey(key);
  wanted = canonical(key, wantedLength);
  if ((I[PENDING] & PENDING_WRITES) === 0) return 0;
  const entry = writes.get(wanted);
  return entry === undefined ? 0 : (WRITES_AT >> 2) + (entry << ENTRY_WORDS_SHIFT);
}

// The record of the loaded key in the overlay or the arena, or 0.
function stored() {
  if (I[PENDING] & PENDING_OVERLAY) {
    const ref = overlay.get(wanted);
    if (ref !== undefined) {
      if (SEVERAL) I[PLACE] = I[CALL_PLACE];
      return ref === 0 ? 0 : alive(ref);
    }
    if (I[PENDING] & PENDING_CLEARED) return 0;
  }
  return findLong(wantedLength, keyHash);
}

function ownRecord(entry) {
  switch (I[entry + W_OP]) {
    case OP_PUT:
      return new Record(I[STATE], -1, I[entry + W_VALUE] >>> 3, I[entry + W_VALUE_LENGTH]);
    case OP_EXPIRE:
      if (SEVERAL) I[PLACE] = I[entry + W_VALUE];
      return recordAt(I[entry + W_REF]);
    default:
      return undefined;
  }
}

function getPending(key) {
  return pendingRecord(ownWrite(key));
}

function pendingRecord(entry) {
  if (entry !== 0) return ownRecord(entry);
  const ref = stored();
  return ref === 0 ? undefined : recordAt(ref);
}

// The Record of 0 <= n < NUMBER_END. Only if REMEMBERS.
function getNumber(n) {
  const at = (n & NUMBERS_MASK) << KEPT_WORDS_SHIFT;
  if (N[at] !== n + 1 || N[at + K_MOMENT] !== N[MOMENT]) return getAndKeep(n, at);
  const length = N[at + K_LENGTH];
  return length < 0 ? undefined : new Record(I[STATE], 0, N[at + K_VALUE], length);
}

function getAndKeep(n, at) {
  const ref = findNumber(n);
  const start = ref << 2;
  if (ref === 0) {
    N[at + K_LENGTH] = -1;
  } else if (ref >>> 28 === 0 && (A[start + REC_META] >>> 24 & FLAG_RUN) === 0) {
    N[at + K_VALUE] = valueAt(ref, A[start + REC_META]);
    N[at + K_LENGTH] = A[start + REC_VALUE_LENGTH];
  } else {
    return recordAt(ref);
  }
  N[at + K_MOMENT] = N[MOMENT];
  return ref === 0 ? undefined : new Record(I[STATE], 0, N[at + K_VALUE], N[at + K_LENGTH]);
}

function get(key) {
  if (I[PENDING] !== 0) return getPending(key);
  if (REMEMBERS && typeof key === "number" && isShortNumber(key)) return getNumber(key | 0);
  const ref = find(key);
  return ref === 0 ? undefined : recordAt(ref);
}

function mayWrite(method) {
  if (!writable) {
    throw new ErrorConstructor(`db.${method}: a function with the flag no-writes cannot write`);
  }
}

// As ownWrite(), for a key that the call writes: it throws if the call may not write there.
function ownWriteBy(method, key) {
  const entry = ownWrite(key);
  if (SEVERAL && I[PLACE] !== I[CALL_PLACE] && !crossSlot) throw crossed(method);
  return entry;
}

function crossed(method) {
  const key = StringSlice(native.text(-1, KEY_AT >> 3, wantedLength), 0, 64);
  return new ErrorConstructor(
    `CROSSSLOT db.${method}: the key '${key}' is in another partition. A function's call runs at the partition ` +
    "of its first declared key and writes there: give its keys a common {tag}, or the function the flag " +
    "allow-cross-slot-keys");
}

function tooMuch(what, limit, setting) {
  return new RangeErrorConstructor(`the function wrote more than ${limit} ${what} (setting: ${setting})`);
}

function tooManyBytes() {
  return tooMuch("bytes", I[IN_WRITE_BYTES], "function-write-set-limit-bytes");
}

// Throws unless the write set has room for `bytes` more. Returns where they begin, 8-aligned.
function reserve(bytes) {
  const limit = I[IN_WRITE_BYTES];
  if (bytes > limit || writeEnd - WRITE_BYTES_AT > limit - bytes) {
    throw tooManyBytes();
  }
  return writeEnd;
}

// Copies a value behind the write set and returns its length. take() makes it part of the set.
function stageValue(value) {
  const limit = I[IN_WRITE_BYTES] - (writeEnd - WRITE_BYTES_AT);
  if (limit < 0) throw tooManyBytes(); // the last value's padding may lie beyond it
  let length;
  if (typeof value === "string") length = native.utf8(value, writeEnd, limit);
  else if (typeof value === "number" || typeof value === "bigint") {
    length = native.utf8(`${value}`, writeEnd, limit);
  } else if (typeof value === "object" && value !== null) {
    if (recordIs(value)) length = recordCopy(value, writeEnd, limit);
    else if (isBytes(value)) length = native.copyIn(value, writeEnd, limit);
  }
  if (length === undefined) {
    throw new TypeErrorConstructor("a value is a string, a number, a BigInt, bytes or a Record, not " +
      nameOf(value) + " (JSON.stringify makes a string of an object)");
  }
  // It may be refused, but its bytes are there.
  const end = writeEnd + (length < 0 ? limit : length);
  if (end > I[OUT_WRITE_HIGH]) I[OUT_WRITE_HIGH] = end;
  if (length < 0) throw tooManyBytes();
  return length;
}

function take(length) {
  const at = writeEnd;
  writeEnd = (writeEnd + length + 7) & ~7;
  return at;
}

// The first word of the loaded key's entry, which is made if there is none.
function ownEntry() {
  const known = writes.get(wanted);
  if (known !== undefined) return (WRITES_AT >> 2) + (known << ENTRY_WORDS_SHIFT);
  if (writeCount >= I[IN_WRITE_KEYS]) {
    throw tooMuch("keys", I[IN_WRITE_KEYS], "function-write-set-limit-keys");
  }
  reserve(wantedLength);
  native.copyWithin(-1, KEY_AT >> 3, wantedLength, writeEnd);
  const entry = (WRITES_AT >> 2) + (writeCount << ENTRY_WORDS_SHIFT);
  I[entry + W_KEY] = take(wantedLength);
  I[entry + W_KEY_LENGTH] = wantedLength;
  writes.set(wanted, writeCount);
  writeCount++;
  I[PENDING] |= PENDING_WRITES;
  return entry;
}

// Puts the value that stageValue() has copied under the loaded key. If there is no room for the
// key, the value is no part of the write set.
function put(length, expiryLow, expiryHigh) {
  const value = take(length);
  let entry;
  try {
    entry = ownEntry();
  } catch (thrown) {
    writeEnd = value;
    throw thrown;
  }
  I[entry + W_OP] = OP_PUT;
  I[entry + W_VALUE] = value;
  I[entry + W_VALUE_LENGTH] = length;
  I[entry + W_EXPIRY_LOW] = expiryLow;
  I[entry + W_EXPIRY_HIGH] = expiryHigh;
}

function set(key, value) {
  mayWrite("set");
  const length = stageValue(value); // first: it may be a Record of the key that is loaded next
  ownWriteBy("set", key);
  put(length, 0, 0);
}

function exists(key) {
  if (I[PENDING] === 0) return find(key) !== 0;
  return existsPending(key);
}

function existsPending(key) {
  return isThere(ownWrite(key));
}

function isThere(entry) {
  return entry !== 0 ? I[entry + W_OP] !== OP_DELETE : stored() !== 0;
}

function remove(key) {
  mayWrite("delete");
  if (!isThere(ownWriteBy("delete", key))) return false;
  I[ownEntry() + W_OP] = OP_DELETE;
  return true;
}

const WORD = 4294967296;

function setExpiry(key, ms) {
  mayWrite("expire");
  if (typeof ms !== "number" || !NumberIsFinite(ms) || ms > 9e15 || ms < -9e15) {
    throw new TypeErrorConstructor(
      "db.expire(key, ms): ms is a finite number, of at most 9e15 (db.set clears an expiry)");
  }
  const whole = floor(ms);
  const when = IF64[IN_NOW_F64] + whole;
  const entry = ownWriteBy("expire", key);
  const ref = entry === 0 ? stored() : I[entry + W_OP] === OP_EXPIRE ? I[entry + W_REF] : 0;
  if (entry === 0 ? ref === 0 : I[entry + W_OP] === OP_DELETE) return false;
  const own = ownEntry();
  if (whole <= 0) {
    I[own + W_OP] = OP_DELETE;
    return true;
  }
  if (entry === 0) {
    I[own + W_OP] = OP_EXPIRE;
    I[own + W_REF] = ref;
    I[own + W_VALUE] = I[PLACE];
  }
  I[own + W_EXPIRY_LOW] = (when % WORD) | 0;
  I[own + W_EXPIRY_HIGH] = floor(when / WORD) | 0;
  return true;
}

// Reads the key's expiry into two words; false if the key is missing.
var expiryLow = 0;
var expiryHigh = 0;
function readExpiry(key) {
  const entry = ownWrite(key);
  if (entry !== 0) {
    if (I[entry + W_OP] === OP_DELETE) return false;
    expiryLow = I[entry + W_EXPIRY_LOW];
    expiryHigh = I[entry + W_EXPIRY_HIGH];
    return true;
  }
  const ref = stored();
  if (ref === 0) return false;
  const words = wordsOf(ref);
  const at = (ref & 0xfffffff) << 2;
  expiryLow = words[at + REC_EXPIRY_LOW];
  expiryHigh = words[at + REC_EXPIRY_HIGH];
  return true;
}

function ttl(key) {
  if (!readExpiry(key)) return undefined;
  if ((expiryLow | expiryHigh) === 0) return Infinity;
  const left = (expiryHigh >>> 0) * WORD + (expiryLow >>> 0) - IF64[IN_NOW_F64];
  return left > 0 ? left : 0;
}

// A decimal integer as Redis reads it: no spaces, no plus, no leading zeros.
function integerOf(text) {
  const number = +text;
  if (!NumberIsSafeInteger(number) || `${number}` !== text) {
    throw new ErrorConstructor("ERR value is not an integer or out of range");
  }
  return number;
}

function incr(key, by) {
  mayWrite("incr");
  if (!NumberIsSafeInteger(by)) {
    throw new TypeErrorConstructor("db.incr(key, by): by is a safe integer");
  }
  const entry = ownWriteBy("incr", key);
  const record = pendingRecord(entry);
  const sum = by + (record === undefined ? 0 : integerOf(record.text()));
  if (!NumberIsSafeInteger(sum)) {
    throw new ErrorConstructor("ERR increment or decrement would overflow");
  }
  if (!readExpiry(key)) expiryLow = expiryHigh = 0;
  const length = stageValue(sum);
  put(length, expiryLow, expiryHigh);
  return sum;
}

// --- scan ---
const SCAN_COUNT = 100; // keys of a page, about

function keyOut(at, length) {
  for (let i = 0; i < length; i++) {
    if (B[at + i] > 127) return bytesOrText(at, length);
  }
  return native.text(-1, at >> 3, length);
}

function bytesOrText(at, length) {
  const text = native.text(-1, at >> 3, length);
  return native.utf8(text, KEY_AT, KEY_BYTES_MAX) === length && sameBytes(at, KEY_AT, length)
    ? text : bytesOf(-1, at >> 3, length);
}

function sameBytes(a, b, length) {
  for (let i = 0; i < length; i++) if (B[a + i] !== B[b + i]) return false;
  return true;
}

function append(list, value) {
  ObjectDefineProperty(list, list.length, {
    __proto__: null, value, writable: true, enumerable: true, configurable: true,
  });
}

function scan(prefix, cursor) {
  if (!NumberIsSafeInteger(cursor) || cursor < 0) {
    throw new TypeErrorConstructor("db.scan(prefix, cursor): cursor is 0 or what the last scan gave");
  }
  const length = loadKey(prefix);
  const start = canonical(prefix, length);
  native.copyWithin(-1, KEY_AT >> 3, length, TEXT_AT);
  const next = native.scan(TEXT_AT, length, cursor, SCAN_COUNT);
  if (next < 0) throw new ErrorConstructor("ERR scan found too much at once");
  const keys = [];
  let at = SCAN_AT + 8;
  const count = I[SCAN_AT >> 2];
  for (let i = 0; i < count; i++) {
    const bytes = I[at >> 2];
    if ((I[PENDING] & PENDING_WRITES) === 0 || !hidden(at + 8, bytes)) {
      append(keys, keyOut(at + 8, bytes));
    }
    at += 8 + ((bytes + 7) & ~7);
  }
  if (next === 0 && (I[PENDING] & PENDING_WRITES) !== 0) addOwnKeys(keys, start);
  return { cursor: next, keys };
}

// Whether the call has deleted or rewritten a found key. addOwnKeys() adds rewritten ones later.
function hidden(at, length) {
  return writes.has(binaryString(at, length));
}

function addOwnKeys(keys, start) {
  for (let i = 0; i < writeCount; i++) {
    const entry = (WRITES_AT >> 2) + (i << ENTRY_WORDS_SHIFT);
    if (I[entry + W_OP] === OP_DELETE) continue;
    const at = I[entry + W_KEY];
    const length = I[entry + W_KEY_LENGTH];
    if (StringStartsWith(binaryString(at, length), start)) append(keys, keyOut(at, length));
  }
}

class Db {
  get ["constructor"]() {
    return ObjectConstructor; // as in Record
  }
  #call;
  constructor(call) {
    this.#call = call;
  }
  get(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    return get(key);
  }
  text(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    const record = get(key);
    return record === undefined ? undefined : record.text();
  }
  json(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    const record = get(key);
    return record === undefined ? undefined : record.json();
  }
  set(key, value) {
    if (this.#call !== I[STATE]) throw stale("db");
    set(key, value);
  }
  delete(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    return remove(key);
  }
  exists(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    return exists(key);
  }
  incr(key, by = 1) {
    if (this.#call !== I[STATE]) throw stale("db");
    return incr(key, by);
  }
  expire(key, ms) {
    if (this.#call !== I[STATE]) throw stale("db");
    return setExpiry(key, ms);
  }
  ttl(key) {
    if (this.#call !== I[STATE]) throw stale("db");
    return ttl(key);
  }
  scan(prefix, cursor = 0) {
    if (this.#call !== I[STATE]) throw stale("db");
    return scan(prefix, cursor);
  }
  now() {
    if (this.#call !== I[STATE]) throw stale("db");
    return IF64[IN_NOW_F64];
  }
}
ObjectFreeze(Db.prototype);
