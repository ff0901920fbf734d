// Record: what user code gets of a record. It is a cursor over the value where that lies: in an
// arena, or in the io memory if the call itself has written it.
//
// Invariant: I[STATE] is the number of the running call, and 0 between calls. The db and the
// Records of any other call throw.

// The interruptible one, with which builtins/json.js replaces the native one.
const JSONParse = JSON.parse;

let writable = true;

function nameOf(value) {
  if (value === null) return "null";
  if (typeof value !== "object") return typeof value;
  if (ArrayIsArray(value)) return "an array";
  return "an object";
}

function isBytes(value) {
  if (typeof value !== "object" || value === null) return false;
  return ArrayBufferIsView(value) || isArrayBuffer(value);
}

function isArrayBuffer(value) {
  try {
    ArrayBufferGetByteLength(value);
    return true;
  } catch {
    return false;
  }
}

// A copy of a value as bytes. If the allocator has no room, V8 makes the array: it collects garbage
// first, as for a user's own arrays, and throws if that doesn't help.
function bytesOf(window, at, length) {
  const made = native.bytes(window, at, length);
  if (made !== undefined) return made;
  const late = new Uint8(length);
  native.copyOut(window, at, late);
  return late;
}

function stale(what) {
  return new ErrorConstructor(`this ${what} belongs to a call that has ended`);
}

function outside(index, count, kind) {
  if (typeof index !== "number") {
    return new TypeErrorConstructor(`the index of ${kind}(i) is a number, not ${nameOf(index)}`);
  }
  return new RangeErrorConstructor(`${kind}(${index}) is outside of a value with ${count} of them`);
}

// Users see instances of Record and its prototype, but never the class. The getter hides the class
// while it is made: to delete `constructor` later, V8 would walk over all contexts.
class Record {
  get ["constructor"]() {
    return ObjectConstructor;
  }
  #call;
  #window; // number of the window; 0: the first of the first arena; -1: the io memory
  #at; // offset in the window / 8
  #length;
  constructor(call, window, at, length) {
    this.#call = call;
    this.#window = window;
    this.#at = at;
    this.#length = length;
  }
  get byteLength() {
    if (this.#call !== I[STATE]) throw stale("record");
    return this.#length;
  }
  u8(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length) throw outside(index, this.#length, "u8");
    if (this.#window === 0) return A8[((this.#at << 3) + i) >>> 0];
    return windowOf(this.#window).u8[((this.#at << 3) + i) >>> 0];
  }
  u16(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length >> 1) throw outside(index, this.#length >> 1, "u16");
    if (this.#window === 0) return A16[((this.#at << 2) + i) >>> 0];
    return windowOf(this.#window).u16[((this.#at << 2) + i) >>> 0];
  }
  u32(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length >> 2) throw outside(index, this.#length >> 2, "u32");
    if (this.#window === 0) return A[(this.#at << 1) + i] >>> 0;
    return windowOf(this.#window).i32[(this.#at << 1) + i] >>> 0;
  }
  i32(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length >> 2) throw outside(index, this.#length >> 2, "i32");
    if (this.#window === 0) return A[(this.#at << 1) + i];
    return windowOf(this.#window).i32[(this.#at << 1) + i];
  }
  f32(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length >> 2) throw outside(index, this.#length >> 2, "f32");
    if (this.#window === 0) return AF32[(this.#at << 1) + i];
    return windowOf(this.#window).f32[(this.#at << 1) + i];
  }
  f64(index) {
    if (this.#call !== I[STATE]) throw stale("record");
    const i = index >>> 0;
    if (i !== index || i >= this.#length >> 3) throw outside(index, this.#length >> 3, "f64");
    if (this.#window === 0) return AF64[this.#at + i];
    return windowOf(this.#window).f64[this.#at + i];
  }
  text() {
    if (this.#call !== I[STATE]) throw stale("record");
    return native.text(this.#window, this.#at, this.#length);
  }
  json() {
    if (this.#call !== I[STATE]) throw stale("record");
    return JSONParse(native.text(this.#window, this.#at, this.#length));
  }
  bytes() {
    if (this.#call !== I[STATE]) throw stale("record");
    return bytesOf(this.#window, this.#at, this.#length);
  }
  static is(value) {
    return #call in value;
  }
  static size(record) {
    return record.#length;
  }
  // Copies the value to `out` in the io memory. Returns its length, or -1 if `room` is too small.
  static copy(record, out, room) {
    if (record.#call !== I[STATE]) throw stale("record");
    if (record.#length > room) return -1;
    native.copyWithin(record.#window, record.#at, record.#length, out);
    return record.#length;
  }
}
const recordIs = Record.is;
const recordCopy = Record.copy;
const recordLength = Record.size;
ObjectFreeze(Record.prototype);

// The place behind the key of record `ref`, as offset / 8 in its window: there is the value, or the
// slot of a run.
function valueAt(ref, meta) {
  return ((ref & 0xfffffff) << 1) + 4 + (((meta & 0xffff) + 7) >>> 3);
}

// A Record over the value of record `ref`, in the arena at I[PLACE].
function recordAt(ref) {
  const window = SEVERAL ? I[PLACE] + (ref >>> 28) : ref >>> 28;
  const words = window === 0 ? A : windowOf(window).i32;
  const at = (ref & 0xfffffff) << 2;
  const meta = words[at + REC_META];
  const value = valueAt(ref, meta);
  const length = words[at + REC_VALUE_LENGTH];
  if ((meta >>> 24 & FLAG_RUN) === 0) return new Record(I[STATE], window, value, length);
  const slot = words[value << 1];
  const shift = SEVERAL ? placedArena().slotShift : SLOT_SHIFT;
  const run = (slot << (shift - 3)) & 0x1fffffff;
  return new Record(I[STATE], window - (ref >>> 28) + (slot >>> 32 - shift), run, length);
}
