"""Clients for Python of a process that may take little memory. For test_local_client.py."""

import os
import subprocess
import sys

import embedded
from client_case import LIMIT_S, WAYS, Clients, begin

# Each argument takes a copy for which there is no memory.
SOURCE = """if True:
    import resource, sys, nigh
    client = nigh.Client(sys.argv[1], local=sys.argv[2])
    client.set("short", "hello")
    long, text = bytearray(32 << 20), "x" * (32 << 20)
    pipe = client.pipeline()
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (8 << 20), resource.RLIM_INFINITY))
    for call in (lambda: client.set("a", long), lambda: client.set("a", text), lambda: client.mget(long),
                 lambda: client.mget(text), lambda: pipe.set("a", long), lambda: pipe.set("a", text)):
        try:
            call()
            print("it fits")
        except Exception as error:
            print(type(error).__name__, client.get("short").decode())
    print(len(pipe), client.exists("a"))
"""


def setUpModule():
    begin()


class Memory(Clients):
    def test_an_argument_that_finds_no_memory_is_no_argument_of_a_wrong_kind(self):
        """A long text was told to have a lone surrogate, and a bytearray to be none of what is needed."""
        environment = {**os.environ, "PYTHONPATH": embedded.site()}
        for way in WAYS[:2]:
            line = [sys.executable, "-c", SOURCE, f"unix:{self.shared.unix_path}", "auto" if way == "memory" else "never"]
            ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
            self.assertEqual(ended.stdout.split("\n"), ["MemoryError hello"] * 6 + ["0 0", ""], ended.stderr)
