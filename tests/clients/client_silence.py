"""Clients for Python of a server that stands still, and signals that come meanwhile."""

import os
import signal
import socket
import tempfile
import threading
import time

from client_case import LIMIT_S, WAYS, Clients, begin, nigh, outcome_of, stands_still, within
from server import Server


def setUpModule():
    begin()


class Silence(Clients):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.stop)
        before = signal.signal(signal.SIGALRM, lambda *_: self.handle())
        self.addCleanup(signal.signal, signal.SIGALRM, before)

    def handle(self):
        raise KeyboardInterrupt

    def test_a_server_that_stands_still(self):
        client = self.client(of=self.server, timeout=1)
        client.set("a", 1)
        with stands_still(self.server.process):
            self.assertEqual(client.get("a"), b"1", "it reads without the server")
            with self.raises(nigh.UnknownOutcomeError, "no reply to SET: .* it may or may not have happened: read what"):
                client.set("a", 2)
        self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.get, "a") in (b"1", b"2")))

    def test_calls_behind_a_timeout_fail_soon(self):
        """The system takes connections for a server that stands still: so each call waited for a timeout."""
        for way in WAYS:
            client = self.client(way, of=self.server, timeout=1)
            client.set("a", 1)
            with stands_still(self.server.process):
                with self.raises(nigh.UnansweredError, "no reply to STRLEN: .* read again"):
                    client.strlen("a")
                begun = time.monotonic()
                for _ in range(10):
                    with self.raises(nigh.NotAttachedError, "didn't answer within 1s.*nothing was sent"):
                        client.get("a")
                self.assertLess(time.monotonic() - begun, 1)
            self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.strlen, "a") == 1))  # pylint: disable=cell-var-from-loop

    def test_a_watch_waits_for_one_timeout(self):
        """It waited for a timeout by each connection that rested, and by a new one."""
        timeout = 4
        for way in WAYS:
            client = self.client(way, of=self.server, timeout=timeout)
            pipes = [client.pipeline() for _ in range(3)]
            for pipe in pipes:
                pipe.watch("a")
            for pipe in pipes:
                pipe.unwatch()
            pipe = client.pipeline()
            with stands_still(self.server.process):
                begun = time.monotonic()
                with self.raises(nigh.UnknownOutcomeError, "no reply to WATCH"):
                    pipe.watch("a")
                self.assertLess(time.monotonic() - begun, 2 * timeout)
                self.assertFalse(pipe.watching)
            self.assertTrue(within(LIMIT_S, lambda: outcome_of(pipe.watch, "a") is True))  # pylint: disable=cell-var-from-loop

    def calls(self, way, client):
        """Calls that wait for the server."""
        return {
            "set": lambda: client.set("a", 2),
            "strlen": lambda: client.strlen("a"),
            "more than buffers hold": lambda: client.set("a", bytes(1 << 24)),
            "pipeline": lambda: client.pipeline().set("a", 3).execute(),
            "connect": lambda: self.client(way, of=self.server, timeout=2 * LIMIT_S),
        }

    def test_a_signal_ends_the_wait_for_a_reply(self):
        """Ctrl-C waited for the timeout."""
        for way in WAYS:
            client = self.client(way, of=self.server, timeout=2 * LIMIT_S)
            for name, call in self.calls(way, client).items():
                with self.subTest(way=way, call=name):
                    with stands_still(self.server.process):
                        begun = time.monotonic()
                        with self.assertRaises(KeyboardInterrupt):
                            signal.setitimer(signal.ITIMER_REAL, 0.1)
                            call()
                        self.assertLess(time.monotonic() - begun, LIMIT_S)
                    self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.ping) is True), "it goes on")  # pylint: disable=cell-var-from-loop

    def test_what_a_signal_interrupts_isnt_sent_again(self):
        """The commands stayed in the pipeline, and its next `execute` did them once more."""
        for way in WAYS:
            client = self.client(way, of=self.server, timeout=2 * LIMIT_S)
            for transaction in (True, False):
                with self.subTest(way=way, transaction=transaction):
                    client.delete("n")
                    pipe = client.pipeline(transaction).incr("n")
                    with stands_still(self.server.process), self.assertRaises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.1)
                        pipe.execute()
                    self.assertEqual((len(pipe), pipe.execute()), (0, []))
                    self.assertTrue(within(LIMIT_S, lambda: outcome_of(client.ping) is True), "it goes on")  # pylint: disable=cell-var-from-loop
                    self.assertIn(client.get("n"), (None, b"1"))

    def silent(self, family):
        """The address of a listener that answers nothing. One connection finds room in its queue."""
        folder = tempfile.TemporaryDirectory(prefix="nigh-silent-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "socket")
        listener = socket.socket(family)
        self.addCleanup(listener.close)
        listener.bind(path if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen(0)
        # A call that waits for ever fails in another way.
        ends = threading.Timer(LIMIT_S, listener.close)
        ends.start()
        self.addCleanup(ends.cancel)
        return f"unix:{path}" if family == socket.AF_UNIX else f"127.0.0.1:{listener.getsockname()[1]}"

    def test_a_timer_makes_no_wait_longer(self):
        """Each signal began the timeout anew, and kept away the look for what the handlers raise."""
        told = []

        def raise_at_the_third():
            told.append(1)
            if len(told) == 3:
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        for family in (socket.AF_UNIX, socket.AF_INET):
            address = self.silent(family)
            self.handle = lambda: None
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            for _ in range(3):  # the first waits for a reply, the last for a connection
                with self.raises(nigh.NotAttachedError, "didn't answer within 200ms"):
                    nigh.Client(address, timeout=0.2)
            for timeout in (2 * LIMIT_S, None):
                told.clear()
                self.handle = raise_at_the_third
                with self.assertRaises(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
                    nigh.Client(address, timeout=timeout)

    def test_a_handler_doesnt_wait_for_the_call_that_it_interrupts(self):
        """The call has the client, which its thread can't have twice."""
        client, told = self.client(of=self.server, timeout=2 * LIMIT_S), []
        self.handle = lambda: told.append((outcome_of(client.get, "a"), client.close()))
        with stands_still(self.server.process):
            goes_on = threading.Timer(0.5, self.server.process.send_signal, [signal.SIGCONT])
            goes_on.start()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            self.assertTrue(client.set("a", 2), "a handler that raises nothing ends nothing")
            goes_on.join()
        self.assertEqual(told, [(nigh.Error, None)])
        with self.raises(nigh.ClosedError, "the client is closed"):
            client.get("a")
