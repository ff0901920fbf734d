'use strict';

// Clients of the server under test, and servers that may be killed. SOCKET and PORT are the server's;
// NIGH_BIN is the binary, NIGH_TEST_SHM is where memory goes.

const { execFile, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { promisify } = require('node:util');
const Redis = require('ioredis');
const nigh = require('nigh');

const { SOCKET, PORT, NIGH_BIN } = process.env;
const LOCAL = `unix:${SOCKET}`;
const TCP = `127.0.0.1:${PORT}`;
const LIMIT_MS = 60_000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A program that must end by itself; what it prints.
async function runs(source, ...given) {
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', source, ...given], { timeout: LIMIT_MS });
  return stdout;
}

// A client of the server under test, which ends with the test.
async function connect(t, address = LOCAL, options = undefined) {
  const client = await nigh.connect(address, options);
  t.after(() => client.disconnect());
  return client;
}

// An unmodified client of another make.
function ioredis(t) {
  const client = new Redis(SOCKET);
  t.after(() => client.disconnect());
  return client;
}

// A server of a test, over a Unix socket alone.
class Server {
  static async start(t, flags = []) {
    const server = new Server();
    server.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'nigh-client-'));
    server.memory = fs.mkdtempSync(path.join(process.env.NIGH_TEST_SHM ?? '/dev/shm', 'nigh-client-'));
    server.socket = path.join(server.folder, 'socket');
    server.address = `unix:${server.socket}`;
    server.flags = flags;
    t.after(async () => {
      await server.end('SIGKILL');
      [server.folder, server.memory].forEach((it) => fs.rmSync(it, { recursive: true, force: true }));
    });
    await server.begin();
    return server;
  }

  async begin() {
    const line = ['serve', '--port', '0', '--unixsocket', this.socket, '--shm-dir', this.memory,
      '--maxmemory', String(64 << 20), '--shards', '1', '--function-time-limit-ms', '10000', ...this.flags];
    if (!this.flags.includes('--appendonly')) line.push('--appendonly', 'no');
    this.process = spawn(NIGH_BIN, line, { cwd: this.folder, stdio: 'ignore' });
    this.exit = once(this.process, 'exit');
    for (const end = Date.now() + LIMIT_MS; Date.now() < end; await sleep(5)) {
      try {
        const client = await nigh.connect(this.address);
        client.disconnect();
        return;
      } catch ({ code }) {
        if (code === 'NIGH_CANNOT_CONNECT') return; // it wants a password
      }
    }
    throw new Error('the server did not start');
  }

  // It stands still, all of its threads.
  async stop() {
    this.process.kill('SIGSTOP');
    const tasks = `/proc/${this.process.pid}/task`;
    const stands = (task) => fs.readFileSync(`${tasks}/${task}/stat`, 'utf8').includes(') T ');
    for (const end = Date.now() + LIMIT_MS; !fs.readdirSync(tasks).every(stands); await sleep(1)) {
      if (Date.now() > end) throw new Error('the server did not stop');
    }
  }

  async end(signal) {
    this.process.kill('SIGCONT');
    this.process.kill(signal);
    await this.exit;
  }
}

module.exports = { nigh, LOCAL, TCP, LIMIT_MS, sleep, runs, connect, ioredis, Server };
