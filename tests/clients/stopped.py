"""Threads of another process that stand still, as a disk that doesn't answer would have them."""

import ctypes
import os
import time

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
PTRACE_DETACH = 17
WALL = 0x40000000
NAMED_LIMIT_S = 10  # a thread names itself when it first runs


class Stopped:
    """Threads of a process whose names begin alike, stopped while the context lasts."""

    def __init__(self, process, name):
        self.process, self.name, self.threads = process, name, []
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def trace(self, request, thread):
        if self.libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {thread}")

    def __enter__(self):
        limit = time.monotonic() + NAMED_LIMIT_S
        while not self.stop() and time.monotonic() < limit:
            time.sleep(0.01)
        assert self.threads, f"no thread is called {self.name}…"
        return self

    def stop(self):
        """Stops the threads that have the name now."""
        tasks = f"/proc/{self.process}/task"
        for thread in map(int, os.listdir(tasks)):
            with open(f"{tasks}/{thread}/comm", encoding="ascii") as comm:
                if comm.read().startswith(self.name):
                    self.trace(PTRACE_SEIZE, thread)
                    self.trace(PTRACE_INTERRUPT, thread)
                    os.waitpid(thread, WALL)
                    self.threads.append(thread)
        return self.threads

    def __exit__(self, *_):
        for thread in self.threads:
            self.trace(PTRACE_DETACH, thread)
