"""The same calls on a database and on a dictionary, from Python and from C, with closings and kills
among them. test_embedded.py runs these tests.

NIGH_SEED repeats a run, NIGH_EMBEDDED_ROUNDS makes it longer.
"""

import os
import random
import time

from embedded import Child, Folder

SEED = int(os.environ.get("NIGH_SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("NIGH_EMBEDDED_ROUNDS", "6"))
CALLS_PER_ROUND = 200
HOUR_S = 3600.0


class Model:
    """What a database must have, and random calls on it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.map = {}

    def key(self):
        return b"key %d" % self.random.randrange(24)

    def value(self):
        kind = self.random.randrange(12)
        if kind < 4:
            return b"%d" % self.random.randrange(-1000, 1000)
        if kind == 11:
            return self.random.randbytes(self.random.randrange(30_000, 90_000))
        return self.random.randbytes(self.random.randrange(40))

    def call(self):
        """A call, and what it does to a dictionary: it returns the result."""
        strong = self.random.choice([None, None, None, None, None, False, True])
        key, value, state = self.key(), self.value(), self.map
        options = {"strong": strong}
        kind = self.random.choices(
            ["put", "set", "delete", "get", "multi_get", "write", "incr", "cas", "expire", "len",
             "items", "snapshot", "flush"], [6, 4, 3, 3, 2, 3, 3, 4, 2, 1, 1, 1, 1])[0]
        if kind == "put":
            if self.random.random() < 0.2:
                options["expires_in"] = HOUR_S
            return ("put", (key, value), options), lambda: state.update({key: value})
        if kind == "set":
            return ("set", (key, value), {}), lambda: state.update({key: value})
        if kind == "delete":
            return ("delete", (key,), options), lambda: state.pop(key, None) is not None
        if kind == "get":
            return ("get", (key,), {}), lambda: state.get(key)
        if kind == "multi_get":
            keys = [self.key() for _ in range(self.random.randrange(40))]
            return ("multi_get", (keys,), {}), lambda: [state.get(key) for key in keys]
        if kind == "write":
            writes = [(self.key(), self.random.choice([None, self.value()])) for _ in range(4)]
            return ("write", (writes,), options), lambda: self.write(writes)
        if kind == "incr":
            by = self.random.randrange(-99, 99)
            return ("incr", (key, by), options), lambda: self.incr(key, by)
        if kind == "cas":
            expected = self.random.choice([state.get(key), state.get(key), None, b"other"])
            desired = self.random.choice([None, value, value])
            result = lambda: self.compare_and_set(key, expected, desired)
            return ("compare_and_set", (key, expected, desired), options), result
        if kind == "expire":
            when = self.random.choice([{"expires_in": HOUR_S}, {"expires_at": 1.0}, {}])
            return ("expire", (key,), {**options, **when}), lambda: self.expire(key, when)
        if kind in ("items", "snapshot"):
            prefix = self.random.choice([b"", b"key 1", b"none"])
            result = lambda: sorted(it for it in state.items() if it[0].startswith(prefix))
            return (kind, (prefix,), {}), result
        return (kind, (), {}), lambda: len(state) if kind == "len" else None

    def write(self, writes):
        for key, value in writes:
            self.map.pop(key, None)
            if value is not None:
                self.map[key] = value

    def incr(self, key, by):
        try:
            old = self.map.get(key, b"0").decode()
            if "_" in old or old != old.strip():
                raise ValueError
            self.map[key] = b"%d" % (int(old) + by)
        except ValueError:
            return "error: no number"
        return int(self.map[key])

    def compare_and_set(self, key, expected, desired):
        if self.map.get(key) != expected:
            return False
        self.write([(key, desired)])
        return True

    def expire(self, key, when):
        there = key in self.map
        if "expires_at" in when:
            self.map.pop(key, None)
        return there


class SameAsADictionary(Folder):
    def test_from_python(self):
        self.compare("python")

    def test_from_c(self):
        self.compare("c")

    def compare(self, kind):
        model, round_ = Model(SEED), 0
        child = Child(kind, self.path, **self.options)
        try:
            for round_ in range(ROUNDS):
                for number in range(CALLS_PER_ROUND):
                    call, expected = model.call()
                    has = child.call(call[0], *call[1], **call[2])
                    wants = expected()
                    if str(wants).startswith("error:"):
                        self.assertIn("decimal integer", has)
                    else:
                        self.assertEqual(has, wants, f"NIGH_SEED={SEED} {round_}/{number}: {call}")
                before = dict(model.map)
                if round_ % 3 == 0:
                    child.close()
                elif round_ % 3 == 1:
                    child.kill()
                else:
                    # Killed in the midst of a write, which is done, or not: as a whole.
                    writes = [(b"key %d" % n, b"%d" % round_) for n in range(20)]
                    child.tell(("write", (writes,), {}))
                    time.sleep(model.random.random() / 500)
                    child.kill()
                    model.write(writes)
                child = Child(kind, self.path, **self.options)
                has = child.call("items")
                if round_ % 3 == 2 and has == sorted(before.items()):
                    model.map = before
                self.assertEqual(has, sorted(model.map.items()), f"NIGH_SEED={SEED} {round_}")
            child.close()
        finally:
            child.kill()
