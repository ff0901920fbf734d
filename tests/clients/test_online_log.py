"""A log that begins, ends, breaks and heals while redis-py writes.

A reboot is played by killing the server and removing its arenas: what is there then comes from the
log. A disk that fails is played by a limit on the size of files, which makes each write fail. The
first test goes for Redis too; the others are about Nigh alone.
"""

import os
import resource
import shutil
import signal
import tempfile
import time
import unittest

import redis

from server import SHM, Server, tested_kind
from wire import Wire

NIGH = tested_kind() == "nigh"
LIMIT_S = 30
KEYS = 2000
FILE_BYTES = 1 << 20
STARTED = b"+Background append only file rewriting started\r\n"


def until(what, holds):
    """Waits until something holds."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.01)


class OnlineLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nigh-log-")
        shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        for each in (folder, shm):
            self.addCleanup(each.cleanup)
        self.dir, self.shm = os.path.join(folder.name, "log"), os.path.join(shm.name, "arenas")
        self.settings = {}
        if NIGH:
            self.settings = {"dir": self.dir, "shards": 2, "partitions": 4, "log-on-tmpfs": "yes"}
            self.settings |= {"log-file-size": FILE_BYTES, "journal-size": 4 << 20}
            self.settings["journal-wait-ms"] = 1000 * LIMIT_S  # a busy machine's disk doesn't keep up

    def start(self, **more):
        server = Server(settings=self.settings | more, shm_dir=self.shm if NIGH else None)
        self.addCleanup(server.stop)
        client = redis.Redis(port=server.port, decode_responses=True, socket_timeout=LIMIT_S)
        self.addCleanup(client.close)
        return server, client

    def reboot(self, server, **more):
        """The server after a reboot: it finds no memory of an earlier one."""
        server.end(signal.SIGKILL)
        shutil.rmtree(self.shm)
        return self.start(**more)

    def info(self, client):
        return client.info("persistence")

    def rests(self, client):
        """Waits until no rewrite is under way; what INFO says then."""
        until("a rewrite ends", lambda: self.info(client)["aof_rewrite_in_progress"] == 0)
        return self.info(client)

    def refused(self, call):
        with self.assertRaises(redis.ResponseError) as caught:
            call()
        return str(caught.exception)

    def written_files(self):
        """The log's files, without those that wait for their turn."""
        return [name for name in os.listdir(self.dir) if name.endswith(".log")]

    def names(self, where, part):
        return [name for name in os.listdir(where) if part in name]

    def limit(self, server, size):
        """Each write to a file fails behind so many bytes; None: none does."""
        hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
        soft = hard if size is None else size
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))

    def test_it_begins_and_ends_by_config_set(self):
        _, client = self.start()
        self.assertEqual(client.config_get("appendonly"), {"appendonly": "no"})
        self.assertEqual(self.info(client)["aof_enabled"], 0)
        client.mset({f"k{i}": f"v{i}" for i in range(KEYS)})
        self.assertTrue(client.config_set("appendonly", "yes"))
        self.assertEqual(client.config_get("appendonly"), {"appendonly": "yes"})
        self.assertEqual(self.info(client)["aof_enabled"], 1)
        client.set("meanwhile", "1")
        said = self.rests(client)
        self.assertEqual(said["aof_last_bgrewrite_status"], "ok")
        self.assertEqual(said["aof_last_write_status"], "ok")
        self.assertGreaterEqual(said["aof_last_rewrite_time_sec"], 0)
        self.assertEqual(said["aof_current_rewrite_time_sec"], -1)
        self.assertTrue(client.execute_command("BGREWRITEAOF"))
        self.rests(client)
        self.assertTrue(client.config_set("appendonly", "yes"), "it is so")
        self.assertTrue(client.config_set("appendonly", "no"))
        self.assertEqual(self.info(client)["aof_enabled"], 0)
        self.assertEqual(client.config_get("appendonly"), {"appendonly": "no"})
        self.assertEqual(client.dbsize(), KEYS + 1)

    @unittest.skipUnless(NIGH, "Redis has its own files")
    def test_all_is_in_a_log_that_was_begun_and_nothing_in_one_that_has_ended(self):
        server, client = self.start()
        client.mset({f"k{i}": f"v{i}" for i in range(KEYS)})
        client.set("long", "L" * 200_000)
        client.set("brief", "1", ex=3600)
        client.function_load("#!js name=words\nexport function word(db) { return 'word'; }\n")
        for mode in ("always", "everysec"):
            self.assertTrue(client.config_set("appendonly", "yes", "appendfsync", mode))
            client.append("long", "x")
            client.set("mode", mode)
            # It is granted when the log counts, and has the change.
            self.assertEqual(client.waitaof(1, 0, 1000 * LIMIT_S), [1, 0])
            self.assertEqual(self.info(client)["log_state"], "well")
            before = client.dbsize(), client.strlen("long")
            server, client = self.reboot(server, appendonly="yes")
            self.assertEqual((client.dbsize(), client.strlen("long")), before)
            self.assertEqual(client.mget("k0", "k1999", "mode"), ["v0", "v1999", mode])
            self.assertGreater(client.ttl("brief"), 3000)
            self.assertEqual(client.fcall("word", 0), "word")
            # It ends: neither its files nor journals are left, and it never returns.
            self.assertTrue(client.config_set("appendonly", "no"))
            until("its files go", lambda: not self.names(self.dir, ".log"))
            until("its journals go", lambda: not self.names(self.shm, "journal"))
            self.assertEqual(client.waitaof(0, 0, 1000)[0], 0)
            self.assertIn("appendonly", self.refused(lambda: client.waitaof(1, 0, 1000)))
            why = self.refused(lambda: client.execute_command("BGREWRITEAOF"))
            self.assertEqual(why, "there is no log to rewrite: appendonly is no")
            self.assertEqual(client.dbsize(), before[0])
        client.set("later", "1")
        server, client = self.reboot(server, appendonly="yes")
        self.assertEqual(client.dbsize(), 0)

    @unittest.skipUnless(NIGH, "Redis has its own files")
    def test_bgrewriteaof_compacts(self):
        server, client = self.start(appendonly="yes", **{"log-garbage": 1000})
        values = ["v" * 4000, "w" * 4000]
        for turn in range(10):
            client.mset({f"k{i}": values[turn % 2] for i in range(500)})
        client.waitaof(1, 0, 1000 * LIMIT_S)
        before = len(self.written_files())
        with Wire(server.address) as wire:
            self.assertEqual(wire.call("BGREWRITEAOF"), STARTED)
        said = self.rests(client)
        self.assertEqual((said["aof_rewrites"], said["aof_last_bgrewrite_status"]), (1, "ok"))
        until("files go", lambda: len(self.written_files()) < before * 2 // 3)
        self.assertEqual(client.get("k499"), values[1])

    @unittest.skipUnless(NIGH, "Redis has its own files")
    def test_a_round_of_compaction_ends_with_its_log(self):
        """INFO told that it went on, and of the next log's base that nothing was written."""
        _, client = self.start(appendonly="yes", **{"log-garbage": 1000})
        for first in range(0, 12_500, 500):
            client.mset({f"k{i}": "v" * 4000 for i in range(first, first + 500)})
        client.waitaof(1, 0, 1000 * LIMIT_S)
        begun = lambda: self.info(client)["aof_rewrite_in_progress"] == 1
        self.assertTrue(client.execute_command("BGREWRITEAOF"))
        until("it begins", begun)
        self.assertTrue(client.config_set("appendonly", "no"))
        said = self.info(client)
        self.assertEqual(said["aof_rewrite_in_progress"], 0)
        self.assertEqual(said["aof_current_rewrite_time_sec"], -1)
        self.assertTrue(client.config_set("appendonly", "yes"))
        looks = 0
        while self.info(client)["log_state"] == "base":
            # It may count behind that look.
            self.assertTrue(begun() or self.info(client)["log_state"] != "base", looks)
            looks += 1
        self.assertGreater(looks, 0)
        said = self.rests(client)
        self.assertEqual((said["log_state"], said["aof_last_bgrewrite_status"]), ("well", "ok"))
        self.assertTrue(client.execute_command("BGREWRITEAOF"))

    @unittest.skipUnless(NIGH, "Redis ends where it can't write")
    def test_a_log_that_broke_heals(self):
        server, client = self.start(appendonly="yes", appendfsync="always")
        client.mset({f"k{i}": f"v{i}" for i in range(KEYS)})
        ways = {
            "the keeper": lambda: None,
            "BGREWRITEAOF": lambda: client.execute_command("BGREWRITEAOF"),
            "CONFIG SET": lambda: (
                client.config_set("appendonly", "no"),
                client.config_set("appendonly", "yes"),
            ),
        }
        for number, (way, heal) in enumerate(ways.items()):
            with self.subTest(way=way):
                self.limit(server, 0)
                with self.assertRaises(redis.RedisError):
                    client.set("lost", number)
                until("it broke", lambda: self.info(client)["log_state"] == "broken")
                why = self.refused(lambda: client.set("refused", number))
                self.assertIn("Nigh can't write its log", why)
                self.assertIn("BGREWRITEAOF", why)
                self.assertEqual(client.get("k1"), "v1")
                until("a base failed", lambda: "log_base_failure" in self.info(client))
                self.assertEqual(self.info(client)["aof_last_write_status"], "err")
                self.limit(server, None)
                heal()
                until("it is well", lambda: self.info(client)["log_state"] == "well")
                client.set("healed", number)
                self.assertEqual(self.rests(client)["aof_last_bgrewrite_status"], "ok")
                server, client = self.reboot(server, appendonly="yes", appendfsync="always")
                self.assertEqual(client.mget("k1", "k1999", "healed"), ["v1", "v1999", str(number)])

    @unittest.skipUnless(NIGH, "Redis ends where it can't write")
    def test_what_cannot_be_is_refused_with_its_reason(self):
        server, client = self.start()
        client.set("k", "v")
        self.limit(server, 0)
        for _ in range(2):
            why = self.refused(lambda: client.config_set("appendonly", "yes"))
            self.assertIn("argument 'appendonly'", why)
            self.assertEqual(client.config_get("appendonly"), {"appendonly": "no"})
            self.assertEqual(self.info(client)["aof_enabled"], 0)
            self.assertTrue(client.set("k", "w"))
        self.limit(server, None)
        with client.pipeline() as pipe:
            pipe.config_set("appendonly", "yes")
            pipe.set("k", "x")
            answers = pipe.execute(raise_on_error=False)
        self.assertIn("transaction", str(answers[0]))
        self.assertEqual(answers[1], True)
        self.assertIn("appendonly", self.refused(lambda: client.config_set("appendonly", "maybe")))
        self.assertTrue(client.config_set("appendonly", "yes"))
        self.assertEqual(self.rests(client)["log_state"], "well")
        server, client = self.reboot(server, appendonly="yes")
        self.assertEqual(client.get("k"), "x")

    @unittest.skipUnless(NIGH, "Redis ends where it can't write")
    def test_a_first_log_that_cannot_be_whole_leaves_all_as_it_was(self):
        server, client = self.start(**{"journal-size": 1 << 20, "log-file-size": 4 << 20})
        client.mset({f"k{i}": f"v{i}" for i in range(KEYS)})
        for _ in range(2):
            # Meta and journals can be made; the log's first file can't.
            self.limit(server, 2 << 20)
            self.assertTrue(client.config_set("appendonly", "yes"))
            off = {"appendonly": "no"}
            until("it ends", lambda: client.config_get("appendonly") == off)
            said = self.info(client)
            self.assertEqual((said["aof_enabled"], said["aof_last_write_status"]), (0, "ok"))
            self.assertEqual(said["aof_last_bgrewrite_status"], "err")
            self.assertEqual(said["aof_rewrites_consecutive_failures"], said["aof_rewrites"])
            self.assertNotEqual(said["log_base_failure"], "")
            self.assertTrue(client.set("k1", "v1"))
            until("its files go", lambda: not self.names(self.dir, ".log"))
        self.limit(server, None)
        until("it begins", lambda: client.config_set("appendonly", "yes"))
        self.assertEqual(self.rests(client)["log_state"], "well")
        server, client = self.reboot(server, appendonly="yes")
        self.assertEqual(client.dbsize(), KEYS)


if __name__ == "__main__":
    unittest.main(verbosity=1)
