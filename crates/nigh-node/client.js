'use strict';

// The client of a server, as ioredis has its calls. client.d.ts describes it.
//
// ```
// a read ── nothing is pending? ── memory.js: answered at once
//              └── pending, or unsure ──┐
// any other ── packet (requests.js) ────┴── one packet at a time in libuv's pool ──> server
// ```
//
// 1. Calls happen in their order: a read of memory doesn't overtake a call that is pending. Its `Sync`
//    form does.
// 2. What is called while a packet is under way goes with the next one. A pipeline or a transaction is
//    a packet of its own.
// 3. What `watch` has told the server is known by it as long as the client stays attached. When it has
//    attached anew, the next transaction doesn't happen (shared_client.rs).

const { Readable } = require('node:stream');
const { CONNECT, SCAN, fault, invalid, options, wellFormed, named, dispose, own, guard, ended } =
  require('./arguments.js');
const { install } = require('./commands.js');
const { READERS, UNSURE, existsInView, keys, values } = require('./memory.js');
const { pipeline } = require('./pipeline.js');
const { Packet, isError, errorOf, withErrors, word } = require('./requests.js');
const native = require('./nigh.node');

const PACKET_BYTES = 1 << 20; // a packet that has as many takes no more requests
const PACKET_REQUESTS = 4096; // as above: all its replies are in memory at once
const QUEUE_MOST_BYTES = 2 ** 30; // may wait to be sent

let connect;

// What says that a client doesn't go to another worker: structuredClone names it in its error.
function aClientBelongsToItsThread_connectAnotherInTheWorker() {}

// The reads of a client's memory, as memory.js calls them.
function memoryOf(client) {
  const { number } = client;
  return {
    get: (bytes) => native.clientGet(number, bytes),
    multiGet: (bytes) => native.clientMultiGet(number, bytes),
    exists: (bytes) => native.clientExists(number, bytes),
    ttl: (bytes) => native.clientTtl(number, bytes),
    long: () => client.long(),
    forget: () => client.forget(),
  };
}

class Client {
  #native;
  #memory; // reads that nigh.node does by the client's number
  #address;
  #queue = []; // packets that are not sent yet
  #queuedBytes = 0;
  #pending = 0; // requests that have no reply yet
  #isClosed = false;
  #isRunning = true;
  #running; // what ends when nothing is under way
  #attached;

  static {
    const define = (name, value) => {
      Object.defineProperty(Client.prototype, name, { value, writable: true, configurable: true });
    };
    install(Client.prototype, (client, flags, name, args) => client.#call(flags, name, args));
    for (const [name, [command, flags, read]] of Object.entries(READERS)) {
      define(name, function reads(...args) {
        if (this.#pending === 0 && !this.#isClosed) {
          try {
            const found = read(this.#memory, args);
            if (found !== UNSURE) return Promise.resolve(found);
          } catch (error) {
            return Promise.reject(error);
          }
        }
        return this.#call(flags, command, args);
      });
      define(`${name}Sync`, function reads(...args) {
        this.#refuseIfClosed();
        const found = read(this.#memory, args);
        return found === UNSURE ? this.#callNow(flags, command, args) : found;
      });
    }
    connect = async (address, given) => {
      const client = new Client(address, given);
      const { code, message } = await client.#attached;
      if (code === undefined) return client;
      client.disconnect();
      throw fault(Error, code, message);
    };
  }

  constructor(address, given) {
    if (typeof address !== 'string') {
      const wanted = "a text is needed, such as 'unix:/run/nigh/nigh.sock' or 'localhost:6379'";
      throw invalid(TypeError, `the address is of type ${named(address)}: ${wanted}`);
    }
    const checked = options(CONNECT, given);
    for (const name of ['username', 'password', 'name', 'local']) {
      if (checked[name] !== undefined) wellFormed(`option ${name}`, checked[name]);
    }
    if (checked.timeoutMs === 0) {
      const wanted = 'give at least 1, or leave it out for 10,000';
      throw invalid(RangeError, `the option timeoutMs is 0, and no reply comes in no time: ${wanted}`);
    }
    this.#native = new native.Client(wellFormed('address', address), checked, keys, values);
    this.#memory = memoryOf(this.#native);
    this.#address = this.#native.address;
    this.#attached = this.#native.attachLater();
    this.#running = this.#attached.then(() => this.#run());
    const value = aClientBelongsToItsThread_connectAnotherInTheWorker;
    Object.defineProperty(this, 'thread', { value, enumerable: true });
  }

  get address() {
    return this.#address;
  }

  get closed() {
    return this.#isClosed;
  }

  get isLocal() {
    return !this.#isClosed && this.#native.isLocal;
  }

  get whyNotLocal() {
    return this.#isClosed ? 'the client is closed' : this.#native.whyNotLocal;
  }

  pipeline(commands) {
    return pipeline((packet) => this.#send(packet), false, commands);
  }

  multi(commands) {
    return pipeline((packet) => this.#send(packet), true, commands);
  }

  watch(...keys) {
    return this.#call(0, 'WATCH', keys);
  }

  unwatch() {
    return this.#call(0, 'UNWATCH', []);
  }

  view(read) {
    this.#refuseIfClosed();
    if (typeof read !== 'function') {
      throw invalid(TypeError, `view takes a function that reads, not ${named(read)}`);
    }
    const attempt = this.#native.beginView();
    for (;;) {
      const place = { attempt };
      let result;
      let error;
      try {
        result = read(new View(own, place));
      } catch (thrown) {
        error = thrown ?? new Error(`the function of a view threw ${thrown}`);
      } finally {
        place.attempt = null;
      }
      if (error !== undefined && error.code !== 'NIGH_TOO_NEW') throw error;
      if (typeof result?.then === 'function') {
        throw invalid(TypeError, 'the function of a view returned a Promise: it reads without awaiting');
      }
      if (this.#native.endView(attempt, error === undefined)) return result;
    }
  }

  scanStream(given) {
    return this.#scan('scan', given);
  }

  scanBufferStream(given) {
    return this.#scan('scanBuffer', given);
  }

  async quit() {
    this.#isClosed = true;
    await this.#running;
    ended(await this.#native.closeLater());
    return 'OK';
  }

  disconnect() {
    this.#isClosed = true;
    this.#native.stop();
    const queue = this.#queue;
    this.#queue = [];
    for (const packet of queue) this.#settle(packet, this.#closedError);
    this.#running.then(() => this.#native.closeLater());
  }

  get #closedError() {
    return { code: 'NIGH_CLOSED', message: `${this.#address}: the client is closed: connect again` };
  }

  #refuseIfClosed() {
    if (this.#isClosed) throw errorOf(this.#closedError);
  }

  #refuseIfFull() {
    this.#refuseIfClosed();
    if (this.#queuedBytes < QUEUE_MOST_BYTES) return;
    const message = `${this.#queuedBytes} bytes wait to be sent to ${this.#address}: await earlier calls`;
    throw fault(Error, 'NIGH_BUSY', message);
  }

  // A packet that takes a request, at the end of the queue.
  #open() {
    this.#refuseIfFull();
    const last = this.#queue.at(-1);
    const isOpen = last !== undefined && !last.isClosed;
    if (isOpen && last.size < PACKET_BYTES && last.length < PACKET_REQUESTS) return last;
    const packet = new Packet();
    this.#queue.push(packet);
    return packet;
  }

  #call(flags, name, args) {
    return new Promise((resolve, reject) => {
      const packet = this.#open();
      const before = packet.size;
      packet.add(flags, name, args, (reply) => {
        if (isError(reply)) reject(errorOf(reply, { name: name.toLowerCase(), args }));
        else resolve(withErrors(reply));
      });
      this.#queued(packet.size - before, 1);
    });
  }

  // Sends a packet of its own.
  #send(packet) {
    this.#refuseIfFull();
    return new Promise((resolve) => {
      packet.closes(resolve);
      this.#queue.push(packet);
      this.#queued(packet.size, packet.length);
    });
  }

  #queued(bytes, requests) {
    this.#queuedBytes += bytes;
    this.#pending += requests;
    if (this.#isRunning) return;
    this.#isRunning = true;
    // All that this turn of the program calls goes together.
    this.#running = Promise.resolve().then(() => this.#run());
  }

  // Waits for the server, here and now.
  #callNow(flags, name, args) {
    const packet = new Packet();
    packet.add(flags, name, args, () => {});
    const [reply] = this.#native.send(packet.bytes);
    if (isError(reply)) throw errorOf(reply, { name: name.toLowerCase(), args });
    return withErrors(reply);
  }

  // Sends what is in the queue.
  async #run() {
    while (this.#queue.length > 0) {
      const packet = this.#queue.shift();
      let replies;
      try {
        replies = await this.#native.sendLater(packet.bytes);
      } catch ({ message }) {
        replies = { code: 'NIGH_FAULT', message };
      }
      this.#settle(packet, replies);
    }
    this.#isRunning = false;
  }

  #settle(packet, replies) {
    this.#queuedBytes -= packet.size;
    this.#pending -= packet.length;
    packet.settle(replies);
  }

  #scan(name, given) {
    const words = Object.entries(options(SCAN, given)).filter(([, value]) => value !== undefined);
    const args = words.flatMap(([option, value]) => [option.toUpperCase(), word(`option ${option}`, value)]);
    const client = this;
    async function* steps() {
      let cursor = '0';
      do {
        const [next, found] = await client[name](cursor, ...args);
        cursor = String(next);
        yield found;
      } while (cursor !== '0');
    }
    return Readable.from(steps(), { objectMode: true });
  }
}

// Keys of one moment, while the function of a view runs.
class View {
  #place;

  constructor(token, place) {
    guard(token, 'View');
    this.#place = place;
  }

  get(key) {
    return this.#read(READERS.get[2], [key]);
  }

  getBuffer(key) {
    return this.#read(READERS.getBuffer[2], [key]);
  }

  exists(...given) {
    return this.#read(existsInView, given);
  }

  #read(read, args) {
    const { attempt } = this.#place;
    if (attempt === null) {
      throw fault(Error, 'NIGH_CLOSED', 'the view has ended: read within its function');
    }
    const found = read(attempt, args);
    if (found !== UNSURE) return found;
    throw fault(Error, 'NIGH_TOO_NEW', 'too much has changed: let this error leave the function of the view');
  }
}

dispose(Client, function close() { this.disconnect(); }, async function quits() { await this.quit(); });

module.exports = { Client, View, connect };
