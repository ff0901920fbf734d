'use strict';

// The embedded library for Node.js: what programs call, described by index.d.ts. arguments.js checks
// what they give; here iterators and Promises are made of nigh.node's calls. beside.js has snapshots
// and watches, client.js the client.
//
// A write of an `…Async` call happens within the call if there is room for it, so such writes happen
// in the order of their calls. What may take long runs in libuv's pool: a write that has to wait, and
// the wait for the disk, of which one serves all writes that were made before it began.

const {
  OPEN, EXPIRY, STRONG, WRITE, PLACE, fault, bytes, maybeBytes, prefixOf, keysOf, options,
  expiry, integer, sumAs, pathOf, memoryOf, within, dispose, own, guard, ended,
} = require('./arguments.js');
const { Snapshot, Watch } = require('./beside.js');
const { Client, View, connect } = require('./client.js');
const { Pipeline } = require('./pipeline.js');
const { ReplyError } = require('./requests.js');
const native = require('./nigh.node');

const SCAN_KEYS = 64; // of a step: few enough for the memory of their values
const PASSING = ['NIGH_NOT_OPEN', 'NIGH_BUSY']; // why a reader can't read, until an owner goes on
const WAIT_STEP_MS = 5;

// All that a walk in steps finds. A step may find nothing and not be the last.
function* walk(reader, prefix) {
  let cursor = 0n;
  do {
    const [next, list] = reader.scan(prefix, cursor, SCAN_KEYS);
    for (let i = 0; i < list.length; i += 2) yield [list[i], list[i + 1]];
    cursor = next;
  } while (cursor !== 0n);
}

// One wait for the disk for all writes that were made before it began.
class Flushes {
  #db;
  #running = null;
  #next = null;

  constructor(db) {
    this.#db = db;
  }

  wait() {
    if (this.#running === null) return this.#begin();
    // The one that runs may have begun before the latest write.
    this.#next ??= this.#running.then(() => this.#begin(), () => this.#begin());
    return this.#next;
  }

  // All that wait now have been told.
  async settled() {
    await Promise.allSettled([this.#next ?? this.#running]);
  }

  #begin() {
    const flush = this.#db.flushLater().then(ended);
    this.#running = flush;
    this.#next = null;
    const end = () => {
      if (this.#running === flush) this.#running = null;
    };
    flush.then(end, end);
    return flush;
  }
}

class Db {
  #db;
  #path;
  #strong;
  #flushes;
  #late = new Set(); // Promises of writes that went to the pool
  #closing = null;

  constructor(token, db, path, strong) {
    guard(token, 'Db');
    this.#db = db;
    this.#path = path;
    this.#strong = strong;
    this.#flushes = new Flushes(db);
  }

  get path() {
    return this.#path;
  }

  get closed() {
    return this.#closing !== null || this.#db.closed;
  }

  // The native database, while it is open.
  get #open() {
    if (this.#closing !== null) {
      throw fault(Error, 'NIGH_CLOSED', `${this.#path}: the database is closed: open it again`);
    }
    return this.#db;
  }

  // A write that never keeps the event loop waiting.
  async #later(name, strong, ...given) {
    const db = this.#open;
    let result;
    try {
      result = db[name](...given, false, false);
    } catch (error) {
      if (error.code !== 'NIGH_BUSY') throw error;
      const late = this.#told(db[`${name}Later`](...given), strong);
      this.#late.add(late);
      try {
        return await late;
      } finally {
        this.#late.delete(late);
      }
    }
    return this.#synced(result, strong);
  }

  // A write in the pool.
  async #told(later, strong) {
    return this.#synced(ended(await later), strong);
  }

  // Behind a write: waits for the disk if it is strong.
  async #synced(result, strong) {
    if (!(strong ?? this.#strong)) return result;
    try {
      await this.#flushes.wait();
    } catch (error) {
      // Others' changes are made, and this write has made none.
      if (result !== false || error.code !== 'NIGH_NOT_DURABLE') throw error;
      const message = `${this.#path}: nothing has changed, and what the answer stands on isn't on disk: try again later`;
      throw fault(Error, 'NIGH_BUSY', message);
    }
    return result;
  }

  get(key) {
    return this.#open.get(bytes('key', key)) ?? undefined;
  }

  has(key) {
    return this.#open.has(bytes('key', key));
  }

  ttl(key) {
    return this.#open.ttl(bytes('key', key)) ?? undefined;
  }

  multiGet(keys) {
    return this.#open.multiGet(keysOf(keys)).map((value) => value ?? undefined);
  }

  put(key, value, given) {
    const { strong, ...rest } = options(WRITE, given);
    this.#open.put(bytes('key', key), bytes('value', value), expiry(rest), strong, true);
  }

  async putAsync(key, value, given) {
    const { strong, ...rest } = options(WRITE, given);
    await this.#later('put', strong, bytes('key', key), bytes('value', value), expiry(rest));
  }

  delete(key, given) {
    return this.#open.delete(bytes('key', key), options(STRONG, given).strong, true);
  }

  async deleteAsync(key, given) {
    return this.#later('delete', options(STRONG, given).strong, bytes('key', key));
  }

  batch() {
    return new Batch(own, (writes, strong) => this.#open.write(writes, strong, true),
      (writes, strong) => this.#later('write', strong, writes));
  }

  incr(key, by = 1, given = undefined) {
    const { strong } = options(STRONG, given);
    return sumAs(by, this.#open.incr(bytes('key', key), integer(by), strong, true));
  }

  async incrAsync(key, by = 1, given = undefined) {
    const { strong } = options(STRONG, given);
    return sumAs(by, await this.#later('incr', strong, bytes('key', key), integer(by)));
  }

  compareAndSet(key, expected, desired, given) {
    const { strong, ...rest } = options(WRITE, given);
    const [old, now] = [maybeBytes('expected value', expected), maybeBytes('value', desired)];
    return this.#open.compareAndSet(bytes('key', key), old, now, expiry(rest), strong, true);
  }

  async compareAndSetAsync(key, expected, desired, given) {
    const { strong, ...rest } = options(WRITE, given);
    const [old, now] = [maybeBytes('expected value', expected), maybeBytes('value', desired)];
    return this.#later('compareAndSet', strong, bytes('key', key), old, now, expiry(rest));
  }

  expire(key, given) {
    const { strong, ...rest } = options(WRITE, given);
    return this.#open.expire(bytes('key', key), expiry(rest), strong, true);
  }

  async expireAsync(key, given) {
    const { strong, ...rest } = options(WRITE, given);
    return this.#later('expire', strong, bytes('key', key), expiry(rest));
  }

  scan(prefix) {
    this.#open; // an error comes now
    return walk({ scan: (...step) => this.#open.scan(...step) }, prefixOf(prefix));
  }

  [Symbol.iterator]() {
    return this.scan();
  }

  snapshot(prefix) {
    return new Snapshot(own, this.#open.snapshot(prefixOf(prefix)), this);
  }

  watch(prefix, given) {
    const [db, { place }] = [this.#open, options(PLACE, given)];
    return new Watch(own, (onEvent) => db.watch(prefixOf(prefix), onEvent, place), this);
  }

  flush() {
    this.#open.flush();
  }

  async flushAsync() {
    this.#open;
    await this.#flushes.wait();
  }

  stats() {
    return this.#open.stats();
  }

  close() {
    if (this.#closing !== null) return;
    this.#closing = Promise.resolve();
    this.#db.close();
  }

  async closeAsync() {
    this.#closing ??= this.#end();
    await this.#closing;
  }

  // What has begun before is done, or told why not.
  async #end() {
    await Promise.allSettled(this.#late);
    await this.#flushes.settled();
    ended(await this.#db.closeLater());
  }
}

class Batch {
  #writes = new native.Batch();
  #write;
  #later;

  constructor(token, write, later) {
    guard(token, 'Batch');
    this.#write = write;
    this.#later = later;
  }

  get length() {
    return this.#writes.length;
  }

  put(key, value, given) {
    this.#writes.put(bytes('key', key), bytes('value', value), expiry(options(EXPIRY, given)));
    return this;
  }

  delete(key) {
    this.#writes.delete(bytes('key', key));
    return this;
  }

  clear() {
    this.#writes.clear();
    return this;
  }

  // All writes; the batch is empty then.
  #take() {
    const writes = this.#writes;
    this.#writes = new native.Batch();
    return writes;
  }

  write(given) {
    const { strong } = options(STRONG, given);
    this.#write(this.#take(), strong);
  }

  async writeAsync(given) {
    const { strong } = options(STRONG, given);
    await this.#later(this.#take(), strong);
  }
}

class Reader {
  #reader;
  #path;

  constructor(token, reader, path) {
    guard(token, 'Reader');
    this.#reader = reader;
    this.#path = path;
  }

  get path() {
    return this.#path;
  }

  get(key) {
    return this.#reader.get(bytes('key', key)) ?? undefined;
  }

  has(key) {
    return this.#reader.has(bytes('key', key));
  }

  ttl(key) {
    return this.#reader.ttl(bytes('key', key)) ?? undefined;
  }

  wait(mostMs) {
    this.#reader.wait(within(mostMs));
  }

  async waitAsync(mostMs) {
    const end = performance.now() + within(mostMs);
    for (;;) {
      try {
        return this.#reader.wait(0);
      } catch (error) {
        const left = end - performance.now();
        if (!PASSING.includes(error.code) || left <= 0) throw error;
        await new Promise((done) => setTimeout(done, Math.min(WAIT_STEP_MS, left)));
      }
    }
  }

  multiGet(keys) {
    return this.#reader.multiGet(keysOf(keys)).map((value) => value ?? undefined);
  }

  scan(prefix) {
    return walk(this.#reader, prefixOf(prefix));
  }

  [Symbol.iterator]() {
    return this.scan();
  }

  close() {
    this.#reader.close();
  }
}

function unopened(path, given) {
  const checked = options(OPEN, given);
  const [folder, memoryDir] = [pathOf(path), memoryOf(checked)];
  return [new native.Db(folder, { ...checked, memoryDir }), folder, checked.strong ?? false];
}

function open(path, given) {
  const [db, ...rest] = unopened(path, given);
  db.open();
  return new Db(own, db, ...rest);
}

async function openAsync(path, given) {
  const [db, ...rest] = unopened(path, given);
  ended(await db.openLater());
  return new Db(own, db, ...rest);
}

function openReader(path, given) {
  const checked = options({ memoryDir: 'string' }, given);
  const [folder, memoryDir] = [pathOf(path), memoryOf(checked)];
  return new Reader(own, new native.Reader(folder, memoryDir), folder);
}

for (const Kind of [Db, Snapshot, Watch, Reader]) {
  const { close, closeAsync = async function closes() { this.close(); } } = Kind.prototype;
  dispose(Kind, close, closeAsync);
}

module.exports = {
  open, openAsync, openReader, connect, Db, Batch, Snapshot, Watch, Reader, Client, View, Pipeline, ReplyError,
};
