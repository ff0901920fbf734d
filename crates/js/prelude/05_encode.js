// Encodes a function's result as a RESP reply, into the response part of the io memory.
//
// Invariant: the encoder trusts nothing of the result, whose getters, proxies and prototypes may
// run user code at each access. So it reads a size once, and writes every byte below `outLimit`.

// --- response: for each call a head, then bytes padded to 8 (src/io/results.rs reads it) ---
const R_KIND = 0; // words
const R_LENGTH = 1;
const R_STACK = 2; // of KIND_ERROR: bytes of the stack, which follows the message
const R_UNTOLD = 2; // of KIND_UNSTABLE: the partitions that couldn't be told, in two words
const R_HEAD = 16; // bytes
const KIND_REPLY = 0;
const KIND_ERROR = 1;
const KIND_UNSTABLE = 2;
const ERROR_TEXT_MAX = 2048; // characters of a message
const STACK_TEXT_MAX = 4096;

// The one of builtins/keys.js, which refuses objects with millions of indices.
const ObjectKeys = Object.keys;

const functions = []; // by id; undefined where there is none
var outEnd = RESPONSE_AT; // where the next byte of the response goes
var outLimit = 0; // where this call's reply must end
var resp3 = false;
var callIndex = 0;

function tooLong() {
  return new RangeErrorConstructor(
    `the result is longer than ${I[IN_RESULT_BYTES]} bytes (setting: function-result-limit-bytes)`);
}

function room(bytes) {
  if (bytes > outLimit - outEnd) throw tooLong();
}

function crlf() {
  const at = outEnd;
  B[at] = 13;
  B[at + 1] = 10;
  outEnd = at + 2;
}

// Decimal digits of 0 <= n < 2^31.
function digits(n) {
  let count = 1;
  for (let rest = (n / 10) | 0; rest > 0; rest = (rest / 10) | 0) count++;
  for (let at = outEnd + count - 1; at >= outEnd; at--) {
    const tens = (n / 10) | 0;
    B[at] = 48 + (n - tens * 10);
    n = tens;
  }
  outEnd += count;
}

// Writes the type, n and CRLF.
function head(type, n) {
  room(16);
  B[outEnd++] = type;
  digits(n);
  crlf();
}

function line(type, text) {
  room(text.length + 3);
  B[outEnd++] = type;
  for (let i = 0; i < text.length; i++) B[outEnd++] = StringCharCodeAt(text, i);
  crlf();
}

function bulkString(text) {
  // The head is right at once if all is ASCII, as it mostly is. Else it is written again.
  const units = text.length;
  const start = outEnd;
  head(36, units);
  let length = native.utf8(text, outEnd, outLimit - outEnd - 2);
  if (length < 0) throw tooLong();
  if (length !== units) {
    const guessed = outEnd;
    outEnd = start;
    head(36, length);
    if (outEnd !== guessed) length = native.utf8(text, outEnd, outLimit - outEnd - 2);
    if (length < 0) throw tooLong();
  }
  outEnd += length;
  crlf();
}

function bulkAscii(text) {
  head(36, text.length);
  room(text.length + 2);
  for (let i = 0; i < text.length; i++) B[outEnd++] = StringCharCodeAt(text, i);
  crlf();
}

function bulkBytes(value, length, copy) {
  head(36, length);
  const copied = copy(value, outEnd, outLimit - outEnd - 2);
  if (copied !== length) throw copied < 0 ? tooLong() : changed();
  outEnd += length;
  crlf();
}

const copyIn = native.copyIn;

function encodeNull() {
  room(5);
  const at = outEnd;
  if (resp3) {
    B[at] = 95; // _
    outEnd = at + 1;
  } else {
    B[at] = 36; // $-1
    B[at + 1] = 45;
    B[at + 2] = 49;
    outEnd = at + 3;
  }
  crlf();
}

function encodeNumber(value) {
  if ((value | 0) === value) {
    room(16);
    B[outEnd++] = 58; // :
    if (value >= 0) digits(value);
    else {
      const text = `${value}`;
      for (let i = 0; i < text.length; i++) B[outEnd++] = StringCharCodeAt(text, i);
    }
    crlf();
  } else if (NumberIsSafeInteger(value)) line(58, `${value}`);
  else {
    const text = value === Infinity ? "inf" : value === -Infinity ? "-inf"
      : value !== value ? "nan" : `${value}`;
    if (resp3) line(44, text); // ,
    else bulkAscii(text);
  }
}

function encode(value, depth) {
  switch (typeof value) {
    case "undefined": return encodeNull();
    case "number": return encodeNumber(value);
    case "string": return bulkString(value);
    case "boolean":
      if (resp3) return line(35, value ? "t" : "f");
      return line(58, value ? "1" : "0");
    case "bigint":
      if (resp3) return line(40, `${value}`);
      return bulkAscii(`${value}`);
    case "object":
      if (value === null) return encodeNull();
      return encodeObject(value, depth);
    default:
      throw new TypeErrorConstructor(`a function's result cannot hold a ${typeof value}`);
  }
}

function encodeObject(value, depth) {
  if (recordIs(value)) return bulkBytes(value, recordLength(value), recordCopy);
  if (ArrayBufferIsView(value)) return bulkBytes(value, native.byteLength(value), copyIn);
  if (native.isPromise(value)) return encode(native.settle(value), depth);
  if (depth <= 0) {
    throw new RangeErrorConstructor(
      `the result is nested deeper than ${I[IN_RESULT_DEPTH]} (setting: function-result-depth)`);
  }
  if (ArrayIsArray(value)) {
    const count = value.length; // a Proxy can answer anything
    if (typeof count !== "number" || !(count >= 0) || floor(count) !== count) {
      throw new TypeErrorConstructor("the result holds an array whose length is no length");
    }
    if (count >= 0x7fffffff) throw tooLong();
    head(42, count);
    for (let i = 0; i < count; i++) encode(value[i], depth - 1);
    return;
  }
  const prototype = ObjectGetPrototypeOf(value);
  if (prototype === ObjectPrototype || prototype === null) return encodePlain(value, depth);
  const size = sizeOf(MapGetSize, value);
  if (size >= 0) return encodeMap(value, size, depth);
  const members = sizeOf(SetGetSize, value);
  if (members >= 0) return encodeSet(value, members, depth);
  if (isArrayBuffer(value)) return bulkBytes(value, ArrayBufferGetByteLength(value), copyIn);
  throw new TypeErrorConstructor(
    "a function's result holds null, booleans, numbers, BigInts, strings, bytes, Records, arrays, Maps, " +
    "Sets and plain objects, but no instance of another class");
}

function sizeOf(getter, value) {
  try {
    return getter(value);
  } catch {
    return -1;
  }
}

function mapHead(count) {
  if (resp3) head(37, count);
  else head(42, count * 2);
}

function encodePlain(value, depth) {
  const keys = ObjectKeys(value);
  const count = keys.length;
  mapHead(count);
  for (let i = 0; i < count; i++) {
    bulkString(keys[i]);
    encode(value[keys[i]], depth - 1);
  }
}

function changed() {
  return new TypeErrorConstructor("the result changed while it was being encoded");
}

function encodeMap(value, size, depth) {
  mapHead(size);
  let count = 0;
  MapForEach(value, (member, key) => {
    if (++count > size) throw changed();
    encode(key, depth - 1);
    encode(member, depth - 1);
  });
  if (count !== size) throw changed();
}

function encodeSet(value, size, depth) {
  head(resp3 ? 126 : 42, size);
  let count = 0;
  SetForEach(value, (member) => {
    if (++count > size) throw changed();
    encode(member, depth - 1);
  });
  if (count !== size) throw changed();
}
