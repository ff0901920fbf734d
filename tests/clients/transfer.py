"""What tests of `nigh import` and `nigh export` share: data of all kinds, and its comparison."""

import random
import re
import subprocess
import time
import unittest

from server import Server, nigh_binary, tested_kind
from wire import Wire, encode

LIMIT_S = 120
DATABASES = 16


def setUpModule():
    if tested_kind() != "nigh":
        raise unittest.SkipTest("the import is Nigh's; Redis in its place proves nothing")


def redis(**settings):
    return Server("redis", {"databases": DATABASES, "enable-debug-command": "yes", **settings})


def run(*args, stdin=b""):
    """Runs nigh; returns exit code, stdout, stderr."""
    done = subprocess.run(
        [nigh_binary(), *map(str, args)], input=stdin, capture_output=True, timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def imported(source, nigh, *flags, expect=0):
    code, out, err = run("import", source, "--connect", nigh.port, *flags)
    assert code == expect, (code, out, err)
    assert "panicked" not in err, err
    counts = dict(re.findall(r"^(\w[\w ]*\w)\s+([\d,]+)$", out.decode(), re.M))
    return {name: int(count.replace(",", "")) for name, count in counts.items()}, err


def pipeline(wire, commands):
    """Sends all and returns all replies; no error is allowed."""
    commands = list(commands)
    for begin in range(0, len(commands), 500):
        part = commands[begin : begin + 500]
        wire.send(b"".join(map(encode, part)))
        for command in part:
            reply = wire.reply()
            assert not reply.startswith(b"-"), (command[:2], reply)


def strings_of(server, db=0):
    """All strings of a server: key -> (value, expiry in Unix ms or -1)."""
    found = {}
    with Wire(server.address, timeout=60) as wire:
        if db:
            wire.ask("SELECT", db)
        for key in wire.ask("KEYS", "*"):
            if wire.ask("TYPE", key) == b"string":
                found[key] = (wire.ask("GET", key), wire.ask("PEXPIRETIME", key))
    return found


def fill_strings(wire, seed=1):
    """Strings of all encodings and lengths, keys of any bytes, some with an expiry."""
    chance = random.Random(seed)
    now = int(time.time() * 1000)
    numbers = [0, 1, -1, 127, 128, -129, 32767, 32768, 2**31 - 1, 2**31, -(2**31), 2**63 - 1]
    commands = [["SET", f"int:{n}", n] for n in numbers]
    commands += [["SET", 12, "a key that is a number"], ["SET", "", "no name"], ["SET", "e", ""]]
    lengths = [1, 20, 21, 63, 64, 16383, 16384, 70000, 1 << 20, (9 << 20) + 7]
    for length in lengths:
        commands.append(["SET", f"same:{length}", b"x" * length])  # packed
        pattern = bytes(chance.randrange(4) for _ in range(min(length, 5000)))
        text = (pattern * (length // len(pattern) + 1))[:length]
        commands.append(["SET", f"text:{length}", text])
        commands.append(["SET", f"any:{length}", chance.randbytes(length), "PXAT", now + 10**8])
    commands.append(["SET", chance.randbytes(300), "a key of any bytes"])
    commands.append(["SET", b"k" * 65535, "the longest key"])
    for i in range(500):
        key = b"k\r\n\x00%d" % i
        commands.append(["SET", key, chance.randbytes(i), *(["PX", 10**7 + i] if i % 3 else [])])
    commands.append(["SET", "seconds", "v", "EXAT", 4_000_000_000])
    pipeline(wire, commands)


def fill_others(wire):
    """One key at least of each other type and encoding. Returns how many keys."""
    big = "v" * 100
    commands = [
        ["RPUSH", "list:small", 1, "two", 300, -70000, 2**40],
        ["RPUSH", "list:big", *(big + str(i) for i in range(2000))],
        ["RPUSH", "list:huge", "h" * 100_000],
        ["SADD", "set:ints", *range(100)],
        ["SADD", "set:ints64", 2**40, 5],
        ["SADD", "set:many", *(f"m{i}" for i in range(1000))],
        ["SADD", "set:few", "a", "b"],
        ["HSET", "hash:small", "f", "v", "n", 12],
        ["HSET", "hash:big", *(x for i in range(1000) for x in (f"f{i}", big))],
        ["ZADD", "zset:small", "1.5", "a", "-inf", "b", "inf", "c"],
        ["ZADD", "zset:big", *(x for i in range(1000) for x in (str(i / 7), f"m{i}"))],
        ["GEOADD", "geo", "13.361389", "38.115556", "Palermo"],
        *(["XADD", "stream", f"{i}-1", "field", big, f"other{i % 3}", i] for i in range(1, 300)),
        ["XDEL", "stream", "5-1"],
        ["XGROUP", "CREATE", "stream", "group", 0],
        ["XGROUP", "CREATE", "stream", "idle", "$"],
        ["XREADGROUP", "GROUP", "group", "ann", "COUNT", 20, "STREAMS", "stream", ">"],
        ["XREADGROUP", "GROUP", "group", "bob", "COUNT", 5, "STREAMS", "stream", ">"],
        ["XACK", "stream", "group", "1-1"],
        ["XGROUP", "CREATE", "stream:empty", "group", 0, "MKSTREAM"],
        ["HSET", "hash:expires", "f", "v"],
        ["PEXPIRE", "hash:expires", 10**7],
        ["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() end)"],
    ]
    pipeline(wire, commands)
    return 15


def changed(bytes_, at, new):
    return bytes_[:at] + new + bytes_[at + len(new) :]
