"""A durable key-value store inside your process (`Db`), and a client of a server (`Client`).

Keys and values are bytes. Keys have no order, all data must fit memory, one process has a database
open at a time, and it runs on Linux on x86-64. The child of a fork must not use the databases,
readers and clients that its parent has opened: calls raise an Error. Any thread may call anything.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer, Self

_T = TypeVar("_T")
_Path: TypeAlias = str | os.PathLike[str]
# What a client sends: bytes as they are, text as UTF-8, numbers as Python writes them.
_Word: TypeAlias = Buffer | str | int | float

class Error(Exception):
    """What any call on a database or client may raise. Its text says what happened and what to do.
    A fault of Nigh's own is one too."""

class OpenError(Error):
    """A database can't be opened. Nothing of it has changed."""

class InUseError(OpenError):
    """The database is open already, here or in another process."""

class DamagedError(OpenError):
    """The database is damaged."""

class ClosedError(Error):
    """The database or client is closed, or a view is over."""

class TooLargeError(Error):
    """A key (65,535 bytes), a value (512 MiB) or a batch is too long."""

class FullError(Error):
    """Memory is full: the database's own, or the system's."""

class NotANumberError(Error):
    """The value is no decimal integer of 64 bits, or the sum is out of that range."""

class BusyError(Error):
    """The disk doesn't keep up: try again later. Of a client: what a view read isn't on disk."""

class NotDurableError(Error):
    """The change is made and survives this process, but isn't known to be on disk: that takes too
    long, or the log broke and is being written anew. Flush to wait again; don't close before. A
    write that has changed nothing never raises this."""

class LogError(Error):
    """The log can't be written: its disk is full, or it broke. One that broke is written anew from
    memory: write again later, and don't close the database."""

class SnapshotTooOldError(Error):
    """The snapshot held back more memory than it may: take another and read it faster."""

class ChangesGoneError(Error):
    """The log hasn't all changes any more that a watch was to tell: the text has the place from
    which on it has."""

class NotOpenError(Error):
    """No process has the database open that is to be read: a reader reads again when one has."""

class NotAttachedError(Error):
    """There is no server now. Nothing was sent: the call may be repeated."""

class ConnectError(Error):
    """The server can't be used so: a wrong password, say, or it is no such server."""

class NotLocalError(ConnectError):
    """There is no local access, and the call or `local="required"` takes it."""

class UnknownOutcomeError(Error):
    """A request was sent, and its reply is lost: it may or may not have happened. Read what is
    there before you repeat it."""

    replies: list[Any]
    """Only of a pipeline: results that came before. Those commands have happened."""

class UnansweredError(Error):
    """A read has no answer: it may be repeated."""

class ResponseError(Error):
    """The server said no."""

    reply: str
    """The error reply itself."""

class WatchError(Error):
    """A key that a pipeline watches has changed, or its connection is over. Nothing was done: watch
    and read again."""

class TooNewError(Error):
    """Too much has changed since the moment of a view. Let it pass in the function of
    `Client.view`, which is called again then. From `Client.view` it means that no attempt was
    whole."""

def open_reader(path: _Path, *, memory_dir: _Path | None = None) -> Reader:
    """Opens, to read, a database that another process has open with `shared=True`, or has left in
    memory. Name its `memory_dir` if it has one."""

@final
class Db:
    """A durable dictionary of bytes.

    A write survives this process when the call returns. It is on disk within about a second, and
    with `strong=True` when the call returns. `strong` here is for calls that don't say it.

    `partitions` (1 to 64, for a new database) are as many locks, journals and logs, so that as many
    threads write at once. A batch is one partition's: keys with the same text in braces lie
    together. Each has a journal of `journal_bytes`, a share of `capacity_bytes` (8 MiB to 64 GiB for
    each), and an equal share of the `snapshot_hold_bytes` that a snapshot may hold back.

    `threads_most` threads may have read and not ended yet.

    With `shared=True` other processes may read along (`open_reader`). Else the memory is this
    process's alone, and a value takes a fourth of `journal_bytes` at most (64 MiB, or less in a small
    tmpfs or on a small disk). The log sets 1.25 times that and about four files aside on its disk,
    of `log_file_bytes` each (64 MiB, or less on a small disk).
    """

    def __new__(
        cls,
        path: _Path,
        *,
        memory_dir: _Path | None = None,
        capacity_bytes: int | None = None,
        journal_bytes: int | None = None,
        log_file_bytes: int | None = None,
        threads_most: int | None = None,
        snapshot_hold_bytes: int | None = None,
        watch_bytes: int | None = None,
        partitions: int | None = None,
        strong: bool = False,
        shared: bool = False,
        keep_memory: bool = False,
    ) -> Self: ...
    @overload
    def get(self, key: Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: Buffer, default: _T) -> bytes | _T: ...
    def multi_get(self, keys: Iterable[Buffer]) -> list[bytes | None]:
        """Those of a partition all of one moment: a batch is seen whole or not at all."""

    def ttl(self, key: Buffer) -> float | None:
        """Seconds for which the key stays: infinity if it has no expiry, None if it isn't there."""

    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        strong: bool | None = None,
        expires_in: float | None = None,
        expires_at: float | None = None,
    ) -> None:
        """Gives a key a value. It is gone `expires_in` seconds from now, or at the Unix time
        `expires_at`; else, or if that is infinity, it stays."""

    def delete(self, key: Buffer, *, strong: bool | None = None) -> bool:
        """Whether it was there."""

    def batch(self, *, strong: bool | None = None) -> Batch: ...
    def incr(self, key: Buffer, by: int = 1, *, strong: bool | None = None) -> int: ...
    def compare_and_set(
        self,
        key: Buffer,
        expected: Buffer | None,
        desired: Buffer | None,
        *,
        strong: bool | None = None,
        expires_in: float | None = None,
        expires_at: float | None = None,
    ) -> bool:
        """If the key has the value `expected` (None: isn't there), gives it `desired` (None: deletes
        it; an expiry is ignored then). Whether it did."""

    def expire(
        self,
        key: Buffer,
        *,
        expires_in: float | None = None,
        expires_at: float | None = None,
        strong: bool | None = None,
    ) -> bool:
        """Gives a key another expiry, or none. Whether it is there."""

    def scan(
        self, prefix: Buffer | None = None, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """A step of a walk: the next cursor, 0 at the end, and about `count` keys and values (0
        is taken as 1)."""

    def items(self, prefix: Buffer | None = None) -> Walk[tuple[bytes, bytes]]:
        """In no order. A key that is there all the while is met, maybe twice if the number of keys
        changes much."""

    def keys(self, prefix: Buffer | None = None) -> Walk[bytes]: ...
    def values(self, prefix: Buffer | None = None) -> Walk[bytes]: ...
    def snapshot(self, prefix: Buffer | None = None) -> Snapshot:
        """The keys that begin with `prefix`, and their values, as they are now, to be read while
        others write. Writers wait for some milliseconds per million keys while it is taken. All keys
        are looked at for a prefix, and other threads run meanwhile."""

    def watch(self, prefix: Buffer | None = None, *, place: str | None = None) -> Watch:
        """Tells the changes of keys that begin with `prefix`, from now on; or from a `place` on that a
        watch or a snapshot gave, which waits for the disk: first what was behind it, as the log has
        it, one partition's after the other's, then what comes. It raises ChangesGoneError if the log
        hasn't all of it any more, and ValueError if it isn't a place of this database, or is behind
        its last change. A batch's changes come one after the other."""

    def flush(self) -> None:
        """Waits until all changes are on disk that were made before."""

    def stats(self) -> Stats: ...
    def close(self) -> None:
        """Waits for the calls of other threads. Closing again does nothing."""

    @property
    def closed(self) -> bool: ...
    def __getitem__(self, key: Buffer) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer) -> None: ...
    def __delitem__(self, key: Buffer) -> None: ...
    def __contains__(self, key: Buffer) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Walk[bytes]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Batch:
    """Writes that happen together when the `with` block ends well: all of them or none. Behind the
    block the batch is empty, also if the write failed."""

    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        expires_in: float | None = None,
        expires_at: float | None = None,
    ) -> None: ...
    def delete(self, key: Buffer) -> None: ...
    def clear(self) -> None: ...
    def write(self) -> None:
        """Does all of them now, or nothing. Then the batch is empty, also if it failed."""

    def __setitem__(self, key: Buffer, value: Buffer) -> None: ...
    def __delitem__(self, key: Buffer) -> None: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Walk(Iterator[_T], Generic[_T]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...

@final
class Snapshot(Iterator[tuple[bytes, bytes]]):
    """Keys and values of one moment, to be read once. The memory that it holds back is bounded
    (`snapshot_hold_bytes`): one that is read too slowly ends with SnapshotTooOldError. As long as
    the program has it, a database that nobody closes stays open."""

    @property
    def place(self) -> str:
        """The place of its moment: `db.watch(place=...)` tells what came later, and nothing that the
        snapshot has."""

    def close(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[bytes, bytes]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Event:
    """A change, with its number; each partition numbers its own, from 1 on. `lost` stands for changes
    from `first` to `change` that nobody took in time: a watch from the place before this event tells
    what the log has of them, or read the keys again. `expires` is another expiry, or none, of a key
    with a long value."""

    @property
    def kind(self) -> Literal["put", "expires", "removed", "cleared", "lost"]: ...
    @property
    def partition(self) -> int: ...
    @property
    def change(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def expires_at(self) -> float | None:
        """The Unix time at which the key is gone, if it has an expiry."""

    @property
    def first(self) -> int | None: ...

@final
class Watch(Iterator[Event]):
    """Changes under a prefix, each once, and in each partition in the order of their numbers. As an
    iterator it waits for each, and ends when it or the database is closed. Several threads may take
    from one. As long as the program has it, a database that nobody closes stays open."""

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None if none is found within `timeout` seconds. While the watch reads the
        log for what was before it began, more may follow a None."""

    @property
    def place(self) -> str:
        """Where it is: behind the events that were taken. Keep it with what you made of them:
        `db.watch(prefix, place=...)` tells what this watch hasn't told, also in another process,
        behind a restart or a kill. It may be ahead of the disk, as the events may: after `flush` it
        isn't. A closed watch has the place at which it was closed."""

    def close(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Reader:
    """A database that another process has open: it writes, this one reads, and neither waits. While
    nobody has it open, calls raise NotOpenError, and succeed again later."""

    @overload
    def get(self, key: Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: Buffer, default: _T) -> bytes | _T: ...
    def multi_get(self, keys: Iterable[Buffer]) -> list[bytes | None]:
        """Those of a partition all of one moment: a batch is seen whole or not at all."""

    def scan(
        self, prefix: Buffer | None = None, cursor: int = 0, count: int = 100
    ) -> tuple[int, list[tuple[bytes, bytes]]]: ...
    def items(self, prefix: Buffer | None = None) -> Walk[tuple[bytes, bytes]]: ...
    def ttl(self, key: Buffer) -> float | None:
        """Seconds for which the key stays: infinity if it has no expiry, None if it isn't there."""

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the database can be read, `timeout` seconds at most; then it raises why it
        can't be. Without a timeout it waits as long as that may pass."""

    def close(self) -> None: ...
    def __getitem__(self, key: Buffer) -> bytes: ...
    def __contains__(self, key: Buffer) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Stats:
    """What a database holds, and what it did since it was opened."""

    @property
    def keys(self) -> int: ...
    @property
    def expires(self) -> int: ...
    @property
    def expired_keys(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def last_change(self) -> int: ...
    @property
    def durable_change(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def syncs(self) -> int: ...

@final
class Client:
    """A client of a server, whose calls are those of redis-py; values are bytes.

    On the server's host, over its Unix socket, `get`, `get_into`, `mget`, `exists` of one key,
    `ttl`, `pttl`, `scan_iter` and `view` read the server's memory, and writes go by a ring in shared
    memory. Else all calls are requests. `is_local` and `why_not_local` say which.

    `address` is "unix:/path", "host:port" or "redis://user:password@host:port". `timeout` is the
    longest wait for a reply, in seconds; None has no limit. `wait`: how long a call waits for a
    server that is away. `local`: "required" makes it an error not to be local. `spin`: how long a
    call looks for its reply before it sleeps, a second at most. `reads_unsynced`: with `appendfsync
    always`, read also what isn't on disk yet. `name` is for CLIENT LIST.

    Calls of several threads come one after the other; each thread may have a client of its own.
    Ctrl-C ends a call that waits for a server or a reply: its KeyboardInterrupt is raised. What was
    sent before may have happened.
    """

    def __new__(
        cls,
        address: str,
        *,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = 10.0,
        wait: float = 0.0,
        local: Literal["auto", "required", "never"] = "auto",
        spin: float | None = None,
        reads_unsynced: bool = False,
        name: str | None = None,
    ) -> Self: ...
    def get(self, name: _Word) -> bytes | None: ...
    def mget(self, keys: _Word | Iterable[_Word], *args: _Word) -> list[bytes | None]:
        """Those of a partition are of one moment."""

    def set(
        self,
        name: _Word,
        value: _Word,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
    ) -> bool | bytes | None:
        """True; None if `nx` or `xx` kept it from being set; with `get` the old value."""

    def mset(self, mapping: Mapping[Any, _Word]) -> bool: ...
    def setnx(self, name: _Word, value: _Word) -> bool: ...
    def getex(
        self,
        name: _Word,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        persist: bool = False,
    ) -> bytes | None: ...
    def getdel(self, name: _Word) -> bytes | None: ...
    def append(self, key: _Word, value: _Word) -> int: ...
    def strlen(self, name: _Word) -> int: ...
    def getrange(self, key: _Word, start: int, end: int) -> bytes:
        """`end` belongs to it."""

    def setrange(self, name: _Word, offset: int, value: _Word) -> int: ...
    def incr(self, name: _Word, amount: int = 1) -> int: ...
    def incrby(self, name: _Word, amount: int = 1) -> int: ...
    def decr(self, name: _Word, amount: int = 1) -> int: ...
    def decrby(self, name: _Word, amount: int = 1) -> int: ...
    def incrbyfloat(self, name: _Word, amount: _Word) -> float: ...
    def delete(self, *names: _Word) -> int: ...
    def unlink(self, *names: _Word) -> int: ...
    def exists(self, *names: _Word) -> int: ...
    def rename(self, src: _Word, dst: _Word) -> bool: ...
    def expire(
        self,
        name: _Word,
        time: int | timedelta,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool: ...
    def pexpire(
        self,
        name: _Word,
        time: int | timedelta,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool: ...
    def expireat(
        self,
        name: _Word,
        when: int | datetime,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool: ...
    def persist(self, name: _Word) -> bool: ...
    def ttl(self, name: _Word) -> int:
        """-1 without an expiry, -2 without the key."""

    def pttl(self, name: _Word) -> int: ...
    def dbsize(self) -> int: ...
    def flushall(self) -> bool: ...
    def ping(self) -> bool: ...
    def fcall(self, function: _Word, numkeys: int, *keys_and_args: _Word) -> Any: ...
    def fcall_ro(self, function: _Word, numkeys: int, *keys_and_args: _Word) -> Any:
        """A function that writes nothing: it is called again if the reply is lost."""

    def execute_command(self, *args: _Word) -> Any:
        """Any command, as `"CONFIG GET", "maxmemory"`. What would change the connection, which all
        calls share, is a ValueError."""

    def get_into(self, name: _Word, buffer: Buffer) -> int | None:
        """Copies the value to the begin of a writable buffer. Its length; None without the key. A
        buffer that is too small is a ValueError, and stays as it is."""

    def view(self, read: Callable[[View], _T]) -> _T:
        """Calls `read` with a view, and gives its result. The keys that it reads are of one moment
        (in each partition), also if it decides by one value what to read next. When too much has
        changed meanwhile, it is called again. It takes local access."""

    def scan_iter(self, match: _Word | None = None, count: int | None = None) -> Walk[bytes]:
        """Keys that match a pattern, or all: each that is there all the while comes at least
        once."""

    def pipeline(self, transaction: bool = True) -> Pipeline:
        """Gathers commands that are sent together; as a transaction nothing comes between them. It
        can watch keys, by a connection of its own: any number of threads may do so at once."""

    def close(self) -> None:
        """Waits for the calls of other threads. Closing again does nothing."""

    @property
    def is_local(self) -> bool: ...
    @property
    def why_not_local(self) -> str | None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Pipeline:
    """Commands of a client that are sent together. Each returns the pipeline.

    Behind `watch`, and until `multi`, they are sent at once instead, and return their results as
    those of a client do. A type checker doesn't know that: the client's own calls read the same."""

    def get(self, name: _Word) -> Self: ...
    def mget(self, keys: _Word | Iterable[_Word], *args: _Word) -> Self: ...
    def set(
        self,
        name: _Word,
        value: _Word,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
    ) -> Self: ...
    def mset(self, mapping: Mapping[Any, _Word]) -> Self: ...
    def setnx(self, name: _Word, value: _Word) -> Self: ...
    def getex(
        self,
        name: _Word,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        persist: bool = False,
    ) -> Self: ...
    def getdel(self, name: _Word) -> Self: ...
    def append(self, key: _Word, value: _Word) -> Self: ...
    def strlen(self, name: _Word) -> Self: ...
    def getrange(self, key: _Word, start: int, end: int) -> Self: ...
    def setrange(self, name: _Word, offset: int, value: _Word) -> Self: ...
    def incr(self, name: _Word, amount: int = 1) -> Self: ...
    def incrby(self, name: _Word, amount: int = 1) -> Self: ...
    def decr(self, name: _Word, amount: int = 1) -> Self: ...
    def decrby(self, name: _Word, amount: int = 1) -> Self: ...
    def incrbyfloat(self, name: _Word, amount: _Word) -> Self: ...
    def delete(self, *names: _Word) -> Self: ...
    def unlink(self, *names: _Word) -> Self: ...
    def exists(self, *names: _Word) -> Self: ...
    def rename(self, src: _Word, dst: _Word) -> Self: ...
    def expire(
        self,
        name: _Word,
        time: int | timedelta,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Self: ...
    def pexpire(
        self,
        name: _Word,
        time: int | timedelta,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Self: ...
    def expireat(
        self,
        name: _Word,
        when: int | datetime,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Self: ...
    def persist(self, name: _Word) -> Self: ...
    def ttl(self, name: _Word) -> Self: ...
    def pttl(self, name: _Word) -> Self: ...
    def dbsize(self) -> Self: ...
    def flushall(self) -> Self: ...
    def ping(self) -> Self: ...
    def fcall(self, function: _Word, numkeys: int, *keys_and_args: _Word) -> Self: ...
    def fcall_ro(self, function: _Word, numkeys: int, *keys_and_args: _Word) -> Self: ...
    def execute_command(self, *args: _Word) -> Self: ...
    def watch(self, *names: _Word) -> bool:
        """Watches keys: `execute` does nothing if one of them has changed since."""

    def unwatch(self) -> bool: ...
    def multi(self) -> None:
        """Gathers commands again, behind `watch`."""

    @property
    def watching(self) -> bool: ...
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Sends the commands and forgets them; if there is no server they stay. An error reply is
        raised, or stands in the list: other commands may have happened all the same. A WatchError
        says that a watched key has changed, and that nothing was done."""

    def reset(self) -> None:
        """Forgets the commands, and watches no more."""

    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class View:
    """Keys of one moment, for the function that `Client.view` calls."""

    def get(self, name: _Word) -> bytes | None: ...
    def exists(self, name: _Word) -> bool: ...
