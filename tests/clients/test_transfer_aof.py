"""`nigh import` of what Redis has appended: the folder with a manifest, one file, torn ends."""

import os
import time
import unittest

from server import Server
from transfer import (
    changed, fill_others, fill_strings, imported, pipeline, redis, setUpModule, strings_of,
)
from wire import Wire, encode


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
            # The file with such commands is named, not the base in front of it.
            self.assertIn(".incr.aof has commands that depend", err)

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


if __name__ == "__main__":
    unittest.main()
