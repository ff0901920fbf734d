#!/usr/bin/env python3
"""Ends and faults of a real server at exact system calls, by strace.

In each round clients write while strace watches one kind of system call. At the N-th one of a
thread it either kills the server, before or after the call, or lets the call fail:

    kill    whoever was answered finds all of it at the next server, with what is in memory; with
            `always` without that too
    error   a start refuses, and the next one has all; or the server goes on: reads are answered,
            writes are refused with MISCONF or go on, and nothing that was answered is lost by a
            kill after that

The N-th call of each thread fails, those of a start and of the threads of a log that heals among
them: so a log may break again and again. One failure alone, and that the log heals behind it:
tests/faults/each_call.py.

tests/faults/syscalls.py --nigh PATH --rounds 100
"""

import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

import oracle
from served import Nigh, NoStart

CLIENTS = 4
SECONDS = 2.0  # of a round in which the call doesn't come
PREDECESSOR_S = 0.5
# Calls by which log, journals and arenas change, and how often they come in a round, about.
CALLS = {
    "pwrite64": 2000,
    "fdatasync": 400,
    "fsync": 12,
    "renameat": 12,
    "rename": 4,
    "unlinkat": 12,
    "openat": 60,
    "fallocate": 40,
    "ftruncate": 8,
    "mmap": 60,
}
ERRORS = ["EIO", "ENOSPC"]
FAILING = ["pwrite64", "fdatasync", "fsync", "renameat", "unlinkat", "fallocate"]


class Round:
    """What is injected where, into which mode."""

    def __init__(self, chance):
        self.mode = chance.choice(["always", "everysec", "no"])
        self.error = chance.choice([None, None, *ERRORS])
        self.call = chance.choice(FAILING if self.error else list(CALLS))
        self.number = int(CALLS[self.call] ** chance.random()) or 1
        self.loses_memory = self.error is None and self.mode == "always" and chance.random() < 0.5
        self.shards = chance.choice([1, 2])
        left = ["killed", "memory is lost"] if self.mode == "always" else ["killed"]
        self.predecessor = chance.choice([None, *left])

    def __str__(self):
        what = self.error or ("kill, memory is lost" if self.loses_memory else "kill")
        before = f", behind one: {self.predecessor}" if self.predecessor else ""
        return f"{self.mode}, {self.shards} shards{before}, {self.call} {self.number}: {what}"

    def wrapper(self):
        fault = f"error={self.error}" if self.error else "signal=SIGKILL"
        inject = f"inject={self.call}:{fault}:when={self.number}"
        return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={self.call}", "-e", inject]

    def flags(self):
        flags = ["--appendfsync", self.mode, "--shards", self.shards, "--partitions", self.shards]
        flags += ["--journal-size", "8mb", "--log-file-size", "1mb", "--log-max-size", "64mb"]
        return [str(flag) for flag in flags]


def write(server, clients, seconds):
    """Lets clients write until the server ends, for so many seconds at most."""
    for client in clients:
        client.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.process.poll() is None:
        time.sleep(0.01)


def run(binary, round_, shm, log):
    """How many writes were answered, and whether the fault came."""
    counts = [0] * CLIENTS
    if round_.predecessor:
        # The fault may then come while a start takes over what a killed server left.
        server = Nigh(binary, shm, log, round_.flags()).ready()
        clients = [oracle.Client(n, server.port, 0) for n in range(CLIENTS)]
        write(server, clients, PREDECESSOR_S)
        server.kill()
        for client in clients:
            client.join()
        if round_.predecessor == "memory is lost":
            shutil.rmtree(shm, ignore_errors=True)
    else:
        clients = [oracle.Client(n, 0, 0) for n in range(CLIENTS)]
    server = Nigh(binary, shm, log, round_.flags(), round_.wrapper())
    came = server.wait() is None
    if not came:
        counts = [oracle.recovered(server.port, client, client.answered) for client in clients]
        batch = 1 if round_.error else oracle.BATCH
        clients = [oracle.Client(n, server.port, counts[n], batch) for n in range(CLIENTS)]
        write(server, clients, SECONDS)
        if round_.error:
            check_serving(server, round_, clients)
        came = server.process.poll() is not None or any(client.refusals for client in clients)
    server.kill()
    for client in clients:
        if client.is_alive():
            client.join()
    if round_.loses_memory:
        shutil.rmtree(shm, ignore_errors=True)
    server = Nigh(binary, shm, log, round_.flags()).ready()
    for client in clients:
        oracle.recovered(server.port, client, client.answered)
    server.kill()
    return sum(client.answered for client in clients), came


def check_serving(server, round_, clients):
    """After a failed call the server serves reads, and refuses writes by their right name."""
    if server.process.poll() is not None:
        raise oracle.Lost(f"the server has ended: {server.process.returncode}")
    connection = oracle.Connection(server.port)
    reply = connection.call("GET", "{c0}a")
    connection.close()
    if isinstance(reply, RuntimeError):
        raise oracle.Lost(f"a read is refused: {reply}")
    for client in clients:
        client.ends.set()
        # The arenas' memory is fallocated too.
        names = ("MISCONF", "OOM", "IOERR") if round_.call == "fallocate" else ("MISCONF",)
        wrong = [text for text in client.refusals if not text.startswith(names)]
        if wrong:
            raise oracle.Lost(f"client {client.number} got {wrong[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nigh", required=True, type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nigh-calls-"))
    shm = pathlib.Path(tempfile.mkdtemp(prefix="nigh-calls-", dir="/dev/shm"))
    answered = hits = 0
    try:
        for number in range(args.rounds):
            round_ = Round(random.Random(seed + number))
            try:
                writes, came = run(args.nigh, round_, shm / "arenas", folder / "log")
            except (oracle.Lost, NoStart) as lost:
                raise SystemExit(f"--seed {seed + number} ({round_}): {lost}") from None
            answered, hits = answered + writes, hits + came
            print(f"{number + 1} of {args.rounds}: {round_}: {writes} writes", file=sys.stderr)
            shutil.rmtree(shm / "arenas", ignore_errors=True)
            shutil.rmtree(folder / "log", ignore_errors=True)
    finally:
        Nigh.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)
    print(f"{args.rounds} rounds, {hits} with the fault, {answered} writes answered: all are there")


if __name__ == "__main__":
    main()
