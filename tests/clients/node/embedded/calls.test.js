'use strict';

// The calls of the package: bytes, writes, walks, errors, and what runs outside of the event loop.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { pathToFileURL } = require('node:url');
const { nigh, atEnd, database, folders } = require('./support.js');

const HOUR_MS = 3_600_000;
const text = (it) => it?.toString();
const texts = (pairs) => Object.fromEntries([...pairs].map((pair) => pair.map(text)).sort());

test('keys and values are bytes of any kind', (t) => {
  const db = database(t);
  db.put('key', Buffer.from([0, 255]));
  assert.deepEqual(db.get(Buffer.from('key')), Buffer.from([0, 255]));
  assert.ok(Buffer.isBuffer(db.get('key')));
  db.put(new Uint8Array([1, 2, 3]).subarray(1), new Uint8Array(3));
  assert.deepEqual(db.get(Buffer.from([2, 3])), Buffer.alloc(3));
  db.put('', '');
  assert.deepEqual([db.get(''), db.get('none'), db.has('none')], [Buffer.alloc(0), undefined, false]);
  const shared = new Uint8Array(new SharedArrayBuffer(2)).fill(7);
  db.put('shared', shared);
  shared.fill(8);
  assert.deepEqual(db.get('shared'), Buffer.from([7, 7]));
  db.put('grüße', 'ö');
  assert.deepEqual(db.get(Buffer.from('grüße')), Buffer.from('ö'));
  assert.deepEqual(db.multiGet(new Set(['key', 'none', ''])).map((it) => it?.length), [2, undefined, 0]);
  // What comes back is a copy.
  db.get('key').fill(9);
  assert.deepEqual(db.get('key'), Buffer.from([0, 255]));
  for (const other of [7, null, undefined, {}, [1], new Uint16Array(1), new ArrayBuffer(1)]) {
    const told = { name: 'TypeError', code: 'NIGH_INVALID', message: /^the key is of type .*a Buffer, a Uint8Array or a string/ };
    assert.throws(() => db.get(other), told);
    assert.throws(() => db.put('key', other), { ...told, message: /^the value is of type/ });
    assert.throws(() => db.multiGet(['key', other]), told);
  }
  // One key is no list of keys, though text can be iterated.
  for (const one of ['key', Buffer.from('key'), 7, {}, null, undefined]) {
    assert.throws(() => db.multiGet(one), { name: 'TypeError', code: 'NIGH_INVALID', message: /an array of keys is needed/ });
  }
});

test('a batch happens as a whole and copies what it is given', async (t) => {
  const db = database(t);
  const value = Buffer.from('1');
  const batch = db.batch().put('a', value, { expiresInMs: HOUR_MS }).put('b', '2').delete('b');
  value.fill(0);
  assert.deepEqual([batch.length, db.stats().keys], [3, 0]);
  batch.write({ strong: true });
  assert.deepEqual([batch.length, texts(db)], [0, { a: '1' }]);
  const { expires, durableChange, lastChange } = db.stats();
  assert.deepEqual([expires, durableChange], [1, lastChange]);
  const written = batch.put('c', '3').writeAsync({ strong: true });
  assert.equal(text(db.get('c')), '3', 'it is made within the call');
  batch.put('d', '4');
  await written;
  assert.equal(batch.length, 1, 'what is added later is another batch');
  assert.equal(batch.clear().length, 0);
  const large = db.batch();
  for (let n = 0; n < 300; n++) large.put(String(n), Buffer.alloc(1000));
  await assert.rejects(large.writeAsync(), { code: 'NIGH_TOO_LARGE', message: /a write of \d+ bytes/ });
  assert.equal(db.has('0'), false);
});

test('a batch is of one partition', (t) => {
  const db = database(t, { partitions: 3 });
  const batch = (tag) => Array.from({ length: 40 }).reduce((it, _, n) => it.put(`${tag}${n}`, '1'), db.batch());
  assert.throws(() => batch('').write(), { message: /lie in two partitions/ });
  batch('{tag}').write();
  assert.equal(db.stats().keys, 40);
});

test('sums are numbers or BigInts, as what is added', async (t) => {
  const db = database(t);
  assert.equal(db.incr('n'), 1);
  assert.equal(db.incr('n', -3), -2);
  assert.equal(await db.incrAsync('n', 2n ** 60n), 2n ** 60n - 2n);
  const unsafe = { name: 'RangeError', code: 'NIGH_UNSAFE_INTEGER', message: /1152921504606846975 is made/ };
  assert.throws(() => db.incr('n'), unsafe);
  assert.equal(db.incr('n', 0n), 2n ** 60n - 1n);
  assert.throws(() => db.incr('n', 2n ** 63n - 1n), { code: 'NIGH_NOT_A_NUMBER', message: /out of the range/ });
  db.put('text', 'five');
  await assert.rejects(db.incrAsync('text'), { code: 'NIGH_NOT_A_NUMBER', message: /isn't a decimal integer/ });
  for (const by of [1.5, NaN, '1', 2 ** 53, null, 2n ** 63n]) {
    assert.throws(() => db.incr('n', by), { code: 'NIGH_INVALID', message: /^by is/ });
  }
  assert.equal(db.incr('least', -(2n ** 63n)), -(2n ** 63n));
});

test('a value is set if it is the expected one', async (t) => {
  const db = database(t);
  assert.equal(db.compareAndSet('leader', null, 'me', { expiresInMs: HOUR_MS }), true);
  assert.equal(db.compareAndSet('leader', undefined, 'you'), false);
  assert.equal(await db.compareAndSetAsync('leader', 'me', 'you', { strong: true }), true);
  assert.equal(await db.compareAndSetAsync('leader', 'you', null), true);
  assert.equal(db.has('leader'), false);
  assert.equal(db.compareAndSet('empty', null, ''), true);
  assert.equal(db.compareAndSet('empty', null, 'full'), false, 'it is there, with no bytes');
});

test('keys expire', async (t) => {
  const db = database(t);
  db.put('soon', '1', { expiresInMs: 30 });
  await db.putAsync('late', '1', { expiresAt: Date.now() + HOUR_MS });
  db.put('never', '1', { expiresInMs: Infinity });
  assert.equal(db.stats().expires, 2);
  assert.ok(db.ttl('late') > HOUR_MS - 100_000 && db.ttl('late') <= HOUR_MS, db.ttl('late'));
  assert.deepEqual([db.ttl('never'), db.ttl('none')], [Infinity, undefined]);
  assert.equal(db.expire('late'), true, 'it stays for good again');
  assert.equal(await db.expireAsync('none', { expiresInMs: 1 }), false);
  assert.equal(db.expire('late', { expiresAt: new Date(0) }), true);
  assert.equal(db.has('late'), false);
  while (db.has('soon')) await new Promise((done) => setTimeout(done, 10));
  assert.deepEqual(texts(db), { never: '1' });
  for (const [options, message] of [
    [{ expiresInMs: -1 }, /expiresInMs is -1/], [{ expiresInMs: NaN }, /expiresInMs is NaN/],
    [{ expiresAt: new Date(NaN) }, /expiresAt is NaN/], [{ expiresAt: '1' }, /expiresAt is 1/],
    [{ expiresInMs: 1, expiresAt: 1 }, /leave one out/], [{ expiresIn: 1 }, /expiresIn isn't known.*expiresInMs/],
    [{ strong: 1 }, /strong is of type Number/], [null, /options are of type null/],
  ]) {
    assert.throws(() => db.put('key', '1', options), { code: 'NIGH_INVALID', message });
  }
  assert.throws(() => db.delete('key', { expiresInMs: 1 }), /expiresInMs isn't known here/);
});

test('a walk meets all keys, and a snapshot those of its moment', (t) => {
  const db = database(t, { snapshotHoldBytes: 2 << 20 });
  const users = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`user:${n}`, String(n)]).sort());
  for (const [key, value] of Object.entries(users)) db.put(key, value);
  db.put('order:1', 'tea');
  assert.deepEqual(texts(db.scan('user:')), users);
  assert.deepEqual(texts(db), { ...users, 'order:1': 'tea' });
  const snapshot = db.snapshot('user:');
  assert.equal(snapshot.place, db.watch().place);
  db.batch().put('user:0', 'another').delete('user:1').put('user:500', 'new').write();
  const read = [];
  for (const pair of snapshot) {
    read.push(pair);
    db.put(pair[0], 'another');
  }
  assert.deepEqual(texts(read), users);
  assert.equal(read.length, 500);
  assert.deepEqual(snapshot.next(), { done: true, value: undefined });
  for (const _ of db.snapshot()) break;
  const closed = db.snapshot();
  closed.close();
  assert.throws(() => closed.next(), { code: 'NIGH_CLOSED', message: /the snapshot is closed/ });
  const slow = db.snapshot();
  for (let n = 0; n < 10_000; n++) db.put(`user:${n % 500}`, Buffer.alloc(1000));
  assert.throws(() => [...slow], { code: 'NIGH_SNAPSHOT_TOO_OLD', message: /take another/ });
});

test('a snapshot is read outside of the event loop', async (t) => {
  const db = database(t);
  const users = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`user:${n}`, String(n)]).sort());
  for (const [key, value] of Object.entries(users)) db.put(key, value);
  db.put('order:1', 'tea');
  const read = [];
  for await (const pair of db.snapshot('user:')) read.push(pair);
  assert.deepEqual([texts(read), read.length], [users, 500]);
  // Calls that don't wait for each other share steps.
  const snapshot = db.snapshot('user:');
  const first = Array.from({ length: 100 }, () => snapshot.nextAsync());
  assert.throws(() => snapshot.next(), { code: 'NIGH_INVALID', message: /await it before/ });
  const pairs = (await Promise.all(first)).map(({ value }) => value);
  pairs.push(...snapshot);
  assert.deepEqual([texts(pairs), pairs.length], [users, 500]);
  assert.deepEqual(await snapshot.nextAsync(), { done: true, value: undefined });
  // One that is left, and one that is closed while a step runs.
  for await (const _ of db.snapshot()) break;
  const closed = db.snapshot();
  const step = closed.nextAsync();
  closed.close();
  const told = { code: 'NIGH_CLOSED', message: /the snapshot is closed/ };
  await assert.rejects(step, told);
  await assert.rejects(closed.nextAsync(), told);
  const left = db.snapshot();
  db.close();
  await assert.rejects(left.nextAsync(), { code: 'NIGH_CLOSED' });
  await assert.rejects(left.nextAsync(), { code: 'NIGH_CLOSED' }, 'an error is no end');
});

test('errors have a code, name the database and say what to do', async (t) => {
  const [folder, options] = folders(t);
  const small = { ...options, capacityBytes: 8 << 20 };
  const db = nigh.open(folder, small);
  atEnd(t, () => db.close());
  const inUse = { code: 'NIGH_IN_USE', message: new RegExp(`${folder} is open in this process.*close it`) };
  assert.throws(() => nigh.open(folder, small), inUse);
  await assert.rejects(nigh.openAsync(pathToFileURL(folder), small), inUse);
  const long = { name: 'Error', code: 'NIGH_TOO_LARGE', message: new RegExp(`^${folder}: a key of 70000 bytes.*shorten it`) };
  assert.throws(() => db.put('k'.repeat(70_000), ''), long);
  await assert.rejects(db.putAsync('k'.repeat(70_000), '', { strong: true }), long);
  assert.throws(() => {
    for (let n = 0; n < 1000; n++) db.put(String(n), Buffer.alloc(60_000));
  }, { code: 'NIGH_FULL', message: /the database is full: delete keys/ });
  assert.throws(() => nigh.open(`${folder}2`, { capacityBytes: 1 }), { code: 'NIGH_INVALID', message: /the option capacityBytes is 1/ });
  assert.throws(() => nigh.open(`${folder}2`, { capacityBytes: -1 }), { name: 'RangeError', code: 'NIGH_INVALID' });
  assert.throws(() => nigh.open(`${folder}2`, { capacity: 1 }), /the option capacity isn't known here; these are: memoryDir,/);
  // It made the current folder a database.
  assert.throws(() => nigh.open(''), { code: 'NIGH_INVALID', message: /path is empty/ });
  // It took the current folder for memory.
  const nowhere = [{ memoryDir: '' }, { code: 'NIGH_INVALID', message: /memoryDir is empty: name a folder/ }];
  assert.throws(() => nigh.open(`${folder}2`, nowhere[0]), nowhere[1]);
  await assert.rejects(nigh.openAsync(`${folder}2`, nowhere[0]), nowhere[1]);
  assert.throws(() => nigh.openReader(folder, nowhere[0]), nowhere[1]);
  assert.throws(() => nigh.open(__filename), { code: 'NIGH_CANNOT_OPEN', message: /is a file/ });
  assert.throws(() => nigh.open(7), { code: 'NIGH_INVALID', message: /the path is of type Number/ });
  assert.throws(() => nigh.openReader(`${folder}3`), { code: 'NIGH_CANNOT_OPEN', message: /no database in/ });
  for (const Kind of [nigh.Db, nigh.Batch, nigh.Snapshot, nigh.Watch, nigh.Reader]) {
    assert.throws(() => new Kind(), { code: 'NIGH_INVALID', message: /isn't made by new/ });
  }
  // A stack leads to the caller, also from the pool.
  const told = await nigh.openAsync(folder, small).catch((error) => error.stack);
  assert.match(told, /calls\.test\.js/);
});

test('a fault of its own is an error and no abort', async () => {
  const native = require('nigh/nigh.node');
  const fault = { code: 'NIGH_FAULT', message: /a fault of Nigh's own \(as the test wants\)/ };
  assert.throws(() => native.panics(), fault);
  const { code, message } = await native.panicsLater();
  assert.equal(code, fault.code);
  assert.match(message, fault.message);
});

test('a closed database says so, and closing again is nothing', async (t) => {
  const [folder, options] = folders(t);
  const db = await nigh.openAsync(folder, options);
  db.put('key', 'value');
  const [walk, batch, snapshot] = [db.scan(), db.batch().put('a', '1'), db.snapshot()];
  const written = db.putAsync('other', 'value', { strong: true });
  assert.equal(db.closed, false);
  const [first, again] = [db.closeAsync(), db.closeAsync()];
  assert.equal(db.closed, true);
  const told = { code: 'NIGH_CLOSED', message: /^\/.*closed: open it again/ };
  assert.throws(() => walk.next(), told);
  const calls = [() => db.get('key'), () => db.put('key', ''), () => db.flush(), () => db.stats(),
    () => batch.write(), () => db.incr('n'), () => db.scan(), () => db.watch(),
    () => db.snapshot(), () => db.multiGet([]), () => db.has('key'), () => db.expire('key')];
  for (const call of calls) assert.throws(call, told);
  await assert.rejects(db.putAsync('key', ''), told);
  await assert.rejects(db.flushAsync(), told);
  await Promise.all([first, again, db.closeAsync()]);
  db.close();
  for (const call of calls) assert.throws(call, told);
  assert.throws(() => snapshot.next(), { code: 'NIGH_CLOSED' });
  await written; // it had begun before
  const next = nigh.open(folder, options);
  assert.deepEqual(texts(next), { key: 'value', other: 'value' });
  if (Symbol.dispose) next[Symbol.dispose]();
  else next.close();
  assert.equal(next.closed, true);
  const last = nigh.open(folder, options);
  if (Symbol.asyncDispose) await last[Symbol.asyncDispose]();
  else await last.closeAsync();
  assert.equal(last.closed, true);
});

test('strong writes share their waits for the disk, and the event loop goes on', async (t) => {
  const db = database(t, { strong: true });
  const before = db.stats().syncs;
  let turns = 0;
  const count = () => {
    turns += 1;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  const value = Buffer.from('value');
  const writes = Array.from({ length: 500 }, (_, n) => db.putAsync(String(n), value));
  value.fill(0);
  assert.equal(db.stats().keys, 500, 'they are made within their calls');
  await Promise.all(writes);
  const { syncs, durableChange, lastChange } = db.stats();
  assert.equal(durableChange, lastChange);
  assert.ok(syncs - before < 100, `${syncs - before} syncs`);
  assert.ok(turns > 0, 'the loop went on');
  assert.equal(text(db.get('499')), 'value');
  await db.putAsync('eventual', '1', { strong: false });
  await db.flushAsync();
  assert.equal(db.stats().durableChange, 501);
  db.put('waits', '1');
  assert.equal(db.stats().durableChange, 502);
  clearImmediate(timer);
});

test('what changed nothing is not told as made when the disk does not take it', async (t) => {
  const db = database(t, { strong: true });
  const native = require(path.join(path.dirname(require.resolve('nigh')), 'nigh.node'));
  const { flushLater } = native.Db.prototype;
  atEnd(t, () => { native.Db.prototype.flushLater = flushLater; });
  native.Db.prototype.flushLater = async () => ({ code: 'NIGH_NOT_DURABLE', message: 'the change is made, but ...' });
  const [yes, ...others] = await Promise.allSettled([
    db.compareAndSetAsync('leader', null, 'first'), db.compareAndSetAsync('leader', null, 'second'),
    db.deleteAsync('none'), db.expireAsync('none'), db.batch().delete('none').delete('nor that').writeAsync(),
    db.batch().writeAsync(),
  ]);
  assert.equal(yes.reason.code, 'NIGH_NOT_DURABLE');
  assert.equal(others.length, 5);
  await assert.rejects(db.batch().put('batch', 'made').delete('none').writeAsync(), { code: 'NIGH_NOT_DURABLE' });
  for (const { reason } of others) {
    assert.equal(reason.code, 'NIGH_BUSY');
    assert.match(reason.message, /nothing has changed/);
  }
  assert.equal(text(db.get('leader')), 'first');
});

test('the types name all that there is', () => {
  const folder = path.dirname(require.resolve('nigh'));
  const files = ['index.d.ts', 'client.d.ts'];
  const types = files.map((name) => fs.readFileSync(path.join(folder, name), 'utf8')).join('');
  const exported = [...types.matchAll(/^export (?:function|class) (\w+)/gm)].map((it) => it[1]);
  assert.deepEqual([...new Set(exported)].sort(), Object.keys(nigh).sort());
  for (const [, name, body] of types.matchAll(/^export class (\w+)[^{]*\{\n([^]*?)^\}/gm)) {
    const members = [...body.matchAll(/^ {2}(?:readonly )?(\w+|\[Symbol\.\w+\])[(:<]/gm)].map((it) => it[1]);
    const there = Reflect.ownKeys(nigh[name].prototype).filter((key) => key !== 'constructor');
    const symbol = (key) => `[Symbol.${key.description.replace(/^.*\./, '')}]`;
    const named = there.map((key) => (typeof key === 'symbol' ? symbol(key) : key));
    const wanted = new Set(members.filter((it) => (Symbol.dispose || !/[dD]ispose/.test(it)) && it !== 'constructor'));
    assert.deepEqual(named.sort(), [...wanted].sort(), name);
  }
});
