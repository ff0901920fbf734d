#!/usr/bin/env python3
"""The same streams to Debian's Redis and to Nigh; every reply must be the same bytes.

    compare.py [--streams N] [--length N] [--seed N] [--keep-going]

Each stream starts from an empty store with fresh connections. After a mismatch the script drops
commands from the stream while it still shows the mismatch, and prints both replies. rules.py says
which replies count as equal, changes_7_2.py has the changes of Redis after 7.0, sessions_data.py and
sessions_server.py have fixed sessions, and broken.py has broken bytes.
"""

import argparse
import contextlib
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import broken  # noqa: E402
import changes_7_2  # noqa: E402
import rules  # noqa: E402
from generate import Generator  # noqa: E402
from server import Server, tested_kind  # noqa: E402
from sessions_data import DATA_SESSIONS  # noqa: E402
from sessions_server import SERVER_SESSIONS  # noqa: E402
from wire import Closed, Error, Wire, encode  # noqa: E402

BATCH = 40  # commands sent at once, so that pipelining is what gets tested
SHRINK_TRIES = 150  # bound of the search for a shorter history
SCAN_TURNS = 100_000  # bound of one @SCAN
SHOWN_MISMATCHES = 40
SHOWN_BYTES = 400
SHOWN_STEPS = 3  # of a fixed session before a mismatch
SESSIONS = DATA_SESSIONS + SERVER_SESSIONS


class Mismatch(Exception):
    """`at` is the index of the step whose replies differ."""

    def __init__(self, at, args, ours, theirs):
        super().__init__(f"step {at}: {args!r}")
        self.at, self.args, self.ours, self.theirs = at, args, ours, theirs


class Session:
    """Both servers' connections for one stream. With a list `found`, mismatches go there."""

    def __init__(self, nigh, redis, found=None):
        self.found = found
        self.pairs = {}
        self.addresses = (nigh.address, redis.address)
        self.queued = {}
        self.pair("cleaner")
        for wire in self.pairs["cleaner"]:
            assert wire.call("FLUSHALL") == b"+OK\r\n"

    def pair(self, name):
        if name not in self.pairs:
            self.pairs[name] = tuple(Wire(address) for address in self.addresses)
        return self.pairs[name]

    def close(self):
        for pair in self.pairs.values():
            for wire in pair:
                wire.close()

    def run(self, steps):
        """Runs all steps; raises Mismatch at the first difference."""
        at = 0
        while at < len(steps):
            connection, args = steps[at]
            if args[0] == b"@SLEEP":
                time.sleep(int(args[1]) / 1000)
                at += 1
            elif args[0] == b"@SCAN":
                ours, theirs = (scan_all(wire, args[1:]) for wire in self.pair(connection))
                if not rules.same_tree(args, ours, theirs):
                    self.differs(Mismatch(at, args, repr(ours).encode(), repr(theirs).encode()))
                at += 1
            else:
                end = at
                while end < len(steps) and end - at < BATCH and steps[end][0] == connection:
                    if steps[end][1][0].startswith(b"@"):
                        break
                    end += 1
                self.batch(at, connection, [args for _, args in steps[at:end]])
                at = end

    def batch(self, at, connection, commands):
        ours, theirs = self.pair(connection)
        data = b"".join(map(encode, commands))
        theirs.send(data)
        ours.send(data)
        for offset, args in enumerate(commands):
            expected = reply_or_closed(theirs)
            got = reply_or_closed(ours)
            self.check(at + offset, connection, args, got, expected)

    def check(self, at, connection, args, got, expected):
        queued = self.queued.setdefault(connection, [])
        if isinstance(got, str) or isinstance(expected, str):
            equal = got == expected
        else:
            equal = rules.same(args, got, expected, queued)
        if not equal:
            self.differs(Mismatch(at, args, got, expected))
        name = args[0].upper()
        if expected == b"+QUEUED\r\n":
            queued.append(args)
        elif name in (b"EXEC", b"DISCARD", b"RESET"):
            queued.clear()

    def differs(self, mismatch):
        if self.found is None:
            raise mismatch
        self.found.append(mismatch)


def reply_or_closed(wire):
    try:
        return wire.reply()
    except Closed as closed:
        return f"connection closed, tail {closed.tail!r}"
    except TimeoutError:
        return "no reply"


def scan_all(wire, options):
    """All keys of a whole iteration, without repeats; the error's tree if there is one."""
    cursor, keys = b"0", set()
    for _ in range(SCAN_TURNS):
        answer = wire.ask("SCAN", cursor, *options)
        if isinstance(answer, Error):
            return answer
        cursor, found = answer
        keys.update(found)
        if cursor == b"0":
            return sorted(keys)
    raise AssertionError(f"SCAN did not end within {SCAN_TURNS} turns")


def first_mismatch(nigh, redis, steps):
    session = Session(nigh, redis)
    try:
        session.run(steps)
        return None
    except Mismatch as mismatch:
        return mismatch
    finally:
        session.close()


def shrink(nigh, redis, steps, mismatch):
    """Drops steps as long as the last one still differs; returns (steps, mismatch)."""
    steps = steps[: mismatch.at + 1]
    tries, size = 0, max(1, len(steps) // 2)
    while size and tries < SHRINK_TRIES:
        at = 0
        while at < len(steps) - 1 and tries < SHRINK_TRIES:
            shorter = steps[:at] + steps[min(at + size, len(steps) - 1) :]
            found = first_mismatch(nigh, redis, shorter)
            tries += 1
            if found and found.args == mismatch.args and found.at == len(shorter) - 1:
                steps, mismatch = shorter, found
            else:
                at += size
        size //= 2
    return steps, mismatch


def shown(raw):
    text = raw if isinstance(raw, str) else repr(raw)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}… ({len(text)} characters)"


def kind_of(mismatch):
    """The key of a finding: two mismatches of one command and shape of replies are one finding."""

    def reply_kind(raw):
        if isinstance(raw, str):
            return raw[:20]
        line = raw.split(b"\r\n")[0]
        return line if line[:1] == b"-" else line[:1]

    name = b" ".join(mismatch.args[: 2 if mismatch.args[0].isupper() else 1])[:30].upper()
    if not name.startswith((b"OBJECT", b"CLIENT", b"COMMAND", b"CONFIG", b"FUNCTION")):
        name = name.split(b" ")[0]
    return (name, reply_kind(mismatch.ours), reply_kind(mismatch.theirs))


def report(title, steps, mismatch):
    print(f"\nMISMATCH in {title}")
    for connection, args in steps[:-1]:
        print(f"   [{connection}] {shown(' '.join(map(repr, args)))}")
    print(f" > [{steps[-1][0]}] {shown(' '.join(map(repr, mismatch.args)))}")
    print(f"   Nigh:  {shown(mismatch.ours)}")
    print(f"   Redis: {shown(mismatch.theirs)}", flush=True)


def run_streams(nigh, redis, options):
    """Generated streams; returns the number of distinct mismatches."""
    seen, commands = {}, 0
    for seed in range(options.seed, options.seed + options.streams):
        steps = Generator(seed).stream(options.length)
        commands += len(steps)
        mismatch = first_mismatch(nigh, redis, steps)
        if mismatch is None:
            continue
        if not nigh.alive():
            print(f"\nthe server died in stream {seed}; its log:\n{nigh.log()}")
            report(f"stream {seed}", steps[: mismatch.at + 1][-30:], mismatch)
            return len(seen) + 1
        kind = kind_of(mismatch)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] == 1 and len(seen) <= SHOWN_MISMATCHES:
            report(f"stream {seed}", *shrink(nigh, redis, steps, mismatch))
        if not options.keep_going:
            break
    print(
        f"differential: {commands} commands in {options.streams} streams, "
        f"{len(seen)} kinds of mismatch"
    )
    for (name, ours, theirs), count in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"   {count:4} × {name!r}: {ours!r} instead of {theirs!r}")
    return len(seen)


def run_sessions(nigh, redis):
    """The fixed sessions; returns the number of replies that differ."""
    failed = 0
    for title, steps in SESSIONS:
        session = Session(nigh, redis, found=[])
        try:
            session.run(steps)
        finally:
            session.close()
        for mismatch in session.found:
            failed += 1
            before = max(0, mismatch.at - SHOWN_STEPS)
            report(f"session {title!r}", steps[before : mismatch.at + 1], mismatch)
    failed += run_raw(nigh, redis)
    print(
        f"differential: {len(SESSIONS)} sessions, {len(broken.RAW)} byte streams, {failed} differ"
    )
    return failed


def run_raw(nigh, redis):
    """Broken bytes, all at once on connections of their own. Returns the number of differences."""
    wires = []
    for _, data in broken.RAW:
        pair = [Wire(server.address) for server in (nigh, redis)]
        for wire in pair:
            # The server may disconnect before it has read all.
            with contextlib.suppress(ConnectionError):
                wire.send(data)
        wires.append(pair)
    failed, quiet_s = 0, broken.QUIET_S
    for (title, data), pair in zip(broken.RAW, wires, strict=True):
        ours, theirs = (wire.drain(quiet_s) for wire in pair)
        quiet_s = broken.QUIET_S / 10  # by then the other connections had their time
        for wire in pair:
            wire.close()
        expected = broken.BETTER.get(title) if nigh.kind == "nigh" else None
        if ours != (theirs if expected is None else (expected, False)):
            failed += 1
            print(f"\nMISMATCH in bytes {title!r}: {shown(data)}")
            for name, (raw, closed) in (("Nigh: ", ours), ("Redis:", theirs)):
                print(f"   {name} {shown(raw)}{', then closed' if closed else ''}")
    return failed


def run_changes(nigh):
    """Commands that only Redis 7.2 has, against the replies of its source."""
    failed = 0
    if nigh.kind == "redis":
        return failed
    for args, expected, source in changes_7_2.NEW:
        with Wire(nigh.address) as wire:
            got = wire.call(*args)
        if got != expected:
            failed += 1
            print(
                f"\nMISMATCH with 7.2 ({source}): {args!r}\n   Nigh:  {shown(got)}\n"
                f"   7.2:   {shown(expected)}"
            )
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--streams", type=int, default=150)
    parser.add_argument("--length", type=int, default=150, help="commands of a stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-going", action="store_true", help="collect all kinds of mismatch")
    options = parser.parse_args()
    with Server(tested_kind()) as nigh, Server("redis") as redis:
        failed = run_sessions(nigh, redis) + run_changes(nigh)
        failed += run_streams(nigh, redis, options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
