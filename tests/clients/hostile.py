"""Broken and hostile clients. The server answers them or cuts them off, and serves the others.

Every test ends by asking the same server for an answer on a fresh connection. Seeds are fixed.
"""

import itertools
import os
import random
import socket
import threading
import time
import unittest

from server import Server, tested_kind
from wire import Closed, Wire, encode

NIGH = tested_kind() == "nigh"
SEED = 20240607
RANDOM_STREAMS = 300
RANDOM_BYTES = 4096
PIPELINE_COMMANDS = 1_000_000
PIPELINE_BLOCK = 10_000
IDLE_LIMIT = 200  # maxclients of the test's server
OUTPUT_LIMIT_BYTES = 8 << 20
SLOW_READER_BYTES = 256 << 20  # replies that a slow reader asks for: far over the limit
MEMORY_SLACK_BYTES = 160 << 20
QUIET_S = 0.05
LIMIT_S = 60


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.assertTrue(self.server.alive(), self.server.log())
        with Wire(self.server.address) as wire:
            self.assertEqual(wire.call("PING"), b"+PONG\r\n")

    def wire(self):
        return Wire(self.server.address)

    def exchange(self, data, quiet_s=QUIET_S):
        """Sends `data` and closes its side. Returns all bytes until the server closes, too."""
        with self.wire() as wire:
            try:
                wire.send(data)
                wire.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return wire.drain(quiet_s)

    def test_random_bytes_do_no_harm(self):
        r = random.Random(SEED)
        for _ in range(RANDOM_STREAMS):
            self.exchange(r.randbytes(r.randrange(1, RANDOM_BYTES)))

    def test_random_bytes_that_look_like_resp_do_no_harm(self):
        # Bytes of the protocol in any order get past the first checks. No command name can arise
        # that would stop the server: letters are only those of SET and GET.
        r = random.Random(SEED + 1)
        pieces = [b"*", b"$", b"\r\n", b"\r", b"\n", b"-", b":", b'"', b"'", b"\\x", b" "]
        pieces += [b"0", b"1", b"2", b"3", b"9" * 9, b"9" * 20, b"SET", b"GET", b"\x00", b"\xff"]
        for _ in range(RANDOM_STREAMS):
            self.exchange(b"".join(r.choices(pieces, k=r.randrange(1, 400))))

    def test_a_valid_stream_cut_at_every_byte_gets_the_replies_to_what_is_whole(self):
        requests = [
            encode(["SET", "cut", "value\r\n"]),
            encode(["GET", "cut"]),
            b"GET cut\r\n",
            encode(["MGET", "cut", "none"]),
            encode(["NOSUCH"]),
            encode(["GET", b"\x00" * 20]),
        ]
        stream = b"".join(requests)
        with self.wire() as wire:
            wire.send(stream)
            replies = [wire.reply() for _ in requests]
        ends = list(itertools.accumulate(len(request) for request in requests))
        for at in range(len(stream)):
            raw, _ = self.exchange(stream[:at], LIMIT_S)  # the server closes behind its replies
            whole = sum(end <= at for end in ends)
            self.assertEqual(raw, b"".join(replies[:whole]), at)

    def test_a_valid_stream_in_two_pieces_gets_the_same_replies(self):
        stream = encode(["SET", "k", "v\r\n"]) + encode(["GET", "k"]) + b"GET k\r\n"
        expected = b"+OK\r\n" + b"$3\r\nv\r\n\r\n" * 2
        with self.wire() as wire:
            for at in range(1, len(stream)):
                wire.send(stream[:at])
                # The server may or may not see the pieces apart: both must work.
                time.sleep(0.0005)
                wire.send(stream[at:])
                self.assertEqual(b"".join(wire.reply() for _ in range(3)), expected)

    def test_byte_by_byte_is_as_good(self):
        stream = encode(["SET", "slow", "x" * 50]) + encode(["GET", "slow"]) + b'GET "slow"\r\n'
        with self.wire() as wire:
            for byte in stream:
                wire.send(bytes([byte]))
            self.assertEqual(wire.reply(), b"+OK\r\n")
            for _ in range(2):
                self.assertEqual(wire.reply(), b"$50\r\n" + b"x" * 50 + b"\r\n")

    def test_announced_lengths_take_no_memory(self):
        before = self.server.resident_bytes()
        wires = []
        for head in (
            b"*2147483647\r\n",
            b"*1\r\n$536870912\r\n",
            b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$500000000\r\n",
        ):
            for _ in range(20):
                wire = self.wire()
                wire.send(head)
                wires.append(wire)
        with self.wire() as wire:
            wire.call("PING")
        grown = self.server.resident_bytes() - before
        for wire in wires:
            wire.close()
        self.assertLess(grown, MEMORY_SLACK_BYTES)

    def test_a_pipeline_of_a_million_commands_is_answered(self):
        block = b"".join(
            encode(["SET", f"k:{i % 1000}", i]) + encode(["GET", f"k:{i % 1000}"])
            for i in range(PIPELINE_BLOCK // 2)
        )
        with self.wire() as wire:
            first = Wire(self.server.address)
            first.send(block)
            answers = b"".join(first.reply() for _ in range(PIPELINE_BLOCK))
            first.close()
            wire.socket.settimeout(LIMIT_S)
            failed = []

            def send():
                try:
                    for _ in range(PIPELINE_COMMANDS // PIPELINE_BLOCK):
                        wire.send(block)
                except OSError as error:
                    failed.append(error)

            sender = threading.Thread(target=send)
            sender.start()
            for _ in range(PIPELINE_COMMANDS // PIPELINE_BLOCK):
                while len(wire.buffer) < len(answers):
                    wire._fill()
                self.assertEqual(bytes(wire.buffer[: len(answers)]), answers)
                del wire.buffer[: len(answers)]
            sender.join(LIMIT_S)
            self.assertEqual((failed, sender.is_alive(), bytes(wire.buffer)), ([], False, b""))

    def test_a_command_with_a_hundred_thousand_arguments_is_answered(self):
        keys = [f"many:{i}" for i in range(100_000)]
        with self.wire() as wire:
            self.assertEqual(wire.ask("EXISTS", *keys), 0)
            pairs = [word for key in keys for word in (key, "v")]
            self.assertEqual(wire.call("MSET", *pairs), b"+OK\r\n")
            self.assertEqual(wire.ask("DEL", *keys), len(keys))

    def test_keys_and_values_over_their_limits_are_refused(self):
        if not NIGH:
            return
        with self.wire() as wire:
            self.assertEqual(wire.call("SET", b"k" * 65_535, "v"), b"+OK\r\n")
            for command in (["SET", b"k" * 65_536, "v"], ["MSET", "ok", "1", b"k" * 65_536, "v"]):
                raw = wire.call(*command)
                self.assertIn(b"65535", raw)
                self.assertTrue(raw.startswith(b"-ERR"), raw)
            self.assertEqual(wire.call("EXISTS", "ok"), b":0\r\n")

    def test_half_a_transaction_leaves_nothing(self):
        for _ in range(50):
            self.exchange(encode(["MULTI"]) + encode(["SET", "half", "1"]) + encode(["WATCH"]))
        with self.wire() as wire:
            self.assertEqual(wire.ask("EXISTS", "half"), 0)


class Limits(unittest.TestCase):
    def test_a_slow_reader_is_cut_off_and_others_are_served(self):
        settings = {"client-output-buffer-limit": f"normal {OUTPUT_LIMIT_BYTES} 0 0"}
        if NIGH:
            settings = {"output-buffer-limit": OUTPUT_LIMIT_BYTES}
        with Server(settings=settings) as server, Wire(server.address) as other:
            value = os.urandom(1 << 20)
            other.call("SET", "big", value)
            before = server.resident_bytes()
            with Wire(server.address, timeout=LIMIT_S) as slow:
                request = encode(["GET", "big"]) * (SLOW_READER_BYTES >> 20)
                try:
                    slow.send(request)
                except OSError:
                    pass
                # This client reads nothing, so the server has to hold the replies, or the requests.
                deadline = time.monotonic() + LIMIT_S
                while other.ask("PING") != b"PONG":
                    self.assertLess(time.monotonic(), deadline)
                for _ in range(20):
                    grown = server.resident_bytes() - before
                    self.assertLess(grown, MEMORY_SLACK_BYTES)
                    time.sleep(0.05)
                got = 0
                try:
                    while got < SLOW_READER_BYTES:
                        slow._fill()
                        got += len(slow.buffer)
                        slow.buffer.clear()
                    whole = True
                except Closed:
                    whole = False
            if not NIGH:
                self.assertFalse(whole, "Redis cuts off")
            # A server that stops reading requests, instead of buffering replies, loses no client.
            self.assertEqual(other.call("PING"), b"+PONG\r\n")
            self.assertTrue(server.alive(), server.log())

    def test_one_reply_over_the_output_limit_cuts_the_client_off(self):
        settings = {"client-output-buffer-limit": f"normal {OUTPUT_LIMIT_BYTES} 0 0"}
        if NIGH:
            settings = {"output-buffer-limit": OUTPUT_LIMIT_BYTES}
        with Server(settings=settings) as server, Wire(server.address) as other:
            other.call("SET", "big", os.urandom(1 << 20))
            with Wire(server.address, timeout=LIMIT_S) as greedy:
                # One command with 64 MiB of reply: no pause between commands can help.
                greedy.send(encode(["MGET", *["big"] * 64]))
                time.sleep(0.2)
                with self.assertRaises(Closed):
                    for _ in range(1 << 20):
                        greedy._fill()
                        self.assertLess(len(greedy.buffer), 60 << 20)
            self.assertEqual(other.call("PING"), b"+PONG\r\n")

    def test_connections_over_maxclients_are_told_and_closed(self):
        with Server(settings={"maxclients": IDLE_LIMIT}) as server:
            # The connection that asked whether the server is up may hold a place for a while.
            wires = [Wire(server.address)]
            deadline = time.monotonic() + LIMIT_S
            while b"connected_clients:1\r" not in wires[0].call("INFO", "clients"):
                self.assertLess(time.monotonic(), deadline, "the first connection stays")
            refused = 0
            for _ in range(IDLE_LIMIT + 39):
                wire = Wire(server.address)
                wires.append(wire)
            # Only a request shows a refusal: the server accepts while clients connect.
            for wire in wires:
                try:
                    self.assertIn(wire.call("PING"), (b"+PONG\r\n", REFUSED))
                    wire.call("PING")
                except (Closed, OSError):
                    refused += 1
            self.assertEqual(refused, 40)
            for wire in wires[: IDLE_LIMIT // 2]:
                wire.close()
            deadline = time.monotonic() + LIMIT_S
            while True:
                try:
                    with Wire(server.address) as wire:
                        if wire.call("PING") == b"+PONG\r\n":
                            break
                except (Closed, OSError):
                    pass
                self.assertLess(time.monotonic(), deadline, "places did not become free")
            for wire in wires:
                wire.close()

    def test_an_idle_client_is_disconnected_after_the_timeout(self):
        with Server(settings={"timeout": 1}) as server, Wire(server.address, LIMIT_S) as idle:
            self.assertEqual(idle.call("PING"), b"+PONG\r\n")
            with self.assertRaises(Closed):
                idle.reply()

    def test_without_the_password_nothing_works_but_giving_it(self):
        with Server(settings={"requirepass": "secret"}) as server, Wire(server.address) as wire:
            self.assertTrue(wire.call("GET", "a").startswith(b"-NOAUTH"))
            self.assertTrue(wire.call("HELLO", "3").startswith(b"-NOAUTH"))
            self.assertTrue(wire.call("AUTH", "wrong").startswith(b"-WRONGPASS"))
            # Before that, requests have small limits: ten arguments, 16 KiB each.
            with Wire(server.address) as other:
                other.send(b"*11\r\n")
                self.assertIn(b"unauthenticated multibulk length", other.drain(0.3)[0])
            with Wire(server.address) as other:
                other.send(b"*1\r\n$20000\r\n")
                self.assertIn(b"unauthenticated bulk length", other.drain(0.3)[0])
            self.assertEqual(wire.call("AUTH", "default", "secret"), b"+OK\r\n")
            self.assertEqual(wire.call("GET", "a"), b"$-1\r\n")

    def test_a_full_store_refuses_writes_and_still_deletes(self):
        settings = {"maxmemory": 64 << 20} if NIGH else {"maxmemory": 16 << 20}
        with Server(settings=settings) as server, Wire(server.address) as wire:
            value, written = b"v" * 100_000, 0
            for i in range(2000):
                raw = wire.call("SET", f"k:{i}", value)
                if raw != b"+OK\r\n":
                    break
                written += 1
            self.assertEqual(raw, b"-OOM command not allowed when used memory > 'maxmemory'.\r\n")
            self.assertGreater(written, 50)
            self.assertEqual(wire.call("GET", "k:0"), b"$100000\r\n" + value + b"\r\n")
            self.assertEqual(wire.ask("DBSIZE"), written)
            self.assertEqual(wire.ask("DEL", *(f"k:{i}" for i in range(written))), written)
            self.assertEqual(wire.call("SET", "again", value), b"+OK\r\n")


REFUSED = b"-ERR max number of clients reached\r\n"

if __name__ == "__main__":
    unittest.main()
