"""A base: a new chain of files from memory, while changes wait or go on, with kills and power cuts.

Four reasons. `shards`: a start with another number of them; the old chain is whole, but its tail
may be in memory only. `broken`: a sync failed, the old chain's tail may be gone for ever. `on`:
there was no log; changes go on, and nothing is promised until the base counts. In the first two,
changes wait until then. `off` is the way back: the log is retired.

The meta file names the chains that count; its renaming is kept or lost until the folder is synced.
The walk meets key a, then key b, and appends the version that it finds; then come standing keys
with number 0, one at a time. A chain is a list of entries (lsn, change, again); a power cut leaves
any prefix from what is synced on.
"""

from typing import NamedTuple

from explore import explore, need

MISTAKES = {
    "meta-early": "the meta file names the new chain before the base is synced",
    "partial-counts": "a base that isn't complete counts",
    "old-gone-early": "the old chain is removed before the meta file's renaming is durable",
    "start-trusts-meta": "a start acts on a renaming of meta that its predecessor didn't sync",
    "start-trusts-tail": "a start counts an old chain that nobody writes as durable without a sync",
    "changes-early": "changes go on in the new chain, and count, before the meta file names it",
    "standing": "a key renamed behind the walk stays without a whole version in the new chain",
    "numbers-of-file": "a standing key's number doesn't know that its base is of before the chain",
    "numbers-kept": "standing keys keep the numbers of the old chain",
    "pass-once": "the pass over standing keys meets each key once, while they are renamed",
    "walk-stale": "the walk reads a record, then other changes enter the queue before it",
    "off-early": "the end of the log is told before it is durable",
    "walk-forgets": "after a kill the walk goes on where it was, in yet another chain",
}


class S(NamedTuple):
    op: int
    kills: int
    hist: tuple
    start: int          # last LSN when the new chain began: its first BEGIN's
    old: tuple          # entries of the old chain
    old_sure: int       # how many of them are on disk for certain
    old_there: bool
    durable: int
    numbers: tuple      # of standing keys: (key, number); 0: of before the chain
    new: tuple = ()
    synced: int = 0
    queue: tuple = ()
    walk: int = 0       # 0: a is next, 1: b is next, 2: standing keys, 3: all queued
    looked: int = 0     # keys that the pass has met (a mistake)
    held: tuple = ()    # what the walk has read and not queued (a mistake)
    end: int = 0        # entries of the base when all was queued
    meta: str = "old"   # in memory of the file system
    meta_sure: str = "old"
    trusts: bool = False
    told_off: bool = False


def memory(hist):
    keys = {}
    for lsn, change in hist:
        apply(keys, lsn, change)
    return keys


def apply(keys, lsn, change):
    if change[0] == "put":
        keys[change[1]] = (lsn, (lsn,))
    elif change[0] == "ren" and change[1] in keys:
        keys[change[2]] = (lsn, keys.pop(change[1])[1])
    elif change[0] == "del":
        keys.pop(change[1], None)
    return keys


def replay(entries):
    """Keys, or None if some stand on nothing."""
    keys, dangling = {}, set()
    for lsn, change, again in entries:
        if again:
            key, value = change
            if key not in keys or keys[key][0] < lsn:
                keys[key] = (lsn, value)
            dangling.discard(key)
        elif change[0] == "ren":
            base = change[3]
            if change[1] not in keys or keys[change[1]][0] != base:
                keys.pop(change[1], None)
                keys.pop(change[2], None)
                dangling.discard(change[1])
                dangling.add(change[2])
            else:
                apply(keys, lsn, change)
                dangling.discard(change[2])
        else:
            apply(keys, lsn, change)
            dangling.discard(change[1])
    return None if dangling else keys


def standing(hist, number):
    """Keys whose newest change stands on another, all with one number."""
    newest = {}
    for _, change in hist:
        newest.pop(change[1], None)
        if change[0] != "del":
            newest[change[2] if change[0] == "ren" else change[1]] = change[0]
    return tuple(sorted((key, number) for key, kind in newest.items() if kind == "ren"))


def model(reason, script, mistakes):
    wrong = mistakes.__contains__
    waits = reason in ("shards", "broken")

    def change(s):
        if s.op == len(script) or reason == "off":
            return
        if waits and s.meta_sure != "new" and not wrong("changes-early"):
            return
        what = script[s.op]
        keys = memory(s.hist)
        if what[0] != "put" and what[1] not in keys:
            yield "skip", s._replace(op=s.op + 1)
            return
        lsn = s.hist[-1][0] + 1
        numbers = dict(s.numbers)
        number = numbers.pop(what[1], None)
        if what[0] == "ren":
            base = keys[what[1]][0]
            what += (base,)
            file_of = 1 if base > s.start or wrong("numbers-of-file") else 0
            numbers[what[2]] = file_of if number is None else number
        yield what[0], s._replace(op=s.op + 1, hist=s.hist + ((lsn, what),),
                                  queue=s.queue + ((lsn, what, False),),
                                  numbers=tuple(sorted(numbers.items())))

    def again(s, key):
        """The key's version now, and the numbers with the file that it gets."""
        found, numbers = memory(s.hist), dict(s.numbers)
        if key in numbers:
            numbers[key] = 1
        items = ((found[key][0], (key, found[key][1]), True),) if key in found else ()
        return items, tuple(sorted(numbers.items()))

    def walk(s):
        if s.meta == "off" or reason == "off":
            return
        if s.held:
            yield "push", s._replace(queue=s.queue + s.held, held=(), walk=s.walk + 1)
        elif s.walk < 2:
            items, numbers = again(s, "ab"[s.walk])
            if wrong("walk-stale") and items:
                yield "look", s._replace(held=items, numbers=numbers)
            else:
                yield "walk", s._replace(queue=s.queue + items, walk=s.walk + 1, numbers=numbers)
        elif s.walk == 2:
            yield from standing_pass(s)

    def standing_pass(s):
        left = [key for key, number in s.numbers if number == 0]
        if wrong("pass-once") and s.looked < 2:
            key = "ba"[s.looked]
            items, numbers = again(s, key) if key in left else ((), s.numbers)
            yield "look", s._replace(queue=s.queue + items, numbers=numbers, looked=s.looked + 1)
        elif left and not wrong("standing") and not wrong("pass-once"):
            items, numbers = again(s, left[0])
            yield "standing", s._replace(queue=s.queue + items, numbers=numbers)
        else:
            yield "queued", s._replace(walk=3, end=len(s.new) + len(s.queue))

    def log_thread(s):
        if s.queue:
            yield "write", s._replace(new=s.new + s.queue, queue=())
        if s.synced < len(s.new):
            yield "sync", counted(s._replace(synced=len(s.new)))
        if s.meta == "old" and reason != "off":
            written = s.walk == 3 and len(s.new) >= s.end
            whole = written and (s.synced >= s.end or wrong("meta-early"))
            if whole or wrong("partial-counts") and s.new:
                yield "meta", s._replace(meta="new")
        if reason == "off" and s.meta == "old":
            yield "meta-off", s._replace(meta="off")
        if s.meta != s.meta_sure:
            yield "folder", counted(s._replace(meta_sure=s.meta))
        gone = s.meta if wrong("old-gone-early") or s.trusts else s.meta_sure
        if gone == "new" and s.old_there:
            yield "remove", s._replace(old_there=False)
        if reason == "off" and not s.told_off:
            if s.meta_sure == "off" or wrong("off-early") and s.meta == "off":
                yield "told", s._replace(told_off=True)
        if reason == "shards" and s.durable < s.old[-1][0]:
            sure = s.old_sure if wrong("start-trusts-tail") else len(s.old)
            yield "start", s._replace(old_sure=sure, durable=s.old[-1][0])

    def counted(s):
        if s.meta_sure != "new" and not s.trusts and not (waits and wrong("changes-early")):
            return s
        fresh = [e[0] for e in s.new[:s.synced] if not e[2]]
        start = s.start if s.meta_sure == "new" or s.trusts else 0
        return s._replace(durable=max([s.durable, start] + fresh))

    def kill(s):
        """Memory lives on. The start syncs meta; an unnamed chain is removed and begun again."""
        if not s.kills or reason == "off":
            return
        trusts = wrong("start-trusts-meta") and s.meta != s.meta_sure
        sure = s.meta_sure if trusts else s.meta
        s = s._replace(kills=0, held=(), looked=0, meta_sure=sure, trusts=trusts)
        if s.meta == "new":
            yield "KILL", counted(s._replace(synced=len(s.new)))
            return
        yield "KILL", s._replace(walk=s.walk if wrong("walk-forgets") else 0, new=(), synced=0,
                                 queue=(), end=0, start=s.hist[-1][0],
                                 numbers=standing(s.hist, 0))

    def power(s):
        for meta in {s.meta, s.meta_sure}:
            for end in range(s.synced, len(s.new) + 1):
                for cut in range(s.old_sure, len(s.old) + 1):
                    judge(s, meta, s.old[:cut], s.new[:end])

    def judge(s, meta, old, new):
        if meta == "off":
            return
        need(not s.told_off, "the old state returns")
        if meta == "new":
            n, entries = max([s.start] + [e[0] for e in new if not e[2]]), new
        elif reason == "on":
            need(s.durable == 0, "the log of a durable change isn't there")
            return
        else:
            need(s.old_there, "meta names a chain that is gone")
            n, entries = max([0] + [e[0] for e in old]), old
        keys = replay(entries)
        need(keys is not None, "a key stands on nothing")
        need(n >= s.durable, "a power cut lost what was durable")
        kept = memory(c for c in s.hist if c[0] <= n)
        need(keys == kept, "what is left is no prefix")

    def successors(s):
        power(s)
        for part in (change, walk, log_thread, kill):
            yield from part(s)

    return successors


HISTORIES = [
    ((1, ("put", "a")), (2, ("put", "b")), (3, ("put", "a"))),
    ((1, ("put", "a")), (2, ("ren", "a", "b", 1)), (3, ("put", "a"))),
]
SCRIPTS = [
    (("put", "a"), ("del", "a"), ("put", "b")),
    (("ren", "b", "a"), ("put", "b")),
    (("del", "a"), ("ren", "b", "a"), ("put", "b")),
    (("del", "a"), ("ren", "b", "a"), ("ren", "a", "b")),
    (("ren", "a", "b"), ("ren", "b", "a")),
]


def cases():
    for reason in ("shards", "broken", "on", "off"):
        for kills in (0, 1):
            for history in HISTORIES:
                for script in SCRIPTS:
                    title = f"{reason} {history} {script} kills={kills}"
                    yield title, (reason, history, script, kills)


def run(case, mistakes):
    reason, history, script, kills = case
    old = tuple((lsn, change, False) for lsn, change in history) if reason != "on" else ()
    sure = 2 if reason in ("shards", "broken") else len(old)
    durable = {"shards": 2, "broken": 2, "on": 0, "off": 3}[reason]
    number = 1 if "numbers-kept" in mistakes else 0
    start = S(0, kills, history, 3, old, sure, bool(old), durable, standing(history, number))
    return explore(start, model(reason, script, mistakes))
