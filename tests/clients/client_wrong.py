"""What clients for Python say of wrong arguments, of servers that aren't there or are others, and of
passwords; and of a child of a fork.
"""

import os
import socket
import tempfile

from client_case import Clients, Fake, begin, nigh
from server import Server


def setUpModule():
    begin()


class Wrong(Clients):
    def test_arguments(self):
        client = self.client()
        client.set("a", "text")
        words = "bytes, a buffer, text or a number are needed, not "
        cases = [
            (TypeError, words + "NoneType", lambda: client.get(None)),
            (TypeError, words + "list", lambda: client.set("a", [1])),
            (TypeError, words + "bool", lambda: client.set("a", True)),
            (TypeError, words + "dict", lambda: client.mget("a", {})),
            (TypeError, words + "object", lambda: client.pipeline().set("a", object())),
            (TypeError, "iterable", lambda: client.mget(None)),
            (TypeError, "Mapping|mapping", lambda: client.mset([("a", 1)])),
            (TypeError, "a whole number or a timedelta is needed, not str", lambda: client.expire("a", "1")),
            (TypeError, "a whole number or a datetime is needed, not float", lambda: client.expireat("a", 1.5)),
            (TypeError, "'?str'?", lambda: client.incr("a", "1")),
            (TypeError, "address", nigh.Client),
            (TypeError, "not callable", lambda: client.view(7)),
            (ValueError, 'the text "ab.*" has a lone surrogate, so it isn.t UTF-8: give its bytes',
             lambda: client.get("ab\udc80")),
            (ValueError, "lone surrogate", lambda: client.set("a", "\ud800" * 100)),
            (ValueError, "'http://' isn't supported", lambda: nigh.Client("http://x")),
            (ValueError, "names no host", lambda: nigh.Client("")),
            (ValueError, "'99999' in '.*' is no port", lambda: nigh.Client("host:99999")),
            (ValueError, "local is 'yes': give 'auto'", lambda: self.client(local="yes")),
            (ValueError, "timeout is 0", lambda: self.client(timeout=0)),
            (ValueError, "timeout is -1", lambda: self.client(timeout=-1)),
            (ValueError, "wait is NaN", lambda: self.client(wait=float("nan"))),
            (ValueError, "spin is 50: seconds, 1 at most", lambda: self.client(spin=50)),
            (ValueError, "no command is given", client.execute_command),
            (ValueError, r"MULTI would change the connection.*: use pipeline\(\)", lambda: client.execute_command("multi")),
            (ValueError, "CLIENT REPLY would", lambda: client.execute_command("CLIENT REPLY", "OFF")),
            (ValueError, "HELLO would", lambda: client.pipeline().execute_command(b"HELLO", 3)),
            (nigh.TooLargeError, "a key of 70000 bytes: 65535 are the most", lambda: client.get("k" * 70_000)),
            (nigh.TooLargeError, "a key of 70000 bytes", lambda: client.mget("a", "k" * 70_000)),
            (nigh.TooLargeError, "a key of 70000 bytes", lambda: self.client("tcp").exists("k" * 70_000)),
            (nigh.TooLargeError, "a value of 537919488 bytes: 536870912 are the most",
             lambda: client.pipeline().set("a", bytes(513 << 20))),
            (nigh.ResponseError, "unix:.*refused INCRBY: ERR value is not an integer", lambda: client.incr("a")),
            (nigh.ResponseError, "refused SET: ERR syntax error", lambda: client.set("a", 1, ex=1, px=1)),
            (nigh.TooLargeError, "refused SET: ERR key is longer than 65535", lambda: client.set("k" * 65_536, 1)),
            (nigh.TooLargeError, "command 1 of the pipeline, SET", client.pipeline().set("k" * 65_536, 1).execute),
            (nigh.TooLargeError, "refused MSET", lambda: client.execute_command("MSET", "k" * 65_536, 1)),
            (OverflowError, "", lambda: client.incr("a", 1 << 64)),
        ]
        for kind, text, call in cases:
            with self.subTest(text=text), self.raises(kind, text):
                call()
        self.assertEqual(client.execute_command("CLIENT ID"), int(client.execute_command("CLIENT", "ID")))
        self.assertEqual(client.set(1 << 80, 2 ** 70), True)
        self.assertEqual(client.get(str(1 << 80)), b"%d" % 2 ** 70)
        self.assertEqual(client.get("a"), b"text", "nothing of it has an effect")

    def test_a_closed_client(self):
        with self.client() as client:
            client.set("a", 1)
            pipe, walk = client.pipeline().set("a", 2), client.scan_iter()
        client.close()
        self.assertTrue(client.closed and "closed" in repr(client))
        for call in (lambda: client.get("a"), lambda: client.mget("a"), lambda: client.set("a", 1), pipe.execute,
                     lambda: next(walk), lambda: client.is_local, lambda: client.view(lambda view: 1), client.ping):
            with self.raises(nigh.ClosedError, "unix:.*: the client is closed: connect another"):
                call()
        self.assertEqual(self.redis.get("a"), b"1")

    def test_sockets_without_a_server(self):
        folder = tempfile.mkdtemp(prefix="nigh-test-")
        self.addCleanup(os.rmdir, folder)
        with self.raises(nigh.NotAttachedError, "nothing listens at unix:.*: start a server with `nigh serve --unixsocket PATH`"):
            nigh.Client(f"unix:{folder}/none")
        with self.raises(nigh.NotAttachedError, "can't connect to unix:"):
            nigh.Client("unix:/" + "x" * 200)
        with self.raises(nigh.NotAttachedError, "can't connect to unix:"):
            nigh.Client("unix:/a\0b")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with self.raises(nigh.NotAttachedError, "nothing listens at 127.0.0.1"):
                nigh.Client(f"127.0.0.1:{taken.getsockname()[1]}")

    def test_servers_of_other_kinds(self):
        other = b"-ERR LOCAL ATTACH: version 1 of the protocol isn't spoken here, but 2\r\n"
        fake = Fake(other, b"+PONG\r\n", b"$1\r\nx\r\n", b":7\r\n", b"+OK\r\n", b"+QUEUED\r\n")
        self.addCleanup(fake.close)
        client = nigh.Client(f"unix:{fake.path}")
        self.assertIn("but 2", client.why_not_local)
        self.assertEqual(client.get("a"), b"x")
        with self.raises(nigh.ConnectError, "answered GET by something else: is it another kind of server?"):
            client.get("a")
        # It closes in the midst of a pipeline: what came before is told.
        with self.assertRaises(nigh.UnknownOutcomeError) as told:
            client.pipeline(transaction=False).set("a", 1).get("b").get("c").execute()
        self.assertEqual(told.exception.replies, [True, b"QUEUED"])
        for reply, kind, text in ((other, nigh.NotLocalError, "no local access to unix:.*but 2"),
                                  (b"HTTP/1.1 400 Bad Request\r\n\r\n", nigh.ConnectError, "unix:")):
            fake = Fake(reply)
            self.addCleanup(fake.close)
            with self.raises(kind, text):
                nigh.Client(f"unix:{fake.path}", local="required")

    def test_passwords(self):
        with Server(settings={"requirepass": "geheim"}) as guarded:
            address = f"unix:{guarded.unix_path}"
            with self.raises(nigh.ConnectError, "refused the password|asks for a password"):
                nigh.Client(address, password="falsch")
            client = nigh.Client(address, username="default", password="geheim", name="der-name")
            self.assertTrue(client.is_local)
            self.assertEqual(client.execute_command("CLIENT GETNAME"), b"der-name")
            by_url = nigh.Client(f"redis://:geheim@127.0.0.1:{guarded.port}")
            by_url.set("a", 1)
            self.assertEqual(client.get("a"), b"1")
            for given in ({}, {"username": "default"}):
                with self.raises(nigh.ConnectError, "asks for a password: give one"):
                    nigh.Client(address, **given)
        self.client(username="default").close()
        with self.raises(nigh.ConnectError, "asks for a password: give one"):
            self.client(username="nobody")

    def test_a_child_of_a_fork_is_refused(self):
        client = self.client()
        client.set("a", 1)
        pipe = client.pipeline().set("a", 2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                told = 0
                for call in (lambda: client.get("a"), lambda: client.set("a", 3), pipe.execute):
                    try:
                        call()
                    except nigh.Error as error:
                        told += "is a fork of the one that connected" in str(error)
                client.close()
                own_client = nigh.Client(f"unix:{self.shared.unix_path}", local="required")
                code = 0 if told == 3 and own_client.get("a") == b"1" else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual((client.get("a"), pipe.execute(), client.get("a")), (b"1", [True], b"2"))
