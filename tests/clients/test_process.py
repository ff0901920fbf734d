"""The server's process: it starts, refuses to start, dies, and comes back.

These tests are about Nigh alone, so --server redis skips them.
"""

import os
import signal
import socket
import subprocess
import tempfile
import unittest

from server import ARENA_BYTES, ROOT, SHM, Server, free_port, nigh_binary, tested_kind
from wire import Closed, Wire

LIMIT_S = 30
KEYS = 3000


@unittest.skipUnless(tested_kind() == "nigh", "Redis has no arenas")
class Process(unittest.TestCase):
    def setUp(self):
        self.shm = tempfile.TemporaryDirectory(prefix="nigh-test-", dir=SHM)
        self.addCleanup(self.shm.cleanup)

    def start(self, **settings):
        server = Server(settings=settings, shm_dir=self.shm.name)
        self.addCleanup(server.stop)
        return server

    def refused(self, *flags, code=1):
        """Runs `nigh serve` with flags that must fail: exit code 1 and one sentence."""
        line = [nigh_binary(), "serve", *flags]
        # If the server starts, the time limit ends it, and the test fails.
        done = subprocess.run(line, capture_output=True, timeout=LIMIT_S, check=False)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        if code == 1:  # wrong usage (2) also says how it is used
            self.assertEqual(len(text.strip().split("\n")), 1, text)
        self.assertNotIn("panicked", text)
        return text

    def flags(self, **changes):
        flags = {"port": free_port(), "shm-dir": self.shm.name, "maxmemory": ARENA_BYTES, "appendonly": "no", **changes}
        return [f"--{name}={value}" for name, value in flags.items()]

    def test_a_port_in_use_is_one_sentence(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertIn(str(port), self.refused(*self.flags(port=port)))

    def test_an_unwritable_folder_is_one_sentence(self):
        # A file in the way stops root too.
        blocked = os.path.join(self.shm.name, "file")
        with open(blocked, "w", encoding="ascii"):
            pass
        folder = os.path.join(blocked, "folder")
        self.assertIn(folder, self.refused(*self.flags(**{"shm-dir": folder})))

    def test_more_memory_than_tmpfs_has_is_one_sentence(self):
        space = os.statvfs(SHM)
        too_much = min(space.f_frsize * space.f_blocks * 2, 60 << 30)
        if too_much <= space.f_frsize * space.f_bavail:
            self.skipTest("this tmpfs is larger than the largest arena")
        self.refused(*self.flags(maxmemory=too_much))

    def test_a_second_server_on_the_same_folder_is_one_sentence(self):
        server = self.start()
        self.assertIn(self.shm.name, self.refused(*self.flags()))
        with Wire(server.address) as wire:
            self.assertEqual(wire.call("PING"), b"+PONG\r\n")

    def test_a_wrong_setting_is_named(self):
        self.assertIn("maxclients", self.refused(*self.flags(maxclients="many")))
        self.assertIn("--nosuch", self.refused(*self.flags(nosuch="1"), code=2))
        path = os.path.join(self.shm.name, "nigh.toml")
        for text, named in (("nosuch = 1\n", "nosuch"), ("port = [\n", "nigh.toml")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            self.assertIn(named, self.refused("--config", path, "--appendonly", "no"))

    def test_the_example_configuration_is_accepted(self):
        server = self.start(config=ROOT / "packaging/nigh.toml")
        with Wire(server.address) as wire:
            self.assertEqual(wire.call("PING"), b"+PONG\r\n")

    def test_files_are_private_to_the_user(self):
        self.start()
        for folder, _, files in os.walk(self.shm.name):
            self.assertEqual(os.stat(folder).st_mode & 0o077, 0, folder)
            for name in files:
                path = os.path.join(folder, name)
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600, path)

    def fill(self, server):
        with Wire(server.address) as wire:
            for i in range(KEYS):
                self.assertEqual(wire.call("SET", f"key:{i}", f"value {i}" * (i % 50)), b"+OK\r\n")
            wire.call("EXPIRE", "key:7", 1000)
            wire.call("DEL", "key:8")
            library = "#!js name=kept\nexport const one = () => 1;\n"
            self.assertEqual(wire.ask("FUNCTION", "LOAD", library), b"kept")

    def check(self, server):
        with Wire(server.address) as wire:
            self.assertEqual(wire.ask("DBSIZE"), KEYS - 1)
            for i in range(KEYS):
                expected = None if i == 8 else (f"value {i}" * (i % 50)).encode()
                self.assertEqual(wire.ask("GET", f"key:{i}"), expected)
            self.assertTrue(900 < wire.ask("TTL", "key:7") <= 1000)
            self.assertEqual(wire.ask("FCALL", "one", 0), 1)

    def test_data_and_functions_survive_a_clean_stop(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(server.end(signal.SIGTERM), 0)
        self.check(self.start())

    def test_data_and_functions_survive_a_kill(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(server.end(signal.SIGKILL), -signal.SIGKILL)
        self.check(self.start())

    def test_acknowledged_writes_survive_a_kill_under_load(self):
        server = self.start()
        with Wire(server.address) as wire:
            acknowledged = 0
            block = b"".join(
                b"*5\r\n$4\r\nMSET\r\n$%d\r\na:%d\r\n$1\r\nv\r\n$%d\r\nb:%d\r\n$1\r\nv\r\n"
                % (len(b"a:%d" % i), i, len(b"b:%d" % i), i)
                for i in range(20_000)
            )
            wire.send(block)
            try:
                while acknowledged < 5000:
                    self.assertEqual(wire.reply(), b"+OK\r\n")
                    acknowledged += 1
                server.end(signal.SIGKILL)
                while True:
                    self.assertEqual(wire.reply(), b"+OK\r\n")
                    acknowledged += 1
            except Closed:
                pass
        with Wire(self.start().address) as wire:
            pairs = [wire.ask("EXISTS", f"a:{i}", f"b:{i}") for i in range(20_000)]
        self.assertEqual(set(pairs[:acknowledged]), {2})
        self.assertNotIn(1, pairs, "half of a commit")

    def test_fresh_starts_empty(self):
        server = self.start()
        self.fill(server)
        server.end(signal.SIGTERM)
        with Wire(self.start(fresh="yes").address) as wire:
            self.assertEqual(wire.ask("DBSIZE"), 0)
            self.assertEqual(wire.ask("FUNCTION", "LIST"), [])

    def test_shutdown_nosave_removes_the_arenas(self):
        server = self.start()
        self.fill(server)
        with Wire(server.address) as wire, self.assertRaises(Closed):
            wire.call("SHUTDOWN", "NOSAVE")
        server.process.wait(LIMIT_S)
        self.assertEqual(server.process.returncode, 0)
        left = [name for _, _, files in os.walk(self.shm.name) for name in files]
        self.assertEqual(left, [])

    def test_a_term_signal_during_an_endless_function_ends_the_server(self):
        # The one shard runs the function and serves no client: the signal needs its own thread.
        server = self.start(**{"function-time-limit-ms": 3_600_000, "shards": 1})
        with Wire(server.address) as wire, Wire(server.address) as other:
            wire.ask("FUNCTION", "LOAD", "#!js name=e\nexport function spin() { for (;;); }")
            wire.send(b"FCALL spin 0\r\n")
            other.socket.settimeout(0.3)
            with self.assertRaises((TimeoutError, socket.timeout)):
                other.call("PING")
            self.assertEqual(server.end(signal.SIGTERM), 0)


if __name__ == "__main__":
    unittest.main()
