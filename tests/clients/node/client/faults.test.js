'use strict';

// What can't be: each is one clear error, and nothing else happens.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const vm = require('node:vm');
const { Worker } = require('node:worker_threads');
const { nigh, LOCAL, TCP, LIMIT_MS, connect, sleep, runs, ioredis } = require('./support.js');

const HALF = 'half \ud800';

// A server of another make: it answers each request by what `answer` says.
async function other(t, answer) {
  const socket = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'nigh-other-')), 'socket');
  const server = net.createServer((connection) => {
    connection.on('data', (request) => connection.write(answer(request.toString().toUpperCase())));
    connection.on('error', () => {});
  });
  t.after(() => server.close());
  await new Promise((done) => server.listen(socket, done));
  return `unix:${socket}`;
}

for (const address of [LOCAL, TCP]) {
test(`${address === TCP ? 'over TCP' : 'local'}: arguments of a wrong kind are refused before anything is sent`, async (t) => {
  const client = await connect(t, address);
  for (const given of [undefined, null, {}, true, Symbol('x'), NaN, Infinity, new Uint16Array(1), new ArrayBuffer(1), () => 1]) {
    const told = { name: 'TypeError', code: 'NIGH_INVALID', message: /^the .* is .*a string, a Buffer or a number is needed$/ };
    if (given !== undefined) {
      await assert.rejects(client.get(given), told);
      assert.throws(() => client.getSync(given), told);
    }
    await assert.rejects(client.set('key', given), told);
    await assert.rejects(client.mget('key', given), told);
    assert.throws(() => client.mgetSync(['key', given]), told);
    assert.throws(() => client.existsSync(given), told);
    assert.throws(() => client.pipeline().set('key', given), told);
  }
  const half = { name: 'TypeError', code: 'NIGH_INVALID', message: /half of a surrogate pair/ };
  await assert.rejects(client.get(HALF), half);
  assert.throws(() => client.getSync(HALF), half);
  await assert.rejects(client.set('key', HALF), half);
  assert.throws(() => client.mgetSync('key', HALF), half);
  assert.throws(() => client.multi().set('key', HALF), half);
  assert.equal(await client.set('\ud83d\ude00', '\ud83d\ude00'), 'OK');
  assert.equal(client.getSync('\ud83d\ude00'), '\ud83d\ude00');
  const shared = new Uint8Array(new SharedArrayBuffer(3)).fill(65);
  await client.set(shared, shared);
  assert.deepEqual([client.getSync('AAA'), await client.get(shared)], ['AAA', 'AAA']);
});

test(`${address === TCP ? 'over TCP' : 'local'}: what is too long, or too large a number, is told`, async (t) => {
  const client = await connect(t, address);
  const huge = Buffer.alloc(70_000);
  const told = { code: 'NIGH_TOO_LARGE', message: /a key of 70000 bytes: 65535 are the most/ };
  await assert.rejects(client.get(huge), told);
  assert.throws(() => client.getSync(huge), told);
  assert.throws(() => client.mgetSync('a', huge.toString('latin1')), told);
  const refused = { code: 'NIGH_TOO_LARGE', message: /key is longer than 65535 bytes/ };
  await assert.rejects(client.set(huge, 'x'), refused);
  await assert.rejects(client.mset('a', 'x', huge.subarray(0, 65_536), 'x'), refused);
  const [, [error]] = await client.pipeline().ping().set(huge, 'x').exec();
  assert.equal(error.code, 'NIGH_TOO_LARGE');
  await client.set('n', '9007199254740993');
  await assert.rejects(client.incr('n'), { code: 'NIGH_UNSAFE_INTEGER', message: /9007199254740994 is no safe number/ });
  assert.equal(await client.get('n'), '9007199254740994');
  assert.equal(await client.incrby('n', -9007199254740000n), 994);
  const [[unsafe], [, next]] = await client.pipeline().incrby('n', 9007199254740993n).del('n').exec();
  assert.deepEqual([unsafe.code, next], ['NIGH_UNSAFE_INTEGER', 1]);
});

test(`${address === TCP ? 'over TCP' : 'local'}: the server's refusals are as in ioredis`, async (t) => {
  const [client, redis] = [await connect(t, address), ioredis(t)];
  await redis.set('text', 'abc');
  for (const [name, ...given] of [['incr', 'text'], ['get'], ['get', 'a', 'b'], ['mget'], ['exists'], ['ttl'],
    ['getrange', 'text', 'x', 1], ['set', 'text', 'x', 'NOSUCH'], ['call', 'NOSUCH', 'a'], ['fcall', 'nosuch', 0]]) {
    const [ours, theirs] = [await client[name](...given).catch((it) => it), await redis[name](...given).catch((it) => it)];
    assert.deepEqual([ours.name, ours.message, ours.command.args], ['ReplyError', theirs.message, given.slice(name === 'call' ? 1 : 0)]);
    assert.ok(ours instanceof nigh.ReplyError && ours.code === theirs.message.split(' ')[0]);
  }
  assert.throws(() => client.getSync(), { name: 'ReplyError', code: 'ERR' });
});
}

test('commands that change the connection are refused, with what to use', async (t) => {
  const client = await connect(t);
  for (const given of [['MULTI'], ['watch', 'a'], ['HELLO', '3'], ['quit'], ['client', 'reply', 'off'], ['LOCAL', 'ATTACH', '1'],
    ['subscribe', 'a'], ['PSUBSCRIBE', 'a*'], ['ssubscribe', 'a'], ['Monitor']]) {
    assert.throws(() => client.call(...given), { code: 'NIGH_INVALID', message: /changes the connection/ });
  }
  assert.throws(() => client.client('REPLY', 'OFF'), { code: 'NIGH_INVALID' });
  // Bytes that are no Buffer were sent: no reply came to CLIENT REPLY OFF, nor to any later call.
  for (const bytes of [Buffer.from('reply'), new TextEncoder().encode('Reply')]) {
    assert.throws(() => client.client(bytes, 'OFF'), { code: 'NIGH_INVALID', message: /CLIENT REPLY changes/ });
    assert.throws(() => client.call('CLIENT', [bytes, 'OFF']), { code: 'NIGH_INVALID' });
  }
  assert.throws(() => client.call(7), { name: 'TypeError', code: 'NIGH_INVALID' });
  assert.throws(() => client.pipeline([['nosuch', 'a']]), { code: 'NIGH_INVALID', message: /nosuch is no command/ });
});

// A misspelled pattern met all keys.
test('an option of a stream that is not known is refused at once', async (t) => {
  const client = await connect(t);
  for (const [given, message] of [[{ pattern: 'tmp:*' }, /pattern isn't known here; these are: match, type, count/],
    [{ match: null }, /the option match is of type null/], [{ count: NaN }, /the option count is NaN/],
    [null, /options are of type null/], ['tmp:*', /options are of type String/]]) {
    const told = { name: 'TypeError', code: 'NIGH_INVALID', message };
    assert.throws(() => client.scanStream(given), told);
    assert.throws(() => client.scanBufferStream(given), told);
  }
});

test('an address, an option or a socket that cannot be is told', async () => {
  const invalid = { code: 'NIGH_INVALID' };
  for (const address of ['', 'example:70000', 'rediss://example', 'redis://h/3', 7, null, undefined, new URL('redis://h'), HALF]) {
    assert.throws(() => new nigh.Client(address), invalid);
    await assert.rejects(nigh.connect(address), invalid);
  }
  for (const options of [{ nosuch: 1 }, { local: 'maybe' }, { timeoutMs: -1 }, { timeoutMs: 0 }, { waitMs: 1.5 }, { spinUs: 'x' }, { spinUs: 1_000_001 }, { name: 7 }, null, { password: HALF }]) {
    await assert.rejects(nigh.connect(LOCAL, options), invalid);
  }
  const nobody = { code: 'NIGH_NOT_ATTACHED', message: /nothing listens at unix:\/nonexistent\/socket.*nothing was sent/ };
  await assert.rejects(nigh.connect('unix:/nonexistent/socket'), nobody);
  const client = new nigh.Client('unix:/nonexistent/socket');
  await assert.rejects(client.get('a'), nobody);
  assert.throws(() => client.getSync('a'), nobody);
  assert.throws(() => client.view(() => 1), nobody);
  assert.deepEqual([client.isLocal, /not attached/.test(client.whyNotLocal)], [false, true]);
  client.disconnect();
  await assert.rejects(nigh.connect(`unix:/${'x'.repeat(200)}`), { code: 'NIGH_NOT_ATTACHED' });
  await assert.rejects(nigh.connect(TCP, { local: 'required' }), { code: 'NIGH_NOT_LOCAL', message: /connect to the server's Unix socket/ });
});

test('a server of another make or version is used by requests, or refused', async (t) => {
  const older = await other(t, (request) => (request.includes('LOCAL') ? '-ERR unknown command LOCAL\r\n' : '+PONG\r\n'));
  const client = await connect(t, older);
  assert.deepEqual([client.isLocal, client.whyNotLocal], [false, 'ERR unknown command LOCAL']);
  assert.equal(await client.get('key'), 'PONG');
  await assert.rejects(nigh.connect(older, { local: 'required' }), { code: 'NIGH_NOT_LOCAL', message: /unknown command LOCAL/ });
  const newer = await other(t, (request) => (request.includes('LOCAL')
    ? '*2\r\n$8\r\nprotocol\r\n:9\r\n' : '+PONG\r\n'));
  assert.match((await connect(t, newer)).whyNotLocal, /speaks version 9 of the local protocol/);
  const none = await other(t, () => 'HTTP/1.1 400 Bad Request\r\n\r\n');
  await assert.rejects(nigh.connect(none), { code: 'NIGH_CANNOT_CONNECT', message: /unix:.*socket/ });
});

// It was a plain object, in a reply that looked like a success.
test('an element of a reply that is an error is an Error', async (t) => {
  const list = '*3\r\n-ERR x\r\n*1\r\n:9007199254740993\r\n$1\r\na\r\n';
  const answers = [['LOCAL', '-ERR unknown command LOCAL\r\n'], ['PING', '+PONG\r\n'],
    ['MULTI', `+OK\r\n+QUEUED\r\n*1\r\n${list}`], ['', list]];
  const address = await other(t, (request) => answers.find(([name]) => request.includes(name))[1]);
  const client = await connect(t, address);
  const [[, piped]] = await client.pipeline().call('LIST').exec();
  const [[, done]] = await client.multi().call('LIST').exec();
  for (const [error, [unsafe], text] of [await client.call('LIST'), piped, done]) {
    assert.ok(error instanceof nigh.ReplyError && unsafe instanceof Error);
    assert.deepEqual([error.message, unsafe.code, text], ['ERR x', 'NIGH_UNSAFE_INTEGER', 'a']);
  }
});

// It was sent, so the server ended the connection, and the error said that the reply was lost.
test('a call with too many arguments is refused before it is sent', async (t) => {
  const client = await connect(t);
  const many = new Array(1024 * 1024).fill('x');
  const told = { name: 'RangeError', code: 'NIGH_TOO_LARGE', message: /^MGET has 1048577 words: 1048576 are the most/ };
  const [before, refused, behind] = await Promise.allSettled([client.set('a', 1), client.call('MGET', many), client.incr('a')]);
  assert.deepEqual([before.value, refused.status, behind.value], ['OK', 'rejected', 2]);
  await assert.rejects(Promise.reject(refused.reason), told);
  assert.throws(() => client.pipeline().call('MGET', many), told);
});

// The package's files as another realm has them, where nigh.node was loaded by this one.
function inAnotherRealm() {
  const [folder, context, loaded] = [path.dirname(require.resolve('nigh')), vm.createContext({ Buffer }), new Map()];
  const load = (name) => {
    if (!name.startsWith('./') || name.endsWith('.node')) return require(name.replace(/^\./, folder));
    if (!loaded.has(name)) {
      const module = { exports: {} };
      loaded.set(name, module);
      const source = fs.readFileSync(path.join(folder, name), 'utf8');
      vm.runInContext(`(function (require, module) {${source}\n})`, context)(load, module);
    }
    return loaded.get(name).exports;
  };
  return load('./client.js');
}

// Jest's tests and programs of node:vm have an Object of their own. Each failed call was a success
// there, with an object that named the error.
test('a call that fails does so in another realm, too', async (t) => {
  const other = inAnotherRealm();
  const client = new other.Client(LOCAL);
  t.after(() => client.disconnect());
  await client.set('text', 'abc');
  await assert.rejects(client.incr('text'), { name: 'ReplyError', code: 'ERR' });
  assert.throws(() => client.getSync(), { name: 'ReplyError', code: 'ERR' });
  const [[refused], [, text], [, bytes]] = await client.pipeline().incr('text').get('text').getBuffer('text').exec();
  assert.deepEqual([refused.name, text, String(bytes)], ['ReplyError', 'abc', 'abc']);
  await assert.rejects(client.multi().call('NOSUCH').exec(), { name: 'ReplyError', code: 'EXECABORT' });
  assert.equal(String(await client.getBuffer('text')), 'abc');
  const nobody = new other.Client('unix:/nonexistent/socket');
  await assert.rejects(nobody.set('a', 1), { code: 'NIGH_NOT_ATTACHED' });
  nobody.disconnect();
});

test('a client that is closed refuses calls, and what is pending ends', async (t) => {
  const closed = { code: 'NIGH_CLOSED', message: new RegExp(`^${LOCAL}: the client is closed: connect again$`) };
  const client = await connect(t);
  await client.set('a', '1');
  const pending = [client.incr('a'), client.incr('a')];
  assert.equal(await client.quit(), 'OK');
  assert.deepEqual(await Promise.all(pending), [2, 3]);
  assert.deepEqual([client.closed, client.isLocal, client.whyNotLocal], [true, false, 'the client is closed']);
  await assert.rejects(client.get('a'), closed);
  await assert.rejects(client.set('a', '1'), closed);
  for (const call of [() => client.getSync('a'), () => client.mgetSync('a'), () => client.view(() => 1)]) {
    assert.throws(call, closed);
  }
  await assert.rejects(client.pipeline().get('a').exec(), closed);
  assert.equal(await client.quit(), 'OK');
  const other = await connect(t);
  const rest = [other.incr('a'), other.multi().incr('a').exec()];
  other.disconnect();
  for (const it of rest) await assert.rejects(it, closed);
  assert.equal(await (await connect(t)).get('a'), '3');
  if (Symbol.asyncDispose) {
    const last = await connect(t);
    await last[Symbol.asyncDispose]();
    assert.ok(last.closed);
  }
});

test('a client stays in its worker, and a worker has its own', async (t) => {
  const client = await connect(t);
  await client.set('key', 'value');
  assert.throws(() => structuredClone(client), { name: 'DataCloneError', message: /BelongsToItsThread_connectAnother/ });
  const source = `const { parentPort, workerData } = require('node:worker_threads');
    require('nigh').connect(workerData).then(async (client) => {
      client.set('later', '1');
      parentPort.postMessage([client.getSync('key'), await client.get('key'), client.isLocal]);
      client.set('pending', 'x'.repeat(1_000_000)).catch(() => {});
    });`;
  assert.throws(() => new Worker(source, { eval: true, workerData: client }), { name: 'DataCloneError' });
  for (let round = 0; round < 3; round++) {
    const worker = new Worker(source, { eval: true, workerData: LOCAL });
    const told = await new Promise((done) => worker.once('message', done));
    assert.deepEqual(told, ['value', 'value', true]);
    await worker.terminate();
  }
});

test('an idle client keeps no process alive, and a forgotten one goes', async (t) => {
  const client = await connect(t);
  const before = await client.call('LOCAL', 'LIST');
  const source = `const { connect } = require('nigh');
    require('v8').setFlagsFromString('--expose-gc');
    const gc = require('vm').runInNewContext('gc');
    (async () => {
      const kept = await connect(process.argv[1]);
      const attached = async () => String(await kept.call('LOCAL', 'LIST')).trim().split('\\n').length;
      // A busy shard lists them a little later. The test's own client is one, too.
      const listed = async (count) => {
        for (const end = Date.now() + ${LIMIT_MS / 2}; Date.now() < end && await attached() < count;) ;
        return attached();
      };
      const few = await listed(2);
      // Held until they are counted: else they may be gone by then.
      let held = await Promise.all(Array.from({ length: 40 }, async () => {
        const one = await connect(process.argv[1]);
        await one.set('a', 1);
        return one;
      }));
      const most = await listed(few + held.length);
      held = null;
      for (const end = Date.now() + ${LIMIT_MS / 2}; Date.now() < end && await attached() > most - 40;) {
        gc();
        await new Promise((done) => setTimeout(done, 10));
      }
      console.log(most - await attached());
    })();`;
  assert.equal(await runs(source, LOCAL), '40\n');
  for (const end = Date.now() + LIMIT_MS; (await client.call('LOCAL', 'LIST')).length > before.length + 20;) {
    assert.ok(Date.now() < end);
    await sleep(5);
  }
});
