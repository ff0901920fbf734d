'use strict';

// Run by bench-client-node.sh: the socket of an empty server, and numbers of keys. Keys of 16 bytes,
// values of 100, keys by chance. A time is the mean of 16 calls, one after another; the table has the
// median of all such means. ROUNDS rounds of each way, in turn; the median round counts.
//
// With --socket it measures the client alone at a server that has its keys, for `nigh-bench local`,
// which asks by lines: crates/bench/src/local/helper.rs says which.

const readline = require('node:readline');
const { parseArgs } = require('node:util');
const { connect } = require('nigh');

const [, , socket, ...given] = process.argv;
const SECONDS = Number(process.env.SECONDS ?? 0.5);
const ROUNDS = Number(process.env.ROUNDS ?? 5);
const STEP = 16; // calls between two looks at the clock
const TOGETHER = 100; // calls at once
const REST_MS = 1; // before a write to a server that sleeps: timers aren't finer

const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];

function chances(seed) {
  let state = seed;
  return (most) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * most);
  };
}

// One round: calls a second, and the median time of a call in µs.
async function round(call, units, below) {
  const times = [];
  let calls = 0;
  const begin = performance.now();
  let now = begin;
  while (now - begin < SECONDS * 1000) {
    const before = now;
    for (let n = 0; n < STEP; n++) {
      const made = call(below);
      if (made !== undefined) await made;
    }
    now = performance.now();
    times.push(((now - before) * 1000) / STEP);
    calls += STEP;
  }
  return [(calls * units * 1000) / (now - begin), median(times)];
}

async function measure(client, redis, piped, count) {
  const keys = Array.from({ length: count }, (_, n) => Buffer.from(`key:${String(n).padStart(12, '0')}`).toString('latin1'));
  const value = 'v'.repeat(100);
  for (let n = 0; n < count; n += 1000) await client.mset(keys.slice(n, n + 1000).flatMap((key) => [key, value]));
  const some = (below) => Array.from({ length: 16 }, () => keys[below(count)]);
  const many = (call) => (below) => Promise.all(Array.from({ length: TOGETHER }, () => call(below)));
  const done = (call) => (below) => void call(below);
  const ways = {
    'getSync': [done((below) => client.getSync(keys[below(count)])), 1],
    'getBufferSync': [done((below) => client.getBufferSync(keys[below(count)])), 1],
    'await get': [(below) => client.get(keys[below(count)]), 1],
    'mgetSync of 16': [done((below) => client.mgetSync(some(below))), 16],
    'await set': [(below) => client.set(keys[below(count)], value), 1],
    'set, 100 at once': [many((below) => client.set(keys[below(count)], value)), TOGETHER],
    'ioredis: await get': [(below) => redis.get(keys[below(count)]), 1],
    'ioredis: get, 100 at once': [many((below) => piped.get(keys[below(count)])), TOGETHER],
    'ioredis: await mget of 16': [(below) => redis.mget(some(below)), 16],
    'ioredis: await set': [(below) => redis.set(keys[below(count)], value), 1],
    'ioredis: set, 100 at once': [many((below) => piped.set(keys[below(count)], value)), TOGETHER],
  };
  const rounds = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let number = -1; number < ROUNDS; number++) {
    for (const [name, [call, units]] of Object.entries(ways)) {
      const told = await round(call, units, chances(number + 7));
      if (number >= 0) rounds[name].push(told);
    }
  }
  return Object.entries(rounds).map(([name, told]) => (
    [name, median(told.map(([rate]) => rate)), median(told.map(([, time]) => time))]
  ));
}

// Times of single calls, µs, without what a look at the clock takes.
async function latencies(seconds, call, restMs) {
  const times = [];
  const looks = Array.from({ length: 1000 }, () => -(performance.now() - performance.now()));
  const empty = median(looks);
  const begin = performance.now();
  for (let now = begin; now - begin < seconds * 1000;) {
    if (restMs > 0) await new Promise((done) => setTimeout(done, restMs));
    const before = performance.now();
    const made = call();
    if (made !== undefined) await made;
    now = performance.now();
    times.push((now - before - empty) * 1000);
  }
  times.sort((a, b) => a - b);
  return [50, 99].map((percent) => times[Math.floor((times.length - 1) * percent / 100)]);
}

// Calls a second, each with so many keys, without a clock between.
async function rateOf(seconds, units, call) {
  const begin = performance.now();
  for (let calls = 0; ;) {
    for (let n = 0; n < STEP; n++) {
      const made = call();
      if (made !== undefined) await made;
    }
    calls += STEP;
    const took = performance.now() - begin;
    if (took >= seconds * 1000) return (calls * units * 1000) / took;
  }
}

// Measures as long as somebody asks.
async function answerOrders(given) {
  const [count, bytes, seconds] = [given.keys, given['value-size'], given.seconds].map(Number);
  const client = await connect(`unix:${given.socket}`, { local: 'required' });
  // Text of one byte a character; the keys of nigh-bench.
  const keys = Array.from({ length: count }, (_, n) => Buffer.from(`key:${n.toString(16).padStart(12, '0')}`).toString('latin1'));
  const below = chances(3);
  const some = () => keys[below(count)];
  const write = () => {
    const key = some();
    return client.set(key, key.padEnd(bytes, 'n'));
  };
  const orders = {
    async reads() {
      for (let n = 0; n < 1000; n++) {
        const [key, value] = [some()].flatMap((it) => [it, client.getSync(it)]);
        if (!value?.startsWith(key) || value.length !== bytes) throw new Error(`${key} has a wrong value: ${value}`);
      }
      const [p50, p99] = await latencies(seconds, () => void client.getSync(some()), 0);
      const many = () => void client.mgetSync(Array.from({ length: 16 }, some));
      return {
        read_p50_us: p50,
        read_p99_us: p99,
        reads_per_s: await rateOf(seconds, 1, () => void client.getSync(some())),
        keys_per_s: await rateOf(seconds, 16, many),
      };
    },
    async writes() {
      const [p50, p99] = await latencies(seconds, write, 0);
      const [restedP50, restedP99] = await latencies(seconds, write, REST_MS);
      const many = () => Promise.all(Array.from({ length: TOGETHER }, write));
      return {
        write_p50_us: p50,
        write_p99_us: p99,
        rested_write_p50_us: restedP50,
        rested_write_p99_us: restedP99,
        piped_writes_per_s: await rateOf(seconds, TOGETHER, many),
      };
    },
  };
  const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
  say({ ready: `Node.js ${process.versions.node}: \`getSync\`, \`mgetSync\`, \`await set\`; times without what a look at the clock takes` });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (orders[line] === undefined) say({ error: `${line} is no order: reads, writes` });
    else say(await orders[line]().catch(({ message }) => ({ error: message })));
  }
  await client.quit();
}

async function main() {
  const Redis = require('ioredis');
  const client = await connect(`unix:${socket}`, { local: 'required' });
  const [redis, piped] = [new Redis(socket), new Redis(socket, { enableAutoPipelining: true })];
  for (const count of (given.length > 0 ? given : [1_000_000, 1000]).map(Number)) {
    await client.flushall();
    console.log(`\n| ${count} keys | p50, us | keys a second |\n|---|---|---|`);
    for (const [name, rate, time] of await measure(client, redis, piped, count)) {
      console.log(`| ${name} | ${time.toPrecision(3)} | ${Math.round(rate)} |`);
    }
  }
  await Promise.all([client.quit(), redis.quit(), piped.quit()]);
}

if (socket === '--keys') {
  const text = { type: 'string' };
  const options = { keys: text, 'value-size': text, seconds: text, socket: text };
  answerOrders(parseArgs({ options }).values);
} else {
  main();
}
