'use strict';

// Servers that end, stand still, want a password or wait for the disk.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { nigh, LIMIT_MS, connect, sleep, runs, Server } = require('./support.js');

// Until a call succeeds.
async function until(call) {
  for (const end = Date.now() + LIMIT_MS; ; await sleep(2)) {
    try {
      return await call();
    } catch (error) {
      if (Date.now() > end || !['NIGH_NOT_ATTACHED', 'NIGH_UNANSWERED', 'NIGH_UNKNOWN'].includes(error.code)) throw error;
    }
  }
}

test('a client of a killed server says so, and goes on with the next one', async (t) => {
  const server = await Server.start(t);
  const client = await connect(t, server.address);
  await client.mset('a', '1', 'b', '2');
  for (let round = 0; round < 3; round++) {
    await server.end('SIGKILL');
    await sleep(15);
    const gone = { code: 'NIGH_NOT_ATTACHED', message: /nothing was sent.*waitMs/ };
    await assert.rejects(client.set('a', '1'), gone);
    await assert.rejects(client.get('a'), gone);
    assert.throws(() => client.getSync('a'), gone);
    assert.throws(() => client.view((view) => view.get('a')), gone);
    await assert.rejects(client.pipeline().get('a').exec().then(([[error]]) => { throw error; }), gone);
    await assert.rejects(client.multi().get('a').exec(), gone);
    assert.equal(client.isLocal, false);
    assert.match(client.whyNotLocal, /not attached|ended the connection/);
    await server.begin();
    assert.equal(await until(() => client.get('b')), '2', 'the next server has the same memory');
    assert.equal(client.isLocal, true);
    assert.deepEqual([client.getSync('a'), await client.incr('n')], ['1', round + 1]);
  }
});

// A file of memory is cut off, or another writer takes it, and the server lives: the connection stays
// open. Nothing was local again, and a view ended with "please report it".
test('a client reads memory again behind memory that is over', async (t) => {
  const server = await Server.start(t);
  const client = await connect(t, server.address);
  await client.set('a', '1');
  const files = fs.readdirSync(server.memory, { recursive: true }).map((name) => path.join(server.memory, name));
  const arenas = files.filter((name) => fs.statSync(name).isFile() && fs.statSync(name).size > 4096);
  // Each arena says that it has another writer.
  const changed = () => arenas.forEach((name) => {
    const file = fs.openSync(name, 'r+');
    const word = Buffer.alloc(8);
    fs.readSync(file, word, 0, 8, 192);
    word.writeBigUInt64LE(word.readBigUInt64LE() + 2n);
    fs.writeSync(file, word, 0, 8, 192);
    fs.closeSync(file);
  });
  for (let round = 0; round < 10; round++) {
    assert.equal(client.isLocal, true);
    assert.equal(client.view((view) => view.get('a')), '1');
    changed();
    if (round % 2 === 0) {
      assert.equal(client.getSync('a'), '1', 'by a request');
      assert.match(client.whyNotLocal ?? 'it is local again', /it is local again|memory can't be read any more/);
    }
    assert.equal(client.view((view) => view.get('a')), '1');
    changed();
    assert.equal(await client.get('a'), '1');
    await sleep(15);
    await client.set('a', '1');
  }
  assert.equal(client.whyNotLocal, null);
});

test('a watch ends with its server: the next transaction is void', async (t) => {
  const server = await Server.start(t);
  for (const options of [{ local: 'required' }, { local: 'never' }]) {
    const client = await connect(t, server.address, options);
    await client.set('a', '1');
    for (const comesBack of [true, false]) {
      assert.equal(await client.watch('a'), 'OK');
      await server.end('SIGKILL');
      await server.begin();
      await sleep(15);
      // By a read it has attached to the next server, or not.
      if (comesBack) assert.equal(await until(() => client.get('a')), '1');
      assert.equal(await client.multi().set('a', '2').exec(), null, 'nobody watched');
      assert.equal(await until(() => client.get('a')), '1');
      assert.deepEqual(await client.multi().set('a', '1').exec(), [[null, 'OK']], 'the next one happens');
    }
  }
});

// The packet of the transaction took the read, and didn't look like a transaction any more: it was
// made by an attachment that watched nothing.
test('a transaction behind a watch is guarded, whatever the same turn calls', async (t) => {
  const server = await Server.start(t);
  for (const options of [{ local: 'required' }, { local: 'never' }]) {
    const client = await connect(t, server.address, options);
    await client.set('a', '1');
    assert.equal(await client.watch('a'), 'OK');
    await server.end('SIGKILL');
    await server.begin();
    const other = await connect(t, server.address);
    await other.set('a', 'theirs');
    await sleep(15);
    const [gave, read] = await Promise.all([client.multi().set('a', 'ours').exec(), client.get('a')]);
    assert.deepEqual([gave, read], [null, 'theirs']);
    assert.deepEqual(await client.multi().set('a', '1').exec(), [[null, 'OK']], 'the next one happens');
  }
});

test('a call waits for a server as long as waitMs says, outside of the event loop', async (t) => {
  const server = await Server.start(t);
  const client = await connect(t, server.address, { waitMs: 30_000 });
  await client.set('a', '1');
  await server.end('SIGKILL');
  await sleep(15);
  const waiting = [client.get('a'), client.incr('a')];
  let turns = 0;
  const timer = setInterval(() => { turns += 1; }, 5);
  // A slow machine takes longer for them, and still less than the calls wait.
  for (const end = Date.now() + 20_000; turns < 10 && Date.now() < end;) await sleep(20);
  clearInterval(timer);
  assert.ok(turns >= 10, `${turns} turns of the event loop`);
  await server.begin();
  assert.deepEqual(await Promise.all(waiting), ['1', 2]);
});

// A packet that waited for a server was sent when one had come, though its client was closed; and
// the program's end waited for that, as long as waitMs said.
test('disconnect ends the wait for a server', async (t) => {
  const server = await Server.start(t);
  const [client, leaving] = [await connect(t, server.address, { waitMs: 10_000 }), await connect(t, server.address, { waitMs: 10_000 })];
  await client.set('a', '1');
  await server.end('SIGKILL');
  await sleep(15);
  const waiting = [client.set('a', '2'), client.get('b'), leaving.set('a', '3')];
  const refused = Promise.all(waiting.map((it) => assert.rejects(it, { code: 'NIGH_CLOSED' })));
  await sleep(50);
  const piped = client.pipeline().set('a', '4').exec();
  client.disconnect();
  const quit = leaving.quit();
  leaving.disconnect();
  await refused;
  assert.equal((await piped)[0][0].code, 'NIGH_CLOSED');
  assert.equal(await quit, 'OK');
  await server.begin();
  assert.equal(await (await connect(t, server.address)).get('a'), '1');
  const source = `const client = new (require('nigh').Client)('unix:/nonexistent/socket', { waitMs: 10_000 });
    client.set('a', 1).catch((error) => { console.log(error.code); process.exit(); });
    setTimeout(() => client.disconnect(), 50);`;
  assert.equal(await runs(source), 'NIGH_CLOSED\n');
});

// What a view had read with kept the connection, until JavaScript's memory was collected.
test('a client that read by a view leaves its server when it is closed', async (t) => {
  const server = await Server.start(t);
  const client = await connect(t, server.address);
  for (const close of ['quit', 'disconnect']) {
    const viewer = await connect(t, server.address, { name: close });
    assert.equal(viewer.view((view) => view.get('none')), null);
    assert.match(await client.client('LIST'), new RegExp(`name=${close}`));
    await viewer[close]();
    let [listed, looks] = ['', 0];
    do {
      await sleep(50);
      listed = await client.client('LIST');
    } while (listed.includes(`name=${close}`) && ++looks < 100);
    assert.ok(!listed.includes(`name=${close}`), listed);
  }
});

test('a server that stands still is noticed after timeoutMs, and a lost write is unknown', async (t) => {
  const server = await Server.start(t);
  for (const options of [{}, { local: 'never' }]) {
    const client = await connect(t, server.address, { ...options, timeoutMs: 1000 });
    await client.set('a', '1');
    await server.stop();
    const begin = performance.now();
    const [write, read, transaction] = await Promise.allSettled([client.set('a', '2'), client.get('a'), client.multi().incr('n').exec()]);
    assert.ok(performance.now() - begin >= 990);
    assert.equal(write.reason?.code, 'NIGH_UNKNOWN');
    assert.match(write.reason.message, /no reply to SET: .* may or may not have happened/);
    assert.match(read.reason?.code ?? '', /NIGH_UNANSWERED|NIGH_NOT_ATTACHED/);
    assert.match(transaction.reason?.code ?? '', /NIGH_UNKNOWN|NIGH_NOT_ATTACHED/);
    server.process.kill('SIGCONT');
    await until(() => client.ping());
    await server.stop();
    // They go as one packet. The read is asked for again, in vain; that says nothing of the writes.
    const together = await Promise.allSettled([client.set('a', '2'), client.call('MGET', 'a'), client.set('b', '2')]);
    const [before, asked, behind] = together.map((it) => it.reason?.code);
    assert.deepEqual([before, behind], ['NIGH_UNKNOWN', 'NIGH_UNKNOWN']);
    assert.match(asked, /NIGH_UNANSWERED|NIGH_NOT_ATTACHED/);
    server.process.kill('SIGCONT');
    const value = await until(() => client.get('a'));
    assert.ok(['1', '2'].includes(value));
  }
});

test('a read of memory waits for nobody, though a call does', async (t) => {
  const server = await Server.start(t);
  const client = await connect(t, server.address, { timeoutMs: 2000 });
  await client.mset('a', '1', 'b', '2');
  await server.stop();
  const pending = client.set('a', '2');
  await sleep(20);
  for (let n = 0; n < 100; n++) {
    assert.deepEqual(client.mgetSync('a', 'b'), ['1', '2']);
    assert.equal(client.view((view) => view.get('b')), '2');
  }
  const behind = client.get('a');
  server.process.kill('SIGCONT');
  assert.deepEqual([await pending, await behind], ['OK', '2'], 'it keeps its place behind the write');
});

test('a server with a password, and a name for the client', async (t) => {
  const server = await Server.start(t, ['--requirepass', 'secret']);
  const refused = { code: 'NIGH_CANNOT_CONNECT', message: /refused the password: check it/ };
  await assert.rejects(nigh.connect(server.address, { password: 'wrong' }), refused);
  await assert.rejects(nigh.connect(server.address), { ...refused, message: /asks for a password/ });
  const client = await connect(t, server.address, { username: 'default', password: 'secret', name: 'tests', local: 'required' });
  assert.equal(client.isLocal, true);
  assert.equal(await client.client('GETNAME'), 'tests');
  assert.equal(client.address, server.address);
});

test('replies that wait for the disk: reads show what is on disk, or ask', async (t) => {
  const server = await Server.start(t, ['--appendonly', 'yes', '--appendfsync', 'always']);
  const [client, eager] = [await connect(t, server.address), await connect(t, server.address, { readsUnsynced: true })];
  for (let n = 0; n < 20; n++) {
    const write = client.set('key', n);
    eager.getSync('key');
    await write;
    assert.deepEqual([client.getSync('key'), eager.getSync('key'), await client.get('key')], [`${n}`, `${n}`, `${n}`]);
    assert.equal(client.view((view) => view.get('key')), `${n}`);
    assert.deepEqual(client.mgetSync('key', 'none'), [`${n}`, null]);
  }
});

test('several partitions: keys of each are of one moment', async (t) => {
  const server = await Server.start(t, ['--partitions', '4']);
  const [client, writer] = [await connect(t, server.address), await connect(t, server.address)];
  assert.equal(client.isLocal, true);
  let writes = true;
  const writing = (async () => {
    for (let n = 1; writes; n++) await writer.multi().set('{x}a', n).set('{x}b', n).exec();
  })();
  for (let round = 0; round < 100; round++) {
    const [a, b] = client.view((view) => [view.get('{x}a'), view.get('{x}b'), view.get('{y}c')]);
    assert.equal(a, b);
    const [c, d] = client.mgetSync('{x}a', '{x}b');
    assert.equal(c, d);
    await sleep(1);
  }
  writes = false;
  await writing;
});
