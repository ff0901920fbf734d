'use strict';

// Calls by chance on a client and on a Map. NIGH_SEED repeats a run; NIGH_CALLS makes a longer one.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const { LOCAL, TCP, connect } = require('./support.js');

const SEED = Number(process.env.NIGH_SEED ?? Math.floor(Math.random() * 2 ** 31));
const CALLS = Number(process.env.NIGH_CALLS ?? 1200);

// mulberry32, of the public domain
function chances(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

for (const address of [LOCAL, TCP]) {
test(`a client of ${address} has what a Map has`, async (t) => {
  const client = await connect(t, address);
  await client.flushall();
  const chance = chances(SEED);
  const below = (most) => Math.floor(chance() * most);
  const one = (list) => list[below(list.length)];
  const map = new Map();
  const key = () => one(['', 'ä', `key ${below(30)}`, `key ${below(30)}`, 'k'.repeat(100)]);
  const value = () => one([`${below(1000)}`, 'schön', '', 'v'.repeat(below(3000)), String(below(10))]);
  const integer = (it) => /^(0|-?[1-9][0-9]{0,15})$/.test(it);
  const calls = {
    set(k, v) { return [['set', k, v], () => { map.set(k, v); return 'OK'; }]; },
    setnx(k, v) { return [['set', k, v, 'NX'], () => (map.has(k) ? null : (map.set(k, v), 'OK'))]; },
    mset(k, v) { return [['mset', { [k]: v, other: v }], () => { map.set(k, v).set('other', v); return 'OK'; }]; },
    get: (k) => [['get', k], () => map.get(k) ?? null],
    getBuffer: (k) => [['getBuffer', k], () => (map.has(k) ? Buffer.from(map.get(k)) : null)],
    mget(k) {
      const keys = [k, key(), key()];
      return [['mget', keys], () => keys.map((it) => map.get(it) ?? null)];
    },
    exists: (k) => [['exists', k, 'other'], () => Number(map.has(k)) + Number(map.has('other'))],
    strlen: (k) => [['strlen', k], () => Buffer.byteLength(map.get(k) ?? '')],
    pttl: (k) => [['pttl', k], () => (map.has(k) ? -1 : -2)],
    getrange(k) {
      const [from, to] = [below(9), below(20)];
      return [['getrangeBuffer', k, from, to], () => Buffer.from(map.get(k) ?? '').subarray(from, to + 1)];
    },
    del: (k) => [['del', k, 'none'], () => Number(map.delete(k))],
    append(k, v) {
      return [['append', k, v], () => {
        map.set(k, (map.get(k) ?? '') + v);
        return Buffer.byteLength(map.get(k));
      }];
    },
    incr(k) {
      const by = below(200) - 99;
      return [['incrby', k, by], () => {
        const old = map.get(k) ?? '0';
        if (!integer(old)) return 'ERR';
        map.set(k, String(Number(old) + by));
        return Number(old) + by;
      }];
    },
  };
  const pending = [];
  for (let number = 0; number < CALLS; number++) {
    const told = `NIGH_SEED=${SEED}: call ${number}`;
    const [[name, ...given], expected] = calls[one(Object.keys(calls))](key(), value());
    const wanted = expected();
    const check = (has) => assert.deepEqual(has, wanted, `${told}: ${name} ${String(given)}`);
    const way = below(4);
    if (way === 0) {
      pending.push(client[name](...given).catch(({ code }) => code).then(check));
    } else if (way === 1) {
      pending.push(client.multi()[name](...given).exec().then(([[error, reply]]) => check(error ? error.code : reply)));
    } else if (way === 2 && client[`${name}Sync`]) {
      await Promise.all(pending.splice(0));
      check(client[`${name}Sync`](...given));
    } else {
      check(await client[name](...given).catch(({ code }) => code));
    }
  }
  await Promise.all(pending);
  const keys = [...map.keys()].sort();
  assert.deepEqual((await client.keys('*')).sort(), keys);
  assert.deepEqual(keys.length === 0 ? [] : client.mgetSync(keys), keys.map((it) => map.get(it)));
});
}
