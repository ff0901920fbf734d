"""The client for Python (`nigh.Client`) against the server: its calls beside redis-py's, in memory, by
the ring, by sockets; and what happens when something is wrong.

NIGH_SEED repeats a run, NIGH_CLIENT_ROUNDS makes it longer.
"""

import array
import contextlib
import datetime
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import redis

import embedded
from embedded import ROOT, gives_the_lock
from server import SHM, Server, tested_kind
from wire import frame_end

SEED = int(os.environ.get("NIGH_SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("NIGH_CLIENT_ROUNDS", "2"))
CALLS_PER_ROUND = 400
LIMIT_S = 30
WAYS = ("memory", "socket", "tcp")
LIBRARY = """#!js name=pyclient
export function add(db, [by], [key]) { return db.incr(key, Number(by)); }
export function twice(db, [text]) { return [text, text, 2]; }
twice.flags = ["no-writes"];
"""


def setUpModule():
    global server, nigh
    if tested_kind() != "nigh":
        raise unittest.SkipTest("Redis has no memory to read")
    sys.path.insert(0, embedded.site())
    import nigh as module  # pylint: disable=import-error,import-outside-toplevel
    nigh, server = module, Server()


def tearDownModule():
    server.stop()


def within(seconds, condition):
    """Waits until a condition holds; whether it does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return False


@contextlib.contextmanager
def stands_still(process):
    """Stops a process; goes on when all of its threads stand."""

    def state(thread):
        with open(f"/proc/{process.pid}/task/{thread}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]

    process.send_signal(signal.SIGSTOP)
    try:
        tasks = f"/proc/{process.pid}/task"
        assert within(LIMIT_S, lambda: all(state(thread) == "T" for thread in os.listdir(tasks)))
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Clients(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(unix_socket_path=server.unix_path)
        self.addCleanup(self.redis.close)
        self.redis.flushall()

    def client(self, way="memory", of=None, **options):
        of = of or server
        address = f"127.0.0.1:{of.port}" if way == "tcp" else f"unix:{of.unix_path}"
        if way == "memory":
            options = {"local": "required", **options}
        elif way == "socket":
            options["local"] = "never"
        client = nigh.Client(address, **options)
        self.addCleanup(client.close)
        return client

    def raises(self, kind, text):
        return self.assertRaisesRegex(kind, text)


def each_way(test):
    @functools.wraps(test)
    def run(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.redis.flushall()
                test(self, self.client(way))

    return run


# Calls with keys as `{}`, which stands for the client's own.
CALLS = [
    ("set", ("{}a", b"1")), ("get", ("{}a",)), ("get", ("{}none",)),
    ("set", ("{}a", "zwei"), {"nx": True}), ("set", ("{}a", "zwei"), {"xx": True, "get": True}),
    ("set", ("{}none", 1), {"xx": True}), ("get", ("{}a",)),
    ("set", ("{}b", 7), {"ex": 1000}), ("ttl", ("{}b",)), ("set", ("{}b", 8), {"keepttl": True}),
    ("ttl", ("{}b",)), ("set", ("{}b", 9), {"px": datetime.timedelta(seconds=700)}), ("ttl", ("{}b",)),
    ("set", ("{}b", 9), {"exat": datetime.datetime(2100, 1, 1)}), ("persist", ("{}b",)),
    ("ttl", ("{}b",)), ("pttl", ("{}b",)), ("ttl", ("{}none",)), ("pttl", ("{}none",)),
    ("set", ("{}b", 9), {"pxat": 1}), ("get", ("{}b",)),
    ("mset", ({"{}m1": 1, "{}m2": b"\0\xff", b"{}m3": 1.5},)),
    ("mget", ("{}m1", "{}none", "{}m2")), ("mget", (["{}m1", b"{}m3"],)), ("mget", ("{}m1",)),
    ("exists", ("{}m1",)), ("exists", ("{}none",)), ("exists", ("{}m1", "{}m2", "{}none", "{}m1")),
    ("incr", ("{}n",)), ("incr", ("{}n", 41)), ("incrby", ("{}n", 2)), ("decr", ("{}n",)),
    ("decrby", ("{}n", 5)), ("get", ("{}n",)), ("incrbyfloat", ("{}f", 1.25)), ("incr", ("{}f",)),
    ("append", ("{}t", "hello")), ("append", ("{}t", b" world")), ("strlen", ("{}t",)),
    ("strlen", ("{}none",)), ("getrange", ("{}t", 1, 3)), ("getrange", ("{}t", -5, -1)),
    ("setrange", ("{}t", 6, "there")), ("get", ("{}t",)),
    ("setnx", ("{}t", 1)), ("setnx", ("{}s", 1)), ("getdel", ("{}s",)), ("getdel", ("{}s",)),
    ("getex", ("{}t",), {"ex": 50}), ("ttl", ("{}t",)), ("getex", ("{}t",), {"persist": True}),
    ("ttl", ("{}t",)), ("expire", ("{}t", 100)), ("expire", ("{}t", 50), {"gt": True}),
    ("expire", ("{}none", 5)), ("pexpire", ("{}t", 90_000), {"lt": True}), ("ttl", ("{}t",)),
    ("expireat", ("{}t", 4102444800)), ("expire", ("{}t", datetime.timedelta(days=1)), {"xx": True}),
    ("ttl", ("{}t",)), ("persist", ("{}t",)), ("persist", ("{}t",)),
    ("rename", ("{}t", "{}u")), ("rename", ("{}none", "{}u")), ("get", ("{}u",)),
    ("delete", ("{}u", "{}none", "{}m1")), ("unlink", ("{}m2",)), ("delete", ("{}u",)), ("ping", ()),
    ("set", ("{}a", "é☃")), ("get", ("{}a",)), ("set", ("{}a", ""),), ("get", ("{}a",)),
    ("execute_command", ("SET", "{}e", 1)), ("execute_command", ("strlen", "{}e")),
    ("execute_command", ("MSETNX", "{}e", 1, "{}e2", 1)), ("execute_command", ("NOSUCH",)),
    ("execute_command", ("COPY", "{}e", "{}e3")), ("get", ("{}e3",)),
    ("execute_command", ("OBJECT ENCODING", "{}e3",)),
    ("fcall", ("add", 1, "{}e", 5)), ("fcall_ro", ("twice", 0, "hello")), ("fcall_ro", ("nosuch", 0)),
    ("set", ("{}e", 1), {"ex": 0}), ("expire", ("{}e", -1)),
    ("get", ("{}e",)),
]


def own(value, name):
    """A call's argument with this client's name in its keys."""
    if isinstance(value, str):
        return value.replace("{}", name)
    if isinstance(value, bytes):
        return value.replace(b"{}", name.encode())
    if isinstance(value, list):
        return [own(it, name) for it in value]
    if isinstance(value, dict):
        return {own(key, name): it for key, it in value.items()}
    return value


def outcome(client, call):
    """What a call returns, or the error reply."""
    name, args, options = (*call, {})[:3]
    try:
        return getattr(client, name)(*args, **options)
    except nigh.ResponseError as error:
        return f"error: {error.reply.removeprefix('ERR ')}"
    except redis.RedisError as error:
        return f"error: {str(error).removeprefix('ERR ')}"


class BesideRedisPy(Clients):
    """Each call gives what redis-py gives, for the same data."""

    @each_way
    def test_calls_have_the_results_of_redis_py(self, client):
        self.redis.function_load(LIBRARY, replace=True)
        for call in CALLS:
            name, args, options = (*call, {})[:3]
            ours = outcome(client, (name, [own(it, "x") for it in args], options))
            theirs = outcome(self.redis, (name, [own(it, "y") for it in args], options))
            self.assertEqual(ours, theirs, call)
            self.assertEqual(type(ours), type(theirs), call)
        self.assertGreater(client.dbsize(), 2)
        self.assertIs(client.flushall(), True)
        self.assertEqual((client.dbsize(), self.redis.dbsize()), (0, 0))

    @each_way
    def test_pipelines_have_the_results_of_redis_py(self, client):
        self.redis.function_load(LIBRARY, replace=True)
        calls = [call for call in CALLS if call[0] != "ping" and call[1] != ("NOSUCH",)]
        for transaction in (False, True):
            results = []
            for of, name in ((client, "x"), (self.redis, "y")):
                of.flushall()
                with of.pipeline(transaction=transaction) as pipe:
                    for command, args, options in ((*call, {})[:3] for call in calls):
                        self.assertIs(getattr(pipe, command)(*[own(it, name) for it in args], **options), pipe)
                    self.assertEqual(len(pipe), len(calls))
                    results.append(pipe.execute(raise_on_error=False))
                    self.assertEqual((len(pipe), pipe.execute()), (0, []))
            for call, ours, theirs in zip(calls, *results):
                if isinstance(ours, nigh.ResponseError):
                    ours, theirs = ours.reply.removeprefix("ERR ").split(":")[0], str(theirs).split(" (")[0]
                    self.assertIn(ours[:20], theirs, call)
                elif call[0] != "fcall_ro":
                    self.assertEqual(ours, theirs, call)
            self.assertEqual(len(results[0]), len(results[1]))

    def test_random_calls_do_what_they_do_to_a_dictionary(self):
        chance, model = random.Random(SEED), {}
        clients = [self.client(way) for way in WAYS]
        key = lambda: b"key %d" % chance.randrange(30)
        value = lambda: chance.choice([b"%d" % chance.randrange(-99, 99), chance.randbytes(chance.randrange(50)),
                                       chance.randbytes(chance.randrange(1, 200_000))])

        def number(name, by):
            old = model.get(name, b"0")
            try:
                if old != b"%d" % int(old):
                    raise ValueError
            except ValueError:
                return "error: value is not an integer or out of range"
            model[name] = b"%d" % (int(old) + by)
            return int(model[name])

        def cut(it, start, end):
            if 0 > start > end:
                return b""
            start, end = (max(0, at + len(it)) if at < 0 else at for at in (start, end))
            return it[start:end + 1]

        def several(client, transaction):
            pairs = [(key(), value()) for _ in range(chance.randrange(1, 6))]
            pipe = client.pipeline(transaction)
            for name, new in pairs:
                pipe.set(name, new).get(name)
            model.update(pairs)
            wanted = [it for _, new in pairs for it in (True, new)]
            self.assertEqual(pipe.execute(), wanted)

        for number_ in range(ROUNDS * CALLS_PER_ROUND):
            client, name, new = chance.choice(clients), key(), value()
            kind = chance.choice(["set", "set", "get", "get", "get_into", "mget", "delete", "exists", "incr", "append",
                                  "getrange", "nx", "pipeline", "transaction", "view", "scan", "rename"])
            told = f"NIGH_SEED={SEED} call {number_}: {kind} {name}"
            if kind == "set":
                model[name] = new
                self.assertIs(client.set(name, new), True, told)
            elif kind == "get":
                self.assertEqual(client.get(name), model.get(name), told)
            elif kind == "get_into":
                room = bytearray(200_000)
                length = client.get_into(name, room)
                self.assertEqual(None if length is None else bytes(room[:length]), model.get(name), told)
            elif kind == "mget":
                keys = [key() for _ in range(chance.randrange(1, 20))]
                self.assertEqual(client.mget(keys), [model.get(it) for it in keys], told)
            elif kind == "delete":
                self.assertEqual(client.delete(name), int(model.pop(name, None) is not None), told)
            elif kind == "exists":
                self.assertEqual(client.exists(name), int(name in model), told)
            elif kind == "incr":
                by = chance.randrange(-50, 50)
                self.assertEqual(outcome(client, ("incr", (name, by))), number(name, by), told)
            elif kind == "append":
                model[name] = model.get(name, b"") + new[:100]
                self.assertEqual(client.append(name, new[:100]), len(model[name]), told)
            elif kind == "getrange":
                start, end = chance.randrange(-60, 60), chance.randrange(-60, 60)
                wanted = cut(model.get(name, b""), start, end)
                self.assertEqual(client.getrange(name, start, end), wanted, (told, start, end))
            elif kind == "nx":
                wanted = None if name in model else True
                model.setdefault(name, new)
                self.assertIs(client.set(name, new, nx=True), wanted, told)
            elif kind in ("pipeline", "transaction"):
                several(client, kind == "transaction")
            elif kind == "view":
                keys = [key() for _ in range(5)]
                found = clients[0].view(lambda view, keys=keys: [view.get(it) for it in keys])
                self.assertEqual(found, [model.get(it) for it in keys], told)
            elif kind == "scan":
                self.assertEqual(set(client.scan_iter()), set(model), told)
                wanted = {it for it in model if it.startswith(b"key 1")}
                self.assertEqual(set(client.scan_iter(match="key 1*", count=5)), wanted, told)
            elif name in model:
                other = key()
                model[other] = model.pop(name)
                self.assertIs(client.rename(name, other), True, told)
        self.assertEqual({it: self.redis.get(it) for it in self.redis.scan_iter()}, model, f"NIGH_SEED={SEED}")

    def test_patterns_of_scan_match_as_the_servers(self):
        names = ["a1", "a2", "b[1]", "b*", "ab", "x" * 300]
        for name in names:
            self.redis.set(name, 1)
        for client in map(self.client, WAYS):
            for pattern in (None, "*", "a*", "a?", "?1", "b[[]*", "b\\*", "none*", "x*", "[ab]*"):
                found = sorted(set(client.scan_iter(match=pattern)))
                self.assertEqual(found, sorted(set(self.redis.scan_iter(match=pattern))), pattern)

    def test_a_key_that_expires_is_gone_for_all(self):
        clients = [self.client(way) for way in WAYS]
        clients[0].set("a", 1, px=60)
        self.assertEqual({client.get("a") for client in clients}, {b"1"})
        self.assertTrue(all(0 < client.pttl("a") <= 60 for client in clients))
        time.sleep(0.08)
        self.assertEqual([client.get("a") for client in clients], [None] * 3)
        self.assertEqual([client.ttl("a") for client in clients], [-2] * 3)


class Local(Clients):
    def commands(self):
        """How many commands the server has had."""
        return self.redis.info("stats")["total_commands_processed"]

    def test_reads_of_memory_ask_nobody(self):
        client = self.client()
        self.assertTrue(client.is_local)
        self.assertIsNone(client.why_not_local)
        client.mset({"a": 1, "b": 2})
        room, before = bytearray(5), self.commands()
        for _ in range(50):
            self.assertEqual((client.get("a"), client.get("none"), client.mget("a", "b")), (b"1", None, [b"1", b"2"]))
            self.assertEqual((client.exists("a"), client.ttl("a"), client.get_into("b", room)), (1, -1, 1))
            self.assertEqual(client.view(lambda view: (view.get("a"), view.exists("none"))), (b"1", False))
            self.assertEqual(sorted(client.scan_iter()), [b"a", b"b"])
        self.assertLess(self.commands() - before, 5)
        self.assertEqual(bytes(room), b"2\0\0\0\0")

    def test_what_others_write_is_seen_and_own_writes_at_once(self):
        client = self.client()
        for number in range(100):
            self.redis.set("theirs", number)
            client.set("ours", number)
            self.assertEqual(client.mget("theirs", "ours"), [b"%d" % number] * 2)
            self.assertEqual(self.redis.get("ours"), b"%d" % number)

    def test_why_not_local_says_it_and_required_makes_it_an_error(self):
        by_tcp, never = self.client("tcp"), self.client("socket")
        self.assertFalse(by_tcp.is_local or never.is_local)
        self.assertIn("Unix socket", by_tcp.why_not_local)
        self.assertIn("options say so", never.why_not_local)
        with self.raises(nigh.NotLocalError, "connect to the server's Unix socket"):
            self.client("tcp", local="required")
        with self.raises(nigh.NotLocalError, "a view reads the server's memory"):
            by_tcp.view(lambda view: view.get("a"))

    def test_a_value_goes_into_a_callers_buffer(self):
        client = self.client()
        client.set("a", b"abcd")
        numbers = array.array("H", [0, 0, 7])
        self.assertEqual(client.get_into("a", numbers), 4)
        self.assertEqual(numbers.tobytes(), b"abcd\7\0")
        part = memoryview(bytearray(10))[3:8]
        self.assertEqual((client.get_into("a", part), bytes(part)), (4, b"abcd\0"))
        self.assertIsNone(client.get_into("none", part))
        small = bytearray(b"xyz")
        with self.raises(ValueError, "the value has 4 bytes, and the buffer 3"):
            client.get_into("a", small)
        self.assertEqual(small, b"xyz")
        for buffer, text in ((b"abcde", "writable buffer"), (7, "writable buffer"),
                             (memoryview(bytearray(20))[::2], "contiguous")):
            with self.raises(TypeError, text):
                client.get_into("a", buffer)

    def test_reads_keep_the_interpreters_lock_and_what_waits_gives_it(self):
        client = self.client()
        client.set("k", 1)
        self.assertFalse(gives_the_lock(lambda _: client.get("k")))
        self.assertFalse(gives_the_lock(lambda _: client.mget("k", "none")))
        self.assertFalse(gives_the_lock(lambda _: client.view(lambda view: view.get("k"))))
        self.assertTrue(gives_the_lock(lambda n: client.set("k", n)))
        self.assertTrue(gives_the_lock(lambda _: client.strlen("k")))
        by_socket = self.client("socket")
        self.assertTrue(gives_the_lock(lambda _: by_socket.get("k")))

    def test_a_read_shows_what_is_on_disk_where_replies_do(self):
        settings = {"appendonly": "yes", "appendfsync": "always"}
        with Server(settings=settings) as strong:
            client, eager = self.client(of=strong), self.client(of=strong, reads_unsynced=True)
            for number in range(30):
                client.set("{t}a", number)
                wanted = [b"%d" % number, None]
                self.assertEqual(client.mget("{t}a", "{t}none"), wanted)
                self.assertEqual(eager.mget("{t}a", "{t}none"), wanted)
                self.assertEqual(client.view(lambda view: view.get("{t}a")), wanted[0])
                self.assertEqual(list(client.scan_iter()), [b"{t}a"])


class Views(Clients):
    def test_a_view_is_of_one_moment_while_others_write(self):
        client, stop, faults = self.client(), threading.Event(), []

        def write():
            try:
                writer, number = self.client("socket"), 0
                while not stop.is_set():
                    number += 1
                    with writer.pipeline() as pipe:
                        pipe.set("{t}who", f"{{t}}of {number % 7}").set(f"{{t}}of {number % 7}", number)
                        pipe.set("{t}number", number).execute()
            except Exception as error:  # pylint: disable=broad-except
                faults.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            self.assertTrue(within(LIMIT_S, lambda: client.exists("{t}number")))
            for _ in range(500):
                found = client.view(lambda view: (view.get(view.get("{t}who")), view.get("{t}number")))
                self.assertEqual(found[0], found[1])
        finally:
            stop.set()
            thread.join(LIMIT_S)
        self.assertEqual(faults, [])

    def test_a_view_that_is_too_new_is_called_again(self):
        client, seen = self.client(), []
        client.mset({"{t}a": 1, "{t}b": 1})

        def read(view):
            found = [view.get("{t}a")]
            if not seen:
                # Behind the view's moment: a key that it wants is removed.
                self.redis.delete("{t}b")
            seen.append(found)
            found.append(view.get("{t}b"))
            return found

        self.assertEqual(client.view(read), [b"1", None])
        self.assertEqual(seen, [[b"1"], [b"1", None]])
        # A function that takes no notice of it is called again all the same.
        client.set("{t}b", 2)
        seen.clear()

        def careless(view):
            try:
                return read(view)
            except nigh.TooNewError:
                return "too new"

        self.assertEqual(client.view(careless), [b"1", None])
        with self.raises(nigh.TooNewError, "in each of 16 attempts"):
            client.view(lambda view: (client.set("{t}c", 1), view.get("{t}a"), client.delete("{t}c"), view.get("{t}c")))

    def test_a_view_may_be_used_in_its_function_only(self):
        client, kept = self.client(), []
        client.set("a", 1)
        with self.assertRaises(ZeroDivisionError):
            client.view(lambda view: (kept.append(view), view.get("a"), 1 / 0))
        for use in (lambda: kept[0].get("a"), lambda: kept[0].exists("a")):
            with self.raises(nigh.ClosedError, "this view is over"):
                use()
        # The function may use the client, another view, and end it.
        self.assertEqual(client.view(lambda view: (client.get("a"), client.view(lambda it: it.get("a")), view.get("a"))),
                         (b"1",) * 3)
        with self.raises(nigh.ClosedError, "the client is closed"):
            client.view(lambda view: (client.close(), view.get("a")))


class Pipelines(Clients):
    @each_way
    def test_an_error_is_raised_and_names_its_command(self, client):
        client.set("text", "x")
        with client.pipeline(transaction=False) as pipe:
            pipe.set("a", 1).incr("text").set("b", 1)
            with self.raises(nigh.ResponseError, "refused command 2 of the pipeline, INCRBY: ERR value is not"):
                pipe.execute()
        self.assertEqual((client.get("a"), client.get("b")), (b"1", b"1"))
        with client.pipeline() as pipe:
            pipe.set("a", 2).execute_command("NOSUCH")
            with self.raises(nigh.ResponseError, "refused command 2 of the pipeline, NOSUCH: ERR unknown"):
                pipe.execute()
        self.assertEqual(client.get("a"), b"1", "nothing of it is done")
        with client.pipeline() as pipe:
            pipe.set("a", 3)
        self.assertEqual((len(pipe), client.get("a")), (0, b"1"), "what isn't executed isn't sent")
        self.assertTrue(pipe)

    def test_many_and_long_commands_go_through_a_small_ring(self):
        client = self.client()
        with client.pipeline(transaction=False) as pipe:
            for number in range(3000):
                pipe.set(f"key {number}", bytes(number)).get(f"key {number}")
            pipe.set("long", bytes(5 << 20)).get("long")
            found = pipe.execute()
        self.assertEqual(found[1:6000:2], [bytes(number) for number in range(3000)])
        self.assertEqual((len(found), found[-1]), (6002, bytes(5 << 20)))
        self.assertEqual(client.get("long"), bytes(5 << 20))


class Watches(Clients):
    def raced(self, of, key, disturb):
        """Adds one to a key by a transaction that watches it. The result, or the exception's name."""
        with of.pipeline() as pipe:
            pipe.watch(key)
            number = int(pipe.get(key) or 0)
            found = [pipe.watching, len(pipe), pipe.exists(key), pipe.ttl(key), pipe.mget(key, "none")]
            disturb()
            pipe.multi()
            found.append(pipe.set(key, number + 1).get(key) is pipe)
            try:
                found.append(pipe.execute())
            except (nigh.WatchError, redis.WatchError) as error:
                found.append(type(error).__name__)
            return found + [pipe.watching, len(pipe), of.get(key)]

    @each_way
    def test_a_watched_key_guards_a_transaction_as_with_redis_py(self, client):
        other = self.client("tcp")
        for of in (client, self.redis):
            of.flushall()
            gave = [self.raced(of, "n", lambda: None),
                    self.raced(of, "n", lambda: other.set("other", 1)),
                    self.raced(of, "n", lambda: other.set("n", 7)),
                    self.raced(of, "n", lambda: of.set("n", 8)),
                    self.raced(of, "n", lambda: other.delete("n"))]
            if of is client:
                ours = gave
        self.assertEqual(ours, gave)
        self.assertEqual([it[6] for it in ours], [[True, b"1"], [True, b"2"], *["WatchError"] * 3])
        # What doesn't watch is sent together, and the client's own connection watches nothing.
        with client.pipeline(transaction=False) as pipe:
            pipe.watch("n")
            self.assertIs(pipe.unwatch(), True)
            self.assertEqual((pipe.watching, pipe.set("n", 1) is pipe, len(pipe)), (False, True, 1))
            client.set("n", 9)
            self.assertEqual(pipe.get("n").execute(), [True, b"1"])
            pipe.watch("n")
            self.assertEqual((pipe.incr("n"), pipe.execute_command("GET", "n")), (2, b"2"), "at once")
            with self.raises(nigh.WatchError, "a watched key has changed, so nothing was done"):
                pipe.execute()  # without commands: as in redis-py

    @each_way
    def test_threads_that_watch_lose_no_update(self, client):
        count, rounds, faults = 4, 25, []

        def work():
            try:
                for _ in range(rounds):
                    for _ in range(10_000):
                        with client.pipeline() as pipe:
                            try:
                                pipe.watch("sum")
                                number = int(pipe.get("sum") or 0)
                                pipe.multi()
                                pipe.set("sum", number + 1).execute()
                                break
                            except nigh.WatchError:
                                pass
                    else:
                        raise AssertionError("it never happens")
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual((faults, client.get("sum")), ([], b"%d" % (count * rounds)))
        listed = self.redis.client_list()
        self.assertLess(len(listed), 4 * count + 10, "connections that watch are used again")

    def test_calls_out_of_order_are_errors(self):
        client = self.client()
        pipe = client.pipeline()
        pipe.multi()
        for text, call in (("multi within multi", pipe.multi), ("watch after multi", lambda: pipe.watch("a")),
                           ("unwatch after multi", pipe.unwatch)):
            with self.raises(nigh.Error, text):
                call()
        self.assertEqual(pipe.set("a", 1).execute(), [True])
        with self.raises(nigh.Error, "gathered already"):
            pipe.set("a", 2).multi()
        pipe.reset()
        with self.raises(nigh.ResponseError, "refused WATCH: ERR wrong number"):
            pipe.watch()
        self.assertFalse(pipe.watching)
        pipe.watch("a")
        with self.raises(nigh.ResponseError, "refused WATCH"):
            pipe.watch()
        client.set("a", 3)
        with self.raises(nigh.ResponseError, "refused command 1 of the pipeline, NOSUCH: ERR unknown"):
            pipe.multi()
            pipe.execute_command("NOSUCH").execute()
        self.assertFalse(pipe.watching)
        pipe.watch("a")
        pipe.reset()
        self.assertEqual((pipe.watching, pipe.set("a", 4) is pipe, pipe.execute()), (False, True, [True]))
        pipe.watch("a")
        client.close()
        for call in (pipe.execute, lambda: pipe.watch("a")):
            with self.raises(nigh.ClosedError, "the client is closed"):
                call()


class Threads(Clients):
    @each_way
    def test_threads_share_a_client(self, client):
        faults, rounds, count = [], 40, 4
        client.set("{t}a", 0)
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self.addCleanup(sys.setswitchinterval, before)

        def work(number):
            try:
                for round_ in range(rounds):
                    client.incr("{t}a")
                    client.set(f"{number}", round_)
                    self.assertEqual(client.get(f"{number}"), b"%d" % round_)
                    self.assertEqual(client.mget(f"{number}", "none"), [b"%d" % round_, None])
                    with client.pipeline() as pipe:
                        self.assertEqual(pipe.set(f"{number}", "x").get(f"{number}").execute(), [True, b"x"])
                    if client.is_local:
                        self.assertEqual(client.view(lambda view: view.get(f"{number}")), b"x")
                    self.assertIn(b"{t}a", set(client.scan_iter(match="{t}*")))
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual((faults, [it.is_alive() for it in threads]), ([], [False] * count))
        self.assertEqual(client.get("{t}a"), b"%d" % (rounds * count))

    def test_close_waits_for_other_threads_and_they_are_told(self):
        client, begun, told = self.client(), threading.Semaphore(0), []

        def work():
            try:
                while True:
                    client.incr("a")
                    begun.release()
            except nigh.ClosedError as error:
                told.append(str(error))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            self.assertTrue(begun.acquire(timeout=LIMIT_S))
        client.close()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(len(told), 3)
        self.assertIn("the client is closed: connect another", told[0])


class Ends(Clients):
    def setUp(self):
        super().setUp()
        self.shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        self.addCleanup(self.shm.cleanup)
        self.server = Server(shm_dir=self.shm.name)
        self.addCleanup(self.server.stop)

    def start_again(self):
        self.assertTrue(self.server._start(), self.server.log())  # pylint: disable=protected-access

    def test_a_server_that_was_killed_and_its_successor(self):
        client, by_tcp = self.client(of=self.server), self.client("tcp", of=self.server)
        for one in (client, by_tcp):
            one.set("a", 1)
        self.server.end(signal.SIGKILL)

        def is_told():
            try:
                return client.get("a") != b"1"  # as it was last, for some milliseconds
            except nigh.NotAttachedError as error:
                self.assertRegex(str(error), f"not attached to unix:{self.server.unix_path}: nothing listens .*; nothing was sent")
                return True

        self.assertTrue(within(LIMIT_S, is_told))
        pipe = client.pipeline().set("b", 2)
        for call in (lambda: client.set("a", 2), pipe.execute, lambda: client.view(lambda view: view.get("a")),
                     lambda: by_tcp.get("a"), lambda: self.client(of=self.server)):
            with self.raises(nigh.NotAttachedError, "nothing was sent"):
                call()
        self.assertFalse(client.is_local)
        self.start_again()
        self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.get, "a") == b"1"), "it has the same memory")
        self.assertTrue(client.is_local)
        self.assertEqual(pipe.execute(), [True], "it has waited")
        self.assertEqual((client.get("b"), by_tcp.get("b")), (b"2", b"2"))

    def test_a_watch_ends_with_its_server(self):
        for way in WAYS:
            client = self.client(way, of=self.server)
            client.set("a", 1)
            pipe, guarded, rested = client.pipeline(), client.pipeline(), client.pipeline()
            for each in (pipe, guarded, rested):
                each.watch("a")
            self.assertTrue(rested.unwatch(), "its connection waits for the next one that watches")
            guarded.multi()
            guarded.set("a", 2)
            self.server.end(signal.SIGKILL)
            self.start_again()
            self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.get, "a") == b"1"))
            time.sleep(0.02)  # they notice
            with self.raises(nigh.WatchError, "the connection that watched keys is over .*; nothing was done"):
                pipe.get("a")
            with self.raises(nigh.WatchError, "nothing was done"):
                guarded.execute()
            self.assertEqual((client.get("a"), len(guarded), guarded.watching), (b"1", 0, False))
            with client.pipeline() as pipe:
                pipe.watch("a")
                pipe.multi()
                self.assertEqual(pipe.set("a", 3).execute(), [True])
            client.close()

    def test_calls_wait_for_a_server_if_they_are_asked_to(self):
        client, waited = self.client(of=self.server, wait=LIMIT_S), []
        client.set("a", 1)
        self.server.end(signal.SIGKILL)
        time.sleep(0.02)  # it notices
        work = lambda: waited.append((client.set("b", 2), client.get("a")))
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        time.sleep(0.05)
        self.start_again()
        thread.join(LIMIT_S)
        self.assertEqual(waited, [(True, b"1")])
        self.assertEqual((client.get("b"), client.is_local), (b"2", True))

    def test_memory_that_is_cut_off_is_no_signal(self):
        client = self.client(of=self.server, timeout=0.2)
        client.set("a", bytes(100_000))
        with stands_still(self.server.process):
            for folder, _, names in os.walk(self.shm.name):
                for name in names:
                    os.truncate(os.path.join(folder, name), 4096)
            with self.raises(nigh.NotAttachedError, "not attached"):
                client.get("a")
            self.server.end(signal.SIGKILL)

    def test_a_server_that_stands_still(self):
        client = self.client(of=self.server, timeout=0.2)
        client.set("a", 1)
        with stands_still(self.server.process):
            self.assertEqual(client.get("a"), b"1", "it reads without the server")
            with self.raises(nigh.UnknownOutcomeError, "no reply to SET: .* it may or may not have happened: read what"):
                client.set("a", 2)
        self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.get, "a") in (b"1", b"2")))
        with stands_still(self.server.process):
            with self.raises(nigh.UnansweredError, "no reply to STRLEN: .* read again"):
                client.strlen("a")

    def test_a_signal_ends_the_wait_for_a_server(self):
        self.server.end(signal.SIGKILL)

        class Told(Exception):
            pass

        def tell(*_):
            raise Told

        before = signal.signal(signal.SIGALRM, tell)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        begin = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with self.assertRaises(Told):
            self.client(of=self.server, wait=1e9)
        self.assertLess(time.monotonic() - begin, LIMIT_S)


def outcome_of(call, *args):
    """The result, or the class of the exception."""
    try:
        return call(*args)
    except nigh.Error as error:
        return type(error)


class Fake:
    """A server that answers requests by a list of replies, and then closes the connection."""

    def __init__(self, *replies):
        self.folder = tempfile.TemporaryDirectory(prefix="nigh-fake-")
        self.path = os.path.join(self.folder.name, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.replies = list(replies)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        peer, _ = self.listener.accept()
        got = b""
        with peer:
            for reply in self.replies:
                while frame_end(got, 0) < 0:
                    more = peer.recv(1 << 16)
                    if not more:
                        return
                    got += more
                got = got[frame_end(got, 0):]
                peer.sendall(reply)
        self.listener.close()

    def close(self):
        self.thread.join(LIMIT_S)
        self.listener.close()
        self.folder.cleanup()


class Wrong(Clients):
    def test_arguments(self):
        client = self.client()
        client.set("a", "text")
        words = "bytes, a buffer, text or a number are needed, not "
        cases = [
            (TypeError, words + "NoneType", lambda: client.get(None)),
            (TypeError, words + "list", lambda: client.set("a", [1])),
            (TypeError, words + "bool", lambda: client.set("a", True)),
            (TypeError, words + "dict", lambda: client.mget("a", {})),
            (TypeError, words + "object", lambda: client.pipeline().set("a", object())),
            (TypeError, "iterable", lambda: client.mget(None)),
            (TypeError, "Mapping|mapping", lambda: client.mset([("a", 1)])),
            (TypeError, "a whole number or a timedelta is needed, not str", lambda: client.expire("a", "1")),
            (TypeError, "a whole number or a datetime is needed, not float", lambda: client.expireat("a", 1.5)),
            (TypeError, "'?str'?", lambda: client.incr("a", "1")),
            (TypeError, "address", nigh.Client),
            (TypeError, "not callable", lambda: client.view(7)),
            (ValueError, 'the text "ab.*" has a lone surrogate, so it isn.t UTF-8: give its bytes',
             lambda: client.get("ab\udc80")),
            (ValueError, "lone surrogate", lambda: client.set("a", "\ud800" * 100)),
            (ValueError, "'http://' isn't supported", lambda: nigh.Client("http://x")),
            (ValueError, "names no host", lambda: nigh.Client("")),
            (ValueError, "'99999' in '.*' is no port", lambda: nigh.Client("host:99999")),
            (ValueError, "local is 'yes': give 'auto'", lambda: self.client(local="yes")),
            (ValueError, "timeout is 0", lambda: self.client(timeout=0)),
            (ValueError, "timeout is -1", lambda: self.client(timeout=-1)),
            (ValueError, "wait is NaN", lambda: self.client(wait=float("nan"))),
            (ValueError, "no command is given", client.execute_command),
            (ValueError, r"MULTI would change the connection.*: use pipeline\(\)", lambda: client.execute_command("multi")),
            (ValueError, "CLIENT REPLY would", lambda: client.execute_command("CLIENT REPLY", "OFF")),
            (ValueError, "HELLO would", lambda: client.pipeline().execute_command(b"HELLO", 3)),
            (nigh.TooLargeError, "a key of 70000 bytes: 65535 are the most", lambda: client.get("k" * 70_000)),
            (nigh.TooLargeError, "a key of 70000 bytes", lambda: client.mget("a", "k" * 70_000)),
            (nigh.TooLargeError, "a key of 70000 bytes", lambda: self.client("tcp").exists("k" * 70_000)),
            (nigh.ResponseError, "unix:.*refused INCRBY: ERR value is not an integer", lambda: client.incr("a")),
            (nigh.ResponseError, "refused SET: ERR syntax error", lambda: client.set("a", 1, ex=1, px=1)),
            (nigh.ResponseError, "refused SET: ERR", lambda: client.set("k" * 70_000, 1)),
            (OverflowError, "", lambda: client.incr("a", 1 << 64)),
        ]
        for kind, text, call in cases:
            with self.subTest(text=text), self.raises(kind, text):
                call()
        self.assertEqual(client.execute_command("CLIENT ID"), int(client.execute_command("CLIENT", "ID")))
        self.assertEqual(client.set(1 << 80, 2 ** 70), True)
        self.assertEqual(client.get(str(1 << 80)), b"%d" % 2 ** 70)
        self.assertEqual(client.get("a"), b"text", "nothing of it has an effect")

    def test_a_closed_client(self):
        with self.client() as client:
            client.set("a", 1)
            pipe, walk = client.pipeline().set("a", 2), client.scan_iter()
        client.close()
        self.assertTrue(client.closed and "closed" in repr(client))
        for call in (lambda: client.get("a"), lambda: client.mget("a"), lambda: client.set("a", 1), pipe.execute,
                     lambda: next(walk), lambda: client.is_local, lambda: client.view(lambda view: 1), client.ping):
            with self.raises(nigh.ClosedError, "unix:.*: the client is closed: connect another"):
                call()
        self.assertEqual(self.redis.get("a"), b"1")

    def test_sockets_without_a_server(self):
        folder = tempfile.mkdtemp(prefix="nigh-test-")
        self.addCleanup(os.rmdir, folder)
        with self.raises(nigh.NotAttachedError, "nothing listens at unix:.*: start a server with `nigh serve --unixsocket PATH`"):
            nigh.Client(f"unix:{folder}/none")
        with self.raises(nigh.NotAttachedError, "can't connect to unix:"):
            nigh.Client("unix:/" + "x" * 200)
        with self.raises(nigh.NotAttachedError, "can't connect to unix:"):
            nigh.Client("unix:/a\0b")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with self.raises(nigh.NotAttachedError, "nothing listens at 127.0.0.1"):
                nigh.Client(f"127.0.0.1:{taken.getsockname()[1]}")

    def test_servers_of_other_kinds(self):
        other = b"-ERR LOCAL ATTACH: version 1 of the protocol isn't spoken here, but 2\r\n"
        fake = Fake(other, b"+PONG\r\n", b"$1\r\nx\r\n", b":7\r\n", b"+OK\r\n", b"+QUEUED\r\n")
        self.addCleanup(fake.close)
        client = nigh.Client(f"unix:{fake.path}")
        self.assertIn("but 2", client.why_not_local)
        self.assertEqual(client.get("a"), b"x")
        with self.raises(nigh.ConnectError, "answered GET by something else: is it another kind of server?"):
            client.get("a")
        # It closes in the midst of a pipeline: what came before is told.
        with self.assertRaises(nigh.UnknownOutcomeError) as told:
            client.pipeline(transaction=False).set("a", 1).get("b").get("c").execute()
        self.assertEqual(told.exception.replies, [True, b"QUEUED"])
        for reply, kind, text in ((other, nigh.NotLocalError, "no local access to unix:.*but 2"),
                                  (b"HTTP/1.1 400 Bad Request\r\n\r\n", nigh.ConnectError, "unix:")):
            fake = Fake(reply)
            self.addCleanup(fake.close)
            with self.raises(kind, text):
                nigh.Client(f"unix:{fake.path}", local="required")

    def test_passwords(self):
        with Server(settings={"requirepass": "geheim"}) as guarded:
            address = f"unix:{guarded.unix_path}"
            with self.raises(nigh.ConnectError, "refused the password|asks for a password"):
                nigh.Client(address, password="falsch")
            client = nigh.Client(address, username="default", password="geheim", name="der-name")
            self.assertTrue(client.is_local)
            self.assertEqual(client.execute_command("CLIENT GETNAME"), b"der-name")
            by_url = nigh.Client(f"redis://:geheim@127.0.0.1:{guarded.port}")
            by_url.set("a", 1)
            self.assertEqual(client.get("a"), b"1")
            with self.raises(nigh.Error, "password|NOAUTH"):
                nigh.Client(address).set("a", 1)

    def test_a_child_of_a_fork_is_refused(self):
        client = self.client()
        client.set("a", 1)
        pipe = client.pipeline().set("a", 2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                told = 0
                for call in (lambda: client.get("a"), lambda: client.set("a", 3), pipe.execute):
                    try:
                        call()
                    except nigh.Error as error:
                        told += "is a fork of the one that connected" in str(error)
                client.close()
                own_client = nigh.Client(f"unix:{server.unix_path}", local="required")
                code = 0 if told == 3 and own_client.get("a") == b"1" else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual((client.get("a"), pipe.execute(), client.get("a")), (b"1", [True], b"2"))


class Documented(Clients):
    def test_the_readmes_example_runs(self):
        example = (ROOT / "examples/python/beside.py").read_text(encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertTrue(f"```python\n{example}```\n" in readme, "README.md shows another example")
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        line = [sys.executable, ROOT / "examples/python/beside.py", f"unix:{server.unix_path}"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "Ada [b'Ada', None]\nAda's last order: tea\n")


if __name__ == "__main__":
    unittest.main()
