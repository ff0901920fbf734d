"""The embedded library from Python and from C, and a process that uses it and may be killed.

`Child` starts this file as a program: it opens a database, and does what its parent says by pipe.
`kind` is "python" (the wheel) or "c" (libnigh.so by ctypes); both have the calls of `nigh.Db`.
"""

import atexit
import ctypes
import fcntl
import os
import pathlib
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from server import SHM, tested_kind

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
VENV = ROOT / ".tools/venv/bin"
SMALL = {"capacity_bytes": 64 << 20, "journal_bytes": 1 << 20, "log_file_bytes": 1 << 20}
ANSWER_LIMIT_S = 60

_site = None


def site():
    """A folder with the package `nigh`, as `pip install` of the wheel makes it."""
    global _site
    if _site is None:
        _site = tempfile.mkdtemp(prefix="nigh-wheel-")
        atexit.register(shutil.rmtree, _site, ignore_errors=True)
        # Two suites may run at once; what maturin makes on its way has one place.
        TARGET.mkdir(parents=True, exist_ok=True)
        with open(TARGET / "wheel.lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _run(VENV / "maturin", "build", "--profile", "dev", "--out", _site, cwd=ROOT / "crates/nigh-py")
        (wheel,) = pathlib.Path(_site).glob("*.whl")
        _run(VENV / "pip", "install", "-q", "--no-index", "--no-deps", "--target", _site, wheel)
    return _site


def _run(*line, **options):
    done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{line[0]} failed:\n{done.stdout}{done.stderr}")


def library():
    """The path of the shared library for C, that was built last."""
    places = [TARGET / "debug/deps/libnigh_c.so", TARGET / "debug/libnigh_c.so"]
    places = [place for place in places if place.exists()]
    if not places:
        raise SystemExit("libnigh_c.so is missing: run cargo build -p nigh-c")
    return str(max(places, key=lambda place: place.stat().st_mtime))


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    def get(self):
        return None if self.data is None else ctypes.string_at(self.data, self.len)


class Handle(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64)]


class COptions(ctypes.Structure):
    _fields_ = [("memory_dir", ctypes.c_char_p), ("capacity_bytes", ctypes.c_uint64),
                ("journal_bytes", ctypes.c_uint64), ("log_file_bytes", ctypes.c_uint64),
                ("threads_most", ctypes.c_uint32), ("durability", ctypes.c_int32),
                ("keep_memory", ctypes.c_int32), ("snapshot_hold_bytes", ctypes.c_uint64),
                ("watch_bytes", ctypes.c_uint64), ("partitions", ctypes.c_uint32),
                ("shared", ctypes.c_int32)]


class CWriteOptions(ctypes.Structure):
    _fields_ = [("durability", ctypes.c_int32), ("expires_in_ms", ctypes.c_uint64),
                ("expires_at_ms", ctypes.c_uint64)]


class CWrite(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("key", Bytes), ("value", Bytes),
                ("expires_in_ms", ctypes.c_uint64), ("expires_at_ms", ctypes.c_uint64)]


class CStats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "keys", "expires", "expired_keys", "used_bytes", "memory_bytes", "capacity_bytes",
        "last_change", "durable_change", "log_bytes", "syncs")]


OK, NOT_FOUND, MISMATCH = 0, 1, 2


class CError(Exception):
    pass


class CDb:
    """nigh.h with the calls of `nigh.Db`."""

    def __init__(self, path, memory_dir=None, **sizes):
        self.c = ctypes.CDLL(library())
        self.c.nigh_error_message.restype = ctypes.c_char_p
        options = COptions(**sizes)
        options.memory_dir = memory_dir.encode() if memory_dir else None
        self.db = Handle()
        self._call("open", path.encode(), ctypes.byref(options), ctypes.byref(self.db))

    def _call(self, name, *given):
        """A call by its arguments; bytes are a pointer and a length. Returns its status."""
        line = []
        for it in given:
            if isinstance(it, bytes) and name != "open":
                line += [it, ctypes.c_size_t(len(it))]
            else:
                line.append(it)
        handle = [] if name == "open" else [self.db]
        status = getattr(self.c, f"nigh_{name}")(*handle, *line)
        if status < 0:
            raise CError(self.c.nigh_error_message().decode())
        return status

    @staticmethod
    def _options(strong=None, expires_in=0, expires_at=0):
        durability = {None: 0, False: 1, True: 2}[strong]
        return ctypes.byref(CWriteOptions(durability, int(expires_in * 1000), int(expires_at * 1000)))

    def _free(self, given):
        self.c.nigh_free(ctypes.cast(given, ctypes.c_void_p))

    def get(self, key):
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        if self._call("get", key, ctypes.byref(value), ctypes.byref(length)) == NOT_FOUND:
            return None
        found = ctypes.string_at(value, length.value)
        self._free(value)
        # The same into a buffer.
        buffer = ctypes.create_string_buffer(length.value + 1)
        room = ctypes.c_size_t(len(buffer))
        assert self._call("get_into", key, buffer, room, ctypes.byref(length)) == OK
        assert buffer.raw[:length.value] == found
        return found

    @staticmethod
    def _listed(given):
        return Bytes(ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p), len(given))

    def multi_get(self, keys):
        values = ctypes.POINTER(Bytes)()
        list_ = (Bytes * len(keys))(*map(self._listed, keys))
        self._call("multi_get", list_, ctypes.c_size_t(len(keys)), ctypes.byref(values))
        found = [values[i].get() for i in range(len(keys))]
        self._free(values)
        return found

    def put(self, key, value, **options):
        self._call("put", key, value, self._options(**options))

    def delete(self, key, **options):
        return self._call("delete", key, self._options(**options)) == OK

    def write(self, writes, strong=None):
        list_ = (CWrite * len(writes))()
        for place, (key, value) in zip(list_, writes):
            place.key = self._listed(key)
            if value is None:
                place.kind = 1
            else:
                place.value = self._listed(value)
        self._call("batch", list_, ctypes.c_size_t(len(writes)), self._options(strong))

    def incr(self, key, by, **options):
        total = ctypes.c_int64()
        self._call("incr", key, ctypes.c_int64(by), ctypes.byref(total), self._options(**options))
        return total.value

    def compare_and_set(self, key, expected, desired, **options):
        none = [None, ctypes.c_size_t(0)]
        values = [[it] if it is not None else none for it in (expected, desired)]
        line = [key, *values[0], *values[1], self._options(**options)]
        return self._call("compare_and_set", *line) == OK

    def expire(self, key, **options):
        return self._call("expire", key, self._options(**options)) == OK

    def items(self, prefix=b""):
        cursor, found = ctypes.c_uint64(0), []
        while True:
            pairs, length = ctypes.POINTER(Bytes)(), ctypes.c_size_t()
            out = [ctypes.byref(cursor), ctypes.byref(pairs), ctypes.byref(length)]
            self._call("scan", prefix, ctypes.c_uint32(7), *out)
            parts = [pairs[i].get() for i in range(2 * length.value)]
            found += zip(parts[::2], parts[1::2])
            self._free(pairs)
            if cursor.value == 0:
                return found

    def snapshot(self, prefix=b""):
        snapshot, found = Handle(), []
        self._call("snapshot_begin", prefix, ctypes.byref(snapshot))
        while True:
            pairs, length = ctypes.POINTER(Bytes)(), ctypes.c_size_t()
            status = self.c.nigh_snapshot_next(snapshot, 7, ctypes.byref(pairs), ctypes.byref(length))
            assert status == OK, self.c.nigh_error_message()
            parts = [pairs[i].get() for i in range(2 * length.value)]
            found += zip(parts[::2], parts[1::2])
            self._free(pairs)
            if length.value == 0:
                assert self.c.nigh_snapshot_end(snapshot) == OK
                return found

    def __len__(self):
        stats = CStats()
        self._call("stats", ctypes.byref(stats))
        return stats.keys

    def flush(self):
        self._call("flush")

    def close(self):
        self._call("close")


def perform(db, name, *given, **options):
    """Does one call; returns its result, or the text of its error."""
    try:
        if name == "write" and not isinstance(db, CDb):
            with db.batch(**options) as batch:
                for key, value in given[0]:
                    if value is None:
                        del batch[key]
                    else:
                        batch[key] = value
            return None
        if name == "items":
            return sorted(set(db.items(*given)))
        if name == "snapshot":
            return sorted(db.snapshot(*given))
        if name == "len":
            return len(db)
        if name == "set" and not isinstance(db, CDb):
            db[given[0]] = given[1]
            return None
        return getattr(db, "put" if name == "set" else name)(*given, **options)
    except Exception as error:  # pylint: disable=broad-except
        if isinstance(error, CError) or type(error).__module__ == "nigh":
            return f"error: {error}"
        raise


def gives_the_lock(call):
    """Whether calls with 0, 1, … let another thread of Python run. Nobody takes the interpreter's lock
    away here; another thread runs only if a call gives it."""
    before = sys.getswitchinterval()
    ready, go, ran = threading.Event(), threading.Event(), []
    other = threading.Thread(target=lambda: (ready.set(), go.wait(), ran.append(1)))
    other.start()
    ready.wait()
    sys.setswitchinterval(1000.0)
    try:
        go.set()
        for number in range(300):
            call(number)
            if ran:
                break
        return bool(ran)
    finally:
        sys.setswitchinterval(before)
        other.join()


class Child:
    """A process that has a database open."""

    def __init__(self, kind, path, **options):
        line = [sys.executable, __file__, kind, path]
        environment = {**os.environ, "PYTHONPATH": site()}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, env=environment)
        self.tell(("open", options))
        answer = self.answer()
        if answer is not None:
            raise AssertionError(answer)

    def tell(self, call):
        data = pickle.dumps(call)
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()

    def answer(self):
        head = self.process.stdout.read(4)
        if len(head) < 4:
            raise AssertionError(f"the child ended: {self.process.wait(ANSWER_LIMIT_S)}")
        return pickle.loads(self.process.stdout.read(struct.unpack("<I", head)[0]))

    def call(self, name, *given, **options):
        self.tell((name, given, options))
        return self.answer()

    def kill(self):
        self.process.kill()
        self._end()

    def close(self):
        """Closes the database; the process ends well."""
        answer = self.call("close")
        self._end()
        assert answer is None and self.process.returncode == 0, (answer, self.process.returncode)

    def _end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(ANSWER_LIMIT_S)
        self.process.stdout.close()


class Folder(unittest.TestCase):
    """Has the package `nigh`, and a folder for a database."""

    @classmethod
    def setUpClass(cls):
        if tested_kind() != "nigh":
            raise unittest.SkipTest("Redis is no library")
        if site() not in sys.path:
            sys.path.insert(0, site())

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="nigh-embedded-")
        self.addCleanup(self.folder.cleanup)
        self.shm = tempfile.TemporaryDirectory(prefix="embedded-", dir=SHM)
        self.addCleanup(self.shm.cleanup)
        self.path = os.path.join(self.folder.name, "data")
        self.options = {**SMALL, "memory_dir": os.path.join(self.shm.name, "memory")}

    def open(self, **options):
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = nigh.Db(self.path, **{**self.options, **options})
        self.addCleanup(db.close)
        return db


def _read(stream):
    head = stream.read(4)
    return pickle.loads(stream.read(struct.unpack("<I", head)[0])) if len(head) == 4 else None


def _serve(kind, path):
    signal.alarm(10 * ANSWER_LIMIT_S)  # an orphan ends
    (_, options), db = _read(sys.stdin.buffer), None
    if kind == "c":
        db = CDb(path, **options)
    else:
        import nigh  # pylint: disable=import-error,import-outside-toplevel
        db = nigh.Db(path, **options)
    answer = None
    while True:
        data = pickle.dumps(answer)
        sys.stdout.buffer.write(struct.pack("<I", len(data)) + data)
        sys.stdout.buffer.flush()
        call = _read(sys.stdin.buffer)
        if call is None:
            return
        name, given, options = call
        answer = perform(db, name, *given, **options)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
