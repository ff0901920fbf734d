"""What a read costs a program in Python: by `nigh.Client` in memory, and by redis-py over the same
server's Unix socket, in turn in one run. Prints a table.

  make build wheel
  .tools/venv/bin/pip install --target DIR target/wheels/nigh-*.whl
  NIGH_BIN=target/release/nigh PYTHONPATH=DIR .tools/venv/bin/python \\
      tests/clients/local_client_figures.py [--keys 1000000] [--rounds 5]

The server is on one core, the program on another. Nobody writes meanwhile.

With --socket it measures `nigh.Client` alone at a server that has its keys, for `nigh-bench local`,
which asks by lines: crates/bench/src/local/helper.rs says which.
"""

import argparse
import functools
import json
import os
import platform
import random
import statistics
import sys
import time

import nigh  # pylint: disable=import-error
import redis

from server import Server

VALUE_BYTES = 100
READS = 30_000  # of one kind in a round
TOGETHER = 16
LOADED_TOGETHER = 1000
PIPELINE = 1024  # writes
REST_S = 500e-6  # before a write to a server that sleeps
CHUNK = 2000  # calls between two looks whether the time is over
CORES = sorted(os.sched_getaffinity(0))


@functools.cache
def clock_ns():
    """What two looks at the clock take, one behind the other."""
    clock = time.perf_counter_ns
    return statistics.median(-(clock() - clock()) for _ in range(1000))


def timed(call, arguments):
    """Nanoseconds of each call, less what the clock takes."""
    clock, times, empty = time.perf_counter_ns, [], clock_ns()
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


def chunks(seconds, keys, together=1):
    """Random keys, or lists of them, until the time is over."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if together == 1:
            yield random.choices(keys, k=CHUNK)
        else:
            yield [random.choices(keys, k=together) for _ in range(CHUNK // together)]


def latencies(seconds, keys, call):
    """The percentiles 50 and 99 of single calls, us."""
    times = sorted(time for chunk in chunks(seconds, keys) for time in timed(call, chunk))
    return times[len(times) // 2] / 1e3, times[len(times) * 99 // 100] / 1e3


def reads_of(client, keys, seconds):
    for key, value in ((key, client.get(key)) for key in random.choices(keys, k=1000)):
        assert value is not None and value.startswith(key), (key, value)
    p50, p99 = latencies(seconds, keys, client.get)
    each = statistics.median(rate(client.get, chunk) for chunk in chunks(seconds, keys))
    together = statistics.median(rate(client.mget, chunk) * TOGETHER for chunk in chunks(seconds, keys, TOGETHER))
    return {"read_p50_us": p50, "read_p99_us": p99, "reads_per_s": each, "keys_per_s": together}


def writes_of(client, keys, value_bytes, seconds):
    def write(key):
        client.set(key, key.ljust(value_bytes, b"p"))

    def pipelined(some):
        pipe = client.pipeline(transaction=False)
        for key in some:
            pipe.set(key, key.ljust(value_bytes, b"p"))
        pipe.execute()

    p50, p99 = latencies(seconds, keys, write)
    rested, deadline = [], time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        time.sleep(REST_S)
        rested += timed(write, random.choices(keys, k=1))
    rested.sort()
    piped = statistics.median(rate(pipelined, chunk) * PIPELINE for chunk in chunks(seconds, keys, PIPELINE))
    return {
        "write_p50_us": p50, "write_p99_us": p99, "rested_write_p50_us": rested[len(rested) // 2] / 1e3,
        "rested_write_p99_us": rested[len(rested) * 99 // 100] / 1e3, "piped_writes_per_s": piped,
    }


def answer_orders(given):
    """Measures as long as somebody asks."""
    client = nigh.Client(f"unix:{given.socket}", local="required")
    keys = [b"key:%012x" % number for number in range(given.keys)]
    ready = f"Python {platform.python_version()}: `nigh.Client`; times without what a look at the clock takes"
    print(json.dumps({"ready": ready}), flush=True)
    for line in sys.stdin:
        if line == "reads\n":
            told = reads_of(client, keys, given.seconds)
        elif line == "writes\n":
            told = writes_of(client, keys, given.value_size, given.seconds)
        else:
            told = {"error": f"{line!r} is no order: reads, writes"}
        print(json.dumps(told), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--socket", help="answer orders about the server that listens there")
    parser.add_argument("--value-size", type=int, default=VALUE_BYTES, help="with --socket: bytes of a value")
    parser.add_argument("--seconds", type=float, default=0.5, help="with --socket: of a figure")
    given = parser.parse_args()
    if given.socket:
        answer_orders(given)
        return
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
