"""The server under test, started and killed. Standard library only."""

import os
import signal
import socket
import subprocess
import tempfile
import time

import oracle

START_LIMIT_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class NoStart(AssertionError):
    """The server has ended, or doesn't answer."""


class Nigh:
    """A server with a log; behind `wrapper`, if a program is to run it."""

    alive = set()

    def __init__(self, binary, shm, log, flags, wrapper=()):
        self.port, self.output = free_port(), tempfile.TemporaryFile()
        line = [*wrapper, binary, "serve", "--port", self.port, "--shm-dir", shm, "--dir", log]
        line += ["--maxmemory", "256mb", "--appendonly", "yes", *flags]
        line = [str(word) for word in line]
        # A session of its own, so that all of it can be killed.
        self.process = subprocess.Popen(
            line,
            stdout=self.output,
            stderr=self.output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.alive.add(self)

    def wait(self):
        """Until it answers; False if it has ended."""
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            try:
                connection = oracle.Connection(self.port)
                ready = connection.call("PING") == b"PONG"
                connection.close()
                if ready:
                    return self
            except OSError:
                pass
            if self.process.poll() is not None:
                return None
            time.sleep(0.02)
        self.kill()
        raise NoStart("it neither answers nor ends")

    def ready(self):
        if self.wait() is None:
            self.output.seek(0)
            said = self.output.read().decode()[-1000:]
            raise NoStart(f"it has ended with {self.process.returncode}: {said}")
        return self

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.alive.discard(self)

    @classmethod
    def kill_all(cls):
        for server in list(cls.alive):
            server.kill()
