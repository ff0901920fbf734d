"""redis-py against the server, as applications use it, in both protocols.

Functions are JavaScript, so --server redis skips their tests.
"""

import functools
import os
import unittest

import redis

from server import Server, tested_kind

NIGH = tested_kind() == "nigh"
PROTOCOLS = (2, 3)

# Fields of INFO that redis-py, ioredis and redis_exporter read, and that mean something in Nigh.
MONITORED = """
redis_version redis_mode os arch_bits process_id run_id tcp_port uptime_in_seconds
connected_clients maxclients blocked_clients
used_memory used_memory_human used_memory_rss used_memory_peak maxmemory maxmemory_policy
mem_fragmentation_ratio
loading
total_connections_received total_commands_processed instantaneous_ops_per_sec
total_net_input_bytes total_net_output_bytes rejected_connections
expired_keys evicted_keys keyspace_hits keyspace_misses
role connected_slaves master_repl_offset
used_cpu_sys used_cpu_user
cluster_enabled
""".split()

LIBRARY = """#!js name=redispy
/** Adds what the arguments say to a counter and returns the new value. */
export function add(db, [by], [key]) {
  return db.incr(key, Number(by));
}

export function kinds(db) {
  const bytes = new Uint8Array([0, 255]);
  return { text: "t", number: 7, double: 1.5, yes: true, list: [1, "two", null], bytes };
}
kinds.flags = ["no-writes"];

export function fail(db, [key]) {
  db.set(key, "never");
  throw new Error("refused on purpose");
}
"""


def in_each_protocol(test):
    """Runs a test with a client of each protocol, decoding or not; `text` is its text."""

    @functools.wraps(test)
    def run(self):
        for protocol in PROTOCOLS:
            for decode in (False, True):
                with self.subTest(protocol=protocol, decode=decode):
                    client = self.client(protocol=protocol, decode_responses=decode)
                    client.flushall()
                    test(self, client, (lambda text, d=decode: text if d else text.encode()))

    return run


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.stop()


class RedisPy(unittest.TestCase):
    def setUp(self):
        self.clients = []
        self.client().flushall()

    def tearDown(self):
        for client in self.clients:
            client.close()

    def client(self, **options):
        client = redis.Redis(host="127.0.0.1", port=server.port, socket_timeout=20, **options)
        self.clients.append(client)
        return client

    @in_each_protocol
    def test_values_come_back_as_they_were_set(self, client, text):
        self.assertTrue(client.set("key", "schön"))
        self.assertEqual(client.get("key"), text("schön"))
        self.assertIsNone(client.get("missing"))
        self.assertEqual(client.mget("key", "missing"), [text("schön"), None])
        self.assertTrue(client.mset({"a": 1, "b": 2.5}))
        self.assertEqual(client.mget(["a", "b"]), [text("1"), text("2.5")])
        self.assertEqual(client.incrby("a", 41), 42)
        self.assertEqual(client.incrbyfloat("b", 0.1), 2.6)
        self.assertEqual(client.append("key", "!"), 7)
        self.assertEqual(client.strlen("key"), 7)
        self.assertEqual(client.getrange("key", 0, 2), text("sch"))
        self.assertEqual(client.getdel("a"), text("42"))
        self.assertEqual(client.exists("a", "b"), 1)
        self.assertEqual(client.delete("b", "key", "none"), 2)

    def test_every_byte_survives(self):
        client = self.client()
        value = bytes(range(256)) * 300
        client.set(b"\x00\xff\r\n", value)
        self.assertEqual(client.get(b"\x00\xff\r\n"), value)

    def test_a_large_value_survives(self):
        client = self.client()
        value = os.urandom(1 << 20) * 12
        client.set("large", value)
        self.assertEqual(client.get("large"), value)
        self.assertEqual(client.getrange("large", 5_000_000, 5_000_009), value[5_000_000:5_000_010])

    @in_each_protocol
    def test_expiry_and_its_conditions(self, client, text):
        client.set("key", "v", ex=1000)
        self.assertTrue(990 < client.ttl("key") <= 1000)
        self.assertFalse(client.expire("key", 2000, lt=True))
        self.assertTrue(client.expire("key", 2000, gt=True))
        self.assertTrue(client.persist("key"))
        self.assertEqual(client.ttl("key"), -1)
        self.assertEqual(client.ttl("missing"), -2)
        self.assertEqual(client.getex("key", px=500_000), text("v"))
        self.assertTrue(0 < client.pttl("key") <= 500_000)
        self.assertIsNone(client.set("key", "w", nx=True))
        self.assertEqual(client.set("key", "w", get=True, keepttl=True), text("v"))
        self.assertTrue(client.ttl("key") > 0)

    @in_each_protocol
    def test_a_pipeline_answers_in_order_and_reports_errors_in_place(self, client, text):
        pipe = client.pipeline(transaction=False)
        for i in range(500):
            pipe.set(f"key:{i}", i).get(f"key:{i}")
        pipe.set("text", "abc").incr("text").get("text")
        answers = pipe.execute(raise_on_error=False)
        self.assertEqual(answers[1:1000:2], [text(str(i)) for i in range(500)])
        self.assertIsInstance(answers[1001], redis.ResponseError)
        self.assertEqual(answers[1002], text("abc"))

    @in_each_protocol
    def test_a_transaction_is_all_or_nothing(self, client, text):
        with client.pipeline(transaction=True) as pipe:
            pipe.set("a", 1).incr("a").mget("a", "b")
            self.assertEqual(pipe.execute(), [True, 2, [text("2"), None]])

    def test_a_watched_key_that_changed_stops_the_transaction(self):
        client, other = self.client(), self.client()
        client.set("balance", 10)
        with client.pipeline() as pipe:
            pipe.watch("balance")
            balance = int(pipe.get("balance"))
            other.set("balance", 99)
            pipe.multi()
            pipe.set("balance", balance - 5)
            with self.assertRaises(redis.WatchError):
                pipe.execute()
        self.assertEqual(client.get("balance"), b"99")

    def test_the_transaction_helper_retries_until_it_succeeds(self):
        client, other = self.client(), self.client()
        client.set("n", 1)
        calls = []

        def body(pipe):
            value = int(pipe.get("n"))
            if not calls:
                other.incr("n")
            calls.append(value)
            pipe.multi()
            pipe.set("n", value * 10)

        client.transaction(body, "n")
        self.assertEqual(calls, [1, 2])
        self.assertEqual(client.get("n"), b"20")

    @in_each_protocol
    def test_scan_iter_finds_every_key_once_or_more(self, client, text):
        client.mset({f"user:{i}": i for i in range(2000)})
        client.set("other", 1)
        found = set(client.scan_iter(match="user:*", count=100))
        self.assertEqual(found, {text(f"user:{i}") for i in range(2000)})
        self.assertEqual(len(client.keys("user:1?")), 10)

    @in_each_protocol
    def test_what_the_client_reads_of_the_server(self, client, _):
        info = client.info()
        self.assertEqual([field for field in MONITORED if field not in info], [])
        self.assertEqual(info["loading"], 0)
        self.assertEqual(client.info("keyspace"), {})
        client.set("a", 1)
        self.assertEqual(client.info("keyspace")["db0"]["keys"], 1)
        if NIGH:
            self.assertEqual(info["redis_version"], "7.2.4")
            self.assertIn("nigh_version", info)
        self.assertEqual(client.dbsize(), 1)
        self.assertIn("timeout", client.config_get("timeout"))
        self.assertTrue(client.config_set("timeout", 0))
        self.assertTrue(client.client_setname("tests"))
        mine = client.client_info()
        self.assertEqual(mine["name"], "tests")
        self.assertIn(str(client.client_id()), [c["id"] for c in client.client_list()])
        self.assertGreater(len(client.command()), 50)
        self.assertEqual(len(client.time()), 2)
        self.assertTrue(client.slowlog_reset())
        self.assertIsInstance(client.slowlog_get(), list)

    def test_a_killed_client_comes_back_by_itself(self):
        client, other = self.client(), self.client()
        number = client.client_id()
        self.assertEqual(other.client_kill_filter(_id=number), 1)
        self.assertTrue(client.ping())
        self.assertNotEqual(client.client_id(), number)

    def test_a_unix_socket_is_as_good(self):
        client = redis.Redis(unix_socket_path=server.unix_path)
        self.clients.append(client)
        self.assertTrue(client.set("a", 1))
        self.assertEqual(client.get("a"), b"1")

    def test_what_is_absent_says_so(self):
        if not NIGH:
            return
        client = self.client()
        for name, call in (
            ("EVAL", lambda: client.eval("return 1", 0)),
            ("LPUSH", lambda: client.lpush("list", 1)),
            ("HSET", lambda: client.hset("hash", "f", 1)),
            ("SUBSCRIBE", lambda: client.execute_command("SUBSCRIBE", "channel")),
            ("SCRIPT", lambda: client.script_exists("0" * 40)),
        ):
            with self.subTest(name), self.assertRaisesRegex(redis.ResponseError, "unknown command"):
                call()


@unittest.skipUnless(NIGH, "Redis has no JavaScript: this proves the other tests only")
class Functions(unittest.TestCase):
    def setUp(self):
        self.clients = [
            redis.Redis(port=server.port, protocol=protocol, socket_timeout=20)
            for protocol in PROTOCOLS
        ]
        for client in self.clients:
            client.flushall()
            client.function_flush()

    def tearDown(self):
        for client in self.clients:
            client.close()

    def test_a_library_is_loaded_called_listed_and_deleted(self):
        for client in self.clients:
            with self.subTest(client.connection_pool.connection_kwargs["protocol"]):
                self.assertEqual(client.function_load(LIBRARY), b"redispy")
                with self.assertRaisesRegex(redis.ResponseError, "already exists"):
                    client.function_load(LIBRARY)
                self.assertEqual(client.function_load(LIBRARY, replace=True), b"redispy")
                self.assertEqual(client.fcall("add", 1, "hits", 3), 3)
                self.assertEqual(client.fcall("add", 1, "hits", 4), 7)
                self.assertEqual(client.get("hits"), b"7")
                self.assertEqual(len(client.function_list(withcode=True)), 1)
                self.assertTrue(client.function_delete("redispy"))
                with self.assertRaisesRegex(redis.ResponseError, "Function not found"):
                    client.fcall("add", 1, "hits", 3)
                client.delete("hits")

    def test_results_have_the_kinds_of_their_protocol(self):
        two, three = self.clients
        two.function_load(LIBRARY)
        self.assertEqual(
            three.fcall_ro("kinds", 0),
            {
                b"text": b"t",
                b"number": 7,
                b"double": 1.5,
                b"yes": True,
                b"list": [1, b"two", None],
                b"bytes": b"\x00\xff",
            },
        )
        flat = two.fcall_ro("kinds", 0)
        self.assertEqual(
            dict(zip(flat[::2], flat[1::2], strict=True)),
            {
                b"text": b"t",
                b"number": 7,
                b"double": b"1.5",
                b"yes": 1,
                b"list": [1, b"two", None],
                b"bytes": b"\x00\xff",
            },
        )

    def test_a_thrown_error_is_an_error_and_leaves_no_trace(self):
        client = self.clients[0]
        client.function_load(LIBRARY)
        with self.assertRaisesRegex(redis.ResponseError, "refused on purpose"):
            client.fcall("fail", 0, "trace")
        self.assertIsNone(client.get("trace"))
        with self.assertRaisesRegex(redis.ResponseError, "write flag"):
            client.fcall_ro("add", 1, "hits", 1)

    def test_a_broken_library_is_refused_with_line_and_column(self):
        client = self.clients[0]
        with self.assertRaisesRegex(redis.ResponseError, r"broken.*line 2, column \d+"):
            client.function_load("#!js name=broken\nexport function (")
        self.assertEqual(client.function_list(), [])

    def test_a_pipeline_of_calls_sees_its_own_writes(self):
        client = self.clients[0]
        client.function_load(LIBRARY)
        pipe = client.pipeline(transaction=False)
        for _ in range(100):
            pipe.fcall("add", 1, "n", 1)
            pipe.get("n")
        answers = pipe.execute()
        self.assertEqual(answers[::2], list(range(1, 101)))
        self.assertEqual(answers[1::2], [b"%d" % i for i in range(1, 101)])

    def test_a_call_inside_a_transaction_runs_in_place(self):
        client = self.clients[1]
        client.function_load(LIBRARY)
        with client.pipeline(transaction=True) as pipe:
            pipe.set("n", 5)
            pipe.fcall("add", 1, "n", 2)
            pipe.get("n")
            self.assertEqual(pipe.execute(), [True, 7, b"7"])

    def test_an_endless_call_ends_by_its_limit_and_the_server_goes_on(self):
        client = self.clients[0]
        client.function_load(
            "#!js name=endless\nexport function spin(db, [key]) { db.set(key, '1'); for (;;); }"
        )
        before = client.config_get("function-time-limit-ms")
        self.addCleanup(client.config_set, *before.popitem())
        client.config_set("function-time-limit-ms", 200)
        with self.assertRaisesRegex(redis.ResponseError, "function-time-limit-ms"):
            client.fcall("spin", 0, "trace")
        self.assertIsNone(client.get("trace"))
        self.assertTrue(client.ping())

    def test_a_dump_restores_all_libraries(self):
        client = self.clients[0]
        client.function_load(LIBRARY)
        payload = client.function_dump()
        client.function_flush()
        self.assertEqual(client.function_list(), [])
        client.function_restore(payload)
        self.assertEqual(client.fcall("add", 1, "n", 2), 2)


if __name__ == "__main__":
    unittest.main()
