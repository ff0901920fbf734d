"""RESP on a raw socket, byte by byte: it shows the bytes that a client library hides.

`Wire.reply` returns the bytes of one whole reply. `parse` makes a tree of them.
Standard library only. One thread.
"""

import socket

READ_BYTES = 1 << 16
DEFAULT_TIMEOUT_S = 20.0  # generous: the machine may be busy; a test never asserts timing


class Closed(Exception):
    """The server closed the connection. `tail` has the bytes before that, also part of a reply."""

    def __init__(self, tail):
        super().__init__(f"connection closed by the server, unread: {tail!r}")
        self.tail = tail


class Error(bytes):
    """An error reply, without its leading `-` and its line end."""


class Simple(bytes):
    """A simple string reply."""


class Typed(tuple):
    """A RESP3 value whose kind matters: (kind, value) with kind one of `%~,#_(=>|`."""


def encode(args):
    """One command as an array of bulk strings; `args` are bytes, str or int."""
    out = [b"*%d\r\n" % len(args)]
    for arg in args:
        if isinstance(arg, str):
            arg = arg.encode()
        elif isinstance(arg, int):
            arg = b"%d" % arg
        out.append(b"$%d\r\n%b\r\n" % (len(arg), arg))
    return b"".join(out)


def frame_end(buf, at):
    """Index after the frame that begins at `at`, or -1 if it isn't whole yet."""
    pending = 1
    while pending:
        line_end = buf.find(b"\r\n", at)
        if line_end < 0:
            return -1
        kind = bytes(buf[at : at + 1])
        pending -= 1
        if kind in (b"+", b"-", b":", b"_", b"#", b",", b"("):
            at = line_end + 2
            continue
        if kind not in (b"$", b"=", b"!", b"*", b"~", b">", b"%", b"|"):
            raise ValueError(f"not RESP at {at}: {bytes(buf[at : at + 80])!r}")
        length = int(buf[at + 1 : line_end])
        at = line_end + 2
        if length < 0:
            continue
        if kind in (b"$", b"=", b"!"):
            at += length + 2
            if at > len(buf):
                return -1
        else:
            # An attribute is followed by the value that it describes.
            pending += {b"%": 2 * length, b"|": 2 * length + 1}.get(kind, length)
    return at


def parse(raw):
    """A tree: int, bytes, None, list, Error, Simple, or Typed for types that only RESP3 has."""
    value, end = _parse(raw, 0)
    if end != len(raw):
        raise ValueError(f"trailing bytes after a reply: {raw[end:]!r}")
    return value


def _parse(raw, at):
    line_end = raw.index(b"\r\n", at)
    kind, line = raw[at : at + 1], raw[at + 1 : line_end]
    at = line_end + 2
    if kind == b"+":
        return Simple(line), at
    if kind == b"-":
        return Error(line), at
    if kind == b":":
        return int(line), at
    if kind == b"_":
        return None, at
    if kind in (b"#", b",", b"("):
        return Typed((kind.decode(), line)), at
    length = int(line)
    if length < 0:
        return None, at
    if kind in (b"$", b"=", b"!"):
        body = raw[at : at + length]
        at += length + 2
        return (body if kind == b"$" else Typed((kind.decode(), body))), at
    items = []
    for _ in range(2 * length if kind in (b"%", b"|") else length):
        item, at = _parse(raw, at)
        items.append(item)
    if kind == b"*":
        return items, at
    return Typed((kind.decode(), items)), at


class Wire:
    """One connection. `address` is (host, port) or the path of a Unix socket."""

    def __init__(self, address, timeout=DEFAULT_TIMEOUT_S):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _fill(self):
        try:
            data = self.socket.recv(READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(bytes(self.buffer))
        self.buffer += data

    def reply(self):
        """The bytes of the next whole reply."""
        while True:
            end = frame_end(self.buffer, 0)
            if end >= 0:
                raw = bytes(self.buffer[:end])
                del self.buffer[:end]
                return raw
            self._fill()

    def call(self, *args):
        """Sends one command, returns its reply's bytes."""
        self.send(encode(args))
        return self.reply()

    def ask(self, *args):
        """Sends one command, returns its reply as a tree."""
        return parse(self.call(*args))

    def drain(self, quiet_s, limit_bytes=1 << 24):
        """All bytes until the server closes or is silent for `quiet_s`; (bytes, closed)."""
        self.socket.settimeout(quiet_s)
        closed = False
        try:
            while len(self.buffer) < limit_bytes:
                self._fill()
        except Closed:
            closed = True
        except (TimeoutError, socket.timeout):
            pass
        raw = bytes(self.buffer)
        self.buffer.clear()
        return raw, closed
