'use strict';

// The commands that a client and a pipeline have as methods, named as in ioredis.

const { invalid } = require('./arguments.js');
const { READS, AS_BYTES } = require('./requests.js');

// They change nothing: one whose reply was lost is sent again.
const READ = `get mget strlen getrange exists ttl pttl type keys scan randomkey dbsize ping echo time
  info fcall_ro`.split(/\s+/);
const WRITE = `set setnx setex psetex getset getdel getex mset msetnx append setrange incr decr incrby
  decrby incrbyfloat del unlink rename renamenx copy expire pexpire expireat pexpireat persist
  flushall fcall function config client wait waitaof`.split(/\s+/);
// Those that answer values, which may be wanted as Buffers: `getBuffer`.
const VALUES = 'get mget getrange keys scan randomkey set getset getdel getex fcall fcall_ro'.split(' ');
const PAIRS = ['mset', 'msetnx']; // an object or a Map may stand for keys and values

// They change the connection, which a client has anew from time to time.
const REFUSED = {
  MULTI: 'use multi()',
  EXEC: 'use multi()',
  DISCARD: 'use multi()',
  WATCH: 'use watch()',
  UNWATCH: 'use watch()',
  HELLO: 'it speaks RESP2',
  AUTH: 'give the options username and password',
  RESET: 'connect again',
  QUIT: 'use quit()',
  'CLIENT REPLY': 'each call has a reply',
  'LOCAL ATTACH': 'it attaches by itself',
  MONITOR: 'Nigh has none',
  SUBSCRIBE: 'Nigh has none',
  PSUBSCRIBE: 'Nigh has none',
  SSUBSCRIBE: 'Nigh has none',
};

const flagsOf = (command) => (READ.includes(command.toLowerCase()) ? READS : 0);

// The name of a command, in capitals, if a client can send it.
function commandName(given, args) {
  if (typeof given !== 'string' || given === '') {
    throw invalid(TypeError, 'the name of a command is no text: call("GET", "key")');
  }
  const name = given.toUpperCase();
  const [word] = args.flat();
  // A plain Uint8Array as a text is a list of numbers.
  const second = word instanceof Uint8Array ? Buffer.from(word).toString() : String(word);
  const both = `${name} ${second.toUpperCase()}`;
  const refused = [name, both].find((it) => Object.hasOwn(REFUSED, it));
  if (refused === undefined) return name;
  throw invalid(Error, `${refused} changes the connection, which is the client's own: ${REFUSED[refused]}`);
}

function pairsOf(args) {
  const [pairs] = args;
  if (args.length !== 1 || pairs === null || typeof pairs !== 'object' || Array.isArray(pairs)) return args;
  return [...(pairs instanceof Map ? pairs : Object.entries(pairs))].flat();
}

// Gives an object the methods of all commands. Each calls `run` with it, flags, name and arguments.
function install(prototype, run) {
  const define = (name, value) => {
    Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  };
  for (const name of [...READ, ...WRITE]) {
    const command = name.toUpperCase();
    const flags = flagsOf(name);
    if (PAIRS.includes(name)) {
      define(name, function pairs(...args) { return run(this, flags, command, pairsOf(args)); });
    } else if (name === 'client') {
      define(name, function client(...args) { return run(this, flags, commandName(command, args), args); });
    } else {
      define(name, function request(...args) { return run(this, flags, command, args); });
    }
    if (VALUES.includes(name)) {
      define(`${name}Buffer`, function request(...args) { return run(this, flags | AS_BYTES, command, args); });
    }
  }
  define('call', function call(name, ...args) {
    const command = commandName(name, args);
    return run(this, flagsOf(command), command, args);
  });
  define('callBuffer', function call(name, ...args) {
    const command = commandName(name, args);
    return run(this, flagsOf(command) | AS_BYTES, command, args);
  });
}

module.exports = { install };
