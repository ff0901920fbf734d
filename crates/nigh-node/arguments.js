'use strict';

// What programs give, as nigh.node takes it: checked, with bytes for text.

const { resolve } = require('node:path');
const { fileURLToPath } = require('node:url');

const NOTHING = Buffer.alloc(0);
const WAIT_MOST_MS = 2 ** 31; // beyond any patience
const DATE_MOST_MS = 8.64e15; // the last Date there is
const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;
const OPEN = {
  memoryDir: 'string',
  capacityBytes: 'number',
  journalBytes: 'number',
  logFileBytes: 'number',
  threadsMost: 'number',
  snapshotHoldBytes: 'number',
  watchBytes: 'number',
  partitions: 'number',
  strong: 'boolean',
  shared: 'boolean',
  keepMemory: 'boolean',
};
const EXPIRY = { expiresInMs: 'number', expiresAt: 'any' };
const STRONG = { strong: 'boolean' };
const WRITE = { ...STRONG, ...EXPIRY };
const PLACE = { place: 'string' };
const CONNECT = {
  username: 'string',
  password: 'string',
  name: 'string',
  timeoutMs: 'number',
  waitMs: 'number',
  local: 'string',
  spinUs: 'number',
  readsUnsynced: 'boolean',
};
const SCAN = { match: 'any', type: 'any', count: 'any' };

function fault(Kind, code, message) {
  return Object.assign(new Kind(message), { code });
}

const invalid = (Kind, message) => fault(Kind, 'NIGH_INVALID', message);

function named(given) {
  return given === null ? 'null' : (given?.constructor?.name ?? typeof given);
}

const isWellFormed = String.prototype.isWellFormed
  ? (text) => text.isWellFormed()
  : (text) => !/\p{Surrogate}/u.test(text);

// Text that UTF-8 has. Else different texts would be the same bytes.
function wellFormed(name, text) {
  if (isWellFormed(text)) return text;
  throw invalid(TypeError, `the ${name} has half of a surrogate pair, which no UTF-8 has: give a Buffer`);
}

// Bytes: where they lie, of text in UTF-8. Shared memory is copied: others may change it.
function bytes(name, given) {
  if (typeof given === 'string') return Buffer.from(wellFormed(name, given));
  if (!(given instanceof Uint8Array)) {
    const wanted = 'a Buffer, a Uint8Array or a string is needed';
    throw invalid(TypeError, `the ${name} is of type ${named(given)}: ${wanted}`);
  }
  return given.buffer instanceof SharedArrayBuffer ? Buffer.from(given) : given;
}

const maybeBytes = (name, given) => (given == null ? null : bytes(name, given));
const prefixOf = (given) => (given === undefined ? NOTHING : bytes('prefix', given));

// A text or a Buffer is iterable too, but one key.
function keysOf(given) {
  const isOne = typeof given === 'string' || ArrayBuffer.isView(given);
  if (isOne || typeof given?.[Symbol.iterator] !== 'function') {
    throw invalid(TypeError, `keys are of type ${named(given)}: an array of keys is needed`);
  }
  return Array.from(given, (key) => bytes('key', key));
}

// Options of these kinds; one that isn't known would be ignored, so it is refused. One of the kind
// 'any' is checked by the caller.
function options(kinds, given) {
  if (given === undefined) return {};
  if (given === null || typeof given !== 'object') {
    throw invalid(TypeError, `options are of type ${named(given)}: an object is needed`);
  }
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(kinds, name)) {
      const known = Object.keys(kinds).join(', ');
      throw invalid(TypeError, `the option ${name} isn't known here; these are: ${known || 'none'}`);
    }
    if (value === undefined || kinds[name] === 'any') continue;
    if (typeof value !== kinds[name]) {
      throw invalid(TypeError, `the option ${name} is of type ${named(value)}, not ${kinds[name]}`);
    }
    if (typeof value === 'number' && name !== 'expiresInMs' && !(Number.isSafeInteger(value) && value >= 0)) {
      throw invalid(RangeError, `the option ${name} is ${value}: give an integer that isn't negative`);
    }
  }
  return given;
}

// When a key is gone, in Unix ms; undefined: never.
function expiry({ expiresInMs, expiresAt }) {
  if (expiresInMs === undefined && expiresAt === undefined) return undefined;
  if (expiresInMs !== undefined && expiresAt !== undefined) {
    throw invalid(TypeError, 'both expiresInMs and expiresAt are given: leave one out');
  }
  const name = expiresAt === undefined ? 'expiresInMs' : 'expiresAt';
  const given = expiresAt instanceof Date ? expiresAt.getTime() : (expiresAt ?? expiresInMs);
  if (typeof given !== 'number' || !(given >= 0)) {
    throw invalid(RangeError, `${name} is ${given}: give milliseconds that aren't negative`);
  }
  const at = Math.ceil(expiresAt === undefined ? Date.now() + given : given);
  return at <= DATE_MOST_MS ? at : undefined; // beyond all time
}

function integer(given) {
  if (typeof given !== 'bigint' && !Number.isSafeInteger(given)) {
    throw invalid(TypeError, `by is ${String(given)}: give a safe integer, or a BigInt`);
  }
  const by = BigInt(given);
  if (by < INT64_MIN || by > INT64_MAX) {
    throw invalid(RangeError, `by is ${by}, which 64 bits don't hold`);
  }
  return by;
}

// A sum as what was added: a number or a BigInt.
function sumAs(by, sum) {
  if (typeof by === 'bigint') return sum;
  const number = Number(sum);
  if (!Number.isSafeInteger(number)) {
    const message = `the sum ${sum} is made, and is no safe number: give \`by\` as a BigInt`;
    throw fault(RangeError, 'NIGH_UNSAFE_INTEGER', message);
  }
  return number;
}

function pathOf(given) {
  if (given instanceof URL) return fileURLToPath(given);
  // Resolved, it would be the current folder.
  if (given === '') throw invalid(TypeError, 'the path is empty: name a folder');
  if (typeof given === 'string') return resolve(given);
  throw invalid(TypeError, `the path is of type ${named(given)}: a string or a file URL is needed`);
}

// The folder of the option memoryDir, if it is given.
function memoryOf({ memoryDir }) {
  // Resolved, it would be the current folder.
  if (memoryDir === '') throw invalid(TypeError, 'the option memoryDir is empty: name a folder');
  return memoryDir === undefined ? undefined : resolve(memoryDir);
}

// How long a call waits at most, in whole milliseconds.
function within(given) {
  if (typeof given !== 'number' || !(given >= 0)) {
    throw invalid(RangeError, `mostMs is ${String(given)}: give milliseconds that aren't negative`);
  }
  return Math.min(Math.ceil(given), WAIT_MOST_MS);
}

const own = Symbol('nigh'); // who has it may construct

function guard(token, name) {
  if (token !== own) throw invalid(TypeError, `${name} isn't made by new: see index.d.ts`);
}

// How work in the pool ended.
function ended({ code, message, was, sum }) {
  if (code !== undefined) throw fault(Error, code, message);
  return was ?? sum;
}

// `using` and `await using`, where Node.js has them.
function dispose(Kind, close, closeAsync) {
  for (const [symbol, value] of [[Symbol.dispose, close], [Symbol.asyncDispose, closeAsync]]) {
    if (symbol) Object.defineProperty(Kind.prototype, symbol, { value, writable: true, configurable: true });
  }
}

module.exports = {
  DATE_MOST_MS, OPEN, EXPIRY, STRONG, WRITE, PLACE, CONNECT, SCAN, fault, invalid, named, wellFormed, bytes, maybeBytes, prefixOf, keysOf, options,
  expiry, integer, sumAs, pathOf, memoryOf, within, dispose, own, guard, ended,
};
