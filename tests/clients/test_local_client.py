"""The client for Python (`nigh.Client`) against the server: its calls beside redis-py's, in memory, by
the ring, by sockets; and what happens when something is wrong.

NIGH_SEED repeats a run, NIGH_CLIENT_ROUNDS makes it longer.
"""

import array
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import embedded
from client_calls import BesideRedisPy, Pipelines  # pylint: disable=unused-import
from client_case import (LIMIT_S, WAYS, Clients, begin, each_way, nigh, outcome_of, stands_still, within)
from client_memory import Memory  # pylint: disable=unused-import
from client_silence import Silence  # pylint: disable=unused-import
from client_watches import Watches  # pylint: disable=unused-import
from client_wrong import Wrong  # pylint: disable=unused-import
from embedded import ROOT, gives_the_lock
from server import SHM, Server


def setUpModule():
    begin()


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

    def test_a_walk_that_finds_nothing_lets_other_threads_run(self):
        """One `next` kept the interpreter's lock for the whole walk, if few keys matched."""
        client = self.client()
        for begin_ in range(0, 100_000, 1000):
            client.mset({f"{number}": "x" for number in range(begin_, begin_ + 1000)})
        turns, ends = [0], threading.Event()

        def count():
            while not ends.is_set():
                turns[0] += 1

        other = threading.Thread(target=count, daemon=True)
        other.start()
        self.addCleanup(other.join)
        self.addCleanup(ends.set)
        for _ in range(5):
            walk = client.scan_iter(match="none*")
            begin_ = turns[0]
            found = next(walk, None)
            self.assertGreater(turns[0], begin_)
            self.assertIsNone(found)

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

    def test_a_socket_that_lets_nobody_in_is_waited_for(self):
        """The wait for it ended after a tenth of a second, whatever the option said."""
        os.chmod(self.server.unix_path, 0)
        # Who runs the tests may be let in everywhere: it gives its capabilities up.
        source = f"""if True:
            import ctypes, nigh, sys
            ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
            print("begins", flush=True)
            print(nigh.Client(sys.argv[1], wait={LIMIT_S}).get("none"))
        """
        line = [sys.executable, "-c", source, f"unix:{self.server.unix_path}"]
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            time.sleep(0.5)
            os.chmod(self.server.unix_path, 0o700)
            self.assertEqual(process.communicate(timeout=LIMIT_S)[0], "None\n")

    def test_memory_that_is_cut_off_is_no_signal(self):
        client = self.client(of=self.server, timeout=1)
        client.set("a", bytes(100_000))
        with stands_still(self.server.process):
            for folder, _, names in os.walk(self.shm.name):
                for name in names:
                    os.truncate(os.path.join(folder, name), 4096)
            with self.raises(nigh.NotAttachedError, "not attached"):
                client.get("a")
            self.server.end(signal.SIGKILL)

    def test_a_signal_ends_the_wait_for_a_server(self):
        self.server.end(signal.SIGKILL)

        class Told(Exception):
            pass

        def tell(*_):
            raise Told

        before = signal.signal(signal.SIGALRM, tell)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        begin = time.monotonic()
        with self.assertRaises(Told):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            self.client(of=self.server, wait=1e9)
        self.assertLess(time.monotonic() - begin, LIMIT_S)


class Documented(Clients):
    def test_the_pages_example_runs(self):
        example = (ROOT / "examples/python/beside.py").read_text(encoding="utf-8")
        page = (ROOT / "docs/local.md").read_text(encoding="utf-8")
        self.assertTrue(f"```python\n{example}```\n" in page, "docs/local.md shows another example")
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        line = [sys.executable, ROOT / "examples/python/beside.py", f"unix:{self.shared.unix_path}"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "Ada [b'Ada', None]\nAda's last order: tea\n")


if __name__ == "__main__":
    unittest.main()
