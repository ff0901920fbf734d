"""A log that gets no further, since its thread stands still: what becomes of the writes.

The thread is stopped by ptrace, as a disk that doesn't answer would stop it. These tests are about
Nigh alone, so --server redis skips them.
"""

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


@unittest.skipUnless(tested_kind() == "nigh", "Redis has no journal")
class StalledLog(unittest.TestCase):
    def start(self, wait_ms):
        folder = tempfile.TemporaryDirectory(prefix="nigh-log-")
        shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        for each in (folder, shm):
            self.addCleanup(each.cleanup)
        flags = {"appendonly": "yes", "appendfsync": "everysec", "dir": f"{folder.name}/log"}
        flags |= {"journal-size": JOURNAL_BYTES, "journal-wait-ms": wait_ms, "shards": 1}
        server = Server(settings=flags, shm_dir=shm.name)
        self.addCleanup(server.stop)
        return server

    def fill(self, wire):
        """Writes until one is refused."""
        for number in range(MOST_WRITES):
            answer = wire.call("SET", f"k{number}", VALUE)
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
