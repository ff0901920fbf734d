"""`nigh import` and `nigh export` with the real Redis: files and a running server, and back.

Redis makes the data, with all types and encodings; Nigh must have its strings, byte for byte, with
their expiry, and the import must name all else.
"""

import os
import random
import subprocess
import threading
import time
import unittest

from server import Server, nigh_binary, tool
from transfer import (
    DATABASES, LIMIT_S, changed, fill_others, fill_strings, imported, pipeline, redis, run,
    setUpModule, strings_of,
)
from wire import Wire, parse, encode, frame_end


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
        with Wire(self.nigh.address) as wire:
            wire.ask("SET", "soon", "older than the source's, which is over")
        counts, err = imported(self.path, self.nigh, expect=1)
        self.assertEqual(strings_of(self.nigh), self.strings)
        self.assertEqual(counts["written"], len(self.strings) + 1)  # the removal, too
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
        self.assertEqual(counts["written"] - counts["expired"], len(self.strings))
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
                self.assertEqual(counts["written"] - counts["expired"], len(self.strings))
                self.assertEqual(strings_of(self.nigh), self.strings)

    def test_a_source_that_asks_for_a_password(self):
        with redis(requirepass="secret") as source:
            with Wire(source.address) as wire:
                wire.ask("AUTH", "secret")
                pipeline(wire, [["SET", "a", 1], ["CONFIG", "SET", "repl-diskless-sync-delay", 0]])
            url = f"127.0.0.1:{source.port}"
            _, err = imported("redis://" + url, self.nigh, expect=1)
            self.assertIn("--source-password", err)
            imported("redis://:secret@" + url, self.nigh)
            imported("redis://" + url, self.nigh, "--replace", "--source-password", "secret")
            self.assertEqual(strings_of(self.nigh), {b"a": (b"1", -1)})

    def test_a_source_without_psync(self):
        with Server("nigh") as source:
            _, err = imported(f"redis://127.0.0.1:{source.port}", self.nigh, expect=1)
            self.assertIn("refuses PSYNC", err)

    def test_damage_is_told_with_its_offset(self):
        """Cut and changed files: an error that says where, no panic, and the server is as before."""
        with Wire(self.nigh.address) as wire:
            wire.ask("SET", "mine", 1)
        flags = ["--connect", self.nigh.port, "--skip-others", "--replace"]
        chance = random.Random(5)
        file = self.file
        for _ in range(25):
            cut = chance.randrange(len(file))
            self.write(file[:cut])
            code, out, err = run("import", self.path, *flags)
            self.assertEqual(code, 1, err)
            self.assertRegex(err, f"offset {cut}|its first bytes are" if cut else "first bytes")
        for _ in range(25):
            at = chance.randrange(len(file))
            self.write(changed(file, at, bytes([file[at] ^ 1 << chance.randrange(8)])))
            code, out, err = run("import", self.path, *flags)
            self.assertEqual(code, 1, (at, out, err))
            self.assertRegex(err, "offset [0-9]+|version .* isn't known|its first bytes are")
            self.assertNotIn("panicked", err)
        self.write(file + b"more")
        _, err = imported(self.path, self.nigh, "--skip-others", "--replace", expect=1)
        self.assertIn("bytes behind the end", err)
        self.assertEqual(strings_of(self.nigh), {b"mine": (b"1", -1)})
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
                [*limit, nigh_binary(), "import", path, "--connect", str(nigh.port), "--timeout", str(LIMIT_S)],
                capture_output=True, timeout=LIMIT_S, check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            with Wire(nigh.address, timeout=LIMIT_S) as wire:
                self.assertEqual(wire.ask("STRLEN", "zeros"), value)
                self.assertEqual(wire.ask("GETRANGE", "zeros", value - 2, -1), b"\0!")
                self.assertEqual(wire.ask("GET", "a"), b"1")


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
