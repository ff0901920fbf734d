"""Changes of two shards that depend on each other, their logs, and one moment for a backup.

Each change of the script belongs to shard 0 or 1 and may have read the other shard: then it
depends on that one's newest change. Each shard's log is written and synced by itself; a power cut
leaves any prefix from what is synced on. A backup notes the tail of each journal.
"""

from itertools import product
from typing import NamedTuple

from explore import explore, need

MISTAKES = {
    "no-wait": "a dependent change is written at once",
    "wait-written": "it waits until the other change is written, not until it is synced",
    "sync-blocked": "a log that waits for another doesn't sync meanwhile",
    "shared-frame": "a dependent change shares a frame with changes before it",
    "journal-forgets": "after a kill, the dependencies of journaled changes are forgotten",
    "tails-running": "shards write on while the tails are noted for a backup",
}


class S(NamedTuple):
    op: int
    kills: int
    lsn: tuple          # newest of each shard
    order: tuple        # of each shard: place in the script of each change
    queue: tuple        # of each shard: (lsn, dependency as the log knows it, as it is) not written
    written: tuple
    synced: tuple
    needs: tuple        # of each shard: dependency of each written change, 0 for none
    tails: tuple        # of each shard: last LSN before its backup's end, or -1


def model(script, mistakes):
    wrong = mistakes.__contains__

    def at(pair, shard, value):
        return (value, pair[1]) if shard == 0 else (pair[0], value)

    def change(s):
        half = -1 in s.tails and s.tails != (-1, -1)
        if s.op == len(script) or half and not wrong("tails-running"):
            return
        shard, depends = script[s.op]
        lsn = s.lsn[shard] + 1
        other = s.lsn[1 - shard]
        dependency = other if depends and other > s.synced[1 - shard] else 0
        queue = s.queue[shard] + ((lsn, dependency, dependency),)
        order = s.order[shard] + (s.op,)
        yield f"change-{shard}", s._replace(op=s.op + 1, lsn=at(s.lsn, shard, lsn),
                                            queue=at(s.queue, shard, queue),
                                            order=at(s.order, shard, order))

    def frame(queue):
        """The first frame of a queue: it ends before the next change with a dependency."""
        end = 1
        while end < len(queue) and (not queue[end][1] or wrong("shared-frame")):
            end += 1
        return queue[:end]

    def may_write(s, shard):
        counts = s.written if wrong("wait-written") else s.synced
        waits = max(known for _, known, _ in frame(s.queue[shard]))
        return waits <= counts[1 - shard] or wrong("no-wait")

    def log(s, shard):
        queue = s.queue[shard]
        if queue and may_write(s, shard):
            taken = frame(queue)
            needs = s.needs[shard] + tuple(true for _, _, true in taken)
            yield f"write-{shard}", s._replace(
                queue=at(s.queue, shard, queue[len(taken):]),
                written=at(s.written, shard, taken[-1][0]), needs=at(s.needs, shard, needs))
        blocked = wrong("sync-blocked") and queue and not may_write(s, shard)
        if s.synced[shard] < s.written[shard] and not blocked:
            yield f"sync-{shard}", s._replace(synced=at(s.synced, shard, s.written[shard]))

    def tail(s, shard):
        if s.tails[shard] < 0:
            yield f"tail-{shard}", s._replace(tails=at(s.tails, shard, s.lsn[shard]))

    def kill(s):
        if s.kills:
            queue = s.queue
            if wrong("journal-forgets"):
                queue = tuple(tuple((n, 0, true) for n, _, true in part) for part in queue)
            yield "KILL", s._replace(kills=0, queue=queue)

    def power(s):
        ranges = [range(s.synced[i], s.written[i] + 1) for i in (0, 1)]
        for left in product(*ranges):
            for shard in (0, 1):
                for lsn in range(left[shard]):
                    need(s.needs[shard][lsn] <= left[1 - shard],
                         "a change is left, and what it read isn't")

    def successors(s):
        power(s)
        if -1 not in s.tails:
            before = [s.order[i][lsn] for i in (0, 1) for lsn in range(s.tails[i])]
            need(sorted(before) == list(range(len(before))), "a backup is of no moment")
        moves = [move for shard in (0, 1) for move in log(s, shard)]
        idle = not any(s.queue) and s.synced == s.written
        need(moves or idle, "the logs wait for each other for ever")
        yield from moves
        yield from change(s)
        yield from kill(s)
        for shard in (0, 1):
            yield from tail(s, shard)

    return successors


def cases():
    for script in product(((0, False), (0, True), (1, False), (1, True)), repeat=4):
        yield str(script), script


def run(script, mistakes):
    start = S(0, 1, (0, 0), ((), ()), ((), ()), (0, 0), (0, 0), ((), ()), (-1, -1))
    return explore(start, model(script, mistakes))
