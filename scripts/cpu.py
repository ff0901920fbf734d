#!/usr/bin/env python3
"""CPU time of the server per operation, over sockets: with one shard, with several shards, and with
several shards and partitions.

    cpu.py NIGH [--before NIGH] [--bench NIGH-BENCH] [--shards N] [--starts N] [--pairs N]
                [--requests N] [--spin-us N] [--generators N] [--connections N] [--pipeline N]
                [--preempt]

All servers run at once, and take the same load in turn (A B C A B C ...). The figure is user and
system time of the whole process, from /proc: a busy machine disturbs it less than wall time. The
places of memory differ from start to start, and change the ratio by more than runs do. So the
script starts the servers several times.

With --before, the script measures this binary beside another one, each with several shards. It
shows the cost of a change.

Waiting isn't work. Servers don't spin unless told, and enough generators run to keep all shards
from sleeping. A sleep and its wake-up take some 15 µs of CPU time, as much as 20 commands; under
the same load two shards sleep twice as often as one. Shards and generators share the cores. A shard
that a request wakes would take the core from the generator that sent it, answer, and sleep again.
So servers run as batch tasks (sched(7)): they wake up as soon, but don't take the core from a
running generator. With --preempt they do.

The script prints the operations for each sleep: from a thousand on, sleeping hardly counts. It also
prints the share of operations that shards sent to other shards.
"""

import argparse
import pathlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# Commands of the generators: each generator takes the next of the list.
LOADS = {"GET": ["get"], "GET, SET": ["get", "set"], "SET": ["set"]}
KEYS = 1_000_000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, nigh, name, options, preempts):
        self.name, self.port = name, free_port()
        self.folder = tempfile.mkdtemp(prefix="nigh-cpu-", dir="/dev/shm")
        command = [nigh, "serve", "--port", str(self.port), "--shm-dir", self.folder, "--maxmemory", "1gb",
                   "--appendonly", "no"]
        as_batch = None if preempts else lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        self.process = subprocess.Popen(command + options, stderr=subprocess.DEVNULL, preexec_fn=as_batch)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        self.stop()
        raise SystemExit(f"{name} does not serve")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sleeps(self):
        """Number of sleeps of all shards."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        shards = [thread for thread in threads if (thread / "comm").read_text().startswith("nigh-shard")]
        lines = [line for shard in shards for line in (shard / "status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    def hops(self):
        """Commands that shards have sent to each other."""
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            reply = client.makefile("rb")
            client.sendall(b"INFO nigh\r\n")
            text = reply.read(int(reply.readline()[1:]))
        return sum(int(number) for number in re.findall(rb"hops_out=(\d+)", text))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def load(options, server, commands, *flags):
    """One run, in which each generator sends the next command. Returns CPU time per operation in µs,
    operations per sleep, and hops per operation."""
    generator = [options.bench, "--connect", str(server.port), "--keys", str(KEYS), "--warm-up", "0"]
    generator += ["-c", str(options.connections), "-P", str(options.pipeline)]
    generator += ["--requests", str(options.requests // options.generators), *flags, "--command"]
    cpu, sleeps, hops = server.cpu_seconds(), server.sleeps(), server.hops()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    sent = [commands[number % len(commands)] for number in range(options.generators)]
    running = [subprocess.Popen([*generator, command], **quiet) for command in sent]
    if any([process.wait() for process in running]):
        raise SystemExit(f"a load on {server.name} failed: {' '.join(generator)}")
    taken = (server.cpu_seconds() - cpu) / options.requests * 1e6
    slept, hopped = server.sleeps() - sleeps, server.hops() - hops
    return taken, options.requests / max(slept, 1), hopped / options.requests


def measure(options, kinds, found):
    """Starts the servers once, and adds the figures of each load on each server to `found`."""
    spin = ["--spin-us", options.spin_us]
    servers = []
    try:
        for name, (nigh, *settings) in kinds.items():
            servers.append(Server(nigh, name, [*spin, *settings], options.preempt))
        for server in servers:
            load(options, server, ["set"], "--preload")
        for name, commands in LOADS.items():
            for _ in range(options.pairs):
                for server in servers:
                    found[name][server.name].append(load(options, server, commands))
    finally:
        for server in servers:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nigh")
    parser.add_argument("--before", metavar="NIGH", help="the binary to compare with, instead of with one shard")
    parser.add_argument("--bench", help="the load generator (default: the nigh-bench beside NIGH)")
    parser.add_argument("--shards", default="2")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=3, help="of each start")
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--spin-us", default="0")
    parser.add_argument("--generators", type=int, default=4)
    parser.add_argument("--connections", type=int, default=100, help="of each generator")
    parser.add_argument("--pipeline", type=int, default=16)
    parser.add_argument("--preempt", action="store_true", help="let servers preempt the generators")
    options = parser.parse_args()
    options.bench = options.bench or str(pathlib.Path(options.nigh).absolute().with_name("nigh-bench"))
    if options.generators % 2:
        parser.error("--generators must be even: half of them GET while the others SET")
    several = ["--shards", options.shards]
    layouts = {f"{options.shards} shards": several,
               f"{options.shards} shards, as many partitions": [*several, "--partitions", options.shards]}
    # The base of each kind stands before it.
    kinds, base = {}, {}
    if not options.before:
        kinds["1 shard"] = [options.nigh, "--shards", "1"]
    for layout, settings in layouts.items():
        base[layout] = f"before, {layout}" if options.before else "1 shard"
        if options.before:
            kinds[base[layout]] = [options.before, *settings]
        kinds[layout] = [options.nigh, *settings]
    found = {name: {kind: [] for kind in kinds} for name in LOADS}
    for start in range(options.starts):
        measure(options, kinds, found)
        print(f"{start + 1} of {options.starts} starts", file=sys.stderr, flush=True)
    for name, by_kind in found.items():
        for kind, runs in by_kind.items():
            of = base.get(kind, kind)
            ratios = [run[0] / at_base[0] for run, at_base in zip(runs, by_kind[of])]
            low, middle, high = statistics.quantiles(ratios, n=4)
            time, between, hops = (statistics.median(column) for column in zip(*runs))
            print(f"{name:<8} {kind:<38} {time:6.3f} µs an operation, {middle:.3f} x {of} "
                  f"(quartiles {low:.3f} to {high:.3f}), {hops:.0%} hop, {between:,.0f} operations a sleep")


if __name__ == "__main__":
    main()
