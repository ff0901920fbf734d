'use strict';

// Snapshots and watches of a database, described by index.d.ts: iterators and Promises are made of
// nigh.node's calls.

const { DATE_MOST_MS, invalid, guard, ended } = require('./arguments.js');

const KINDS = ['put', 'expires', 'removed', 'cleared', 'lost'];
const KEEP_ALIVE_MS = 2 ** 30; // of a timer that keeps the process alive, and a watch in memory

class Snapshot {
  #snapshot;
  #db; // stays open as long as somebody has the snapshot
  #found = []; // by the latest step: key, value, and so on
  #at = 0;
  #isOver = false; // all was given
  #isClosed = false;
  #reading = null; // the Promise of a step in the pool

  constructor(token, snapshot, db) {
    guard(token, 'Snapshot');
    this.#snapshot = snapshot;
    this.#db = db;
  }

  // The next of what was found; undefined if a step has to find more.
  #take() {
    if (this.#at === this.#found.length) return this.#isOver ? { done: true, value: undefined } : undefined;
    this.#at += 2;
    return { done: false, value: this.#found.slice(this.#at - 2, this.#at) };
  }

  #step() {
    [this.#found, this.#at] = [this.#snapshot.next(), 0];
    this.#isOver = this.#found.length === 0;
  }

  // A step whose keys are looked for in the pool.
  async #read() {
    ended(await this.#snapshot.readLater());
    if (!this.#isClosed) this.#step();
  }

  #readEnds() {
    this.#reading = null;
    if (this.#isClosed) this.#snapshot.close();
  }

  get place() {
    return this.#snapshot.place;
  }

  next() {
    if (this.#reading !== null) {
      throw invalid(Error, 'a nextAsync of this snapshot is under way: await it before next is called');
    }
    let result = this.#take();
    if (result === undefined) {
      this.#step();
      result = this.#take();
    }
    return result;
  }

  async nextAsync() {
    for (;;) {
      const result = this.#take();
      if (result !== undefined) return result;
      this.#reading ??= this.#read().finally(() => this.#readEnds());
      await this.#reading;
    }
  }

  return(value) {
    this.close();
    this.#isOver = true;
    return { done: true, value };
  }

  [Symbol.iterator]() {
    return this;
  }

  [Symbol.asyncIterator]() {
    return { next: () => this.nextAsync(), return: async (value) => this.return(value) };
  }

  // A step that runs in the pool ends first: nobody waits for it here.
  close() {
    this.#isClosed = true;
    [this.#found, this.#at] = [[], 0];
    if (this.#reading === null) this.#snapshot.close();
  }
}

class Watch {
  #watch;
  #db; // stays open as long as somebody has the watch
  #waiting = []; // who awaits an event, in order
  #timer = null; // keeps the process and this watch for them
  #isRung = false;

  constructor(token, begin, db) {
    guard(token, 'Watch');
    this.#db = db;
    // Weakly: a watch that is forgotten ends.
    const self = new WeakRef(this);
    this.#watch = begin(() => self.deref()?.#ring());
  }

  // Something may be there. It is looked for once in each turn of the event loop: while the watch
  // reads what was, a frame of the log after the other, all else goes on.
  #ring() {
    if (this.#isRung || this.#waiting.length === 0) return;
    this.#isRung = true;
    setImmediate(() => {
      this.#isRung = false;
      this.#serve();
    });
  }

  // What is there: a result of `next`, or undefined.
  #take() {
    let event;
    try {
      event = this.#watch.take();
    } catch (error) {
      if (error.code === 'NIGH_CLOSED') return { done: true, value: undefined };
      throw error;
    }
    if (event === null) return undefined;
    const [kind, partition, change, first, key, value, expiresAt] = event;
    const told = { kind: KINDS[kind], partition, change };
    if (key !== null) told.key = key;
    if (value !== null) told.value = value;
    if (expiresAt !== null) told.expiresAt = new Date(Math.min(expiresAt, DATE_MOST_MS));
    if (told.kind === 'lost') told.first = first;
    return { done: false, value: told };
  }

  #serve() {
    while (this.#waiting.length > 0) {
      const { settle, fail } = this.#waiting[0];
      let result;
      try {
        result = this.#take();
        if (result === undefined) return; // another call comes
      } catch (error) {
        this.#waiting.shift();
        fail(error);
        continue;
      }
      this.#waiting.shift();
      settle(result);
    }
    clearInterval(this.#timer);
    this.#timer = null;
  }

  next() {
    return new Promise((settle, fail) => {
      this.#waiting.push({ settle, fail });
      this.#timer ??= setInterval(() => this.#serve(), KEEP_ALIVE_MS);
      this.#serve();
    });
  }

  get place() {
    return this.#watch.place();
  }

  async return(value) {
    this.close();
    return { done: true, value };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  close() {
    this.#watch.close();
    this.#serve();
  }
}

module.exports = { Snapshot, Watch };
