"""Stage, journal, publish, write, sync and reply of one shard, with kills and power cuts.

State of the shard: the arena's keys (each with the LSN of its version), begun and committed LSN,
and the place in the change under way. Of the journal: its entries, and whether it says BROKEN. Of
the log: its changes in order, how many of them are on disk (`synced`), and up to which LSN the
server believes so (`durable`). A failed sync makes the changes that it was for `gone`: the next
sync succeeds and doesn't bring them back, as with Linux. A start behind one writes a base before
anything else; it may be killed, or power cut, meanwhile.

Keys: a, b, and v, whose value lies in a run and is journaled by name: its entry is readable as long
as the run is held. A change is a tuple of (key, value or None).
"""

from itertools import product
from typing import NamedTuple

from explore import explore, need

MISTAKES = {
    "drop-uncommitted": "an entry leaves the journal when it is written, committed or not",
    "drop-unwritten": "an entry leaves the journal before its write has returned",
    "publish-first": "a change is published before it is journaled",
    "reply-unsynced": "in always, a reply waits for the write only",
    "nil-committed": "in always, a nil waits for the committed LSN instead of the begun one",
    "hit-at-once": "in always, a hit of another shard doesn't wait",
    "run-not-held": "a run that the journal names is reused when its key is overwritten",
    "retry-sync": "a failed sync is tried again",
    "broken-unsaid": "a failed sync isn't noted in the journal, so a successor trusts the log",
    "broken-goes-on": "a start begins a file in a broken chain, so BEGIN claims what is gone",
    "start-unsynced": "a start counts its predecessor's frames as durable without a sync",
    "redo-lsn": "adoption gives numbers on from committed, not from the journal's last",
    "no-redo": "adoption doesn't redo the journal in the arena",
    "log-not-completed": "adoption doesn't write the journal's rest to the log",
}


class S(NamedTuple):
    op: int = 0
    pc: int = 0
    arena: tuple = ()
    lsn: int = 0
    begun: int = 0
    committed: int = 0
    ring: tuple = ()
    broken: bool = False
    basing: bool = False
    claim: int = 0      # changes of the log that a BEGIN on disk says lie before it
    log: tuple = ()
    synced: int = 0
    durable: int = 0
    gone: frozenset = frozenset()
    acked: int = 0
    freed: frozenset = frozenset()
    removed: int = 0
    read: tuple = ("no",)
    kills: int = 0
    fails: int = 0
    stopped: bool = False


def applied(arena, change, lsn):
    keys = dict(arena)
    for key, value in change:
        if value is None:
            keys.pop(key, None)
        else:
            keys[key] = (value, lsn)
    return tuple(sorted(keys.items()))


def replayed(entries):
    arena = ()
    for lsn, change in entries:
        arena = applied(arena, change, lsn) if change != "base" else lsn[1]
    return arena


def lsn_of(entry):
    return entry[0][0] if entry[1] == "base" else entry[0]


def last(log):
    return lsn_of(log[-1]) if log else 0


def model(script, mode, mistakes):
    wrong = mistakes.__contains__
    journaled, published = (2, 1) if wrong("publish-first") else (1, 2)

    def shard(s):
        if s.op == len(script) or s.stopped or s.basing:
            return
        change = script[s.op]
        if s.pc == 0:
            yield "stage", s._replace(pc=1, lsn=s.lsn + 1)
        elif s.pc == journaled:
            ring = s.ring + ((s.lsn, change),)
            yield "journal", s._replace(pc=s.pc + 1, ring=ring)
        elif s.pc == published:
            freed = s.freed
            held = {lsn for lsn, _ in s.ring} if not wrong("run-not-held") else set()
            for key, _ in change:
                if key == "v" and "v" in dict(s.arena) and dict(s.arena)["v"][1] not in held:
                    freed |= {dict(s.arena)["v"][1]}
            removed = s.lsn if ("a", None) in change and "a" in dict(s.arena) else s.removed
            arena = applied(s.arena, change, s.lsn)
            after = s._replace(begun=s.lsn, arena=arena, freed=freed, removed=removed)
            yield "publish", after._replace(pc=s.pc + 1)
        elif s.pc == 3:
            yield "commit", s._replace(pc=4, committed=s.lsn)
        elif s.pc == 4:
            told = last(s.log) if wrong("reply-unsynced") else s.durable
            if mode == "everysec" or told >= s.lsn:
                yield "reply", s._replace(pc=0, op=s.op + 1, acked=s.lsn)

    def log_thread(s):
        if s.basing:
            log = (((s.lsn, s.arena), "base"),)
            yield "base", s._replace(log=log, synced=1, durable=s.lsn, ring=(), gone=frozenset(),
                                     broken=False, basing=False, claim=0)
        if s.stopped or s.basing:
            return
        unwritten = [entry for entry in s.ring if entry[0] > last(s.log)]
        if unwritten:
            lsn, change = unwritten[0]
            need(lsn not in s.freed, "the log gets a value whose run was reused")
            yield "write", s._replace(log=s.log + (unwritten[0],))
        if s.ring:
            lsn = s.ring[0][0]
            written = lsn <= last(s.log) or wrong("drop-unwritten")
            if written and (lsn <= s.committed or wrong("drop-uncommitted")):
                yield "drop", s._replace(ring=s.ring[1:])
        if s.synced < len(s.log):
            yield "sync", s._replace(synced=len(s.log), durable=last(s.log))
            if s.fails:
                gone = s.gone | set(range(s.synced, len(s.log)))
                failed = s._replace(fails=s.fails - 1, gone=gone)
                if wrong("retry-sync"):
                    yield "sync-fails", failed
                else:
                    broken = not wrong("broken-unsaid")
                    yield "sync-fails", failed._replace(stopped=True, broken=broken)

    def reader(s):
        """Another shard reads key a and replies when it may."""
        if s.read == ("no",):
            found = dict(s.arena).get("a")
            if found:
                yield "hit", s._replace(read=("wait", found[1], found[1]))
            else:
                upto = s.committed if wrong("nil-committed") else s.begun
                yield "miss", s._replace(read=("wait", upto, s.removed))
        elif s.read[0] == "wait" and mode == "always":
            hit_at_once = wrong("hit-at-once") and s.read[1] == s.read[2]
            if s.durable >= s.read[1] or hit_at_once:
                yield "answer", s._replace(read=("told", s.read[2]))

    def kill(s):
        """The process dies and the next one adopts what it left."""
        if not s.kills:
            return
        top = last(s.log)
        redo = [] if wrong("no-redo") else [e for e in s.ring if e[0] > s.committed]
        arena, newest = s.arena, max([s.committed] + [v[1] for _, v in s.arena])
        removals = [lsn for lsn, change in redo if ("a", None) in change]
        for lsn, change in redo:
            need(lsn not in s.freed, "redo needs a value whose run was reused")
            arena = applied(arena, change, lsn)
        if not wrong("redo-lsn"):
            newest = max([newest, top] + [lsn for lsn, _ in s.ring])
        need(newest >= s.acked, "a kill lost an acknowledged change")
        after = S(op=s.op + (s.pc > 0), arena=arena, lsn=newest, begun=newest, committed=newest,
                  acked=s.acked, removed=max([s.removed] + removals),
                  read=s.read if s.read[0] == "told" else ("no",), kills=s.kills - 1,
                  fails=s.fails)
        if s.broken:
            claim = len(s.log) if wrong("broken-goes-on") else 0
            yield "KILL", after._replace(ring=s.ring, broken=True, basing=True, log=s.log,
                                         synced=s.synced, gone=s.gone, claim=claim)
            return
        log = s.log if wrong("log-not-completed") else s.log + tuple(
            e for e in s.ring if e[0] > top)
        need(all(lsn not in s.freed for lsn, c in s.ring if lsn > top), "a run was reused")
        need(replayed(log) == arena, "memory and log differ after a kill")
        synced = s.synced if wrong("start-unsynced") else len(log)
        yield "KILL", after._replace(log=log, synced=synced, durable=last(log), gone=s.gone)

    def power(s):
        """Any prefix from what is on disk on; what a failed sync was for may be missing."""
        good = min([s.synced] + [i for i in s.gone])
        need(good >= s.claim, "after a power cut a log is refused that has all that was durable")
        for end in range(good, len(s.log) + 1):
            if any(i < end for i in s.gone):
                break
            kept = last(s.log[:end])
            if mode == "always":
                need(kept >= s.acked, "a power cut lost an acknowledged change")
                if s.read[0] == "told":
                    need(kept >= s.read[1], "a power cut undid what a reader was told")
            need(kept >= s.durable, "a power cut lost what counted as durable")

    def successors(s):
        power(s)
        numbers = [lsn_of(entry) for entry in s.log]
        need(len(set(numbers)) == len(numbers), "a number is given twice")
        written = dict(entry for entry in s.log if entry[1] != "base")
        for lsn, change in s.ring:
            need(written.get(lsn, change) == change, "one number, two changes")
        for part in (shard, log_thread, reader, kill):
            yield from part(s)

    return successors


CHANGES = [(("a", 1),), (("a", None),), (("v", 2),), (("a", 3), ("b", 3))]


def cases():
    for mode in ("everysec", "always"):
        for kills, fails in ((2, 0), (1, 1)):
            for script in product(CHANGES, repeat=2):
                yield f"{mode} {script}", (script, mode, kills, fails)
            for script in ((CHANGES[2], CHANGES[2], CHANGES[0]),
                           (CHANGES[0], CHANGES[1], CHANGES[3])):
                yield f"{mode} {script}", (script, mode, kills, fails)


def run(case, mistakes):
    script, mode, kills, fails = case
    return explore(S(kills=kills, fails=fails), model(script, mode, mistakes))
