"""Streams of commands, good and bad, from a seed.

A step is (connection, args): args are bytes. Two pseudo-commands: `@SLEEP ms` lets short expiries
pass on both servers, `@SCAN options...` iterates to the end and yields all keys.

Relative expiries are at least 100 s apart from each other and from zero, so no answer depends on the
speed of a server. A sleep follows the few short ones. The same seed gives the same stream, also in
later versions of Python (only Random.random-based calls, no hash order).
"""

import random
import time

KEYS = [
    b"a",
    b"b",
    b"c",
    b"counter",
    b"float",
    b"long:" + b"k" * 200,
    b"",
    b"bin\x00\xff\r\n",
    "schlüssel".encode(),
    b"{tag}one",
    b"{tag}two",
    b"key with space",
    b"107",
]
INTS = [b"0", b"1", b"-1", b"2", b"10", b"12345", b"-42"]
EDGE_INTS = [
    b"9223372036854775807",
    b"9223372036854775806",
    b"-9223372036854775808",
    b"-9223372036854775807",
    b"4611686018427387904",
]
BAD_INTS = [
    b"",
    b" 1",
    b"1 ",
    b"+1",
    b"01",
    b"-0",
    b"1.0",
    b"1e3",
    b"0x10",
    b"abc",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"99999999999999999999999",
    b"1\x00",
    b"--1",
]
FLOATS = [
    b"0",
    b"1",
    b"-1",
    b"0.1",
    b"0.2",
    b"3.14",
    b"-2.5",
    b"1e3",
    b"5.0e3",
    b"1e-7",
    b"1.5e10",
    b"0.000001",
    b"100000000000000000000",
    b"3.0",
    b"10.50",
    b"2.71828182845904523536",
    b".5",
    b"+2",
    b"0x1p-2",
]
BAD_FLOATS = [b"", b" 1", b"1 ", b"abc", b"nan", b"inf", b"-inf", b"1e400", b"1.2.3", b"1,5", b"e5"]
PATTERNS = [
    b"*",
    b"a",
    b"?",
    b"[a-c]",
    b"[^a]",
    b"{tag}*",
    b"*o*",
    b"*\\*",
    b"bin*",
    b"[",
    b"[a",
    b"[c-a]",
    b"\\a",
    b"\\",
    b"**",
    b"k?y*",
    b"",
    b"none*",
    b"[a-",
    b"[\\a]",
    b"long:*k",
]
OFFSETS = [b"0", b"1", b"5", b"100", b"-1", b"-3", b"-100", b"3"]
BAD_TTLS = [
    b"0",
    b"-1",
    b"-100",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775",
    b"9223372036854776",
    b"9223370000000000000",
    b"9999999999999999999",
    b"abc",
    b"",
    b"1.5",
]
UNKNOWN = [b"NOSUCH", b"GETT", b"", b"get ", b"G\xc3\x89T", b"FOO\r\nBAR", b"x" * 200]
MUTATION_CHANCE = 0.12
SLEEP_MS = 15  # longer than any short expiry
SHORT_TTL_MS = (b"1", b"2", b"5")


class Generator:
    """One stream. `connections` are used in turn, so transactions interleave."""

    def __init__(self, seed, connections=2):
        self.r = random.Random(seed)
        self.connections = connections
        self.in_multi = [False] * connections
        # Unique expiries, far apart, in a random order.
        self.ttls = list(range(1000, 100_000, 200))
        self.r.shuffle(self.ttls)
        self.now_s = int(time.time())

    # Arguments -------------------------------------------------------------------------------

    def key(self):
        return self.r.choice(KEYS)

    def some_keys(self, low=1, high=4):
        return [self.key() for _ in range(self.r.randint(low, high))]

    def value(self):
        r = self.r
        pick = r.random()
        if pick < 0.35:
            return r.choice(INTS)
        if pick < 0.42:
            return r.choice(EDGE_INTS)
        if pick < 0.50:
            return r.choice(BAD_INTS)
        if pick < 0.60:
            return r.choice(FLOATS)
        if pick < 0.65:
            return r.choice(BAD_FLOATS)
        if pick < 0.72:
            return b"x" * r.choice([0, 1, 43, 44, 45, 63, 64, 65])
        if pick < 0.74:
            return bytes([r.randrange(256)]) * r.choice([1000, 16384, 40000])
        return bytes(r.randrange(256) for _ in range(r.randrange(24)))

    def int(self):
        pick = self.r.random()
        if pick < 0.75:
            return self.r.choice(INTS)
        return self.r.choice(EDGE_INTS if pick < 0.85 else BAD_INTS)

    def float(self):
        pick = self.r.random()
        if pick < 0.85:
            return self.r.choice(FLOATS)
        return self.r.choice(BAD_FLOATS if pick < 0.93 else EDGE_INTS)

    def offset(self):
        if self.r.random() < 0.9:
            return self.r.choice(OFFSETS)
        return self.r.choice(BAD_INTS + EDGE_INTS)

    def ttl(self, milliseconds=False, absolute=False):
        if self.r.random() < 0.12:
            return self.r.choice(BAD_TTLS)
        if not self.ttls:
            return b"100000000"
        seconds = self.ttls.pop() + (self.now_s if absolute else 0)
        return b"%d" % (seconds * 1000 if milliseconds else seconds)

    def cased(self, word):
        pick = self.r.random()
        if pick < 0.8:
            return word
        if pick < 0.9:
            return word.lower()
        return bytes(c ^ 0x20 if chr(c).isalpha() and self.r.random() < 0.5 else c for c in word)

    def expiry_option(self):
        name = self.r.choice([b"EX", b"PX", b"EXAT", b"PXAT"])
        option = [self.cased(name)]
        if self.r.random() < 0.95:
            option.append(self.ttl(name.startswith(b"P"), name.endswith(b"AT")))
        return option

    # Commands: each returns a list of args ------------------------------------------------------

    def set(self):
        options = []
        for _ in range(self.r.choice([0, 0, 0, 1, 1, 2, 3])):
            pick = self.r.random()
            if pick < 0.4:
                options += self.expiry_option()
            else:
                choice = [b"NX", b"XX", b"GET", b"KEEPTTL", b"GET", b"FOO", b"PERSIST", b""]
                options.append(self.cased(self.r.choice(choice)))
        return [b"SET", self.key(), self.value(), *options]

    def getex(self):
        pick = self.r.random()
        if pick < 0.3:
            return [b"GETEX", self.key()]
        if pick < 0.5:
            return [b"GETEX", self.key(), self.cased(b"PERSIST")]
        options = self.expiry_option()
        if pick > 0.9:
            options += self.r.choice([[b"PERSIST"], [b"NX"], [b"KEEPTTL"], self.expiry_option()])
        return [b"GETEX", self.key(), *options]

    def expire(self):
        name = self.r.choice([b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT"])
        args = [name, self.key(), self.ttl(name.startswith(b"P"), name.endswith(b"AT"))]
        for _ in range(self.r.choice([0, 0, 0, 1, 1, 2])):
            options = [b"NX", b"XX", b"GT", b"LT", b"GT", b"LT", b"FOO"]
            args.append(self.cased(self.r.choice(options)))
        return args

    def setex(self):
        name = self.r.choice([b"SETEX", b"PSETEX"])
        return [name, self.key(), self.ttl(name == b"PSETEX"), self.value()]

    def mset(self):
        args = [self.r.choice([b"MSET", b"MSETNX"])]
        for _ in range(self.r.randint(1, 4)):
            args += [self.key(), self.value()]
        return args

    def copy(self):
        args = [b"COPY", self.key(), self.key()]
        for _ in range(self.r.choice([0, 0, 1, 2])):
            args += self.r.choice([[b"REPLACE"], [b"DB", b"0"], [b"DB", self.int()], [b"FOO"]])
        return args

    def object(self):
        sub = self.r.choice([b"ENCODING", b"REFCOUNT", b"IDLETIME", b"FREQ", b"NOSUCH"])
        return [b"OBJECT", self.cased(sub), self.key()]

    def scan_error(self):
        cursor = self.r.choice([b"0", b"abc", b"-1", b"", b"1x", b"99999999999999999999999"])
        option = self.r.choice(
            [[b"COUNT", b"0"], [b"COUNT", b"x"], [b"COUNT", b"-1"], [b"MATCH"], [b"FOO", b"1"]]
        )
        return [b"SCAN", cursor, *option]

    def scan_all(self):
        args = [b"@SCAN"]
        if self.r.random() < 0.5:
            args += [self.cased(b"MATCH"), self.r.choice(PATTERNS)]
        if self.r.random() < 0.5:
            args += [self.cased(b"COUNT"), self.r.choice([b"1", b"3", b"100", b"1000000"])]
        if self.r.random() < 0.3:
            args += [self.cased(b"TYPE"), self.r.choice([b"string", b"STRING", b"list", b"foo"])]
        return args

    def server(self):
        return self.r.choice(
            [
                [b"PING"],
                [b"PING", self.value()],
                [b"ECHO", self.value()],
                [b"TIME"],
                [b"ROLE"],
                [b"DBSIZE"],
                [b"SELECT", self.r.choice([b"0", b"1", b"-1", b"x", b""])],
                [b"CLIENT", b"GETNAME"],
                [
                    b"CLIENT",
                    b"SETNAME",
                    self.r.choice([b"me", b"", b"with space", b"a\nb", b"\xff"]),
                ],
                [b"CLIENT", b"ID"],
                [b"CLIENT", b"INFO"],
                [b"CLIENT", b"NO-EVICT", self.r.choice([b"on", b"OFF", b"x"])],
                [b"CLIENT", b"NOSUCH"],
                [b"CLIENT", b"REPLY", b"FOO"],
                [b"COMMAND", b"GETKEYS", *self.random_command(False)],
                [b"COMMAND", b"INFO", self.r.choice([b"get", b"SET", b"mget", b"nosuch", b"copy"])],
                [b"HELLO", self.r.choice([b"2", b"3", b"3", b"2", b"1", b"4", b"x", b""])],
                [b"CONFIG", b"GET", b"nosuch"],
                [b"CONFIG", b"SET", b"nosuch", b"1"],
                [b"AUTH", b"x"],
                [b"FUNCTION", b"DELETE", b"nosuch"],
                [b"FCALL", b"nosuch", self.int()],
                [b"FCALL_RO", b"nosuch", b"1", self.key()],
                [self.r.choice(UNKNOWN), *self.some_keys(0, 3)],
            ]
        )

    def transaction(self):
        return self.r.choice(
            [[b"MULTI"]] * 4
            + [[b"EXEC"]] * 6
            + [[b"DISCARD"], [b"UNWATCH"]]
            + [[b"WATCH", *self.some_keys(1, 2)]] * 3
            + [[b"RESET"]]
        )

    def simple(self):
        """Commands whose arguments are of fixed kinds."""
        key, value = self.key, self.value
        name, *makers = self.r.choice(
            [
                (b"GET", key),
                (b"GET", key),
                (b"SETNX", key, value),
                (b"GETSET", key, value),
                (b"GETDEL", key),
                (b"APPEND", key, value),
                (b"STRLEN", key),
                (b"GETRANGE", key, self.offset, self.offset),
                (b"SUBSTR", key, self.offset, self.offset),
                (b"SETRANGE", key, self.offset, value),
                (b"INCR", key),
                (b"DECR", key),
                (b"INCRBY", key, self.int),
                (b"DECRBY", key, self.int),
                (b"INCRBYFLOAT", key, self.float),
                (b"INCRBYFLOAT", lambda: b"float", self.float),
                (b"INCR", lambda: b"counter"),
                (b"INCRBY", lambda: b"counter", self.int),
                (b"TYPE", key),
                (b"RENAME", key, key),
                (b"RENAMENX", key, key),
                (b"RANDOMKEY",),
                (b"KEYS", lambda: self.r.choice(PATTERNS)),
                (b"TTL", key),
                (b"PTTL", key),
                (b"EXPIRETIME", key),
                (b"PEXPIRETIME", key),
                (b"PERSIST", key),
            ]
        )
        return [name, *(make() for make in makers)]

    def many_keys(self):
        name = self.r.choice([b"DEL", b"UNLINK", b"EXISTS", b"TOUCH", b"MGET", b"MGET"])
        return [name, *self.some_keys()]

    def flush(self):
        name = self.r.choice([b"FLUSHALL", b"FLUSHDB"])
        return [name, *self.r.choice([[], [b"ASYNC"], [b"sync"], [b"FOO"], [b"SYNC", b"x"]])]

    def random_command(self, top=True):
        table = [
            (30, self.simple),
            (10, self.set),
            (4, self.setex),
            (4, self.getex),
            (6, self.expire),
            (4, self.mset),
            (6, self.many_keys),
            (3, self.copy),
            (3, self.object),
            (2, self.scan_error),
        ]
        if top:
            table += [(6, self.server), (6, self.transaction)]
            table += [(1, self.flush)] if self.r.random() < 0.3 else []
        makers = [make for weight, make in table for _ in range(weight)]
        args = self.r.choice(makers)()
        return [self.cased(args[0]), *args[1:]]

    def mutated(self, args):
        """The wrong number of arguments. (Bad values come from the pools, by kind.)"""
        if self.r.random() < 0.5 and len(args) > 1:
            return args[: self.r.randint(1, len(args) - 1)]
        # A number here could become a short expiry: `SET a b EX` + `1`. Words can't.
        return args + [self.r.choice([b"extra", b"", b"NX"])] * self.r.choice([1, 1, 2])

    def stream(self, length):
        steps = [(i, [b"HELLO", b"3"]) for i in range(self.connections) if self.r.random() < 0.5]
        connection = 0
        while len(steps) < length:
            if self.r.random() < 0.15:
                connection = self.r.randrange(self.connections)
            args = self.random_command()
            if self.r.random() < MUTATION_CHANCE:
                args = self.mutated(args)
            steps.append((connection, args))
            self.track(connection, args)
            if self.r.random() < 0.02 and not any(self.in_multi):
                steps.append((connection, self.scan_all()))
            if self.r.random() < 0.02 and not any(self.in_multi):
                key, short = self.key(), self.r.choice(SHORT_TTL_MS)
                steps.append((connection, [b"SET", key, self.value(), b"PX", short]))
                steps.append((connection, [b"@SLEEP", b"%d" % SLEEP_MS]))
                # Until it is read, an expired key may or may not count in DBSIZE.
                steps.append((connection, [b"EXISTS", key]))
        return steps

    def track(self, connection, args):
        name = args[0].upper()
        if name == b"MULTI" and len(args) == 1:
            self.in_multi[connection] = True
        elif name in (b"EXEC", b"DISCARD", b"RESET") and len(args) == 1:
            self.in_multi[connection] = False
