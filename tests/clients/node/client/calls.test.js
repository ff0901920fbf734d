'use strict';

// What a client does, locally and by requests, beside an unmodified ioredis on the same data.

const assert = require('node:assert/strict');
const { test } = require('node:test');
const { nigh, LOCAL, TCP, LIMIT_MS, connect, runs, ioredis } = require('./support.js');

const HOUR_S = 3600;
const KINDS = [['local', LOCAL, {}], ['by requests', LOCAL, { local: 'never' }], ['over TCP', TCP, {}]];

for (const [kind, address, options] of KINDS) {
test(`${kind}: calls answer what ioredis gets, and both see the same data`, async (t) => {
  const [client, redis] = [await connect(t, address, options), ioredis(t)];
  assert.equal(client.isLocal, kind === 'local');
  assert.equal(client.whyNotLocal === null, kind === 'local');
  await redis.flushall();
  // The same calls, one after another, by each client on keys of its own.
  const bytes = Buffer.from([0, 255, 13, 10]);
  const calls = [
    ['set', 'k', 'schön'], ['get', 'k'], ['getBuffer', 'k'], ['get', 'none'], ['getBuffer', 'none'],
    ['set', 'n', 7], ['incr', 'n'], ['incrby', 'n', 5], ['decrby', 'n', 3], ['decr', 'n'], ['get', 'n'],
    ['incrbyfloat', 'n', 0.5], ['set', 'k', 'x', 'NX'], ['set', 'k', 'x', 'EX', 100, 'XX', 'GET'], ['ttl', 'k'],
    ['set', 'k', bytes, 'KEEPTTL'], ['getBuffer', 'k'], ['ttl', 'k'], ['persist', 'k'], ['ttl', 'k'],
    ['pttl', 'none'], ['expire', 'k', HOUR_S], ['expire', 'none', 1], ['ttl', 'k'], ['append', 'k', 'abc'],
    ['strlen', 'k'], ['strlen', 'none'], ['exists', 'k', 'none', 'k'], ['exists', ['k', 'n']],
    ['mset', { a: 1, b: '2' }], ['mset', new Map([['c', '3']])], ['mset', 'd', 4, 'e', 5], ['msetnx', ['a', 1, 'z', 2]],
    ['mget', 'a', 'b', 'none', 'c'], ['mget', ['d', 'e']], ['mgetBuffer', 'a', 'none'], ['setnx', 'a', 1],
    ['getset', 'a', 'é'], ['getdel', 'a'], ['getex', 'b', 'PERSIST'], ['setex', 's', 9, 'v'], ['psetex', 's', 9000, 'v'],
    ['set', 'text', 'Hello, Welt'], ['getrange', 'text', 0, 4], ['getrangeBuffer', 'text', -4, -1], ['getrange', 'text', 5, 2],
    ['getrange', 'text', -1, -3], ['getrange', 'text', 0, -99], ['getrange', 'text', -99, 2], ['getrange', 'none', 0, 1],
    ['setrange', 'text', 7, 'Hello'], ['getrange', 'text', '7', '11'], ['type', 'text'], ['rename', 'text', 'u'],
    ['copy', 'u', 'v'], ['del', 'u', 'v', 'none'], ['unlink', ['s']], ['call', 'GET', 'b'], ['call', 'strlen', ['b']],
    ['callBuffer', 'GET', 'b'], ['set', '', ''], ['get', ''], ['exists', ''], ['echo', 'there'], ['ping'],
    ['randomkey'], ['dbsize'],
  ].filter(([name]) => name !== 'randomkey' && name !== 'dbsize');
  const answers = [];
  // A machine that is busy is some seconds late.
  const minutes = (seconds) => (seconds < 0 ? seconds : Math.ceil(seconds / 60));
  for (const it of [client, redis]) {
    await redis.flushall();
    const gave = [];
    for (const [name, ...given] of calls) {
      const reply = await it[name](...given);
      gave.push([name, name === 'ttl' ? minutes(reply) : reply]);
    }
    answers.push(gave);
  }
  assert.deepEqual(answers[0], answers[1]);
  assert.equal(await client.get('b'), await redis.get('b'));
  await redis.set('of', 'ioredis');
  assert.equal(await client.get('of'), 'ioredis', 'a read behind the reply sees it');
  assert.equal(await client.randomkey() !== null, true);
  assert.equal(await client.dbsize(), await redis.dbsize());
});

test(`${kind}: reads have a form that is done when it returns`, async (t) => {
  const [client, redis] = [await connect(t, address, options), ioredis(t)];
  await redis.flushall();
  await redis.mset('a', 'schön', 'b', '2');
  await redis.set('brief', '1', 'PX', HOUR_S * 1000);
  const long = Buffer.alloc(3 << 20, 'xyz');
  await redis.set('long', long);
  const key = Buffer.alloc(60_000, 7);
  await redis.set(key, 'of a long key');
  assert.equal(client.getSync('a'), 'schön');
  assert.deepEqual(client.getBufferSync('a'), Buffer.from('schön'));
  assert.deepEqual([client.getSync('none'), client.getBufferSync('none')], [null, null]);
  assert.deepEqual(client.mgetSync('a', 'none', ['b']), ['schön', null, '2']);
  assert.deepEqual(client.mgetBufferSync(['a', 'b']), [Buffer.from('schön'), Buffer.from('2')]);
  assert.equal(client.existsSync('a', 'none', 'b'), 2);
  assert.equal(client.strlenSync('a'), 6);
  assert.deepEqual([client.getrangeSync('b', 0, -1), client.getrangeBufferSync('b', 0, 0)], ['2', Buffer.from('2')]);
  assert.deepEqual([client.ttlSync('a'), client.ttlSync('none')], [-1, -2]);
  assert.ok(client.ttlSync('brief') > 3_000 && client.ttlSync('brief') <= HOUR_S);
  assert.ok(client.pttlSync('brief') > 3_000_000 && client.pttlSync('brief') <= 3_600_100, 'clocks are some ms late');
  assert.deepEqual(client.getBufferSync('long'), long);
  assert.equal(client.getSync('long'), long.toString());
  assert.equal(client.strlenSync('long'), long.length);
  assert.equal(client.getrangeSync('long', 3_000_000, 3_000_005), 'xyzxyz');
  assert.deepEqual(client.mgetBufferSync('long', 'a')[0], long);
  assert.equal(client.getSync(key), 'of a long key');
  // More keys than the scratch has room for.
  assert.deepEqual(new Set(client.mgetSync(Array.from({ length: 40 }, () => key))), new Set(['of a long key']));
  // What comes back is a copy.
  client.getBufferSync('b').fill(0);
  assert.equal(client.getSync('b'), '2');
});

test(`${kind}: a pipeline answers in order, with errors in place`, async (t) => {
  const [client, redis] = [await connect(t, address, options), ioredis(t)];
  const answers = [];
  for (const it of [client, redis]) {
    await redis.flushall();
    const pipeline = it.pipeline();
    for (let n = 0; n < 3000; n++) pipeline.set(`key:${n}`, n).get(`key:${n}`);
    pipeline.set('text', 'abc').incr('text').getBuffer('text').call('STRLEN', 'text').mget('text', 'none');
    assert.equal(pipeline.length, 6005);
    const gave = await pipeline.exec();
    answers.push(gave.map(([error, reply]) => [error && [error.name, error.message, error.command.name], reply]));
  }
  assert.deepEqual(answers[0], answers[1]);
  const list = await client.pipeline([['set', 'a', '1'], ['get', 'a']]).exec();
  assert.deepEqual(list, [[null, 'OK'], [null, '1']]);
  assert.deepEqual(await client.pipeline().exec(), []);
});

test(`${kind}: a transaction is seen whole, or isn't made`, async (t) => {
  const [client, redis] = [await connect(t, address, options), ioredis(t)];
  await redis.flushall();
  const answers = [];
  for (const it of [client, redis]) {
    await redis.flushall();
    const gave = await it.multi().set('a', 1).incr('a').getBuffer('a').set('t', 'x').incr('t').exec();
    answers.push(gave.map(([error, reply]) => [error?.message ?? null, reply]));
    const refused = await it.multi().set('b', 1).call('NOSUCH').exec().catch((error) => error);
    answers.push([refused.name, refused.message, refused.previousErrors.map((error) => error.message)]);
  }
  assert.deepEqual(answers.slice(0, 2), answers.slice(2));
  assert.equal(await client.exists('b'), 0);
  assert.deepEqual(await client.multi().exec(), []);
  const once = client.multi().get('a');
  await once.exec();
  await assert.rejects(once.exec(), { code: 'NIGH_INVALID', message: /begin another/ });
  assert.throws(() => once.get('a'), { code: 'NIGH_INVALID' });
});

test(`${kind}: a transaction behind a watch happens only if the keys stay as they are`, async (t) => {
  const [client, redis, other] = [await connect(t, address, options), ioredis(t), ioredis(t)];
  const answers = [];
  for (const it of [client, redis]) {
    await redis.flushall();
    const gave = [];
    const add = async (disturb) => {
      gave.push(await it.watch('n', ['m', 'o']));
      const number = Number(await it.get('n'));
      await disturb();
      gave.push(await it.multi().set('n', number + 1).get('n').exec(), await it.get('n'));
    };
    await add(() => {});
    await add(() => other.set('p', 1));
    await add(() => other.set('n', 7));
    await add(() => other.set('o', 1));
    await add(() => it.set('n', 9));
    await add(async () => { gave.push(await it.unwatch()); await other.set('n', 20); });
    await add(() => other.del('n', 'o'));
    gave.push(await it.multi().set('n', 'unguarded').exec());
    answers.push(gave);
  }
  assert.deepEqual(answers[0], answers[1]);
  assert.equal(answers[0].filter((it) => it === null).length, 5, 'four transactions, and the key at the end');
  await assert.rejects(client.watch(), { name: 'ReplyError', message: /wrong number of arguments/ });
  assert.throws(() => client.pipeline().call('WATCH', 'a'), { message: /use watch\(\)/ });
});
}

// Each kind of read kept the longest values that it had ever met.
test('a long value that was read leaves no memory behind', async (t) => {
  const client = await connect(t);
  // The allocator keeps shorter ones for itself.
  await client.set('long', Buffer.alloc(40 << 20));
  const source = `const { connect } = require('nigh');
    const fs = require('node:fs');
    require('v8').setFlagsFromString('--expose-gc');
    const gc = require('vm').runInNewContext('gc');
    const ownMib = () => /RssAnon:\\s+(\\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1] / 1024;
    (async () => {
      const client = await connect(process.argv[1], { local: 'required' });
      const mostMib = ownMib() + 20;
      const reads = [() => client.strlenSync('long'), () => client.getrangeSync('long', 5, 2),
        () => client.getBufferSync('long').length, () => client.mgetBufferSync('long', 'none').length];
      for (const read of reads) {
        const told = read();
        // What JavaScript itself had of it goes a little later.
        for (const end = Date.now() + ${LIMIT_MS / 6}; Date.now() < end && ownMib() > mostMib;) {
          gc();
          await new Promise((done) => setTimeout(done, 10));
        }
        console.log(JSON.stringify(told), ownMib() > mostMib ? 'is kept' : 'is gone');
      }
      client.disconnect();
    })();`;
  const told = await runs(source, LOCAL);
  await client.del('long');
  assert.equal(told, `${40 << 20} is gone\n"" is gone\n${40 << 20} is gone\n2 is gone\n`);
});

test('clients that watch at once lose no update', async (t) => {
  const clients = await Promise.all(Array.from({ length: 3 }, () => connect(t)));
  await clients[0].del('sum');
  const add = async (client) => {
    for (let done = 0; done < 30;) {
      await client.watch('sum');
      const sum = Number(await client.get('sum'));
      if (await client.multi().set('sum', sum + 1).exec() !== null) done += 1;
    }
  };
  await Promise.all(clients.map(add));
  assert.equal(await clients[0].get('sum'), '90');
});

// The client looked at one key after the other, while the server renamed them.
test('a key that is renamed to and fro is there once', async (t) => {
  const [client, writer] = [await connect(t), await connect(t)];
  await writer.del('to', 'fro');
  await writer.set('to', '');
  const renames = writer.pipeline();
  for (let n = 0; n < 20_000; n++) renames.rename('to', 'fro').rename('fro', 'to');
  let isRenaming = true;
  const renaming = renames.exec().finally(() => { isRenaming = false; });
  while (isRenaming) {
    for (let n = 0; n < 20; n++) assert.equal(client.existsSync('to', 'fro'), 1);
    assert.equal(await client.exists(['to', 'fro']), 1);
    await new Promise((soon) => setImmediate(soon));
  }
  assert.deepEqual((await renaming).filter(([error]) => error !== null), []);
});

test('calls happen in the order in which they are called', async (t) => {
  const client = await connect(t);
  await client.set('a', '0');
  const seen = [];
  for (let n = 1; n <= 200; n++) {
    client.set('a', n);
    seen.push(client.get('a'), client.incrby('a', 1000));
  }
  const wanted = Array.from({ length: 200 }, (_, n) => [String(n + 1), n + 1001]).flat();
  assert.deepEqual(await Promise.all(seen), wanted);
});

test('what one turn calls goes to the server together', async (t) => {
  const client = await connect(t, TCP);
  const many = Array.from({ length: 10_000 }, (_, n) => client.set(`many:${n % 100}`, n));
  assert.deepEqual(new Set(await Promise.all(many)), new Set(['OK']));
});

test('values and errors of functions, and replies that are nested', async (t) => {
  const client = await connect(t);
  await client.function('LOAD', 'REPLACE', `#!js name=client
    export const pair = (db, args) => [args, [1, null, 'x']];
    export const fails = () => { throw new Error('as the test wants'); };
    pair.flags = ['no-writes'];`);
  assert.deepEqual(await client.fcall('pair', 1, 'key', 'a', 'b'), [['a', 'b'], [1, null, 'x']]);
  assert.deepEqual(await client.fcall_ro('pair', 0), [[], [1, null, 'x']]);
  assert.deepEqual(await client.fcallBuffer('pair', 0, 'ä'), [[Buffer.from('ä')], [1, null, Buffer.from('x')]]);
  await assert.rejects(client.fcall('fails', 0), { name: 'ReplyError', message: /as the test wants/ });
});

test('a stream meets all keys', async (t) => {
  const client = await connect(t);
  await client.flushall();
  await client.mset(Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`user:${n}`, n])));
  await client.set('other', '');
  const met = new Set();
  for await (const keys of client.scanStream({ match: 'user:*', count: 100 })) keys.forEach((key) => met.add(key));
  assert.equal(met.size, 1000);
  const bytes = [];
  for await (const keys of client.scanBufferStream({ match: 'other' })) bytes.push(...keys);
  assert.deepEqual(bytes, [Buffer.from('other')]);
});

test('a view reads keys of one moment, and decides by one what it reads next', async (t) => {
  const [client, writer] = [await connect(t), await connect(t)];
  await client.mset('session', 'user:7', 'user:7', 'Ada', 'a', '0', 'b', '0');
  const name = client.view((view) => view.get(view.get('session')));
  assert.equal(name, 'Ada');
  assert.deepEqual(client.view((view) => [view.getBuffer('a'), view.get('none'), view.exists('a', 'none')]),
    [Buffer.from('0'), null, 1]);
  let writes = true;
  const writing = (async () => {
    for (let n = 1; writes; n++) await writer.multi().set('a', n).set('b', n).exec();
  })();
  let last = 0;
  const end = Date.now() + LIMIT_MS;
  for (let round = 0; last < 50; round++) {
    assert.ok(Date.now() < end, `${last} writes were seen`);
    const [a, b] = client.view((view) => [view.get('a'), view.get('b')]);
    assert.equal(a, b);
    assert.ok(Number(a) >= last, 'reads don’t go back');
    last = Number(a);
    if (round % 10 === 0) await new Promise((soon) => setImmediate(soon));
  }
  writes = false;
  await writing;
});

test('a view that cannot be says why', async (t) => {
  const [client, remote] = [await connect(t), await connect(t, TCP)];
  assert.throws(() => remote.view(() => 1), { code: 'NIGH_NOT_LOCAL', message: /Unix socket; a view reads/ });
  assert.throws(() => client.view('key'), { name: 'TypeError', code: 'NIGH_INVALID' });
  assert.throws(() => client.view(async (view) => view.get('a')), { code: 'NIGH_INVALID', message: /returned a Promise/ });
  assert.throws(() => client.view(() => { throw new RangeError('mine'); }), { name: 'RangeError', message: 'mine' });
  assert.throws(() => client.view(() => { throw null; }), /threw null/);
  let kept;
  client.view((view) => { kept = view; });
  assert.throws(() => kept.get('a'), { code: 'NIGH_CLOSED', message: /the view has ended/ });
  assert.throws(() => client.view((view) => view.get({})), { code: 'NIGH_INVALID' });
  assert.throws(() => new nigh.View(), { code: 'NIGH_INVALID' });
});

test('keys that end are judged by the server', async (t) => {
  const client = await connect(t);
  for (let round = 0; round < 20; round++) {
    await client.set('brief', round, 'PX', 5);
    for (const end = performance.now() + 1000; client.getSync('brief') !== null;) {
      assert.ok(performance.now() < end);
    }
    assert.equal(await client.get('brief'), null);
    assert.equal(client.view((view) => view.get('brief')), null);
    assert.deepEqual([client.ttlSync('brief'), client.existsSync('brief')], [-2, 0]);
  }
});
