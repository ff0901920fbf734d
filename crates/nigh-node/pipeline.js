'use strict';

// Requests that are gathered and sent together: `pipeline()` and `multi()`, as in ioredis.

const { own, guard, invalid } = require('./arguments.js');
const { install } = require('./commands.js');
const { READS, AS_BYTES, Packet, isError, errorOf, withErrors } = require('./requests.js');

// A reply whose texts came as Buffers.
function textOf(reply) {
  if (Array.isArray(reply)) return reply.map(textOf);
  return Buffer.isBuffer(reply) ? reply.toString() : reply;
}

class Pipeline {
  #packet = new Packet();
  #commands = [];
  #replies = [];
  #send;
  #isTransaction;

  static {
    install(Pipeline.prototype, (pipeline, flags, name, args) => pipeline.#add(flags, name, args));
  }

  // `send` sends a packet. `commands`: [['set', 'key', 'value'], …].
  constructor(token, send, isTransaction, commands = []) {
    guard(token, 'Pipeline');
    this.#send = send;
    this.#isTransaction = isTransaction;
    if (isTransaction) this.#push(0, 'MULTI', []);
    for (const [name, ...args] of commands) {
      if (typeof this[name] !== 'function') throw invalid(TypeError, `${String(name)} is no command here`);
      this[name](...args);
    }
  }

  // How many commands there are.
  get length() {
    return this.#commands.length;
  }

  // What came of each command, in order: [null, reply], or [error].
  async exec() {
    if (this.#send === null) throw invalid(Error, 'this pipeline has been executed: begin another');
    const [send, replies] = [this.#send, this.#replies];
    this.#send = null;
    const flags = this.#commands.some((it) => it.asBytes) ? AS_BYTES : 0;
    if (this.#isTransaction) this.#push(flags, 'EXEC', []);
    if (this.#packet.length === 0) return [];
    await send(this.#packet);
    return this.#isTransaction ? this.#transaction(replies) : this.#told(replies);
  }

  #add(flags, name, args) {
    if (this.#send === null) throw invalid(Error, 'this pipeline has been executed: begin another');
    // A transaction is one: none of its reads is sent again alone.
    this.#push(this.#isTransaction ? flags & ~READS : flags, name, args);
    const asBytes = (flags & AS_BYTES) !== 0;
    this.#commands.push({ asBytes, command: { name: name.toLowerCase(), args } });
    return this;
  }

  #push(flags, name, args) {
    this.#packet.add(flags, name, args, (reply) => this.#replies.push(reply));
  }

  #told(replies, make = (reply) => reply) {
    return replies.map((reply, number) => {
      const { asBytes, command } = this.#commands[number];
      if (isError(reply)) return [errorOf(reply, command)];
      return [null, withErrors(asBytes ? reply : make(reply))];
    });
  }

  // What came of a transaction: null if it didn't happen since a key had changed.
  #transaction(replies) {
    const end = replies.at(-1);
    if (!isError(end)) return end === null ? null : this.#told(end, textOf);
    const error = errorOf(end, { name: 'exec', args: [] });
    const before = replies.slice(1, -1);
    const faulty = before.map((it, number) => isError(it) && errorOf(it, this.#commands[number].command));
    error.previousErrors = faulty.filter(Boolean);
    throw error;
  }
}

// `pipeline()` of a client.
const pipeline = (send, isTransaction, commands) => new Pipeline(own, send, isTransaction, commands);

module.exports = { Pipeline, pipeline };
