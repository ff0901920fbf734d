"""A base: a new chain of files from memory, while writes go on or wait, with kills and power cuts.

Three reasons: `joins` (another number of shards: the old chain is whole, and recovery is the old
chain, then the new one, until the base is complete), `broken` (a sync failed: the old chain ends
somewhere, and writes wait until the base is complete), `on` (there was no log: nothing is promised
until the base is complete). `off` is the way back: the log is retired.

The meta file names the chains that count; its renaming is kept or lost until the folder is synced.
The walk meets key a, then key b, and appends the version that it finds. A chain is a list of
entries (lsn, change, again); a power cut leaves any prefix from what is synced on.
"""

from typing import NamedTuple

from explore import explore, need

MISTAKES = {
    "meta-early": "the meta file names the new chain alone before the base is synced",
    "old-gone-early": "the old chain is removed before the meta file's renaming is durable",
    "broken-joins": "after a failed sync the new chain joins the old one, and writes go on",
    "standing": "a key renamed behind the walk stays without a whole version in the new chain",
    "walk-stale": "the walk reads a record, then other changes enter the queue before it",
    "joins-unsaid": "changes in the new chain count before the meta file says that it joins",
    "partial-counts": "a base that isn't complete counts",
    "off-early": "the end of the log is told before it is durable",
    "walk-forgets": "after a kill the walk goes on where it was, in yet another chain",
}


class S(NamedTuple):
    op: int
    kills: int
    hist: tuple
    start: int          # last LSN when the new chain began
    old: tuple          # entries of the old chain
    old_sure: int       # how many of them are on disk for certain
    old_there: bool
    new: tuple
    synced: int
    queue: tuple
    walk: int           # 0: a is next, 1: b is next, 2: standing keys, 3: all queued
    held: tuple         # what the walk has read and not queued (a mistake)
    complete: int       # entries of the new chain up to COMPLETE; 0: none
    meta: str           # in memory of the file system
    meta_sure: str      # durable
    durable: int
    told_off: bool


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


def model(reason, script, mistakes):
    wrong = mistakes.__contains__
    joins = reason == "joins" or reason == "broken" and wrong("broken-joins")

    def change(s):
        if s.op == len(script) or reason == "off":
            return
        if reason == "broken" and not joins and s.meta_sure != "new":
            return
        if reason == "joins" and s.meta_sure == "old" and not wrong("joins-unsaid"):
            return
        what = script[s.op]
        keys = memory(s.hist)
        if what[0] != "put" and what[1] not in keys:
            yield "skip", s._replace(op=s.op + 1)
            return
        lsn = s.hist[-1][0] + 1
        if what[0] == "ren":
            what += (keys[what[1]][0],)
        yield what[0], s._replace(op=s.op + 1, hist=s.hist + ((lsn, what),),
                                  queue=s.queue + ((lsn, what, False),))

    def again(s, keys):
        found = memory(s.hist)
        return tuple((found[k][0], (k, found[k][1]), True) for k in keys if k in found)

    def walk(s):
        if s.meta == "off" or reason == "off":
            return
        if s.held:
            yield "push", s._replace(queue=s.queue + s.held, held=(), walk=s.walk + 1)
        elif s.walk < 2:
            items = again(s, "ab"[s.walk])
            if wrong("walk-stale") and items:
                yield "look", s._replace(held=items)
            else:
                yield "walk", s._replace(queue=s.queue + items, walk=s.walk + 1)
        elif s.walk == 2:
            standing = [c[1][2] for c in s.hist if c[0] > s.start and c[1][0] == "ren"]
            items = () if wrong("standing") else again(s, dict.fromkeys(standing))
            yield "standing", s._replace(queue=s.queue + items, walk=3)

    def log_thread(s):
        if s.queue:
            yield "write", s._replace(new=s.new + s.queue, queue=())
        if s.walk == 3 and not s.queue and not s.complete:
            yield "complete", s._replace(complete=len(s.new) + 1, new=s.new + (COMPLETE,))
        if s.synced < len(s.new):
            yield "sync", counted(s._replace(synced=len(s.new)))
        whole = s.complete and (s.synced >= s.complete or wrong("meta-early"))
        if whole and s.meta in ("joins", "old"):
            yield "meta", s._replace(meta="new")
        if reason == "joins" and s.meta == "old" and not s.complete:
            yield "meta-joins", s._replace(meta="joins")
        if reason == "broken" and joins and s.meta == "old":
            yield "meta-joins", s._replace(meta="joins")
        if reason == "off" and s.meta == "old":
            yield "meta-off", s._replace(meta="off")
        if s.meta != s.meta_sure:
            yield "folder", counted(s._replace(meta_sure=s.meta))
        gone = s.meta if wrong("old-gone-early") else s.meta_sure
        if gone == "new" and s.old_there:
            yield "remove", s._replace(old_there=False)
        if reason == "off" and not s.told_off:
            if s.meta_sure == "off" or wrong("off-early") and s.meta == "off":
                yield "told", s._replace(told_off=True)

    def counted(s):
        counts = s.meta_sure == "new" or joins and (s.meta_sure == "joins" or
                                                    wrong("joins-unsaid"))
        if not counts:
            return s
        fresh = [e[0] for e in s.new[:s.synced] if not e[2]]
        return s._replace(durable=max([s.durable, s.start] + fresh))

    def kill(s):
        """Memory and journal live on; the base is begun again."""
        if not s.kills or s.complete or reason == "off":
            return
        fresh = tuple(e for e in s.new + s.queue if not e[2])
        walked = s.walk if wrong("walk-forgets") else 0
        if joins and s.meta == "joins":
            yield "KILL", s._replace(kills=0, walk=walked, held=(), new=s.new,
                                     queue=tuple(e for e in s.queue if not e[2]))
        elif s.meta == s.meta_sure == "old":
            start = s.start if joins else s.hist[-1][0]
            yield "KILL", s._replace(kills=0, walk=walked, held=(), new=(), synced=0, start=start,
                                     queue=fresh if joins else ())

    def power(s):
        for meta in {s.meta, s.meta_sure}:
            for end in range(s.synced, len(s.new) + 1):
                new = tuple(e for e in s.new[:end])
                for cut in range(s.old_sure, len(s.old) + 1):
                    judge(s, meta, s.old[:cut], new)

    def judge(s, meta, old, new):
        partial = wrong("partial-counts") and meta == "old" and new
        entries = [e for e in new if e is not COMPLETE]
        n = max([0] + [e[0] for e in entries if not e[2]])
        if meta == "off":
            return
        need(not s.told_off, "the old state returns")
        if meta == "new" or partial and reason != "joins":
            n = max(n, s.start)
            if partial and not s.old:
                need(COMPLETE in new, "a base that isn't complete counts")
        elif not s.old and reason == "on":
            need(s.durable == 0, "the log of a durable change isn't there")
            return
        else:
            need(s.old_there, "the old chain is gone")
            n = max([n if meta == "joins" else 0] + [e[0] for e in old])
            entries = list(old) + (entries if meta == "joins" else [])
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


COMPLETE = (0, ("complete",), True)
HISTORY = ((1, ("put", "a")), (2, ("put", "b")), (3, ("put", "a")))
SCRIPTS = [
    (("put", "a"), ("del", "a"), ("put", "b")),
    (("ren", "b", "a"), ("put", "b")),
    (("del", "a"), ("ren", "b", "a"), ("put", "b")),
    (("ren", "a", "b"), ("ren", "b", "a")),
]


def cases():
    for reason in ("joins", "broken", "on", "off"):
        for kills in (0, 1):
            for script in SCRIPTS:
                yield f"{reason} {script} kills={kills}", (reason, script, kills)


def run(case, mistakes):
    reason, script, kills = case
    old = tuple((lsn, change, False) for lsn, change in HISTORY) if reason != "on" else ()
    sure = 2 if reason == "broken" else len(old)
    durable = 0 if reason == "on" else 2 if reason == "broken" else 3
    start = S(0, kills, HISTORY, 3, old, sure, bool(old), (), 0, (), 0, (), 0, "old", "old",
              durable, False)
    return explore(start, model(reason, script, mistakes))
