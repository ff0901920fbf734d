"""Each call of the client for Python gives what redis-py gives, or does what it does to a dictionary.

For test_local_client.py. NIGH_SEED repeats a run, NIGH_CLIENT_ROUNDS makes it longer.
"""

import datetime
import os
import random
import threading
import time

import redis

from client_case import LIMIT_S, WAYS, Clients, begin, each_way, nigh

SEED = int(os.environ.get("NIGH_SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("NIGH_CLIENT_ROUNDS", "2"))
CALLS_PER_ROUND = 400
LIBRARY = """#!js name=pyclient
export function add(db, [by], [key]) { return db.incr(key, Number(by)); }
export function twice(db, [text]) { return [text, text, 2]; }
twice.flags = ["no-writes"];
"""


def setUpModule():
    begin()


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
            if name == "ttl" and min(ours, theirs) > 0:
                self.assertAlmostEqual(ours, theirs, delta=10)  # a slow machine may take seconds between both
                continue
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

    @each_way
    def test_threads_share_a_walk(self, client):
        """Together they meet each key, one that moves meanwhile perhaps twice. The second one got
        RuntimeError: Already borrowed."""
        client.mset({f"key {number}": number for number in range(2000)})
        walk, found, faults = client.scan_iter(count=10), [], []

        def work():
            try:
                found.append(list(walk))
            except BaseException as error:  # pylint: disable=broad-except
                faults.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual((faults, len(found)), ([], len(threads)))
        self.assertEqual(sorted(set(sum(found, []))), sorted(set(client.scan_iter())))

    def test_a_key_that_expires_is_gone_for_all(self):
        clients = [self.client(way) for way in WAYS]
        clients[0].set("a", 1, px=1000)
        self.assertEqual({client.get("a") for client in clients}, {b"1"})
        self.assertTrue(all(0 < client.pttl("a") <= 1000 for client in clients))
        time.sleep(1.02)
        self.assertEqual([client.get("a") for client in clients], [None] * 3)
        self.assertEqual([client.ttl("a") for client in clients], [-2] * 3)


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
