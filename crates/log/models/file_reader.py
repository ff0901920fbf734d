"""Log files of the model files.py: their frames, what memory makes of changes, and the reader."""

from typing import NamedTuple

ROOM = 2


class Frame(NamedTuple):
    number: int
    salt: int
    pos: int
    before: object    # identity of the frame before
    mark: tuple       # watermark: file number, position
    oldest: int
    kind: str         # "begin" or "changes"
    lsn: int          # last LSN that the log has with this frame
    pred: tuple       # BEGIN: file number and end of the file before
    changes: tuple


IDS = {}


def identity(frame):
    return IDS.setdefault(frame, len(IDS) + 1)


class File(NamedTuple):
    name: int         # number in its durable name
    renamed: int      # number in the name that is not durable yet, or 0
    head: int         # number in its head
    salt: int
    disk: tuple       # durable frame at each position, or None
    cache: tuple      # unsynced (position, frame)


class S(NamedTuple):
    op: int
    kills: int
    cuts: int
    flips: int
    epoch: int
    hist: tuple        # changes of this history: (lsn, change, value)
    ring: tuple        # journaled and not written: (lsn, change, value, again)
    files: tuple
    file: int          # number being written
    pos: int
    before: object
    written: int       # last LSN written
    durable: int
    mark: tuple
    oldest: int
    told_oldest: int   # the oldest that a durable frame tells
    begun: bool        # BEGIN written, not synced
    compact: tuple     # () or (stage, victim, ...)
    numbers: tuple = ()  # of standing keys: (key, file that they may stand on)
    judged: int = 0      # the last victim that was wholly judged
    syncing: tuple = ()  # under way: end of what it moves; what its end counts: end, LSN, oldest


def key_of(change):
    return change[-1]


def apply(keys, lsn, change, value):
    """Keys after a change in memory: key -> (lsn, value)."""
    kind = change[0]
    if kind == "put":
        keys[change[1]] = (lsn, (value,))
    elif kind == "ext" and change[1] in keys:
        keys[change[1]] = (lsn, keys[change[1]][1] + (value,))
    elif kind == "ren" and change[1] in keys:
        keys[change[2]] = (lsn, keys.pop(change[1])[1])
    elif kind == "del":
        keys.pop(change[1], None)
    elif kind == "clear":
        keys.clear()
    return keys


def memory(hist):
    keys = {}
    for lsn, change, value in hist:
        apply(keys, lsn, change, value)
    return keys


def plain(keys):
    return tuple(sorted((key, lsn, value) for key, (lsn, value) in keys.items()))


def renumbered(numbers, change, number):
    """Standing keys after a change; `number` is of one that stands on a whole version."""
    numbers = dict(numbers)
    if change[0] == "clear":
        return ()
    before = numbers.pop(change[1], number)
    if change[0] in ("ext", "ren"):
        numbers[key_of(change)] = before
    return tuple(sorted(numbers.items()))


def adopted(hist):
    """Standing keys at a start: any file may have what they stand on."""
    numbers = ()
    for _, change, _ in hist:
        numbers = renumbered(numbers, change, 0)
    return numbers


def content(file):
    cells = list(file.disk)
    for pos, frame in file.cache:
        cells[pos] = frame
    return cells


class Damage(Exception):
    """The reader refuses the log."""


class Reader:
    """The algorithm of log.md over files as they are found."""

    def __init__(self, files, wrong):
        self.wrong = wrong
        self.files = {}
        for file in files:
            self.files.setdefault(file.name, file)
        self.read()

    def at(self, number, pos):
        file = self.files[number]
        if pos > ROOM:
            return None
        frame = file.disk[pos]
        if frame is None or frame.pos != pos:
            return None
        if self.wrong("salt"):
            return frame
        return frame if (frame.number, frame.salt) == (number, file.salt) else None

    def begin(self, number):
        frame = self.at(number, 0)
        return frame if frame is not None and frame.kind == "begin" else None

    def read(self):
        named = [n for n, file in sorted(self.files.items()) if file.head == n]
        newest = next((n for n in reversed(named) if self.begin(n)), None)
        for n in named:
            if (newest is None or n > newest) and self.at(n, 1) is not None:
                raise Damage(f"BEGIN of file {n}")
        self.newest, self.end, self.last, self.lsn, self.oldest = newest or 0, 1, None, 0, 1
        self.changes, self.durable_to = [], (0, 0)
        if newest is None:
            return
        chain, number, end = [], newest, None
        frames, self.end = self.frames(newest, None)
        self.oldest = frames[-1].oldest
        self.last, self.lsn = identity(frames[-1]), frames[-1].lsn
        chain.append(frames)
        while True:
            begin = chain[-1][0]
            number, end = begin.pred
            if number < self.oldest or number == 0:
                break
            if number not in named:
                lower = [n for n in named if n < number and self.begin(n)]
                if not self.wrong("tombstone-early") or not lower:
                    raise Damage(f"file {number} is missing")
                number = lower[-1]
                chain.append(self.frames(number, None)[0])
                continue
            if not self.begin(number):
                raise Damage(f"BEGIN of file {number}")
            frames, _ = self.frames(number, None if self.wrong("no-chain") else end)
            if identity(frames[-1]) != begin.before and not self.wrong("no-chain"):
                raise Damage(f"end of file {number}")
            chain.append(frames)
        for frames in reversed(chain):
            for frame in frames:
                self.changes.extend((frame.number, c) for c in frame.changes)
        if self.wrong("no-counter"):
            self.lsn = max([c[0] for _, c in self.changes], default=0)

    def frames(self, number, end):
        frames = [self.begin(number)]
        while end is None or len(frames) < end:
            pos = len(frames)
            frame = self.at(number, pos)
            if frame is None or (frame.before != identity(frames[-1])):
                if end is not None:
                    raise Damage(f"file {number}, frame {pos}")
                self.judge(number, pos, frames)
                break
            frames.append(frame)
        return frames, len(frames)

    def judge(self, number, pos, frames):
        """Torn tail, or damage below a watermark that some valid frame tells."""
        if self.wrong("tail-only"):
            return
        marks = [frame.mark for frame in frames]
        if not self.wrong("scan-less"):
            later = [self.at(number, p) for p in range(pos, ROOM + 1)]
            marks += [frame.mark for frame in later if frame is not None]
        if max(marks) > (number, pos):
            raise Damage(f"file {number}, frame {pos} is below the watermark {max(marks)}")

    def replay(self, end=None):
        """Keys after a plain replay; a dangling key is damage unless a later change heals it."""
        keys, dangling = {}, set()
        for _, (lsn, change, value, again) in self.changes[:end]:
            kind = change[0]
            if again:
                key = key_of(change)
                if key not in keys or keys[key][0] <= lsn or key in dangling:
                    keys[key] = (lsn, value)
                    dangling.discard(key)
                continue
            if kind == "clear":
                dangling.clear()
            elif kind in ("ext", "ren"):
                base = value[0]
                source, target = change[1], key_of(change)
                if source in dangling or source not in keys or keys[source][0] != base:
                    if kind == "ren":
                        keys.pop(source, None)
                        dangling.discard(source)
                    dangling.add(target)
                    keys.pop(target, None)
                    continue
                dangling.discard(target)
            else:
                dangling.discard(key_of(change))
            apply(keys, lsn, change, value[1])
        if dangling and end is None:
            raise Damage(f"changes of {sorted(dangling)} stand on nothing")
        return keys


def reading(files, wrong, cache):
    """What a reader makes of files, or the damage that it refuses."""
    if files not in cache:
        try:
            reader = Reader(files, wrong)
            cache[files] = (reader, reader.replay())
        except Damage as damage:
            cache[files] = (None, str(damage))
    return cache[files]
