"""A log that gets no further, since its thread stands still: what becomes of the writes.

The thread is stopped by ptrace, as a disk that doesn't answer would stop it. These tests are about
Nigh alone, so --server redis skips them.
"""

import string
import tempfile
import unittest

from server import SHM, Server, tested_kind
from stopped import Stopped
from wire import Wire, encode

JOURNAL_BYTES = 1 << 20
VALUE = "v" * 8000
LIMIT_S = 30
MOST_WRITES = 1000  # far more than the journal takes
CLIENTS = 20
SHARDS, PARTITIONS = 2, 8
KEYS, AT_ONCE = 2500, 500  # small ones of each partition
REMOVALS = 2000  # more than the journal keeps room for
QUIET_S = 0.5


@unittest.skipUnless(tested_kind() == "nigh", "Redis has no journal")
class StalledLog(unittest.TestCase):
    def start(self, wait_ms, **more):
        folder = tempfile.TemporaryDirectory(prefix="nigh-log-")
        shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        for each in (folder, shm):
            self.addCleanup(each.cleanup)
        flags = {"appendonly": "yes", "appendfsync": "everysec", "dir": f"{folder.name}/log"}
        flags |= {"journal-size": JOURNAL_BYTES, "journal-wait-ms": wait_ms, "shards": 1}
        flags |= more
        server = Server(settings=flags, shm_dir=shm.name)
        self.addCleanup(server.stop)
        return server

    def fill(self, wire, name="k"):
        """Writes until one is refused."""
        for number in range(MOST_WRITES):
            answer = wire.call("SET", f"{name}{number}", VALUE)
            if answer.startswith(b"-"):
                return number, answer
            self.assertEqual(answer, b"+OK\r\n")
        self.fail("the journal took more than it holds")

    def test_writes_are_refused_reads_and_removals_go_on(self):
        server = self.start(wait_ms=50)
        with Wire(server.address, timeout=LIMIT_S) as wire:
            with Stopped(server.process.pid, "nigh-log"):
                taken, answer = self.fill(wire)
                self.assertTrue(answer.startswith(b"-MISCONF"), answer)
                self.assertEqual(wire.call("GET", f"k{taken}"), b"$-1\r\n")
                self.assertEqual(wire.call("STRLEN", "k0"), b":%d\r\n" % len(VALUE))
                self.assertEqual(wire.call("DEL", "k0"), b":1\r\n")
                self.assertEqual(wire.call("DBSIZE"), b":%d\r\n" % (taken - 1))
            self.assertEqual(wire.call("SET", "later", "v"), b"+OK\r\n")

    def test_writes_wait_as_long_as_the_setting_says(self):
        """Whatever the setting said, they were refused after a second."""
        server = self.start(wait_ms=50)
        with Wire(server.address, timeout=LIMIT_S) as wire:
            with Stopped(server.process.pid, "nigh-log"):
                self.fill(wire)
                wire.call("CONFIG", "SET", "journal-wait-ms", 3600000)
                patient = [Wire(server.address, timeout=1.5) for _ in range(CLIENTS)]
                for number, each in enumerate(patient):
                    each.send(encode(["SET", f"patient{number}", VALUE]))
                    self.addCleanup(each.close)
                with self.assertRaises(TimeoutError):
                    patient[0].reply()
            for each in patient:
                each.socket.settimeout(LIMIT_S)
                self.assertEqual(each.reply(), b"+OK\r\n")

    def scattered(self):
        """A server of several shards with small keys; by partition, how its keys begin."""
        # With everysec, writes would wait for a log that is late, be there room or not.
        more = {"shards": SHARDS, "partitions": PARTITIONS, "appendfsync": "no"}
        server = self.start(1000 * LIMIT_S, **more)
        wire = self.wire(server)
        for key in string.ascii_letters:
            self.assertEqual(wire.call("SET", key, "v"), b"+OK\r\n")
        begins = []
        for partition in range(PARTITIONS):
            first = wire.ask("SCAN", partition, "COUNT", 1000)[1][0].decode()
            begins.append(f"{{{first}}}")
            for at in range(0, KEYS, AT_ONCE):
                keys = [f"{begins[-1]}{number}" for number in range(at, at + AT_ONCE)]
                words = [word for key in keys for word in (key, "v")]
                self.assertEqual(wire.call("MSET", *words), b"+OK\r\n")
        wire.call("CONFIG", "SET", "journal-wait-ms", 50)
        return server, wire, begins

    def wire(self, server, timeout=LIMIT_S):
        wire = Wire(server.address, timeout=timeout)
        self.addCleanup(wire.close)
        return wire

    def remove(self, server, begin):
        """Removes keys of a partition until nobody answers. The connection, and the answers.

        Names of eight bytes at most leave the journal too little to clear all partitions of a
        shard.
        """
        wire = self.wire(server)
        wire.send(b"".join(encode(["DEL", f"{begin}{number}"]) for number in range(REMOVALS)))
        answers, closed = wire.drain(QUIET_S)
        self.assertFalse(closed)
        wire.socket.settimeout(LIMIT_S)
        return wire, answers.splitlines()

    def test_replies_that_are_there_wait_for_none_that_is_to_come(self):
        """A shard kept them, to write them with that of another shard, which waited for room."""
        server, wire, begins = self.scattered()
        begins = begins[:SHARDS]
        with Stopped(server.process.pid, "nigh-log"):
            for begin in begins:
                self.fill(wire, begin + "long")
            wire.call("CONFIG", "SET", "journal-wait-ms", 1000 * LIMIT_S)
            waiting = [self.wire(server) for _ in range(10)]  # of both shards, most likely
            for each in waiting:
                words = [["GET", begins[0] + "0"], *(["SET", it + "more", VALUE] for it in begins)]
                each.send(b"".join(encode(it) for it in words))
            for each in waiting:
                self.assertEqual(each.reply(), b"$1\r\nv\r\n")
        for each in waiting:
            self.assertEqual([each.reply() for _ in begins], [b"+OK\r\n"] * SHARDS)

    def test_removals_of_all_keys_wait_for_room(self):
        """Parts of them were refused, where each was to wait."""
        server, wire, begins = self.scattered()
        with Stopped(server.process.pid, "nigh-log"):
            for begin in begins[:SHARDS]:  # a partition of each shard
                _, answer = self.fill(wire, begin + "long")
                self.assertTrue(answer.startswith(b"-MISCONF"), answer)
            wire.call("CONFIG", "SET", "journal-wait-ms", 3600000)
            removing = [self.remove(server, begin) for begin in begins[:SHARDS]]
            for _, answers in removing:
                self.assertLess(len(answers), REMOVALS, "the journal's reserve takes all")
                self.assertEqual(set(answers) - {b":1"}, set())
            flushing = self.wire(server, QUIET_S)
            flushing.send(encode(["FLUSHALL"]))
            with self.assertRaises(TimeoutError):
                flushing.reply()
            for _ in range(4):  # connections of both shards, most likely
                other = self.wire(server)
                self.assertEqual(other.call("PING"), b"+PONG\r\n")
                for begin in begins:
                    # A partition whose part found room is done already.
                    found = other.call("GET", f"{begin}{KEYS - 1}")
                    self.assertIn(found, (b"$1\r\nv\r\n", b"$-1\r\n"))
        flushing.socket.settimeout(LIMIT_S)
        self.assertEqual(flushing.reply(), b"+OK\r\n")
        self.assertEqual(flushing.call("PING"), b"+PONG\r\n", "one answer")
        for each, answers in removing:
            for _ in range(len(answers), REMOVALS):
                self.assertIn(each.reply(), (b":0\r\n", b":1\r\n"))
        self.assertEqual(wire.call("DBSIZE"), b":0\r\n")

    def test_a_removal_of_all_keys_that_waits_in_vain_is_refused_once(self):
        server, wire, begins = self.scattered()
        with Stopped(server.process.pid, "nigh-log"):
            for begin in begins[:SHARDS]:
                self.fill(wire, begin + "long")
                _, answers = self.remove(server, begin)
                self.assertTrue(answers[-1].startswith(b"-MISCONF"), answers[-1])
            flushing = self.wire(server)
            flushing.send(encode(["FLUSHALL"]) + encode(["ECHO", "next"]))
            answer = flushing.reply()
            self.assertTrue(answer.startswith(b"-MISCONF"), answer)
            self.assertEqual(flushing.reply(), b"$4\r\nnext\r\n")
        wire.call("CONFIG", "SET", "journal-wait-ms", 1000 * LIMIT_S)
        self.assertEqual(flushing.call("FLUSHALL"), b"+OK\r\n")
        self.assertEqual(flushing.call("DBSIZE"), b":0\r\n")

    def test_a_durable_function_answers_when_its_writes_are_on_disk(self):
        source = (
            "#!js name=l\n"
            "export function plain(db, [value], [key]) { db.set(key, value); return 1; }\n"
            "export function safe(db, [value], [key]) { db.set(key, value); return 2; }\n"
            "safe.flags = ['durable'];"
        )
        for mode in ("everysec", "no"):
            with self.subTest(mode):
                server = self.start(wait_ms=50)
                with Wire(server.address, timeout=LIMIT_S) as wire, Wire(
                    server.address, timeout=LIMIT_S
                ) as other:
                    self.assertEqual(wire.call("CONFIG", "SET", "appendfsync", mode), b"+OK\r\n")
                    self.assertEqual(wire.call("FUNCTION", "LOAD", source), b"$1\r\nl\r\n")
                    self.assertIn(b"durable", wire.call("FUNCTION", "LIST"))
                    self.assertEqual(wire.call("FCALL", "safe", 1, "a", "v"), b":2\r\n")
                    with Stopped(server.process.pid, "nigh-log"):
                        for command in (["FCALL", "safe", 1, "k", "v"], ["GET", "a"]):
                            wire.send(encode(command))
                        wire.socket.settimeout(0.5)
                        with self.assertRaises(TimeoutError):
                            wire.reply()
                        answer = other.call("FCALL", "plain", 1, "o", "w")
                        self.assertEqual(answer, b":1\r\n", "others don't wait")
                        self.assertEqual(other.call("GET", "k"), b"$1\r\nv\r\n")
                    wire.socket.settimeout(LIMIT_S)
                    self.assertEqual(wire.reply(), b":2\r\n")
                    self.assertEqual(wire.reply(), b"$1\r\nv\r\n")
                    # With `no`, nobody else asks for a sync.
                    self.assertEqual(other.call("WAITAOF", 1, 0, 1000), b"*2\r\n:1\r\n:0\r\n")

    def test_without_a_log_a_durable_function_is_refused(self):
        shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        self.addCleanup(shm.cleanup)
        server = Server(settings={"appendonly": "no", "shards": 1}, shm_dir=shm.name)
        self.addCleanup(server.stop)
        source = (
            "#!js name=l\nexport function safe(db, [value], [key]) { db.set(key, value); }\n"
            "safe.flags = ['durable'];"
        )
        with Wire(server.address, timeout=LIMIT_S) as wire:
            self.assertEqual(wire.call("FUNCTION", "LOAD", source), b"$1\r\nl\r\n")
            answer = wire.call("FCALL", "safe", 1, "k", "v")
            self.assertTrue(answer.startswith(b"-ERR function 'safe' has the flag"), answer)
            self.assertEqual(wire.call("EXISTS", "k"), b":0\r\n")


if __name__ == "__main__":
    unittest.main(verbosity=1)
