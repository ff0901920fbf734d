#!/usr/bin/env python3
"""Each system call of a log fails once, under a real server that serves.

A run is so many commands of some clients. First it is counted how many system calls of each kind
the log's thread and its sync thread make in it. Then, for every K-th call of each kind, a new
server has that call fail once: by EIO, by ENOSPC, or, if it is a write, by writing only a part.
The same goes for the calls by which a log that broke heals: those of its keeper, and those of the
threads of the new log.
What must hold (docs/durability.md, "If it fails while serving"):

1. No command that was answered is lost, nor done in part: not in memory, not for the next server,
   and not for one that has the log alone (behind WAITAOF, if the mode isn't `always`).
2. A command that is refused gets MISCONF, and has changed nothing. A client whose command was under
   way may be hung up on; then that command is done, or it isn't.
3. Reads are answered all the while.
4. It heals: without a restart, all clients write again, and INFO says `log_state:well`.
5. A short write is no failure: nobody is refused or hung up on.

tests/faults/each_call.py --nigh PATH --mode always --every 100
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import oracle
import short_write
from served import Nigh, NoStart

CLIENTS = 8
BEHIND = 400  # commands behind the fault, before the next kill
HEAL_LIMIT_S = 30
READ_LIMIT_S = 10  # a read that waits for nobody, on a busy machine
RUN_LIMIT_S = 120
SOON_S = 0.01
CALLS = ["pwrite64", "fdatasync", "fsync", "openat", "fallocate", "ftruncate", "renameat", "unlinkat"]
CALLS += ["pread64"]
THREADS = ["nigh-log-0", "nigh-sync-0"]
KEEPER, NEW_LOG = "nigh-log-keeper", "the new log's threads"
# The write that breaks a log that is to heal: there are few where they wait for each other.
BREAKS_AT = {"always": 50, "everysec": 2}
ERRORS = ["EIO", "ENOSPC"]
SHORT = "short"


class Fault:
    """The N-th call of a kind by a thread, and how it fails."""

    def __init__(self, thread, call, number, how):
        self.thread, self.call, self.number, self.how = thread, call, number, how

    def __str__(self):
        return f"{self.thread}, {self.call} {self.number}: {self.how}"


class Tracer:
    """strace on threads of a server, which writes into a file."""

    def __init__(self, threads, options, folder, name="strace"):
        self.output = folder / name
        self.output.unlink(missing_ok=True)
        said = folder / f"{name}.said"
        attach = [word for thread in threads for word in ("-p", str(thread))]
        line = ["strace", "-o", self.output, "-e", "signal=none", *options, *attach]
        with open(said, "wb") as file:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=file)
        end = time.monotonic() + RUN_LIMIT_S
        while " attached" not in said.read_text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"strace can't be attached: {said.read_text()}")
            time.sleep(SOON_S)

    @property
    def came(self):
        """Whether a call has failed. Then all others go on as they are."""
        if b"(INJECTED)" not in self.output.read_bytes():
            return False
        self.stop()
        return True

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Heals:
    """Has the log break, and then traces the whole server, in which the new log's threads begin.

    The keeper looks at its logs 5 times a second: mostly it is traced by then.
    """

    def __init__(self, server, mode, threads, options, folder):
        what = f"inject=pwrite64:error=EIO:when={BREAKS_AT[mode]}"
        options_of_it = ["-e", "trace=pwrite64", "-e", what]
        self.breaks = Tracer([threads["nigh-log-0"]], options_of_it, folder, "breaks")
        self.pid, self.options, self.folder, self.tracer = server.process.pid, options, folder, None

    @property
    def came(self):
        if self.tracer is None and self.breaks.came:
            # With -f, one process means all of its threads.
            self.tracer = Tracer([self.pid], ["-f", *self.options], self.folder)
        return self.tracer is not None and self.tracer.came

    def stop(self):
        self.breaks.stop()
        if self.tracer is not None:
            self.tracer.stop()


class Writer(oracle.Client):
    """Goes on after it was hung up on, from what the server has by then."""

    def __init__(self, number, port):
        super().__init__(number, port, 0, batch=1)
        self.hung_up, self.wrong = 0, None

    def run(self):
        try:
            while not self.ends.is_set():
                try:
                    connection = oracle.Connection(self.port)
                    while not self.ends.is_set():
                        self.write(connection)
                except OSError:
                    self.hung_up += 1
                    self.sent = self.answered = oracle.recovered(self.port, self, self.answered)
        except (oracle.Lost, OSError) as error:
            self.wrong = self.wrong or error


class Reader(threading.Thread):
    """Reads a key that nobody writes any more (see `begin`), again and again."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = oracle.Connection(port)
        self.ends, self.wrong, self.longest_s = threading.Event(), None, 0.0

    def run(self):
        while not self.ends.is_set():
            began = time.monotonic()
            try:
                reply = self.connection.call("GET", "old")
            except OSError as error:
                reply = error
            took = time.monotonic() - began
            self.longest_s = max(self.longest_s, took)
            if reply != b"1" or took > READ_LIMIT_S:
                self.wrong = f"a read got {reply!r} after {took:.1f} s"
                return
            time.sleep(SOON_S)


def begin(server):
    """Writes the key that readers read."""
    connection = oracle.Connection(server.port)
    if connection.call("SET", "old", "1") != b"OK":
        raise oracle.Lost("the first write is refused")
    connection.close()


def threads_of(server):
    """The ids of the log's threads, by name."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    named = {(task / "comm").read_text().strip(): int(task.name) for task in tasks}
    return {name: named[name] for name in [*THREADS, KEEPER]}


def persistence(port, field):
    connection = oracle.Connection(port)
    text = connection.call("INFO", "persistence").decode()
    connection.close()
    return next(line.partition(":")[2] for line in text.splitlines() if line.startswith(field + ":"))


def by_thread(text):
    """How many calls of each kind each thread has made."""
    counts = {}
    for line in text.splitlines():
        thread, _, rest = line.partition(" ")
        call = rest.strip().partition("(")[0]
        if call in CALLS:
            counts[thread, call] = counts.get((thread, call), 0) + 1
    return counts


class Runs:
    """Runs of one mode, one after the other."""

    def __init__(self, args, folder, shm):
        self.args, self.folder, self.shm, self.log = args, folder, shm / "arenas", folder / "log"
        flags = ["--appendfsync", args.mode, "--shards", "1", "--partitions", "1"]
        self.flags = flags + ["--journal-size", "8mb", "--log-file-size", "1mb"]
        self.answered = self.refused = self.hung_up = 0
        self.longest_heal_s = self.longest_read_s = 0.0

    def start(self):
        return Nigh(self.args.nigh, self.shm, self.log, self.flags).ready()

    def clear(self):
        shutil.rmtree(self.shm, ignore_errors=True)
        shutil.rmtree(self.log, ignore_errors=True)

    def counted(self):
        """How many calls of each kind each thread makes in a run, and while a log heals."""
        trace = ["-e", "trace=" + ",".join(CALLS)]
        counts = {}
        for heals in (False, True):
            server = self.start()
            begin(server)
            ids = threads_of(server)
            there = {task.name for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()}
            names = {str(number): name for name, number in ids.items()}
            if heals:
                tracer = Heals(server, self.args.mode, ids, trace, self.folder)
            else:
                tracer = Tracer([ids[name] for name in THREADS], trace, self.folder)
            self.serve(server, lambda: tracer.came, heals)
            server.kill()
            tracer.stop()
            if heals and tracer.tracer is None:
                raise SystemExit(f"{self.args.mode}: the log that is to heal didn't break")
            for (thread, call), count in by_thread((self.folder / "strace").read_text()).items():
                name = names.get(thread, NEW_LOG)
                # Threads that the old log had are counted without a fault only; memory is
                # fallocated by others too.
                is_other = name in THREADS or name == NEW_LOG and thread in there
                if not heals or not is_other and call != "fallocate":
                    counts[name, call] = max(counts.get((name, call), 0), count)
            self.clear()
        return counts

    def serve(self, server, came, may_refuse):
        """Clients write until the fault has come and healed, or the run is over."""
        writers = [Writer(number, server.port) for number in range(CLIENTS)]
        reader = Reader(server.port)
        for thread in [*writers, reader]:
            thread.start()
        try:
            self.watch(server, writers, reader, came)
        finally:
            for thread in [*writers, reader]:
                thread.ends.set()
            for thread in [*writers, reader]:
                thread.join(oracle.REPLY_LIMIT_S)
        self.judge(writers, reader, may_refuse)
        return writers

    def watch(self, server, writers, reader, came):
        total = lambda: sum(writer.answered for writer in writers)
        end = time.monotonic() + RUN_LIMIT_S
        fails_at = None
        while time.monotonic() < end:
            time.sleep(SOON_S)
            wrong = [thread.wrong for thread in [*writers, reader] if thread.wrong]
            if wrong or server.process.poll() is not None:
                raise oracle.Lost(wrong[0] if wrong else "the server has ended")
            if fails_at is None and came():
                fails_at, when = [writer.answered for writer in writers], time.monotonic()
            if fails_at is None and total() >= self.args.commands:
                return
            if fails_at is not None:
                goes_on = all(w.answered > before for w, before in zip(writers, fails_at))
                well = goes_on and persistence(server.port, "log_state") == "well"
                if well and total() >= sum(fails_at) + BEHIND:
                    healed = time.monotonic() - when
                    self.longest_heal_s = max(self.longest_heal_s, healed)
                    return
                if time.monotonic() > when + HEAL_LIMIT_S:
                    state = persistence(server.port, "log_state")
                    raise oracle.Lost(f"{HEAL_LIMIT_S} s later: log_state:{state}")
        raise oracle.Lost(f"{total()} commands in {RUN_LIMIT_S} s")

    def judge(self, writers, reader, may_refuse):
        alive = [thread for thread in [*writers, reader] if thread.is_alive()]
        wrong = [thread.wrong for thread in [*writers, reader] if thread.wrong]
        if alive or wrong:
            raise oracle.Lost(wrong[0] if wrong else "a client gets no answer")
        refused = [text for writer in writers for text in writer.refusals]
        others = [text for text in refused if not text.startswith("MISCONF ")]
        hung_up = sum(writer.hung_up for writer in writers)
        if others:
            raise oracle.Lost(f"a command got {others[0]}")
        if (refused or hung_up) and not may_refuse:
            why = f" ({refused[0]})" if refused else ""
            raise oracle.Lost(f"{len(refused)} are refused, {hung_up} hung up on, for nothing{why}")
        self.answered += sum(writer.answered for writer in writers)
        self.refused, self.hung_up = self.refused + len(refused), self.hung_up + hung_up
        self.longest_read_s = max(self.longest_read_s, reader.longest_s)

    def one(self, fault):
        """A server with the fault, and two successors. Whether the fault came."""
        server = self.start()
        begin(server)
        ids = threads_of(server)
        what = f"inject={fault.call}:error={fault.how}:when={fault.number}"
        options = ["-e", f"trace={fault.call}", "-e", what]
        breaks = None
        if fault.how == SHORT:
            tracer = short_write.ShortWrite(ids[fault.thread], fault.number)
            tracer.start()
            tracer.attached.wait(RUN_LIMIT_S)
        elif fault.thread == NEW_LOG:
            tracer = Heals(server, self.args.mode, ids, options, self.folder)
        else:
            tracer = Tracer([ids[fault.thread]], options, self.folder)
        if fault.thread == KEEPER:
            breaks = Heals(server, self.args.mode, ids, None, self.folder).breaks
        try:
            came = [False]

            def look():
                came[0] = came[0] or tracer.came
                return came[0]

            writers = self.serve(server, look, fault.how != SHORT or breaks)
        finally:
            tracer.stop()
            if breaks:
                breaks.stop()
        came = came[0]
        if self.args.mode != "always":
            connection = oracle.Connection(server.port)
            synced = connection.call("WAITAOF", 1, 0, oracle.REPLY_LIMIT_S * 500)
            connection.close()
            if not isinstance(synced, list) or synced[0] != b"1":
                raise oracle.Lost(f"WAITAOF: {synced}")
        server.kill()
        self.check(writers, "its successor")
        shutil.rmtree(self.shm)
        self.check(writers, "a server with the log alone")
        self.clear()
        return came

    def check(self, writers, who):
        server = self.start()
        for writer in writers:
            try:
                there = oracle.recovered(server.port, writer, writer.answered)
            except oracle.Lost as lost:
                raise oracle.Lost(f"{who}: {lost}") from None
            # What the first successor has, the second has to have.
            writer.answered = there
        server.kill()


def faults_of(counts, every):
    """Every so many-th call of each kind, the first among them."""
    for (thread, call), count in sorted(counts.items()):
        for number in range(1, count + 1, every):
            for how in ERRORS:
                yield Fault(thread, call, number, how)
            if call == "pwrite64" and thread != NEW_LOG and short_write.is_possible():
                yield Fault(thread, call, number, SHORT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nigh", required=True, type=os.path.abspath)
    parser.add_argument("--mode", choices=["always", "everysec"], required=True)
    parser.add_argument("--every", type=int, default=1, help="every so many-th call")
    parser.add_argument("--commands", type=int, default=10_000, help="commands of a run")
    parser.add_argument("--only", default="", help="only faults whose text has this")
    parser.add_argument("--first", type=int, default=1, help="the first fault, by its number")
    parser.add_argument("--seconds", type=float, help="begin no fault that much later")
    args = parser.parse_args()
    if args.first < 1:
        parser.error("--first counts from 1")
    ends = time.monotonic() + (args.seconds or float("inf"))
    # A user who ends it finds no servers and folders left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nigh-each-"))
    shm = pathlib.Path(tempfile.mkdtemp(prefix="nigh-each-", dir="/dev/shm"))
    runs, came, wrong = Runs(args, folder, shm), 0, []
    try:
        counts = runs.counted()
        told = ", ".join(f"{thread} {call} {n}" for (thread, call), n in sorted(counts.items()))
        print(f"{args.mode}: {args.commands} commands make {told}", file=sys.stderr)
        faults = [fault for fault in faults_of(counts, args.every) if args.only in str(fault)]
        done = 0
        for number, fault in enumerate(faults[args.first - 1 :], args.first):
            if time.monotonic() > ends:
                print(f"out of time: the next one is --first {number}", file=sys.stderr)
                break
            done += 1
            try:
                came += runs.one(fault)
            except (oracle.Lost, NoStart) as lost:
                wrong.append(f"{fault}: {lost}")
                print(wrong[-1], file=sys.stderr)
                Nigh.kill_all()
                runs.clear()
            print(f"{number} of {len(faults)}: {fault}", file=sys.stderr)
    finally:
        Nigh.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)
    print(
        f"{args.mode}: {done} calls, {came} failed, {len(wrong)} wrong; {runs.answered} "
        f"commands answered, {runs.refused} refused, {runs.hung_up} times hung up; longest read "
        f"{runs.longest_read_s:.2f} s, longest heal {runs.longest_heal_s:.2f} s"
    )
    if not came:
        raise SystemExit("no call failed: nothing was shown")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
