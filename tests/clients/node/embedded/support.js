'use strict';

// Folders of a test, and processes that use the package. NIGH_TEST_SHM is where memory goes.

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const nigh = require('nigh');

const SMALL = { capacityBytes: 64 << 20, journalBytes: 1 << 20, logFileBytes: 1 << 20 };
const LIMIT_MS = 60_000;

const ends = new WeakMap();

// Done at the end of a test; the latest first.
function atEnd(t, end) {
  if (!ends.has(t)) {
    ends.set(t, []);
    t.after(async () => {
      for (const each of ends.get(t).reverse()) await each();
    });
  }
  ends.get(t).push(end);
}

// A path for a database, and its options; all of it is removed at the end.
function folders(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'nigh-node-'));
  const memory = fs.mkdtempSync(path.join(process.env.NIGH_TEST_SHM ?? '/dev/shm', 'nigh-node-'));
  atEnd(t, () => [folder, memory].forEach((it) => fs.rmSync(it, { recursive: true, force: true })));
  return [path.join(folder, 'data'), { ...SMALL, memoryDir: path.join(memory, 'memory') }];
}

// An open database, which is closed at the end.
function database(t, more = {}) {
  const [folder, options] = folders(t);
  const db = nigh.open(folder, { ...options, ...more });
  atEnd(t, () => db.close());
  return db;
}

// A process with a database: `call` has it call what child.js knows.
class Child {
  static async start(folder, options) {
    const child = new Child();
    child.process = fork(path.join(__dirname, 'child.js'), { serialization: 'advanced' });
    child.exit = once(child.process, 'exit');
    await child.call('open', folder, options);
    return child;
  }

  tell(...call) {
    this.process.send(call, () => {});
  }

  async call(...call) {
    const answer = once(this.process, 'message');
    this.tell(...call);
    const ended = this.exit.then(([code, signal]) => {
      throw new Error(`the child ended with ${code ?? signal}`);
    });
    const [{ result, code, message }] = await Promise.race([answer, ended]);
    if (message !== undefined) throw Object.assign(new Error(message), { code });
    return result;
  }

  async kill() {
    this.process.kill('SIGKILL');
    await this.exit;
  }

  // Closes the database; the process ends by itself.
  async close() {
    await this.call('close');
    this.process.disconnect();
    const [code] = await this.exit;
    if (code !== 0) throw new Error(`the child ended with ${code}`);
  }
}

module.exports = { nigh, LIMIT_MS, atEnd, folders, database, Child };
