"""What a read costs a program in Python: by `nigh.Client` in memory, and by redis-py over the same
server's Unix socket, in turn in one run. Prints a table.

  make build wheel
  .tools/venv/bin/pip install --target DIR target/wheels/nigh-*.whl
  NIGH_BIN=target/release/nigh PYTHONPATH=DIR .tools/venv/bin/python \\
      tests/clients/local_client_figures.py [--keys 1000000] [--rounds 5]

The server is on one core, the program on another. Nobody writes meanwhile.
"""

import argparse
import os
import random
import statistics
import time

import nigh  # pylint: disable=import-error
import redis

from server import Server

VALUE_BYTES = 100
READS = 30_000  # of one kind in a round
TOGETHER = 16
LOADED_TOGETHER = 1000
CORES = sorted(os.sched_getaffinity(0))


def timed(call, arguments):
    """Nanoseconds of each call, less what the clock takes."""
    clock = time.perf_counter_ns
    empty = statistics.median(-(clock() - clock()) for _ in range(1000))
    times = []
    for argument in arguments:
        begin = clock()
        call(argument)
        times.append(clock() - begin - empty)
    return times


def rate(call, arguments):
    """Calls a second, without a clock between."""
    begin = time.perf_counter()
    for argument in arguments:
        call(argument)
    return len(arguments) / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with Server(settings={"maxmemory": 1 << 30}) as server:
        os.sched_setaffinity(server.process.pid, CORES[:1])
        for task in os.listdir(f"/proc/{server.process.pid}/task"):
            os.sched_setaffinity(int(task), CORES[:1])
        os.sched_setaffinity(0, CORES[-1:])
        address = f"unix:{server.unix_path}"
        local, by_socket = nigh.Client(address, local="required"), nigh.Client(address, local="never")
        other = redis.Redis(unix_socket_path=server.unix_path)
        keys = [b"%016d" % number for number in range(given.keys)]
        for begin in range(0, len(keys), LOADED_TOGETHER):
            local.mset({key: bytes(VALUE_BYTES) for key in keys[begin:begin + LOADED_TOGETHER]})
        buffer = bytearray(VALUE_BYTES)
        kinds = {
            "get, nigh.Client": (local.get, 1),
            "get_into, nigh.Client": (lambda key: local.get_into(key, buffer), 1),
            "view of one get, nigh.Client": (lambda key: local.view(lambda view: view.get(key)), 1),
            "get, nigh.Client by socket": (by_socket.get, 1),
            "get, redis-py": (other.get, 1),
            "mget of 16, nigh.Client": (local.mget, TOGETHER),
            "mget of 16, redis-py": (other.mget, TOGETHER),
            "set, nigh.Client": (lambda key: local.set(key, buffer), 1),
            "set, redis-py": (lambda key: other.set(key, bytes(buffer)), 1),
        }
        found = {kind: [] for kind in kinds}
        for _ in range(given.rounds):
            for kind, (call, together) in kinds.items():
                if together == 1:
                    arguments = random.choices(keys, k=READS)
                else:
                    arguments = [random.choices(keys, k=together) for _ in range(READS // together)]
                times = sorted(timed(call, arguments))
                figures = times[len(times) // 2], times[len(times) * 99 // 100], rate(call, arguments) * together
                found[kind].append(figures)
        print(f"{given.keys} keys, {given.rounds} rounds: medians (least to most)")
        print("| | p50, us | p99, us | keys a second |\n|---|---|---|---|")
        for kind, rounds in found.items():
            p50, p99, rates = (sorted(column) for column in zip(*rounds))
            middle = len(p50) // 2
            print(f"| {kind} | {p50[middle] / 1e3:.2f} ({p50[0] / 1e3:.2f} to {p50[-1] / 1e3:.2f})"
                  f" | {p99[middle] / 1e3:.2f} | {rates[middle]:,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) |")


if __name__ == "__main__":
    main()
