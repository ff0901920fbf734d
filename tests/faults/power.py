#!/usr/bin/env python3
"""Power cuts of a real file system under a real server.

The log is on ext4 on a loop device. In each round clients write at full speed; then the file system
is shut down as a power cut would (the kernel drops what it has not written), the server is killed,
the arenas are removed as a reboot removes them, and the file system is mounted again. What the next
server finds must be what was promised:

    always     all that was answered
    everysec   all that was answered more than --most-lost seconds before the cut, and of the rest
               a prefix

Needs root, for the loop device and the mount. tests/faults/power.py --nigh PATH --rounds 20
"""

import argparse
import fcntl
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import oracle
from served import Nigh, NoStart

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
CLIENTS = 6
IMAGE_BYTES = 4 << 30


class Disk:
    """A file with ext4, mounted."""

    def __init__(self, folder):
        self.image, self.mount = folder / "image", folder / "disk"
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        self.mount.mkdir()

    def attach(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.mount], check=True)

    def cut(self):
        folder = os.open(self.mount, os.O_RDONLY)
        fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(folder)

    def detach(self):
        subprocess.run(["umount", self.mount], check=True)


def one_round(args, disk, shm, counts, chance):
    """A server that ends by a power cut, and its successor; how many commands each client has."""
    flags = ["--appendfsync", args.mode, "--shards", str(args.shards), "--journal-size", "8mb"]
    # With large files, syncs come of age alone.
    flags += ["--partitions", str(args.shards), "--log-file-size", chance.choice(["4mb", "64mb"])]
    disk.attach()
    server = Nigh(args.nigh, shm, disk.mount / "log", flags).ready()
    clients = [oracle.Client(n, server.port, count) for n, count in enumerate(counts)]
    for client in clients:
        client.start()
    time.sleep(chance.uniform(0.2, args.seconds))
    refused = next((client.refusals[0] for client in clients if client.refusals), None)
    if refused is not None:
        raise oracle.Lost(f"a write was refused: {refused}")
    cut = time.monotonic()
    disk.cut()
    server.kill()
    for client in clients:
        client.join()
    disk.detach()
    shutil.rmtree(shm)
    disk.attach()
    server = Nigh(args.nigh, shm, disk.mount / "log", flags).ready()
    oldest = 0.0
    for number, client in enumerate(clients):
        least = client.answered if args.mode == "always" else 0
        counts[number] = oracle.recovered(server.port, client, least)
        lost = client.answered_at(counts[number])
        if lost is not None and counts[number] < client.answered:
            oldest = max(oldest, cut - lost)
    if oldest > args.most_lost:
        raise oracle.Lost(f"a write is lost that was answered {oldest:.2f} s before the cut")
    if args.shards == 1:
        oracle.check_prefix(clients, counts)
    # A kill, with what is in memory: nothing more is lost.
    server.kill()
    server = Nigh(args.nigh, shm, disk.mount / "log", flags).ready()
    for number, client in enumerate(clients):
        if oracle.recovered(server.port, client, counts[number]) != counts[number]:
            raise oracle.Lost("the successor of a successor has something else")
    server.kill()
    shutil.rmtree(shm)
    disk.detach()
    return sum(client.answered for client in clients), oldest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nigh", required=True, type=os.path.abspath)
    parser.add_argument("--mode", choices=["always", "everysec"], required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round, at most")
    parser.add_argument("--most-lost", type=float, default=2.0, help="seconds, in everysec")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    chance = random.Random(seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nigh-power-"))
    shm = pathlib.Path(tempfile.mkdtemp(prefix="nigh-power-", dir="/dev/shm"))
    disk = Disk(folder)
    counts, oldest, answered = [0] * CLIENTS, 0.0, 0
    try:
        for number in range(args.rounds):
            before = sum(counts)
            answered, age = one_round(args, disk, shm / "arenas", counts, chance)
            oldest = max(oldest, age)
            print(
                f"power cut {number + 1} of {args.rounds}: {answered - before} writes answered, "
                f"{max(0, answered - sum(counts))} lost, the oldest {age:.2f} s old",
                file=sys.stderr,
            )
    except (oracle.Lost, NoStart) as lost:
        raise SystemExit(f"seed {seed}: {lost}") from None
    finally:
        Nigh.kill_all()
        subprocess.run(["umount", "-q", disk.mount], check=False)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)
    print(
        f"{args.mode}, {args.shards} shards: {args.rounds} power cuts, {sum(counts)} commands are "
        f"there; the oldest that was lost was answered {oldest:.2f} s before the cut"
    )


if __name__ == "__main__":
    main()
