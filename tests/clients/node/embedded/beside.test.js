'use strict';

// What runs beside: watches, readers in other processes, worker threads, and how a process ends.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { promisify } = require('node:util');
const { once } = require('node:events');
const { test } = require('node:test');
const { Worker } = require('node:worker_threads');
const { nigh, atEnd, database, folders, Child, LIMIT_MS } = require('./support.js');

const HOUR_MS = 3_600_000;
const text = (it) => it?.toString();

// A program that must end by itself; what it prints.
async function runs(source, ...given) {
  const line = ['-e', source, ...given.map((it) => JSON.stringify(it))];
  const { stdout } = await promisify(execFile)(process.execPath, line, { timeout: LIMIT_MS });
  return stdout;
}

// An event with texts for bytes.
function plain({ key, value, ...event }) {
  return { ...event, ...(key && { key: text(key) }), ...(value && { value: text(value) }) };
}

test('a watch tells changes under its prefix, each once and in order', async (t) => {
  const db = database(t);
  db.put('user:0', 'before');
  const watch = db.watch('user:');
  const early = watch.next();
  db.put('order:1', 'tea');
  db.put('user:1', 'Ada', { expiresAt: Date.now() + HOUR_MS });
  db.delete('user:0');
  for (let n = 0; n < 300; n++) db.incr('user:n');
  const first = (await early).value;
  assert.ok(first.expiresAt instanceof Date && first.expiresAt > new Date());
  assert.deepEqual(plain({ ...first, expiresAt: undefined }),
    { kind: 'put', partition: 0, change: 3, key: 'user:1', value: 'Ada', expiresAt: undefined });
  const removed = { kind: 'removed', partition: 0, change: 4, key: 'user:0' };
  assert.deepEqual(plain((await watch.next()).value), removed);
  let change = 4;
  for await (const event of watch) {
    change += 1;
    const wanted = { kind: 'put', partition: 0, change, key: 'user:n', value: String(change - 4) };
    assert.deepEqual(plain(event), wanted);
    if (change === 304) break;
  }
  assert.deepEqual(await watch.next(), { done: true, value: undefined }, 'break has closed it');
});

// A watch told an Invalid Date.
test('an expiry that no Date has is none', async (t) => {
  const db = database(t);
  const watch = db.watch('');
  for (const expiresAt of [8.64e15, 8.64e15 + 1, Number.MAX_SAFE_INTEGER, Infinity]) {
    db.put('key', '1', { expiresAt });
    const told = (await watch.next()).value.expiresAt;
    assert.deepEqual([told?.getTime(), db.ttl('key') === Infinity], expiresAt === 8.64e15 ? [8.64e15, false] : [undefined, true]);
  }
});

test('several may wait, and closing the watch or the database ends them', async (t) => {
  const db = database(t);
  const [one, two] = [db.watch(), db.watch()];
  const waiting = [one.next(), one.next(), one.next()];
  db.put('a', '1');
  assert.equal(text((await waiting[0]).value.key), 'a');
  one.close();
  const done = { done: true, value: undefined };
  assert.deepEqual(await Promise.all(waiting.slice(1)), [done, done]);
  const told = (async () => {
    const events = [];
    for await (const event of two) events.push(text(event.key));
    return events;
  })();
  await new Promise((soon) => setImmediate(soon));
  db.put('b', '2');
  db.close();
  assert.deepEqual(await told, ['a', 'b'], 'what was there is told, then it ends');
});

test('a watch goes on from a place behind a restart, over several partitions', async (t) => {
  const [folder, options] = folders(t);
  let db = nigh.open(folder, { ...options, partitions: 3 });
  const put = (begin, end) => {
    for (let n = begin; n < end; n++) db.put(`key ${n % 17}`, `${n}`);
  };
  const told = [];
  const last = new Map();
  // Takes so many, and leaves the loop, which closes the watch.
  const take = async (watch, count) => {
    for await (const { partition, change, value } of watch) {
      assert.ok(change > (last.get(partition) ?? 0));
      last.set(partition, change);
      told.push(Number(text(value)));
      if (--count === 0) break;
    }
    return watch.place;
  };
  put(0, 50);
  const snapshot = db.snapshot();
  const moment = snapshot.place;
  assert.equal([...snapshot].length, 17);
  put(50, 150);
  const place = await take(db.watch('key', { place: moment }), 40);
  db.close();
  db = nigh.open(folder, options);
  atEnd(t, () => db.close());
  const watch = db.watch('key', { place });
  assert.equal(watch.place, place);
  put(150, 200);
  await take(watch, 110);
  assert.equal(watch.place, db.snapshot().place);
  assert.deepEqual(told.sort((a, b) => a - b), Array.from({ length: 150 }, (_, n) => n + 50));
  assert.equal(last.size, 3);
  const refused = (wrong, message) => {
    assert.throws(() => db.watch('', { place: wrong }), { code: 'NIGH_INVALID', message });
  };
  refused('17', /"17" is no place of a watch/);
  refused(place.slice(0, -1), /its end is missing/);
  refused(17, /the option place is of type Number, not string/);
  assert.throws(() => database(t).watch('', { place }),
    { code: 'NIGH_INVALID', message: /of a database with 3 partitions, and this one has 1/ });
  let left = moment; // then those places from which on something is left, until one holds
  for (let n = 0, begun = false; !begun || left === moment; n++) {
    assert.ok(n < 200, 'the log is never compacted, or nothing is left');
    for (let key = 0; left === moment && key < 20; key++) db.put(`${key}`, Buffer.alloc(60_000));
    try {
      db.watch('', { place: left }).close();
      begun = true;
    } catch (error) {
      assert.equal(error.code, 'NIGH_CHANGES_GONE');
      left = /those behind (\S+):/.exec(error.message)[1];
      begun = false;
    }
  }
});

test('the event loop goes on while a watch reads what was', async (t) => {
  const db = database(t);
  const { place } = db.watch();
  const { syncs } = db.stats();
  for (let n = 0; n < 200; n++) db.put('other', String(n), { strong: true });
  db.put('key', 'last', { strong: true });
  const frames = db.stats().syncs - syncs; // of the log: at least so many
  const watch = db.watch('key', { place });
  let turns = 0;
  const count = () => {
    turns += 1;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  const { value } = await watch.next();
  clearImmediate(timer);
  assert.equal(text(value.value), 'last');
  assert.ok(frames > 100 && turns > frames / 2, `${turns} turns, ${frames} frames`);
});

test('a watch that nobody reads loses changes, says so and goes on', async (t) => {
  const db = database(t, { watchBytes: 4096 });
  const watch = db.watch();
  for (let n = 0; n < 200; n++) db.put('key', Buffer.alloc(100));
  await db.flushAsync();
  let lost = 0;
  let last = 0;
  db.put('end', '');
  while (last < 201) {
    const { value: event } = await watch.next();
    assert.equal(event.kind === 'lost' ? event.first : event.change, last + 1);
    if (event.kind === 'lost') lost += event.change - event.first + 1;
    last = event.change;
  }
  assert.ok(lost > 100, `${lost}`);
});

test('a process ends when its watches end, and one that nobody awaits keeps none alive', async (t) => {
  const [folder, options] = folders(t);
  const begin = 'const nigh = require("nigh"), [folder, options] = process.argv.slice(1).map(JSON.parse);'
    + 'const db = nigh.open(folder, options), watch = db.watch();';
  const awaits = `(async () => { for await (const event of watch) console.log(event.kind); console.log("end"); })();`;
  const closes = 'setTimeout(() => { db.put("a", "1"); globalThis.gc?.(); setTimeout(() => db.close(), 50); }, 50);';
  assert.equal(await runs(begin + awaits + closes, folder, options), 'put\nend\n');
  assert.equal(await runs(`${begin}db.put("b", "2"); console.log("end");`, folder, options), 'end\n');
  // It was never closed.
  const db = nigh.open(folder, options);
  atEnd(t, () => db.close());
  assert.deepEqual(db.multiGet(['a', 'b']).map(text), ['1', '2']);
});

test('a watch that is awaited stays, and forgotten ones go', async (t) => {
  const [folder, options] = folders(t);
  const source = `const nigh = require("nigh"), [folder, options] = process.argv.slice(1).map(JSON.parse);
    require("v8").setFlagsFromString("--expose-gc");
    const gc = require("vm").runInNewContext("gc");
    const db = nigh.open(folder, options), soon = () => new Promise((done) => setTimeout(done, 20));
    const awaits = async () => { for await (const { key } of db.watch()) return String(key); };
    (async () => {
      const told = awaits();
      for (let round = 0; round < 5; round++) {
        for (let n = 0; n < 200; n++) db.watch();
        for (let n = 0; n < 3; n++) { await soon(); gc(); }
      }
      db.put("key", "");
      console.log(await told);
      try { for (;;) db.watch(); } catch ({ code, message }) { console.log(code, message.slice(folder.length)); }
    })();`;
  const told = 'key\nNIGH_TOO_MANY : 256 watches are open: drop one first\n';
  assert.equal(await runs(source, folder, options), told);
});

test('a watch and a snapshot keep their database', async (t) => {
  // A loop over nigh.open(path).watch() ended without a word, when the database was collected.
  const [folder, options] = folders(t);
  const source = `const nigh = require("nigh"), [folder, options] = process.argv.slice(1).map(JSON.parse);
    require("v8").setFlagsFromString("--expose-gc");
    const gc = require("vm").runInNewContext("gc"), soon = () => new Promise((done) => setTimeout(done, 20));
    const collect = async () => { for (let n = 0; n < 5; n++) { await soon(); gc(); } };
    const begin = (take) => { const db = nigh.open(folder, options); db.put("key", "1"); return take(db); };
    (async () => {
      const snapshot = begin((db) => db.snapshot());
      await collect();
      console.log(String([...snapshot]));
      snapshot.close();
    })().then(collect).then(async () => {
      const watch = begin((db) => db.watch());
      const told = watch.next();
      await collect();
      console.log(await Promise.race([told, soon().then(() => "none yet")]));
      process.exit();
    });`;
  assert.equal(await runs(source, folder, options), 'key,1\nnone yet\n');
});

test('another process reads while one writes', async (t) => {
  const [folder, own] = folders(t);
  const { memoryDir } = own;
  const db = nigh.open(folder, own);
  // A message names options as they are in JavaScript.
  const isPrivate = /is private: open it with the option shared in the process/;
  assert.throws(() => nigh.openReader(folder, { memoryDir }), { code: 'NIGH_CANNOT_OPEN', message: isPrivate });
  db.close();
  const isElsewhere = { code: 'NIGH_NOT_OPEN', message: /names another by the option memoryDir, name that here too/ };
  assert.throws(() => nigh.openReader(folder), isElsewhere);
  const refused = { code: 'NIGH_INVALID', message: /set the option shared too, or leave out the option keepMemory/ };
  assert.throws(() => nigh.open(folder, { ...own, keepMemory: true }), refused);
  const options = { ...own, shared: true };
  let owner = await Child.start(folder, options);
  atEnd(t, () => owner.kill());
  const reader = nigh.openReader(folder, { memoryDir });
  for (let n = 1; n <= 50; n++) {
    await owner.call('write', 'write', [['a', `${n}`], ['b', `${n}`], [`key ${n}`, '']]);
    assert.deepEqual(reader.multiGet(['a', 'b', 'none']).map(text), [`${n}`, `${n}`, undefined]);
  }
  assert.deepEqual([text(reader.get('a')), reader.get('none'), reader.has('b'), reader.has('none')],
    ['50', undefined, true, false]);
  assert.equal(new Set([...reader.scan('key ')].map(([key]) => text(key))).size, 50);
  assert.equal([...reader].length >= 52, true);
  assert.deepEqual([reader.ttl('a'), reader.ttl('none')], [Infinity, undefined]);
  await owner.call('put', 'brief', 'x', { expiresInMs: 3_600_000 });
  assert.equal(reader.ttl('brief') > 3_500_000 && reader.ttl('brief') <= 3_600_000, true);
  await owner.close();
  const told = { code: 'NIGH_NOT_OPEN', message: new RegExp(`${folder} isn't open.*open it`) };
  assert.throws(() => reader.get('a'), told);
  assert.throws(() => [...reader.scan()], told);
  assert.throws(() => reader.wait(20), told);
  await assert.rejects(reader.waitAsync(20), told);
  assert.throws(() => reader.wait(-1), { code: 'NIGH_INVALID', message: /mostMs is -1/ });
  const waits = reader.waitAsync(60_000);
  owner = await Child.start(folder, options);
  await waits;
  reader.wait(60_000);
  assert.equal(text(reader.get('a')), '50');
  await owner.kill();
  assert.equal(text(reader.get('b')), '50', 'what a killed process has left is read');
  reader.close();
  assert.throws(() => reader.get('a'), { code: 'NIGH_CLOSED', message: /the reader is closed/ });
});

test('a worker has databases of its own, reads those of others, and may end at any time', async (t) => {
  const [folder, own] = folders(t);
  const [other, others] = folders(t);
  const options = { ...own, shared: true };
  const db = nigh.open(folder, options);
  atEnd(t, () => db.close());
  db.put('key', 'value');
  const source = `
    const { parentPort, workerData: { folder, options, other, others } } = require('node:worker_threads');
    const nigh = require('nigh');
    let told;
    try { nigh.open(folder, options); } catch (error) { told = error.code; }
    const reader = nigh.openReader(folder, { memoryDir: options.memoryDir });
    const own = nigh.open(other, others);
    own.put('mine', reader.get('key'));
    own.putAsync('later', '1', { strong: true });
    own.watch().next();
    parentPort.postMessage(told);
  `;
  const workerData = { folder, options, other, others };
  for (let time = 0; time < 3; time++) {
    const worker = new Worker(source, { eval: true, workerData });
    const [told] = await once(worker, 'message');
    assert.equal(told, 'NIGH_IN_USE');
    await worker.terminate();
  }
  const after = nigh.open(other, others);
  assert.deepEqual(after.multiGet(['mine', 'later']).map(text), ['value', '1']);
  after.close();
});
