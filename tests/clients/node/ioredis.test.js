// ioredis against the server: what a Node.js application does with it.
// Run by test_ioredis.py, which starts the server: PORT, SOCKET and SERVER come in the environment.
"use strict";

const assert = require("node:assert/strict");
const { after, before, beforeEach, test } = require("node:test");
const Redis = require("ioredis");

const { PORT, SOCKET, SERVER } = process.env;
const nigh = SERVER === "nigh";
const open = [];

function connect(options = {}) {
  const client = new Redis({ host: "127.0.0.1", port: Number(PORT), ...options });
  open.push(client);
  return client;
}

let redis;
before(() => { redis = connect(); });
beforeEach(() => redis.flushall());
after(() => open.forEach((client) => client.disconnect()));

const LIBRARY = `#!js name=ioredis
export function move(db, [amount], [from, to]) {
  db.incr(from, -Number(amount));
  return [db.incr(to, Number(amount)), "moved"];
}
export const read = (db, [], [key]) => db.get(key)?.text();
read.flags = ["no-writes"];
`;

test("values come back as they were set", async () => {
  assert.equal(await redis.set("key", "schön"), "OK");
  assert.equal(await redis.get("key"), "schön");
  assert.equal(await redis.get("missing"), null);
  const bytes = Buffer.from([0, 255, 13, 10]);
  await redis.set(bytes, bytes);
  assert.deepEqual(await redis.getBuffer(bytes), bytes);
  assert.deepEqual(await redis.mget("key", "missing"), ["schön", null]);
  assert.equal(await redis.incrby("n", 5), 5);
  assert.equal(await redis.set("key", "x", "EX", 100, "NX"), null);
  assert.ok((await redis.pexpire("key", 100000)) === 1 && (await redis.pttl("key")) > 0);
});

test("the ready check reads INFO and the name is set at connect", async () => {
  const named = connect({ connectionName: "tests", enableReadyCheck: true });
  await new Promise((resolve, reject) => named.once("ready", resolve).once("error", reject));
  assert.equal(await named.client("GETNAME"), "tests");
  assert.match(await named.client("INFO"), /name=tests /);
  assert.match(await named.info(), /redis_version:/);
});

test("HELLO switches the protocol's replies", async () => {
  const hello = await redis.call("HELLO", "2");
  assert.equal(hello[hello.indexOf("server") + 1], "redis");
  assert.equal(hello[hello.indexOf("proto") + 1], 2);
});

test("a pipeline answers in order, with errors in place", async () => {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 1000; i++) pipeline.set(`key:${i}`, i).get(`key:${i}`);
  pipeline.set("text", "abc").incr("text").get("text");
  const answers = await pipeline.exec();
  assert.equal(answers.length, 2003);
  for (let i = 0; i < 1000; i++) assert.deepEqual(answers[2 * i + 1], [null, String(i)]);
  assert.match(answers[2001][0].message, /not an integer/);
  assert.deepEqual(answers[2002], [null, "abc"]);
});

test("commands of one tick go out as one pipeline", async () => {
  const auto = connect({ enableAutoPipelining: true });
  await auto.set("a", "1");
  const answers = await Promise.all([
    ...Array.from({ length: 200 }, () => auto.incr("n")),
    auto.get("a"),
    auto.mget("a", "none"),
  ]);
  assert.deepEqual(answers.slice(0, 200), Array.from({ length: 200 }, (_, i) => i + 1));
  assert.deepEqual(answers.slice(200), ["1", ["1", null]]);
});

test("a transaction is all or nothing, and WATCH stops it", async () => {
  assert.deepEqual(await redis.multi().set("a", "1").incr("a").exec(), [[null, "OK"], [null, 2]]);
  const other = connect();
  await redis.watch("a");
  await other.set("a", "9");
  assert.equal(await redis.multi().set("a", "2").exec(), null);
  assert.equal(await redis.get("a"), "9");
});

test("a scan stream finds every key", async () => {
  const keys = Array.from({ length: 1500 }, (_, i) => `user:${i}`);
  await redis.mset(...keys.flatMap((key) => [key, "v"]));
  await redis.set("other", "v");
  const found = new Set();
  for await (const page of redis.scanStream({ match: "user:*", count: 50 })) {
    page.forEach((key) => found.add(key));
  }
  assert.deepEqual([...found].sort(), keys.sort());
});

test("a Unix socket is as good", async () => {
  const local = new Redis(SOCKET);
  open.push(local);
  assert.equal(await local.set("a", "1"), "OK");
});

test("a killed connection comes back by itself", async () => {
  const victim = connect();
  const id = await victim.client("ID");
  assert.equal(await redis.client("KILL", "ID", id), 1);
  assert.equal(await victim.ping(), "PONG");
});

const skip = !nigh && "Redis differs here on purpose";

test("functions are loaded, called and refused", { skip }, async () => {
  assert.equal(await redis.function("LOAD", "REPLACE", LIBRARY), "ioredis");
  await redis.mset("a", 10, "b", 0);
  assert.deepEqual(await redis.fcall("move", 2, "a", "b", 4), [4, "moved"]);
  assert.deepEqual(await redis.mget("a", "b"), ["6", "4"]);
  assert.equal(await redis.call("FCALL_RO", "read", 1, "a"), "6");
  const auto = connect({ enableAutoPipelining: true });
  const calls = Array.from({ length: 300 }, () => auto.fcall("move", 2, "a", "b", 1));
  const all = await Promise.all(calls);
  assert.deepEqual(all.at(-1), [304, "moved"]);
  await assert.rejects(redis.fcall("nosuch", 0), /Function not found/);
  await assert.rejects(redis.function("LOAD", LIBRARY), /already exists/);
  assert.equal(await redis.function("DELETE", "ioredis"), "OK");
});

test("what is absent says so", { skip }, async () => {
  await assert.rejects(redis.lpush("list", 1), /unknown command/);
  await assert.rejects(redis.eval("return 1", 0), /unknown command/);
});
