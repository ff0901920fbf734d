"""Clients that write at full speed, and know afterwards what must be there.

Each client has keys of its own. What they hold after its first n commands follows from n alone
(`state`). So after a fault, what a server has must be the state after some n: no fewer commands than
were answered (or were promised, in a mode that promises less), no more than were sent. That shows
whole commands and their order, not single keys.

Standard library only. A thread for each client.
"""

import socket
import threading
import time

BATCH = 40  # commands in flight of a client
LIVE = 20  # keys that a client has not deleted yet, about
LOG_COMMANDS = 1000  # after so many, what APPEND has made is begun anew
LONG = 97  # each so many-th value is long
LONG_BYTES = 70_000  # in a run of its own
REPLY_LIMIT_S = 20
REFUSED_S = 0.02  # before a command is sent again


def encode(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


def value(number):
    """The value that command `number` writes."""
    text = b"%d:" % number
    return text * (LONG_BYTES // len(text)) if number // 4 % LONG == 0 else text * 3


def command(client, number):
    """Command `number` of a client, from 0 on."""
    tag = f"{{c{client}}}"
    match number % 4:
        case 0:
            return encode("MSET", f"{tag}a", number, f"{tag}b", number)
        case 1:
            return encode("SET", f"{tag}k{number}", value(number))
        case 2 if number % LOG_COMMANDS == 2:
            return encode("SET", f"{tag}log", f"{number};")
        case 2:
            return encode("APPEND", f"{tag}log", f"{number};")
        case _:
            return encode("DEL", f"{tag}k{number - 2 - 4 * LIVE}")


def state(client, count):
    """What a client's keys hold after its first `count` commands."""
    tag = f"{{c{client}}}"
    keys = {}
    if count > 0:
        last = (count - 1) // 4 * 4
        keys[f"{tag}a"] = keys[f"{tag}b"] = b"%d" % last
    if count > 2:
        last = (count - 3) // 4 * 4 + 2
        log = range(last // LOG_COMMANDS * LOG_COMMANDS + 2, last + 1, 4)
        keys[f"{tag}log"] = b"".join(b"%d;" % number for number in log)
    deleted = (count - 4) // 4 * 4 + 3 - 2 - 4 * LIVE if count > 3 else 0
    for number in range(deleted + 4 if deleted > 0 else 1, count, 4):
        keys[f"{tag}k{number}"] = value(number)
    return keys


class Connection:
    """A plain client: sends bytes, reads replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_LIMIT_S)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("hung up")
        kind, rest = line[:1], line[1:-2]
        if kind in b"+:":
            return rest
        if kind == b"-":
            return RuntimeError(rest.decode())
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise ConnectionError(f"not a reply: {line!r}")

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return self.reply()

    def close(self):
        self.socket.close()


class Client(threading.Thread):
    """Writes from command `first` on, `batch` at a time, until it is hung up on or `ends` is set.

    With a batch of one it sends a command that was refused again: a refusal changes nothing. With
    more, it ends: what stands behind a refused command may have run.
    """

    def __init__(self, number, port, first, batch=BATCH):
        super().__init__(daemon=True)
        self.number, self.port, self.batch = number, port, batch
        self.sent = self.answered = first
        self.times = []  # (first command, when sent, when answered) of each batch
        self.refusals = []
        self.ends = threading.Event()

    def run(self):
        try:
            connection = Connection(self.port)
            while not self.ends.is_set() and (self.batch == 1 or not self.refusals):
                self.write(connection)
        except OSError:
            pass

    def write(self, connection):
        first = self.sent
        batch = b"".join(command(self.number, first + n) for n in range(self.batch))
        began = time.monotonic()
        self.sent += self.batch
        connection.socket.sendall(batch)
        for _ in range(self.batch):
            reply = connection.reply()
            if isinstance(reply, RuntimeError):
                self.refusals.append(str(reply))
                if self.batch == 1:
                    self.sent -= 1
                    time.sleep(REFUSED_S)
            elif not self.refusals or self.batch == 1:
                self.answered += 1
        self.times.append((first, began, time.monotonic()))

    def answered_at(self, number):
        """When command `number` was answered at the latest; None if it wasn't, or not wholly."""
        for first, _, ended in self.times:
            if first <= number < first + BATCH:
                return ended
        return None

    def sent_at(self, number):
        return next((sent for first, sent, _ in self.times if first <= number < first + BATCH), None)


class Lost(AssertionError):
    """What a server has is no state that it may have."""


def recovered(port, client, least):
    """How many commands of a client the server has; at least `least`, and in a whole state."""
    connection = Connection(port)
    tag = f"{{c{client.number}}}"
    found, cursor = {}, b"0"
    while True:
        cursor, keys = connection.call("SCAN", cursor, "MATCH", f"{tag}*", "COUNT", 10000)
        found |= {key.decode(): connection.call("GET", key) for key in keys}
        if cursor == b"0":
            break
    connection.close()
    last = int(found.get(f"{tag}a", b"-1"))
    counts = range(last + 1, last + 5) if last >= 0 else range(1)
    # The first DELs find nothing, so two states may be one: the later.
    right = [n for n in counts if n <= client.sent and state(client.number, n) == found]
    count = max(right, default=None)
    if count is None:
        raise Lost(f"client {client.number}: no state: {differences(client, counts, found)}")
    if not least <= count <= client.sent:
        raise Lost(
            f"client {client.number}: {count} commands are there; {least} must be, "
            f"{client.answered} were answered, {client.sent} sent"
        )
    return count


def differences(client, counts, found):
    def short(data):
        return None if data is None else (len(data), data[:20], data[-20:])

    texts = []
    for count in counts:
        wanted = state(client.number, count)
        keys = sorted(key for key in wanted | found if wanted.get(key) != found.get(key))
        first = [(key, short(wanted.get(key)), short(found.get(key))) for key in keys[:3]]
        texts.append(f"{len(keys)} keys differ from that after {count}: {first}")
    return "; ".join(texts)


def check_prefix(clients, counts):
    """In one log, nothing is there that was sent after something that is lost was answered."""
    lost = [client.answered_at(count) for client, count in zip(clients, counts)]
    lost = min((at for at in lost if at is not None), default=None)
    if lost is None:
        return
    for client, count in zip(clients, counts):
        sent = client.sent_at(count - 1)
        if sent is not None and sent > lost:
            raise Lost(
                f"client {client.number} has command {count - 1}, sent {sent - lost:.3f} s after "
                "another client's was answered that is lost"
            )
