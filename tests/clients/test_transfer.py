"""`nigh import` and `nigh export` with the real Redis: files and a running server, and back.

Redis makes the data, with all types and encodings; Nigh must have its strings, byte for byte, with
their expiry, and the import must name all else.
"""

import os
import random
import re
import subprocess
import threading
import time
import unittest

from server import Server, nigh_binary, tested_kind, tool
from wire import Wire, encode, frame_end, parse

LIMIT_S = 120
DATABASES = 16


def setUpModule():
    if tested_kind() != "nigh":
        raise unittest.SkipTest("the import is Nigh's; Redis in its place proves nothing")


def redis(**settings):
    return Server("redis", {"databases": DATABASES, "enable-debug-command": "yes", **settings})


def run(*args, stdin=b""):
    """Runs nigh; returns exit code, stdout, stderr."""
    done = subprocess.run(
        [nigh_binary(), *map(str, args)], input=stdin, capture_output=True, timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def imported(source, nigh, *flags, expect=0):
    code, out, err = run("import", source, "--connect", nigh.port, *flags)
    assert code == expect, (code, out, err)
    assert "panicked" not in err, err
    counts = dict(re.findall(r"^(\w[\w ]*\w)\s+([\d,]+)$", out.decode(), re.M))
    return {name: int(count.replace(",", "")) for name, count in counts.items()}, err


def pipeline(wire, commands):
    """Sends all and returns all replies; no error is allowed."""
    commands = list(commands)
    for begin in range(0, len(commands), 500):
        part = commands[begin : begin + 500]
        wire.send(b"".join(map(encode, part)))
        for command in part:
            reply = wire.reply()
            assert not reply.startswith(b"-"), (command[:2], reply)


def strings_of(server, db=0):
    """All strings of a server: key -> (value, expiry in Unix ms or -1)."""
    found = {}
    with Wire(server.address, timeout=60) as wire:
        if db:
            wire.ask("SELECT", db)
        for key in wire.ask("KEYS", "*"):
            if wire.ask("TYPE", key) == b"string":
                found[key] = (wire.ask("GET", key), wire.ask("PEXPIRETIME", key))
    return found


def fill_strings(wire, seed=1):
    """Strings of all encodings and lengths, keys of any bytes, some with an expiry."""
    chance = random.Random(seed)
    now = int(time.time() * 1000)
    numbers = [0, 1, -1, 127, 128, -129, 32767, 32768, 2**31 - 1, 2**31, -(2**31), 2**63 - 1]
    commands = [["SET", f"int:{n}", n] for n in numbers]
    commands += [["SET", 12, "a key that is a number"], ["SET", "", "no name"], ["SET", "e", ""]]
    lengths = [1, 20, 21, 63, 64, 16383, 16384, 70000, 1 << 20, (9 << 20) + 7]
    for length in lengths:
        commands.append(["SET", f"same:{length}", b"x" * length])  # packed
        pattern = bytes(chance.randrange(4) for _ in range(min(length, 5000)))
        text = (pattern * (length // len(pattern) + 1))[:length]
        commands.append(["SET", f"text:{length}", text])
        commands.append(["SET", f"any:{length}", chance.randbytes(length), "PXAT", now + 10**8])
    commands.append(["SET", chance.randbytes(300), "a key of any bytes"])
    commands.append(["SET", b"k" * 65535, "the longest key"])
    for i in range(500):
        key = b"k\r\n\x00%d" % i
        commands.append(["SET", key, chance.randbytes(i), *(["PX", 10**7 + i] if i % 3 else [])])
    commands.append(["SET", "seconds", "v", "EXAT", 4_000_000_000])
    pipeline(wire, commands)


def fill_others(wire):
    """One key at least of each other type and encoding. Returns how many keys."""
    big = "v" * 100
    commands = [
        ["RPUSH", "list:small", 1, "two", 300, -70000, 2**40],
        ["RPUSH", "list:big", *(big + str(i) for i in range(2000))],
        ["RPUSH", "list:huge", "h" * 100_000],
        ["SADD", "set:ints", *range(100)],
        ["SADD", "set:ints64", 2**40, 5],
        ["SADD", "set:many", *(f"m{i}" for i in range(1000))],
        ["SADD", "set:few", "a", "b"],
        ["HSET", "hash:small", "f", "v", "n", 12],
        ["HSET", "hash:big", *(x for i in range(1000) for x in (f"f{i}", big))],
        ["ZADD", "zset:small", "1.5", "a", "-inf", "b", "inf", "c"],
        ["ZADD", "zset:big", *(x for i in range(1000) for x in (str(i / 7), f"m{i}"))],
        ["GEOADD", "geo", "13.361389", "38.115556", "Palermo"],
        *(["XADD", "stream", f"{i}-1", "field", big, f"other{i % 3}", i] for i in range(1, 300)),
        ["XDEL", "stream", "5-1"],
        ["XGROUP", "CREATE", "stream", "group", 0],
        ["XGROUP", "CREATE", "stream", "idle", "$"],
        ["XREADGROUP", "GROUP", "group", "ann", "COUNT", 20, "STREAMS", "stream", ">"],
        ["XREADGROUP", "GROUP", "group", "bob", "COUNT", 5, "STREAMS", "stream", ">"],
        ["XACK", "stream", "group", "1-1"],
        ["XGROUP", "CREATE", "stream:empty", "group", 0, "MKSTREAM"],
        ["HSET", "hash:expires", "f", "v"],
        ["PEXPIRE", "hash:expires", 10**7],
        ["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() end)"],
    ]
    pipeline(wire, commands)
    return 15


def changed(bytes_, at, new):
    return bytes_[:at] + new + bytes_[at + len(new) :]


class FromRdb(unittest.TestCase):
    """One Redis makes one file with everything in it."""

    @classmethod
    def setUpClass(cls):
        cls.redis = redis()
        with Wire(cls.redis.address, timeout=60) as wire:
            fill_strings(wire)
            cls.others = fill_others(wire)
            for db in range(1, DATABASES):
                pipeline(wire, [["SELECT", db], ["SET", f"of:{db}", db], ["RPUSH", "l", 1]])
            pipeline(wire, [["SELECT", 0], ["SET", "soon", "over", "PX", 20]])
            # An expired key stays in the file.
            pipeline(wire, [["DEBUG", "SET-ACTIVE-EXPIRE", 0]])
            time.sleep(0.1)
            wire.ask("SAVE")
        with open(os.path.join(cls.redis.folder, "dump.rdb"), "rb") as file:
            cls.file = file.read()
        cls.strings = strings_of(cls.redis)

    @classmethod
    def tearDownClass(cls):
        cls.redis.stop()

    def setUp(self):
        self.nigh = Server("nigh")
        self.path = os.path.join(self.redis.folder, "a.rdb")
        self.write(self.file)

    def tearDown(self):
        self.nigh.stop()

    def write(self, file):
        with open(self.path, "wb") as out:
            out.write(file)

    def test_all_strings_come_and_all_others_are_named(self):
        counts, err = imported(self.path, self.nigh, expect=1)
        self.assertEqual(strings_of(self.nigh), self.strings)
        self.assertEqual(counts["written"], len(self.strings))
        self.assertEqual(counts["expired"], 1)
        self.assertEqual(counts["left out"], self.others + 1 + 2 * (DATABASES - 1))
        for words in [
            "3 lists: ", "4 sets: ", "3 hashes: ", "3 sorted sets: ", "2 streams: ",
            "1 libraries of functions: #!lua name=lib", "2 keys of database 15: ",
        ]:
            self.assertIn("left out: " + words, err)
        last = err.strip().splitlines()[-1]
        self.assertRegex(last, "^nigh: not everything is imported: left out are .*3 hashes")
        # Again: the same.
        again, _ = imported(self.path, self.nigh, "--skip-others")
        self.assertEqual(again, counts)
        self.assertEqual(strings_of(self.nigh), self.strings)

    def test_another_database(self):
        with Wire(self.nigh.address) as wire:
            wire.ask("SET", "before", "stays")
        counts, _ = imported(self.path, self.nigh, "--db", 7, expect=1)
        self.assertEqual(counts["written"], 1)
        self.assertEqual(set(strings_of(self.nigh)), {b"of:7", b"before"})
        imported(self.path, self.nigh, "--db", 7, "--replace", "--skip-others")
        self.assertEqual(strings_of(self.nigh), strings_of(self.redis, 7))

    def test_from_stdin(self):
        code, out, err = run(
            "import", "-", "--connect", self.nigh.port, "--skip-others", stdin=self.file
        )
        self.assertEqual(code, 0, err)
        self.assertEqual(strings_of(self.nigh), self.strings)

    def test_old_encodings_of_redis(self):
        """Other thresholds and no compression: plain hashes, sets, nodes and lists."""
        with Wire(self.redis.address, timeout=60) as wire:
            before = {}
            for name, value in [
                ("hash-max-listpack-entries", 0), ("zset-max-listpack-entries", 0),
                ("set-max-intset-entries", 0), ("list-max-listpack-size", 1),
                ("rdbcompression", "no"),
            ]:
                before[name] = wire.ask("CONFIG", "GET", name)[1]
                self.assertEqual(wire.ask("CONFIG", "SET", name, value), b"OK")
            wire.ask("DEBUG", "RELOAD")
            wire.ask("SAVE")
            for name, value in before.items():
                wire.ask("CONFIG", "SET", name, value)
        counts, _ = imported(
            os.path.join(self.redis.folder, "dump.rdb"), self.nigh, "--skip-others"
        )
        self.assertEqual(counts["written"], len(self.strings))
        self.assertEqual(strings_of(self.nigh), self.strings)

    def test_a_file_without_a_checksum(self):
        with redis(rdbchecksum="no") as source:
            with Wire(source.address) as wire:
                pipeline(wire, [["SET", "a", 1]])
                wire.ask("SAVE")
            path = os.path.join(source.folder, "dump.rdb")
            with open(path, "rb") as file:
                self.assertTrue(file.read().endswith(bytes(8)))
            imported(path, self.nigh)
        self.assertEqual(strings_of(self.nigh), {b"a": (b"1", -1)})

    def test_from_the_running_server(self):
        """As a replica does it: with and without a file at the master."""
        for diskless in ("no", "yes"):
            with Wire(self.redis.address) as wire:
                wire.ask("CONFIG", "SET", "repl-diskless-sync", diskless)
                wire.ask("CONFIG", "SET", "repl-diskless-sync-delay", 0)
            for source in (f"redis://127.0.0.1:{self.redis.port}", f"unix:{self.redis.unix_path}"):
                counts, _ = imported(source, self.nigh, "--replace", "--skip-others")
                self.assertEqual(counts["written"], len(self.strings))
                self.assertEqual(strings_of(self.nigh), self.strings)

    def test_a_source_that_asks_for_a_password(self):
        with redis(requirepass="secret") as source:
            with Wire(source.address) as wire:
                wire.ask("AUTH", "secret")
                pipeline(wire, [["SET", "a", 1], ["CONFIG", "SET", "repl-diskless-sync-delay", 0]])
            url = f"127.0.0.1:{source.port}"
            _, err = imported("redis://" + url, self.nigh, expect=1)
            self.assertIn("NOAUTH", err)
            imported("redis://:secret@" + url, self.nigh)
            imported("redis://" + url, self.nigh, "--replace", "--source-password", "secret")
            self.assertEqual(strings_of(self.nigh), {b"a": (b"1", -1)})

    def test_a_source_without_psync(self):
        with Server("nigh") as source:
            _, err = imported(f"redis://127.0.0.1:{source.port}", self.nigh, expect=1)
            self.assertIn("refuses PSYNC", err)

    def test_damage_is_told_with_its_offset(self):
        """Cut and changed files: an error that says where, and no panic."""
        chance = random.Random(5)
        file = self.file
        for _ in range(25):
            cut = chance.randrange(len(file))
            self.write(file[:cut])
            code, out, err = run("import", self.path, "--connect", self.nigh.port, "--skip-others")
            self.assertEqual(code, 1, err)
            self.assertRegex(err, f"offset {cut}|its first bytes are" if cut else "first bytes")
        for _ in range(25):
            at = chance.randrange(len(file))
            self.write(changed(file, at, bytes([file[at] ^ 1 << chance.randrange(8)])))
            code, out, err = run("import", self.path, "--connect", self.nigh.port, "--skip-others")
            self.assertEqual(code, 1, (at, out, err))
            self.assertRegex(err, "offset [0-9]+|version .* isn't known|its first bytes are")
            self.assertNotIn("panicked", err)
        self.write(file + b"more")
        _, err = imported(self.path, self.nigh, "--skip-others", expect=1)
        self.assertIn("bytes behind the end", err)
        self.assertTrue(self.nigh.alive())

    def test_the_servers_refusal_ends_it(self):
        with Server("nigh", {"maxmemory": 8 << 20}) as small:
            code, out, err = run("import", self.path, "--connect", small.port)
            self.assertEqual(code, 1)
            self.assertRegex(err, r"import ended after [\d,]+ writes: .* refused to write .*: OOM")
            self.assertTrue(small.alive())

    def test_keys_that_the_server_evicts_are_counted(self):
        settings = {"maxmemory": 8 << 20, "maxmemory-policy": "allkeys-lru"}
        with Server("nigh", settings) as small, redis() as source:
            with Wire(source.address) as wire:
                pipeline(wire, (["SET", f"k{i}", "v" * 1000] for i in range(30_000)))
                wire.ask("SAVE")
            counts, err = imported(os.path.join(source.folder, "dump.rdb"), small, expect=1)
            self.assertIn("keys evicted again", err)
            left = len(strings_of(small))
            self.assertEqual(left, counts["written"] - counts["left out"])

    def test_values_of_the_greatest_length(self):
        """512 MB pass through a program that may use much less memory."""
        value = 512 << 20
        with redis() as source, Server("nigh", {"maxmemory": 2 << 30}) as nigh:
            with Wire(source.address, timeout=LIMIT_S) as wire:
                pipeline(wire, [["SETRANGE", "zeros", value - 1, "!"], ["SET", "a", 1]])
                wire.ask("SAVE")
            path = os.path.join(source.folder, "dump.rdb")
            limit = ["bash", "-c", 'ulimit -v 400000; exec "$@"', "bash"]
            done = subprocess.run(
                [*limit, nigh_binary(), "import", path, "--connect", str(nigh.port)],
                capture_output=True, timeout=LIMIT_S, check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            with Wire(nigh.address, timeout=LIMIT_S) as wire:
                self.assertEqual(wire.ask("STRLEN", "zeros"), value)
                self.assertEqual(wire.ask("GETRANGE", "zeros", value - 2, -1), b"\0!")
                self.assertEqual(wire.ask("GET", "a"), b"1")


def load_aof(wire):
    """Commands whose effect depends on those before; and an expiry that was put off."""
    commands = [
        ["SET", "n", 5], ["INCR", "n"], ["INCRBY", "n", 10], ["INCRBYFLOAT", "f", "1.5"],
        ["APPEND", "text", "hello"], ["SETRANGE", "text", 1, "EY"], ["GETSET", "n2", 4],
        ["SET", "n3", 1], ["GETDEL", "n3"], ["MSET", "m1", 1, "m2", 2], ["MSETNX", "m3", 3, "m4", 4],
        ["SETNX", "nx", 1], ["SET", "opt", 1, "NX"], ["SET", "opt", 2, "XX", "GET"],
        ["SETEX", "ex", 10_000, "v"], ["PSETEX", "px", 10**7, "v"], ["SET", "keep", 1, "EX", 9000],
        ["SET", "keep", 2, "KEEPTTL"], ["SET", "perm", 1, "EX", 9000], ["PERSIST", "perm"],
        ["GETEX", "m1", "EX", 5000], ["SET", "from", "moved"], ["RENAME", "from", "to"],
        ["COPY", "to", "copy"], ["SET", "gone", 1], ["DEL", "gone"], ["UNLINK", "m2"],
        ["MULTI"], ["SET", "t1", 1], ["INCR", "t1"], ["EXEC"],
        ["RPUSH", "l", 1, 2], ["SET", "over", "string"], ["RENAME", "l", "over"],
        ["SADD", "s1", "a"], ["SET", "stored", 1], ["SUNIONSTORE", "stored", "s1"],
        ["RPUSH", "l2", 2, 1], ["SET", "sorted", 1], ["SORT", "l2", "STORE", "sorted"],
        ["SETBIT", "bits", 7, 1], ["XADD", "x", "1-1", "f", "v"], ["HSET", "h", "f", "v"],
        ["SELECT", 3], ["SET", "elsewhere", 1], ["SELECT", 0], ["SET", "moves", 1],
        ["MOVE", "moves", 3], ["EXPIRE", "text", 8000], ["SET", "b\r\n\0", b"\xff" * 70_000],
        # Its first expiry is past when the file is read; the second isn't.
        ["SET", "refreshed", "v", "PX", 300], ["PEXPIRE", "refreshed", 10**7],
        ["SET", "kept", "v", "PX", 300], ["PERSIST", "kept"], ["SET", "ends", "v", "PX", 300],
        *(["SET", f"old:{i}", i, "PX", 10**7 + i] for i in range(20)),
        *(["RENAME", f"old:{i}", f"new:{i}"] for i in range(20)),
        *(["COPY", f"new:{i}", f"twin:{i}"] for i in range(20)),
    ]
    pipeline(wire, commands)
    for i, key in enumerate(["text", "h"]):
        pipeline(wire, [["SET", f"restored:{i}", "old"]])
        pipeline(wire, [["RESTORE", f"restored:{i}", 0, wire.ask("DUMP", key), "REPLACE"]])
    pipeline(wire, [["RESTORE", "restored:ttl", 10**7, wire.ask("DUMP", "to")]])


class FromAof(unittest.TestCase):
    settings = {}

    def setUp(self):
        self.nigh = Server("nigh", self.settings)

    def tearDown(self):
        self.nigh.stop()

    def check(self, source, path):
        _, err = imported(path, self.nigh, "--replace", expect=1)
        expected = strings_of(source)
        self.assertEqual(expected.pop(b"bits", (b"\1", -1)), (b"\1", -1))
        self.assertEqual(strings_of(self.nigh), expected)
        self.assertIn(b"refreshed", expected)
        self.assertIn(b"kept", expected)
        return err

    def test_a_folder_with_a_manifest(self):
        """Without a base of its own, then with an RDB as the base and commands behind it."""
        with redis(appendonly="yes", appendfsync="always") as source:
            folder = os.path.join(source.folder, "appendonlydir")
            with Wire(source.address) as wire:
                load_aof(wire)
                time.sleep(0.4)
                err = self.check(source, folder)
                for words in [
                    "commands on lists", "2 commands on sets: s1, stored", "strings changed by SETBIT, removed",
                    "commands on streams: x", "commands in database 3: elsewhere, moves",
                ]:
                    self.assertIn(words, err)
                wire.ask("BGREWRITEAOF")
                while wire.ask("INFO", "persistence").find(b"aof_rewrite_in_progress:0") < 0 or (
                    wire.ask("INFO", "persistence").find(b"aof_rewrite_scheduled:0") < 0
                ):
                    time.sleep(0.05)
                self.assertTrue(any(".base.rdb" in name for name in os.listdir(folder)))
                pipeline(wire, [["INCR", "n"], ["APPEND", "text", "!"], ["DEL", "keep"]])
            self.check_after_rewrite(source, folder)
            manifest = [name for name in os.listdir(folder) if name.endswith(".manifest")][0]
            self.check_after_rewrite(source, os.path.join(folder, manifest))
            counts, err = imported(folder, self.nigh, "--replace", "--db", 3, expect=1)
            self.assertEqual(set(strings_of(self.nigh)), {b"elsewhere", b"moves"})
            # It depends on what was before: not into a server with keys, unless these go.
            _, err = imported(folder, self.nigh, expect=1)
            self.assertIn("pass --replace", err)

    def check_after_rewrite(self, source, path):
        imported(path, self.nigh, "--replace", expect=1)
        expected = strings_of(source)  # bits, too: its bytes are in the RDB
        self.assertEqual(strings_of(self.nigh), expected)

    def test_one_file_with_and_without_an_rdb_in_front(self):
        for preamble in ("no", "yes"):
            with redis(**{"appendonly": "yes", "aof-use-rdb-preamble": preamble}) as source:
                with Wire(source.address) as wire:
                    fill_strings(wire)
                    fill_others(wire)
                    wire.ask("BGREWRITEAOF")
                    while b"aof_rewrite_in_progress:0" not in wire.ask("INFO", "persistence"):
                        time.sleep(0.05)
                    pipeline(wire, [["APPEND", "e", "behind"], ["INCR", "int:1"]])
                    wire.ask("CONFIG", "SET", "appendonly", "no")
                folder = os.path.join(source.folder, "appendonlydir")
                names = sorted(os.listdir(folder), key=lambda name: ("incr" in name, name))
                names = [name for name in names if "manifest" not in name]
                path = os.path.join(source.folder, "appendonly.aof")
                with open(path, "wb") as whole:
                    for name in names:
                        with open(os.path.join(folder, name), "rb") as part:
                            whole.write(part.read())
                imported(path, self.nigh, "--replace", "--skip-others")
                self.assertEqual(strings_of(self.nigh), strings_of(source))

    def test_a_torn_end_is_refused_unless_allowed(self):
        path = os.path.join(self.nigh.folder, "torn.aof")
        whole = b"".join(map(encode, [["SET", "a", 1], ["MULTI"], ["SET", "b", 2], ["EXEC"]]))
        for cut in range(len(encode(["SET", "a", 1])) + 1, len(whole)):
            with open(path, "wb") as file:
                file.write(whole[:cut])
            if cut % 7 and cut < len(whole) - 3:
                continue
            _, err = imported(path, self.nigh, expect=1)
            self.assertIn("pass --allow-truncated", err)
            self.assertEqual(strings_of(self.nigh), {})
        _, err = imported(path, self.nigh, "--allow-truncated")
        self.assertIn("no whole command", err)
        self.assertEqual(strings_of(self.nigh), {b"a": (b"1", -1)})

    def test_damage_changes_nothing(self):
        path = os.path.join(self.nigh.folder, "bad.aof")
        whole = b"".join(encode(["SET", f"k{i}", "v" * i]) for i in range(200))
        at = len(whole) // 2
        with open(path, "wb") as file:
            file.write(changed(whole, whole.index(b"*3", at), b"+3"))
        _, err = imported(path, self.nigh, expect=1)
        self.assertRegex(err, r"damaged at offset \d+: '\+3'")
        self.assertEqual(strings_of(self.nigh), {})


class FromAofIntoPartitions(FromAof):
    """Keys in several partitions, which no RENAME spans."""

    settings = {"partitions": 4, "shards": 2}


class Export(unittest.TestCase):
    def test_there_and_back(self):
        """Nigh to Redis by redis-cli --pipe, to a file of Redis's, and into another Nigh."""
        with Server("nigh") as nigh, redis() as back, Server("nigh") as other:
            with Wire(nigh.address) as wire:
                fill_strings(wire, seed=9)
            expected = strings_of(nigh)
            path = os.path.join(nigh.folder, "all.resp")
            code, _, err = run("export", path, "--connect", nigh.port)
            self.assertEqual(code, 0, err)
            self.assertIn(f"{len(expected)} keys exported", err)
            self.assertFalse(os.path.exists(path + ".part"))
            with open(path, "rb") as file:
                done = subprocess.run(
                    [tool("redis-cli"), "-p", str(back.port), "--pipe"],
                    stdin=file, capture_output=True, timeout=LIMIT_S, check=False,
                )
            self.assertIn(f"errors: 0, replies: {len(expected)}".encode(), done.stdout)
            self.assertEqual(strings_of(back), expected)
            code, out, err = run("export", "--connect", nigh.port)
            with open(path, "rb") as file:
                self.assertEqual(sorted(file.read()), sorted(out))
            with Wire(back.address, timeout=60) as wire:
                wire.ask("SAVE")
            imported(os.path.join(back.folder, "dump.rdb"), other)
            self.assertEqual(strings_of(other), expected)
            imported(path, other, "--replace")
            self.assertEqual(strings_of(other), expected)
            # What sets and removes alone may come on top of what is there.
            with Wire(other.address) as wire:
                pipeline(wire, [["SET", "mine", 1], ["SET", "e", "changed"]])
            imported(path, other)
            self.assertEqual(strings_of(other), {**expected, b"mine": (b"1", -1)})

    @staticmethod
    def change(nigh, stop):
        with Wire(nigh.address) as wire:
            for i in range(100_000):
                if stop.is_set():
                    return
                key = f"c:{i % 50}"
                pipeline(wire, [["SET", key, "with", "PXAT", 4 * 10**12 + i], ["SET", key, "without"]])

    def test_keys_that_change_meanwhile(self):
        """Value and expiry belong together, and keys that are there all along are in it."""
        with Server("nigh") as nigh:
            with Wire(nigh.address) as wire:
                pipeline(wire, (["SET", f"k:{i}", "v" * (i % 50)] for i in range(5000)))
                pipeline(wire, (["SET", f"c:{i}", "without"] for i in range(50)))
            stop = threading.Event()
            writer = threading.Thread(target=self.change, args=(nigh, stop), daemon=True)
            writer.start()
            try:
                code, out, err = run("export", "--connect", nigh.port)
            finally:
                stop.set()
                writer.join(LIMIT_S)
            self.assertEqual(code, 0, err)
            found = {}
            at = 0
            while at < len(out):
                end = frame_end(out, at)
                words = parse(out[at:end])
                found[words[1]] = words
                at = end
            self.assertEqual(len(found), 5050)
            for key, words in found.items():
                if key.startswith(b"c:"):
                    self.assertEqual(words[2] == b"with", len(words) == 5, words)


if __name__ == "__main__":
    unittest.main()
