#!/usr/bin/env python3
"""Hit ratio of allkeys-lru in Nigh, beside those of Redis and of an exact LRU, on one trace.

    scripts/hits.py [--nigh PATH] [--redis PATH] [--keys N] [--shards N]

The trace is that of a cache: GET a key, and after a miss SET it. Keys are drawn by zipf 0.99 from a
seed (SEED below), so every run and every server sees the same trace. The first half warms up, and
the second half is measured.

All three hold the same number of keys. Nigh runs first, with an arena of a tenth, a quarter and a
half of the memory of all keys. Then Redis is filled with as many keys as Nigh held at the end
(DBSIZE), and its maxmemory is set to the memory that it uses then. The exact LRU is computed here.

Requests go in batches of BATCH, the same for all three: first all GETs, then the SETs of the missing
keys. Redis's clock of use moves once a second, so Redis knows more if the trace takes longer:
--seconds is the least time of a trace.
"""

import argparse
import bisect
import collections
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

SEED = 20260921
THETA = 0.99
VALUE = b"v" * 700
# A record of Nigh's: header, key and value, with its share of index and free room; measured.
RECORD_BYTES = 900
BATCH = 50
LEAST_ARENA_BYTES = 8 << 20


def trace(keys, draws):
    """Ranks that zipf draws from the seed."""
    total, sums = 0.0, []
    for rank in range(1, keys + 1):
        total += rank**-THETA
        sums.append(total)
    chance = random.Random(SEED)
    return [bisect.bisect_left(sums, chance.random() * total) for _ in range(draws)]


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, commands):
        out = []
        for command in commands:
            out.append(b"*%d\r\n" % len(command))
            out.extend(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
        self.socket.sendall(b"".join(out))

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if line[:1] == b"-":
            sys.exit("the server answered: " + line.decode().strip())
        if line[:1] not in (b"+", b":"):
            sys.exit(f"the server answered {line!r}")
        return line[1:].strip()

    def ask(self, *words):
        self.send([words])
        return self.reply()


def play(connection, part, seconds):
    """Plays a part of the trace. Returns the number of hits."""
    hits, began = 0, time.monotonic()
    for at in range(0, len(part), BATCH):
        batch = [b"key:%012d" % key for key in part[at : at + BATCH]]
        connection.send([(b"GET", key) for key in batch])
        missing = [key for key in batch if connection.reply() is None]
        hits += len(batch) - len(missing)
        if missing:
            connection.send([(b"SET", key, VALUE) for key in missing])
            for _ in missing:
                connection.reply()
        ahead = seconds * at / len(part) - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)
    return hits


def exact(part_one, part_two, held):
    """Hits of an exact LRU in the second part, in batches as above."""
    order, hits = collections.OrderedDict(), 0
    for measured, part in ((False, part_one), (True, part_two)):
        for at in range(0, len(part), BATCH):
            batch = part[at : at + BATCH]
            missing = [key for key in batch if key not in order]
            for key in batch:
                if key in order:
                    order.move_to_end(key)
            for key in missing:
                order[key] = True
                order.move_to_end(key)
                if len(order) > held:
                    order.popitem(last=False)
            hits += (len(batch) - len(missing)) * measured
    return hits


class Server:
    def __init__(self, command, port):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.connection = Connection(port)
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        self.process.kill()
        sys.exit("the server did not start: " + " ".join(command))

    def __enter__(self):
        return self.connection

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nigh(path, arena_bytes, shards):
    port = free_port()
    command = [path, "serve", "--port", str(port), "--shards", str(shards), "--maxmemory", str(arena_bytes)]
    folder = f"/dev/shm/nigh-hits-{port}"
    return Server(command + ["--maxmemory-policy", "allkeys-lru", "--fresh", "--appendonly", "no", "--shm-dir", folder], port), folder


def redis(path, folder):
    port = free_port()
    return Server([path, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder], port)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--redis", default=".tools/bin/redis-server")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=6, help="draws for each key")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="least time for each half of the trace")
    args = parser.parse_args()
    draws = trace(args.keys, args.keys * args.rounds)
    warm_up, measured = draws[: len(draws) // 2], draws[len(draws) // 2 :]
    print(f"zipf {THETA}, seed {SEED}, {args.keys} keys, {len(measured)} measured draws after as many")
    print(f"{'part':>5} {'keys Nigh':>9} {'keys Redis':>10} {'Nigh %':>7} {'Redis %':>8} {'exact %':>8} {'less':>6}")
    worst = 0.0
    for part in (0.10, 0.25, 0.50):
        arena_bytes = max(LEAST_ARENA_BYTES, int(args.keys * part * RECORD_BYTES))
        server, folder = nigh(args.nigh, arena_bytes, args.shards)
        with server as connection:
            play(connection, warm_up, args.seconds)
            ours = play(connection, measured, args.seconds)
            held = int(connection.ask(b"DBSIZE"))
            connection.send([(b"SHUTDOWN", b"NOSAVE")])
            server.process.wait()
        with tempfile.TemporaryDirectory() as folder, redis(args.redis, folder) as connection:
            for at in range(0, held, BATCH):
                batch = range(at, min(at + BATCH, held))
                connection.send([(b"SET", b"key:%012d" % key, VALUE) for key in batch])
                for _ in batch:
                    connection.reply()
            connection.send([(b"INFO", b"memory")])
            text = connection.reply().decode()
            used = next(line for line in text.splitlines() if line.startswith("used_memory:"))
            connection.ask(b"CONFIG", b"SET", b"maxmemory", used.split(":")[1].encode())
            connection.ask(b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-lru")
            connection.ask(b"FLUSHALL")
            play(connection, warm_up, args.seconds)
            theirs = play(connection, measured, args.seconds)
            held_there = int(connection.ask(b"DBSIZE"))
        best = exact(warm_up, measured, held)
        a, b, c = (100.0 * hits / len(measured) for hits in (ours, theirs, best))
        worst = max(worst, b - a)
        print(f"{part:5.2f} {held:9} {held_there:10} {a:7.2f} {b:8.2f} {c:8.2f} {b - a:6.2f}", flush=True)
    print(f"Nigh is at most {worst:.2f} points below Redis (the bound is 2)")
    sys.exit(worst > 2.0)


if __name__ == "__main__":
    os.environ.setdefault("RUST_LOG", "error")
    main()
