'use strict';

// What a client reads from its server's memory, by itself. Keys and values go by way of a scratch,
// which scratch.rs describes. A read says UNSURE where the server is to be asked.

const { fault } = require('./arguments.js');
const { word, READS, AS_BYTES } = require('./requests.js');

const SCRATCH_BYTES = 1 << 20; // of keys, and of values; what is longer takes another call
const KEY_MOST_BYTES = 65_535;
const SHORT = 32; // texts up to here are copied by a loop: that is faster than a call
const UNSURE = Symbol('unsure');
const NONE = -1;

const keys = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
const values = Buffer.allocUnsafeSlow(SCRATCH_BYTES);

// Puts a key into the scratch; returns its length.
function putKey(given, at = 0) {
  if (typeof given === 'string' && given.length <= SHORT) {
    const { length } = given;
    let done = 0;
    for (; done < length; done++) {
      const code = given.charCodeAt(done);
      if (code > 127) break;
      keys[at + done] = code;
    }
    if (done === length) return length;
  }
  const key = word('key', given);
  const length = typeof key === 'string' ? Buffer.byteLength(key) : key.length;
  if (length > KEY_MOST_BYTES) {
    const message = `a key of ${length} bytes: ${KEY_MOST_BYTES} are the most; shorten it`;
    throw fault(RangeError, 'NIGH_TOO_LARGE', message);
  }
  if (typeof key === 'string') keys.write(key, at);
  else keys.set(key, at);
  return length;
}

// Puts several, packed; returns their length, or -1 if they find no room.
function putKeys(list) {
  let used = 0;
  for (const key of list) {
    if (used + 4 + KEY_MOST_BYTES > SCRATCH_BYTES) return -1;
    const length = putKey(key, used + 4);
    keys.writeUInt32LE(length, used);
    used += 4 + length;
  }
  return used;
}

// Where the value lies that nigh.node has read.
const place = (native, length) => (length <= SCRATCH_BYTES ? values : native.long());

function text(native, length) {
  return length <= SCRATCH_BYTES ? values.utf8Slice(0, length) : native.long().toString();
}

function copy(native, length) {
  if (length > SCRATCH_BYTES) return native.long();
  const value = Buffer.allocUnsafe(length);
  values.copy(value, 0, 0, length);
  return value;
}

// The length alone of a value that nigh.node has read: it keeps a long one until somebody takes it.
function lengthOf(native, length) {
  if (length > SCRATCH_BYTES) native.forget();
  return length;
}

// A reader of one value: `make` makes the answer of it.
function one(make) {
  return (native, [key, ...more]) => {
    if (key === undefined || more.length > 0) return UNSURE; // the server says what is wrong
    const length = native.get(putKey(key));
    if (length >= 0) return make(native, length);
    return length === NONE ? null : UNSURE;
  };
}

// A reader of several values.
function several(make) {
  return (native, args) => {
    const list = args.flat();
    const packed = list.length === 0 ? -1 : putKeys(list);
    const length = packed < 0 ? -1 : native.multiGet(packed);
    if (length < 0) return UNSURE;
    const found = place(native, length);
    const answer = new Array(list.length);
    let at = 0;
    for (let number = 0; number < list.length; number++) {
      const bytes = found.readInt32LE(at);
      at += 4;
      answer[number] = bytes === NONE ? null : make(found, at, at + bytes);
      if (bytes !== NONE) at += bytes;
    }
    return answer;
  };
}

// How many of the keys are there. It looks at one after the other: only a view has them at one moment.
function existsInView(native, args) {
  let count = 0;
  const list = args.flat();
  for (const key of list) {
    const is = native.exists(putKey(key));
    if (is < 0) return UNSURE;
    count += is;
  }
  return list.length === 0 ? UNSURE : count;
}

// The server knows several keys at one moment.
const exists = (native, args) => (args.flat().length > 1 ? UNSURE : existsInView(native, args));

function life(native, args, unitMs) {
  if (args.length !== 1) return UNSURE;
  const ms = native.ttl(putKey(args[0]));
  if (ms < -2) return UNSURE;
  return ms < 0 ? ms : Math.floor((ms + unitMs / 2) / unitMs);
}

function range(native, args, asBytes) {
  const [key, start, end] = args;
  if (args.length !== 3 || !Number.isSafeInteger(start) || !Number.isSafeInteger(end)) return UNSURE;
  const length = native.get(putKey(key));
  if (length < NONE) return UNSURE;
  const within = (at) => (at < 0 ? Math.max(0, length + at) : at);
  const [from, to] = [within(start), Math.min(length, within(end) + 1)];
  const isTurned = start < 0 && end < 0 && start > end;
  if (length <= 0 || from >= to || isTurned) {
    lengthOf(native, length);
    return asBytes ? Buffer.alloc(0) : '';
  }
  const found = place(native, length);
  return asBytes ? Buffer.from(found.subarray(from, to)) : found.utf8Slice(from, to);
}

const strlen = one(lengthOf);
const piece = (found, from, to) => Buffer.from(found.subarray(from, to));

// The reads: name of a method -> its command, flags, and how memory answers it.
const READERS = {
  get: ['GET', READS, one(text)],
  getBuffer: ['GET', READS | AS_BYTES, one(copy)],
  mget: ['MGET', READS, several((found, from, to) => found.utf8Slice(from, to))],
  mgetBuffer: ['MGET', READS | AS_BYTES, several(piece)],
  exists: ['EXISTS', READS, exists],
  strlen: ['STRLEN', READS, (native, args) => strlen(native, args) ?? 0],
  getrange: ['GETRANGE', READS, (native, args) => range(native, args, false)],
  getrangeBuffer: ['GETRANGE', READS | AS_BYTES, (native, args) => range(native, args, true)],
  ttl: ['TTL', READS, (native, args) => life(native, args, 1000)],
  pttl: ['PTTL', READS, (native, args) => life(native, args, 1)],
};

module.exports = { READERS, UNSURE, existsInView, keys, values };
