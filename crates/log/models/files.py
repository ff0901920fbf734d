"""Log files: write, sync, change of file, compaction and recycling, with kills and power cuts.

One partition; a change is journaled, published and committed at once (journal.py has those steps).
Files have room for a BEGIN frame and ROOM frames. Each frame is one sector: a power cut keeps or
loses each unsynced one by itself; a lost one shows what lay there before. Renames of recycled files
are kept or lost by themselves too. A sync begins and ends, and frames are written meanwhile; it
covers those before its begin. Checksums are ideal: a frame is valid where its number, salt and
position are right, and the chain is compared by the frame before.

Keys a and b. Changes: ("put", key), ("ext", key): stands on the key's version; ("ren", from, to);
("del", key); ("clear",). The value of a change is its LSN and how often power was cut before, so
that no two changes of different histories look alike; an "ext" adds that to the value.

Keys whose newest change stands on another have a number, by the rules of log.md; the pass over them
takes turns, and changes come between.
"""

from itertools import product

from explore import explore, need
from file_reader import (
    File, Frame, ROOM, S, adopted, content, identity, key_of, memory, plain, reading, renumbered,
)

FILES_MAX = 4       # files ever begun
MISTAKES = {
    "salt": "checksums cover neither file number nor salt: leftovers of a recycled file are valid",
    "same-file": "a start goes on in the last file, behind the cut",
    "pred-unsynced": "a file begins before the one before it is synced",
    "begin-unsynced": "frames follow a BEGIN frame that isn't synced",
    "no-chain": "a reader doesn't compare where and by which frame the file before ends",
    "watermark-early": "a frame's watermark counts what is written but not synced",
    "durable-at-begin": "LSNs count as durable when the sync begins",
    "covers-later": "a sync counts frames that were written behind its begin",
    "second-sync": "a sync begins before the one before it ends, whose end counts as its own",
    "release-under-sync": "a file goes at the end of a sync that began before its last look",
    "told-under-sync": "`oldest` of a frame counts that was written behind the sync's begin",
    "oldest-early": "a file no longer counts before what was appended again is synced",
    "recycle-early": "a file is recycled before the frame that says so is synced",
    "tombstone-early": "compaction takes the second oldest file and drops its tombstones too",
    "stale-liveness": "liveness is judged, then other changes enter the queue before it",
    "newer-unsynced": "a file goes while the newer versions of its dead records aren't synced",
    "no-again": "compaction drops live records",
    "standing": "compaction doesn't see to keys that stand on changes of the file",
    "numbers-new": "a standing key's number is of the file at which it was changed",
    "pass-once": "the pass over standing keys meets each key once, while they are renamed",
    "replay-named": "a replay that was killed is adopted if it has the log's last LSN",
    "standing-other": "it sees to keys whose own changes it meets, but not to renamed ones",
    "rename-unsynced": "a recycled file is used before its new name is durable",
    "tail-only": "a reader takes every bad frame for the torn tail",
    "no-counter": "BEGIN doesn't say the last LSN, so a number of a removed file is given again",
    "scan-less": "a reader doesn't look behind the bad frame for a later watermark",
}


def sync_begins(s, wrong):
    """A sync of the file being written, of all frames that it has now."""
    told = content(current(s))[s.pos - 1].oldest
    moved = s.syncing[0] if s.syncing else s.pos
    s = s._replace(syncing=(moved, s.pos, s.written, told))
    return s._replace(durable=s.written) if wrong("durable-at-begin") else s


def sync_ends(s, wrong):
    """What it covers is on disk, and counts."""
    moved, end, lsn, told = s.syncing
    if wrong("covers-later"):
        end, lsn = s.pos, s.written
    if wrong("told-under-sync"):
        told = content(current(s))[s.pos - 1].oldest
    files = tuple(moved_to_disk(file, moved) if file.head == s.file else file for file in s.files)
    s = s._replace(files=files, durable=lsn, mark=(s.file, end), told_oldest=told, begun=False,
                   syncing=())
    if wrong("release-under-sync") and s.compact and s.compact[0] == "wait":
        return s._replace(compact=(), oldest=s.compact[1] + 1)
    return s


def moved_to_disk(file, end):
    disk = list(file.disk)
    for pos, frame in file.cache:
        if pos < end:
            disk[pos] = frame
    return file._replace(disk=tuple(disk), cache=tuple(c for c in file.cache if c[0] >= end))


def put_frame(s, frame):
    files = tuple(
        file._replace(cache=file.cache + ((frame.pos, frame),)) if file.head == s.file else file
        for file in s.files)
    return s._replace(files=files, pos=frame.pos + 1, before=identity(frame))


def current(s):
    return next(file for file in s.files if file.head == s.file)


def begin_file(s, pred, wrong, oldest=None):
    """Takes a recycled or new file and writes its BEGIN."""
    number = max(max(file.head, file.name, file.renamed) for file in s.files) + 1 if s.files else 1
    if number > FILES_MAX:
        return None
    oldest = s.oldest if oldest is None else oldest
    bound = s.oldest if wrong("recycle-early") else s.told_oldest
    files = list(s.files)
    for i, file in enumerate(files):
        if file.head < bound and file.head and not file.cache and not file.renamed:
            if wrong("rename-unsynced"):
                files[i] = file._replace(head=number, salt=number, renamed=number)
            else:
                files[i] = file._replace(head=number, salt=number, name=number)
            break
    else:
        if len(files) == 4:
            return None
        files.append(File(number, 0, number, number, (None,) * (ROOM + 1), ()))
    s = s._replace(files=tuple(files), file=number, pos=0)
    lsn = s.written
    frame = Frame(number, number, 0, s.before, pred, oldest, "begin", lsn, pred, ())
    return put_frame(s, frame)._replace(begun=True, oldest=oldest, syncing=())


def model(script, mistakes):
    wrong = mistakes.__contains__
    cache, judged = {}, set()
    numbered = any(what[0] in ("ext", "ren") for what in script)

    def change(s):
        if s.op == len(script) or len([r for r in s.ring if not r[3]]) > 1:
            return
        what = script[s.op]
        keys = memory(s.hist)
        if what[0] in ("ext", "ren", "del") and what[1] not in keys:
            yield "skip", s._replace(op=s.op + 1)
            return
        lsn = (s.hist[-1][0] if s.hist else 0) + 1
        value = (lsn, s.epoch)
        base = keys[what[1]][0] if what[0] in ("ext", "ren") else 0
        numbers = renumbered(s.numbers, what, file_of(s, base)) if numbered else ()
        yield what[0], s._replace(op=s.op + 1, hist=s.hist + ((lsn, what, value),),
                                  ring=s.ring + ((lsn, what, (base, value), False),),
                                  numbers=numbers)

    def file_of(s, lsn):
        """The file at which an LSN was fresh, or the lowest that may have it since."""
        if wrong("numbers-new"):
            return s.file
        begun = [f.head for f in s.files for b in content(f)[:1]
                 if b and b.number == f.head and b.lsn < lsn]
        return max([s.judged + 1, s.oldest] + begun)

    def write(s):
        can = s.ring and s.pos <= ROOM and (not s.begun or wrong("begin-unsynced"))
        tells = not s.ring and s.oldest != content(current(s))[s.pos - 1].oldest
        idle = not s.ring and s.mark == (s.file, s.pos) and not tells and s.pos == ROOM and s.flips
        if not can and not ((tells or idle) and s.pos <= ROOM and not s.begun):
            return
        fresh = [r[0] for r in s.ring if not r[3]]
        lsn = max([s.written] + fresh)
        mark = (s.file, s.pos) if wrong("watermark-early") else s.mark
        frame = Frame(s.file, s.file, s.pos, s.before, mark, s.oldest, "changes", lsn, (), s.ring)
        yield "write", put_frame(s, frame)._replace(ring=(), written=lsn)

    def sync(s):
        if current(s).cache and not s.syncing:
            yield "sync-begins", sync_begins(s, wrong)
        if s.syncing:
            yield "sync-ends", sync_ends(s, wrong)
            if wrong("second-sync") and s.syncing[1] < s.pos:
                yield "sync-begins", sync_begins(s, wrong)

    def next_file(s):
        if s.pos > ROOM and (not current(s).cache or wrong("pred-unsynced")):
            after = begin_file(s, (s.file, s.pos), wrong)
            if after:
                yield "next-file", after

    def compact(s):
        heads = sorted(file.head for file in s.files if s.oldest <= file.head < s.file)
        heads = [n for n in heads if any(f.head == n and f.disk[0] for f in s.files)]
        if not s.compact and heads and not s.begun and len(heads) >= 1:
            victim = heads[0]
            if wrong("tombstone-early"):
                if len(heads) < 2:
                    return
                victim = heads[1]
            after = judged_wholly(again(s, live(s, victim)), victim)
            if wrong("stale-liveness"):
                items = after.ring[len(s.ring):]
                yield "judge", after._replace(ring=s.ring, compact=("push", victim, items))
            else:
                yield "compact", after
        elif s.compact and s.compact[0] == "push":
            yield "push", waiting(s._replace(ring=s.ring + s.compact[2]), s.compact[1])
        elif s.compact and s.compact[0] == "pass":
            yield from standing_pass(s, s.compact[1])
        elif s.compact and s.compact[0] == "wait":
            cached = (c for _, frame in current(s).cache for c in frame.changes)
            pending = any(r[3] for r in s.ring) or any(c[3] for c in cached)
            newer = s.durable < s.compact[2] and not wrong("newer-unsynced")
            if not (pending or newer) or wrong("oldest-early"):
                victim = s.compact[1]
                if wrong("tombstone-early"):
                    files = tuple(f for f in s.files if f.head != victim)
                    links = s._replace(files=files)
                    yield "gone", links._replace(compact=())
                else:
                    yield "oldest", s._replace(compact=(), oldest=victim + 1)

    def live(s, victim):
        """Keys whose record has the LSN of one of the victim's changes."""
        file = next(f for f in s.files if f.head == victim)
        met = {c[0] for f in content(file) if f and f.number == victim for c in f.changes}
        return tuple(key for key, (lsn, _) in sorted(memory(s.hist).items()) if lsn in met)

    def again(s, keys):
        """Appends keys as they are now; the numbers are of the file being written."""
        found, numbers = memory(s.hist), dict(s.numbers)
        keys = [key for key in keys if key in found]
        items = tuple(sorted((found[k][0], ("put", k), found[k][1], True) for k in keys))
        numbers.update((key, s.file) for key in keys if key in numbers)
        items = () if wrong("no-again") else items
        return s._replace(ring=s.ring + items, numbers=tuple(sorted(numbers.items())))

    def judged_wholly(s, victim):
        s = s._replace(judged=victim)
        if numbered and not wrong("standing"):
            met = {key_of(c[1]) for f in s.files if f.head == victim
                   for frame in content(f) if frame for c in frame.changes}
            return s._replace(compact=("pass", victim, frozenset(met)))
        return waiting(s, victim)

    def waiting(s, victim):
        return s._replace(compact=("wait", victim, s.hist[-1][0] if s.hist else 0))

    def standing_pass(s, victim):
        """Appends one standing key; a look at which none is left ends the pass."""
        left = [key for key, number in s.numbers if number <= victim]
        if wrong("standing-other"):
            left = [key for key in left if key in s.compact[2]]
        if wrong("pass-once"):
            order = s.compact[3] if len(s.compact) > 3 else "ba"
            if order:
                stage = ("pass", victim, s.compact[2], order[1:])
                after = again(s, order[0]) if order[0] in left else s
                yield "look", after._replace(compact=stage)
            else:
                yield "none-left", waiting(s, victim)
        elif left:
            yield "standing", again(s, left[0])
        else:
            yield "none-left", waiting(s, victim)

    def recovered(s, files):
        reader, keys = reading(files, wrong, cache)
        need(reader is not None, f"a reader refuses a sound log: {keys}")
        n = reader.lsn
        need(n >= s.durable, "a power cut lost what was durable")
        need(n <= (s.hist[-1][0] if s.hist else 0), "a number out of nowhere")
        hist = tuple(c for c in s.hist if c[0] <= n)
        need(plain(keys) == plain(memory(hist)), "what is left is no prefix")
        if wrong("replay-named"):
            half(reader, keys)
        return reader, hist

    def half(reader, keys):
        """A replay that is killed leaves the keys of some of the log, and their highest LSN."""
        for end in range(1, len(reader.changes)):
            last = max(change[0] for _, change in reader.changes[:end])
            need(last < reader.lsn or plain(reader.replay(end)) == plain(keys),
                 "a start adopts a part of the log as if it were all")

    def start(s, reader, hist, files):
        """The next server syncs what is there and begins a file."""
        files = tuple(f._replace(disk=tuple(content(f)), cache=()) for f in files)
        after = s._replace(files=files, written=reader.lsn, durable=reader.lsn, compact=(),
                           syncing=(), before=reader.last, oldest=reader.oldest,
                           told_oldest=reader.oldest, hist=hist,
                           numbers=adopted(hist) if numbered else (), judged=0)
        if wrong("same-file") and reader.newest:
            return after._replace(file=reader.newest, pos=reader.end, begun=False,
                                  mark=(reader.newest, reader.end))
        if not reader.newest:
            return begin_file(after, (0, 0), wrong)
        return begin_file(after, (reader.newest, reader.end), wrong)

    def kill(s):
        if not s.kills:
            return
        files = tuple(f._replace(disk=tuple(content(f)), cache=(), name=f.renamed or f.name,
                                 renamed=0) for f in s.files)
        reader, keys = reading(files, wrong, cache)
        need(reader is not None, f"a reader refuses a sound log: {keys}")
        need(reader.lsn == s.written, "a kill lost what was written")
        ring = tuple(r for r in s.ring if not r[3])
        after = start(s._replace(kills=s.kills - 1, ring=ring), reader, s.hist, files)
        if after:
            yield "KILL", after

    def images(s):
        """What may lie on the disk after a power cut."""
        choices = []
        for file in s.files:
            options = []
            for kept in product((0, 1), repeat=len(file.cache)):
                disk = list(file.disk)
                for keep, (pos, frame) in zip(kept, file.cache):
                    if keep:
                        disk[pos] = frame
                names = (file.name, file.renamed) if file.renamed else (file.name,)
                for name in names:
                    options.append(file._replace(disk=tuple(disk), cache=(), name=name, renamed=0))
            choices.append(options)
        return product(*choices)

    def power(s):
        what = (s.files, s.durable, s.told_oldest, s.hist)
        if not s.cuts and what in judged or s.flips:
            return
        judged.add(what)
        for files in images(s):
            reader, hist = recovered(s, files)
            # What no longer counts may be prepared again, or removed, at any time.
            recovered(s, tuple(file for file in files if file.head >= s.told_oldest))
            if s.cuts:
                cut = s._replace(cuts=s.cuts - 1, epoch=s.epoch + 1, ring=())
                after = start(cut, reader, hist, files)
                if after:
                    yield "CUT", after

    def flip(s):
        """One bit of a durable frame: refused, or nothing durable is missing.

        Judged where the last frame tells that all before it was on disk.
        """
        last = current(s).disk[s.pos - 1]
        if not s.flips or any(f.cache for f in s.files) or last.changes:
            return
        if last.kind != "begin" and last.mark != (s.file, last.pos):
            return
        for i, file in enumerate(s.files):
            for pos in range(ROOM + 1):
                if file.disk[pos] is None:
                    continue
                disk = file.disk[:pos] + (None,) + file.disk[pos + 1:]
                files = s.files[:i] + (file._replace(disk=disk),) + s.files[i + 1:]
                reader, keys = reading(files, wrong, cache)
                if reader is None:
                    continue
                kept = memory(c for c in s.hist if c[0] <= s.durable)
                lost = reader.lsn < s.durable or plain(keys) != plain(kept)
                need(not lost, "a flipped bit loses something silently")

    def successors(s):
        flip(s)
        for part in (power, change, write, sync, next_file, compact, kill):
            yield from part(s)

    return successors


SCRIPTS = [
    (("put", "a"), ("put", "b"), ("put", "a")),
    (("put", "a"), ("del", "a"), ("put", "b")),
    (("put", "a"), ("ext", "a"), ("ren", "a", "b")),
    (("put", "a"), ("ren", "a", "b"), ("put", "a")),
    (("put", "a"), ("clear",), ("put", "a")),
]
TRY_FIRST = {            # the case in which a mistake shows soonest
    "no-chain": 2, "tombstone-early": 2, "newer-unsynced": 2, "tail-only": 2, "scan-less": 2,
    "no-counter": 3, "standing": 6, "numbers-new": 6, "pass-once": 6,
    "standing-other": 6, "stale-liveness": 3,
}


def cases():
    for script in SCRIPTS:
        for kills, cuts, flips in ((0, 1, 0), (1, 0, 0), (0, 0, 1)):
            if flips and script not in SCRIPTS[:2]:
                continue
            title = f"{script} kills={kills} cuts={cuts} flips={flips}"
            yield title, (script, kills, cuts, flips)


def run(case, mistakes):
    script, kills, cuts, flips = case
    empty = S(0, kills, cuts, flips, 0, (), (), (), 0, 0, None, 0, 0, (0, 0), 1, 1, False, ())
    start = begin_file(empty, (0, 0), mistakes.__contains__)
    return explore(start, model(script, mistakes))
