"""Starts the server under test, or Debian's Redis, on a free port, and always stops it.

Environment: NIGH_BIN is the binary (default target/debug/nigh, then target/release/nigh).
NIGH_TEST_SERVER=redis puts Redis in Nigh's place, which tests the tests.
Standard library only. One thread.
"""

import atexit
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from wire import Wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"
SHM = os.environ.get("NIGH_TEST_SHM", "/dev/shm")  # tests/clients/run removes it at the end
START_LIMIT_S = 30.0  # a debug build on a busy machine needs a few
STOP_LIMIT_S = 15.0
START_TRIES = 5  # a free port may be taken before the server binds it
LOG_TAIL_BYTES = 4000
PR_SET_PDEATHSIG = 1
# Enough for all tests, small enough for a machine with little memory.
ARENA_BYTES = 512 << 20
CALL_LIMIT_MS = 10_000

_running = set()


def tool(name):
    """Path of a program in .tools/bin; a missing one is an error, never a skipped test."""
    path = TOOLS / "bin" / name
    if not path.exists():
        raise SystemExit(f"{path} is missing: run scripts/test-tools.sh")
    return str(path)


def nigh_binary():
    """Path of the binary under test."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = os.environ.get("NIGH_BIN")
    for path in [named] if named else [target / "debug/nigh", target / "release/nigh"]:
        if os.access(path, os.X_OK):
            return str(pathlib.Path(path).resolve())
    raise SystemExit("the nigh binary is missing: run cargo build -p nigh-cli, or set NIGH_BIN")


def tested_kind():
    """The server under test: nigh; or redis, to test the tests."""
    kind = os.environ.get("NIGH_TEST_SERVER", "nigh")
    if kind not in ("nigh", "redis"):
        raise SystemExit(f"NIGH_TEST_SERVER={kind}: expected nigh or redis")
    return kind


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A test that limits the size of files wants an error, not an end.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


class Server:
    """A running server. Use as a context manager, or call `stop`.

    `settings` are long flags without dashes: {"maxclients": 10}. Names are Redis's; `nigh_flags`
    says where Nigh's differ.
    """

    def __init__(self, kind=None, settings=None, shm_dir=None):
        self.kind = kind or tested_kind()
        self.folder = tempfile.mkdtemp(prefix=f"{self.kind}-test-")
        self.owns_shm = shm_dir is None
        self.shm_dir = shm_dir or tempfile.mkdtemp(prefix="nigh-test-", dir=SHM)
        self.settings = dict(settings or {})
        self.process = None
        self.log_path = os.path.join(self.folder, "log")
        self.unix_path = os.path.join(self.folder, "socket")
        _running.add(self)
        for attempt in range(START_TRIES):
            self.port = free_port()
            if self._start() or attempt == START_TRIES - 1:
                break
        if self.process is None:
            log = self.log()
            self.stop()
            raise RuntimeError(f"{self.kind} did not start; its log:\n{log}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def command_line(self):
        if self.kind == "redis":
            line = [tool("redis-server"), "--port", str(self.port), "--dir", self.folder]
            line += ["--save", "", "--appendonly", "no", "--databases", "1"]
            line += ["--unixsocket", self.unix_path]
            for name, value in self.settings.items():
                line += [f"--{name}", *str(value).split(" ")]
            return line
        line = [nigh_binary(), "serve", "--port", str(self.port), "--shm-dir", self.shm_dir]
        line += ["--unixsocket", self.unix_path]
        # No log, unless a test is about it; and calls are stopped by no machine that stands still.
        settings = {"maxmemory": ARENA_BYTES, "appendonly": "no", "function-time-limit-ms": CALL_LIMIT_MS, **self.settings}
        for name, value in settings.items():
            line += [f"--{name}", str(value)]
        return line

    def _start(self):
        """True if the server answers. If it has ended, `process` stays None."""
        with open(self.log_path, "ab") as log:
            process = subprocess.Popen(
                self.command_line(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with Wire(self.address, timeout=2) as wire:
                    answer = wire.call("PING")
                if answer == b"+PONG\r\n" or answer.startswith(b"-NOAUTH"):
                    self.process = process
                    return True
            except OSError:
                time.sleep(0.02)
        if process.poll() is None:
            process.kill()
        process.wait()
        return False

    def log(self):
        try:
            with open(self.log_path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return "(no log)"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self, sign=signal.SIGTERM):
        """Ends the process. Returns its exit code (negative: the signal). Files stay."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sign)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise RuntimeError(
                    f"{self.kind} did not end within {STOP_LIMIT_S} s of signal {sign}; its log:\n"
                    + self.log()
                ) from None
        return self.process.returncode

    def stop(self):
        """Ends the process and removes its files."""
        try:
            self.end()
        finally:
            _running.discard(self)
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.owns_shm:
                shutil.rmtree(self.shm_dir, ignore_errors=True)


def _stop_all(*_):
    for server in list(_running):
        try:
            server.stop()
        except RuntimeError:
            pass


def _stopped_by_signal(sign, _):
    _stop_all()
    os._exit(128 + sign)


atexit.register(_stop_all)
for _sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(_sign, _stopped_by_signal)
