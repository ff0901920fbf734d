"""A durable key-value store inside your process.

Keys and values are bytes. Keys have no order, all data must fit memory, one process has a database
open at a time, and it runs on Linux on x86-64. The child of a fork must not use the databases that
its parent has opened. Any thread may call anything.
"""

import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, Literal, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer, Self

_T = TypeVar("_T")
_Path: TypeAlias = str | os.PathLike[str]

class Error(Exception):
    """What any call on a database may raise. Its text says what happened and what to do."""

class OpenError(Error):
    """A database can't be opened. Nothing of it has changed."""

class InUseError(OpenError):
    """The database is open already, here or in another process."""

class DamagedError(OpenError):
    """The database is damaged."""

class ClosedError(Error):
    """The database is closed."""

class TooLargeError(Error):
    """A key (65,535 bytes), a value (512 MiB) or a batch is too long."""

class FullError(Error):
    """Memory is full: the database's own, or the system's."""

class NotANumberError(Error):
    """The value is no decimal integer of 64 bits, or the sum is out of that range."""

class BusyError(Error):
    """The disk doesn't keep up: try again later."""

class NotDurableError(Error):
    """The change is made and survives this process, but the disk hasn't taken it."""

class LogError(Error):
    """The log can't be written: its disk is full, or it broke."""

class SnapshotTooOldError(Error):
    """The snapshot held back more memory than it may: take another and read it faster."""

class ChangesGoneError(Error):
    """The log hasn't the changes any more from which on a watch was to tell: the text says which
    ones are left."""

class NotOpenError(Error):
    """No process has the database open that is to be read: a reader reads again when one has."""

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
    together.

    With `shared=True` other processes may read along (`open_reader`). Else the memory is this
    process's alone, and a value takes a fourth of `journal_bytes` (64 MiB) at most.
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
        """All of one moment: a batch is seen whole or not at all."""

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
        `expires_at`; else it stays."""

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
        it). Whether it did."""

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
        """A step of a walk: the next cursor, 0 at the end, and about `count` keys and values."""

    def items(self, prefix: Buffer | None = None) -> Walk[tuple[bytes, bytes]]:
        """In no order. A key that is there all the while is met, maybe twice if the number of keys
        changes much."""

    def keys(self, prefix: Buffer | None = None) -> Walk[bytes]: ...
    def values(self, prefix: Buffer | None = None) -> Walk[bytes]: ...
    def snapshot(self, prefix: Buffer | None = None) -> Snapshot:
        """The keys that begin with `prefix`, and their values, as they are now, to be read while
        others write. Writers wait for some milliseconds per million keys while it is taken."""

    def watch(self, prefix: Buffer | None = None, *, first: int | None = None) -> Watch:
        """Tells the changes of keys that begin with `prefix`, from now on; or from the change with
        the number `first` on, which waits for the disk: first what was, as the log has it, then what
        comes. It raises ChangesGoneError if the log hasn't all of it any more. Only where there is
        one partition: each numbers its own changes."""

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
    """Writes that happen together when the `with` block ends well: all of them or none."""

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
        """Does all of them now; then the batch is empty."""

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
    (`snapshot_hold_bytes`): one that is read too slowly ends with SnapshotTooOldError."""

    @property
    def last_change(self) -> int: ...
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
    """A change, with its number. `lost` stands for changes from `first` to `change` that nobody
    took in time: read the keys again if you need them. `expires` is another expiry, or none, of a
    key with a long value."""

    @property
    def kind(self) -> Literal["put", "expires", "removed", "cleared", "lost"]: ...
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
    """Changes under a prefix, each once and in order. As an iterator it waits for each, and ends
    when it or the database is closed. Several threads may take from one."""

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within `timeout` seconds."""

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
        """All of one moment: a batch is seen whole or not at all."""

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
