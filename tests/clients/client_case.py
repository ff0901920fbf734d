"""What the tests of the client for Python stand on: the server that they share, clients by each way,
and a server that answers as a test says.
"""

import contextlib
import functools
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

import redis

import embedded
from server import Server, tested_kind
from wire import frame_end

LIMIT_S = 30
WAYS = ("memory", "socket", "tcp")

nigh = None
if tested_kind() == "nigh":
    sys.path.insert(0, embedded.site())
    import nigh  # pylint: disable=import-error


def begin():
    """For `setUpModule` of each module: the first starts the server that all tests share."""
    if nigh is None:
        raise unittest.SkipTest("Redis has no memory to read")
    if Clients.shared is None:
        Clients.shared = Server()  # it stops when the program ends


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
    """Clients of the server that all tests share."""

    shared = None

    def setUp(self):
        self.redis = redis.Redis(unix_socket_path=self.shared.unix_path)
        self.addCleanup(self.redis.close)
        self.redis.flushall()

    def client(self, way="memory", of=None, **options):
        of = of or self.shared
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
