'use strict';

// The same calls on a database and on a Map, with closings and kills among them.
// NIGH_SEED repeats a run, NIGH_EMBEDDED_ROUNDS makes it longer.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const { Child, atEnd, folders, LIMIT_MS } = require('./support.js');

const SEED = Number(process.env.NIGH_SEED ?? Math.floor(Math.random() * 2 ** 32));
const ROUNDS = Number(process.env.NIGH_EMBEDDED_ROUNDS ?? 6);
const CALLS_PER_ROUND = 200;
const HOUR_MS = 3_600_000;

// Numbers by chance, from a seed (mulberry32).
function chance(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// What a database must have, and calls by chance. Bytes are texts of latin1 here.
class Model {
  constructor(seed) {
    this.chance = chance(seed);
    this.map = new Map();
  }

  below(n) {
    return Math.floor(this.chance() * n);
  }

  one(...of) {
    return of[this.below(of.length)];
  }

  bytes(n) {
    return Array.from({ length: n }, () => String.fromCharCode(this.below(256))).join('');
  }

  key() {
    return `key ${this.below(24)}`;
  }

  value() {
    const kind = this.below(12);
    if (kind < 4) return String(this.below(2000) - 1000);
    return this.bytes(kind === 11 ? 30_000 + this.below(60_000) : this.below(40));
  }

  // Bytes as a program may have them.
  given(text) {
    const bytes = Buffer.from(text, 'latin1');
    // eslint-disable-next-line no-control-regex
    if (/^[\0-\x7f]*$/.test(text) && this.chance() < 0.3) return text;
    return this.chance() < 0.5 ? bytes : new Uint8Array(bytes);
  }

  write(writes) {
    for (const [key, value] of writes) {
      if (value === null) this.map.delete(key);
      else this.map.set(key, value);
    }
  }

  // A call, and what must come of it.
  call() {
    const strong = this.one(undefined, undefined, undefined, undefined, undefined, false, true);
    const [key, value] = [this.key(), this.value()];
    const later = this.chance() < 0.5 ? 'Async' : '';
    const given = this.given(key);
    const kind = this.one(...'put put put put delete delete get get has multiGet write write incr incr'.split(' '),
      ...'compareAndSet compareAndSet expire keys items snapshot flush'.split(' '));
    const { map } = this;
    switch (kind) {
      case 'put': {
        const when = this.chance() < 0.2 ? { expiresInMs: HOUR_MS } : {};
        const call = [`put${later}`, given, this.given(value), { strong, ...when }];
        return [call, () => void map.set(key, value)];
      }
      case 'delete': return [[`delete${later}`, given, { strong }], () => map.delete(key)];
      case 'get': return [['get', given], () => map.get(key)];
      case 'has': return [['has', given], () => map.has(key)];
      case 'multiGet': {
        const keys = Array.from({ length: this.below(40) }, () => this.key());
        return [['multiGet', keys.map((it) => this.given(it))], () => keys.map((it) => map.get(it))];
      }
      case 'write': {
        const writes = [0, 1, 2, 3].map(() => [this.key(), this.one(null, this.value())]);
        const list = writes.map(([to, it]) => [this.given(to), it === null ? null : this.given(it)]);
        return [['write', `write${later}`, list, { strong }], () => this.write(writes)];
      }
      case 'incr': {
        const by = this.below(200) - 99;
        const big = this.chance() < 0.3;
        return [[`incr${later}`, given, big ? BigInt(by) : by, { strong }], () => this.incr(key, by, big)];
      }
      case 'compareAndSet': {
        const expected = this.one(map.get(key), map.get(key), null, 'other') ?? null;
        const desired = this.one(null, value, value);
        const values = [expected, desired].map((it) => (it === null ? null : this.given(it)));
        return [[`compareAndSet${later}`, given, ...values, { strong }], () => {
          if ((map.get(key) ?? null) !== expected) return false;
          this.write([[key, desired]]);
          return true;
        }];
      }
      case 'expire': {
        const when = this.one({ expiresInMs: HOUR_MS }, { expiresAt: new Date(1000) }, {});
        return [[`expire${later}`, given, { strong, ...when }], () => {
          const there = map.has(key);
          if (when.expiresAt) map.delete(key);
          return there;
        }];
      }
      case 'keys': return [['keys'], () => map.size];
      case 'flush': return [[`flush${later}`], () => undefined];
      default: {
        const prefix = this.one(undefined, 'key 1', 'none');
        return [[kind, prefix], () => this.items(prefix)];
      }
    }
  }

  items(prefix = '') {
    return [...this.map].filter(([key]) => key.startsWith(prefix)).sort();
  }

  incr(key, by, big) {
    const old = this.map.get(key) ?? '0';
    if (!/^[+-]?[0-9]+$/.test(old)) return 'NIGH_NOT_A_NUMBER';
    const sum = BigInt(old) + BigInt(by);
    this.map.set(key, String(sum));
    return big ? sum : Number(sum);
  }
}

// What a call gave, with texts for bytes, and what a walk met in order, each once.
function plain(name, result) {
  const text = (it) => (it instanceof Uint8Array ? Buffer.from(it).toString('latin1') : it);
  if (name === 'items' || name === 'snapshot') {
    const pairs = result.map((pair) => pair.map(text)).sort();
    return name === 'snapshot' ? pairs : [...new Map(pairs)];
  }
  return Array.isArray(result) ? result.map(text) : text(result);
}

async function items(child) {
  return plain('items', await child.call('items'));
}

test('a database has what a Map has, also behind kills', { timeout: 10 * LIMIT_MS }, async (t) => {
  const [folder, options] = folders(t);
  const model = new Model(SEED);
  let child = await Child.start(folder, options);
  atEnd(t, () => child.kill());
  for (let round = 0; round < ROUNDS; round++) {
    for (let number = 0; number < CALLS_PER_ROUND; number++) {
      const [call, expected] = model.call();
      const has = await child.call(...call).catch((error) => error.code ?? error);
      const told = `NIGH_SEED=${SEED} ${round}/${number}: ${call[0]} ${call[1]}`;
      assert.deepEqual(plain(call[0], has), expected(), told);
    }
    const before = model.items();
    if (round % 3 === 0) {
      await child.close();
    } else if (round % 3 === 1) {
      await child.kill();
    } else {
      // Killed in the midst of a write, which is done, or not: as a whole.
      const writes = Array.from({ length: 20 }, (_, n) => [`key ${n}`, String(round)]);
      child.tell('write', model.one('write', 'writeAsync'), writes, {});
      await new Promise((done) => setTimeout(done, model.chance() * 3));
      await child.kill();
      model.write(writes);
    }
    child = await Child.start(folder, options);
    const has = await items(child);
    if (round % 3 === 2 && JSON.stringify(has) === JSON.stringify(before)) model.map = new Map(before);
    assert.deepEqual(has, model.items(), `NIGH_SEED=${SEED} ${round}`);
  }
  await child.close();
});
