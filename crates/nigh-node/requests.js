'use strict';

// Requests of a client, packed as packed.rs says, and what comes of them.

const { fault, invalid, named, wellFormed } = require('./arguments.js');

const READS = 1; // flag: it changes nothing, so it may be sent again
const AS_BYTES = 2; // flag: its texts are wanted as Buffers
const FIRST_BYTES = 1024;
const WORD_MOST_BYTES = 512 * 1024 * 1024; // as servers have it
const WORDS_MOST = 1024 * 1024; // of a request, as above: the server ends the connection at more
const SHORT = 4096; // texts up to here get room for the longest UTF-8

// The server has refused a command: `message` is its reply, `code` the reply's first word.
class ReplyError extends Error {
  constructor(reply, command) {
    super(reply);
    this.code = reply.split(' ', 1)[0];
    this.command = command;
  }

  get name() {
    return 'ReplyError';
  }
}

// Whether what nigh.node tells of a request is an error: an object that is neither a list nor a Buffer.
// Its `constructor` is of the realm that loaded nigh.node, which needn't be this one (Jest, node:vm).
function isError(reply) {
  return typeof reply === 'object' && reply !== null && !Array.isArray(reply) && !ArrayBuffer.isView(reply);
}

function errorOf({ reply, code, message }, command) {
  return reply === undefined ? fault(Error, code, message) : new ReplyError(reply, command);
}

// A reply, with an Error in place of each element that is one.
function withErrors(reply) {
  if (!Array.isArray(reply)) return reply;
  for (let at = 0; at < reply.length; at++) {
    const item = reply[at];
    if (typeof item === 'object') reply[at] = isError(item) ? errorOf(item) : withErrors(item);
  }
  return reply;
}

// A word of a request: text, or bytes. `name` says what it is.
function word(name, given) {
  if (typeof given === 'string') return wellFormed(name, given);
  if (given instanceof Uint8Array) return given;
  if (typeof given === 'bigint' || Number.isFinite(given)) return String(given);
  const what = typeof given === 'number' ? `is ${given}` : `is of type ${named(given)}`;
  throw invalid(TypeError, `the ${name} ${what}: a string, a Buffer or a number is needed`);
}

// Arguments as ioredis takes them: a list among them stands for its items.
function wordsOf(name, args) {
  const [words, what] = [[name], `argument of ${name}`];
  for (const arg of args) {
    if (Array.isArray(arg)) for (const item of arg) words.push(word(what, item));
    else words.push(word(what, arg));
  }
  return words;
}

// Requests that are sent together, and those who wait for their replies.
class Packet {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES);
  #used = 0;
  #waiting = [];
  #end = null;

  // How many requests.
  get length() {
    return this.#waiting.length;
  }

  get size() {
    return this.#used;
  }

  get isClosed() {
    return this.#end !== null;
  }

  get bytes() {
    return this.#bytes.subarray(0, this.#used);
  }

  // Adds a request. Its bytes are copied. `settle` is called with what comes of it.
  add(flags, name, args, settle) {
    const words = wordsOf(name, args);
    if (words.length > WORDS_MOST) {
      const message = `${name} has ${words.length} words: ${WORDS_MOST} are the most; divide it`;
      throw fault(RangeError, 'NIGH_TOO_LARGE', message);
    }
    const before = this.#used;
    try {
      this.#room(5);
      this.#bytes[this.#used] = flags;
      this.#number(words.length, this.#used + 1);
      this.#used += 5;
      for (const each of words) this.#word(each, name);
    } catch (error) {
      this.#used = before;
      throw error;
    }
    this.#waiting.push(settle);
  }

  // No more requests come. `end` is called when all are settled.
  closes(end) {
    this.#end = end;
  }

  // Tells all that wait. In place of a list of replies there may be an error for all.
  settle(replies) {
    const all = isError(replies);
    this.#waiting.forEach((settle, number) => settle(all ? replies : replies[number]));
    this.#end?.();
  }

  #number(number, at) {
    this.#bytes.writeUInt32LE(number, at);
  }

  #room(more) {
    const wanted = this.#used + more;
    if (wanted <= this.#bytes.length) return;
    const bytes = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, wanted));
    this.#bytes.copy(bytes, 0, 0, this.#used);
    this.#bytes = bytes;
  }

  #word(given, name) {
    const isText = typeof given === 'string';
    const isShort = isText && given.length <= SHORT;
    const most = isShort ? 3 * given.length : isText ? Buffer.byteLength(given) : given.length;
    if (most > WORD_MOST_BYTES) {
      const message = `the argument of ${name} has ${most} bytes: ${WORD_MOST_BYTES} are the most`;
      throw fault(RangeError, 'NIGH_TOO_LARGE', message);
    }
    this.#room(4 + most);
    const at = this.#used + 4;
    let length = most;
    if (isText) length = this.#bytes.write(given, at);
    else this.#bytes.set(given, at);
    this.#number(length, this.#used);
    this.#used = at + length;
  }
}

module.exports = { READS, AS_BYTES, ReplyError, Packet, isError, errorOf, withErrors, word };
