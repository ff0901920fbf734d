#!/usr/bin/env python3
"""CPU time of the server per operation, over sockets: one shard, several, and several with partitions.

    cpu.py NIGH [--shards N] [--pairs N] [--requests N] [--spin-us N]

Each round starts no server anew: all of them run, and take the same load in turn (A B C A B C ...). What counts is
user and system time of the whole process, from /proc, so a busy machine disturbs less than with wall time. Servers
don't spin unless told, since spinning isn't work: two shards wait for the same load twice as much as one.
"""

import argparse
import pathlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

LOADS = {"GET": ["--command", "get"], "SET": ["--command", "set"]}
KEYS = 1_000_000
PIPELINE, CONNECTIONS = 16, 50


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, nigh, name, options):
        self.name, self.port = name, free_port()
        self.folder = tempfile.mkdtemp(prefix="nigh-cpu-", dir="/dev/shm")
        command = [nigh, "serve", "--port", str(self.port), "--shm-dir", self.folder, "--maxmemory", "1gb"]
        self.process = subprocess.Popen(command + options, stderr=subprocess.DEVNULL)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise SystemExit(f"{name} does not serve")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)


def load(nigh, server, options, requests):
    """One run; CPU time per operation in µs."""
    before = server.cpu_seconds()
    command = [nigh, "bench", "--connect", str(server.port), "--keys", str(KEYS), "--warm-up", "0"]
    command += ["-c", str(CONNECTIONS), "-P", str(PIPELINE), "--requests", str(requests), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (server.cpu_seconds() - before) / requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nigh")
    parser.add_argument("--shards", default="2")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--spin-us", default="0")
    options = parser.parse_args()
    kinds = {
        "1 shard": ["--shards", "1"],
        f"{options.shards} shards": ["--shards", options.shards],
        f"{options.shards} shards, as many partitions": [
            "--shards", options.shards, "--partitions", options.shards],
    }
    servers = [Server(options.nigh, name, ["--spin-us", options.spin_us, *settings]) for name, settings in kinds.items()]
    try:
        for server in servers:
            load(options.nigh, server, ["--command", "set", "--preload"], 100_000)
        for name, command in LOADS.items():
            found = {server.name: [] for server in servers}
            for _ in range(options.pairs):
                for server in servers:
                    found[server.name].append(load(options.nigh, server, command, options.requests))
            one = found["1 shard"]
            for kind, times in found.items():
                ratios = [time / base for time, base in zip(times, one)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                print(f"{name} {kind:<32} {statistics.median(times):6.3f} µs an operation, "
                      f"{middle:.2f} x one shard (quartiles {low:.2f} to {high:.2f})", flush=True)
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
