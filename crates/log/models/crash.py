#!/usr/bin/env python3
"""Runs all models of the log: the rules as they stand, then each seeded mistake.

    python3 crates/log/models/crash.py [PART...]

Exit code 1 if the rules break a property, or a mistake breaks none.
"""

import concurrent.futures
import importlib
import os
import sys
import time

PARTS = ("journal", "files", "base", "shards")


def rules(name, at):
    """States of one case, and what is broken."""
    part = importlib.import_module(name)
    title, case = list(part.cases())[at]
    count, broken = part.run(case, frozenset())
    return count, broken and (title, *broken)


def seeded(name, mistake):
    """States until a mistake is found, and how."""
    part = importlib.import_module(name)
    total, cases = 0, list(part.cases())
    first = getattr(part, "TRY_FIRST", {}).get(mistake, 0)
    for title, case in cases[first:] + cases[:first]:
        count, broken = part.run(case, frozenset([mistake]))
        total += count
        if broken:
            return total, (title, *broken)
    return total, None


def main():
    begun = time.time()
    failed, total, found = False, 0, 0
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for name in sys.argv[1:] or PARTS:
            part = importlib.import_module(name)
            cases = [pool.submit(rules, name, at) for at, _ in enumerate(part.cases())]
            mistakes = [(m, pool.submit(seeded, name, m)) for m in part.MISTAKES]
            jobs.append((name, part, cases, mistakes))
        for name, part, cases, mistakes in jobs:
            results = [case.result() for case in cases]
            states = sum(count for count, _ in results)
            print(f"{name}: {part.__doc__.splitlines()[0]} {states:,} states of the rules")
            for title, broken, way in [broken for _, broken in results if broken]:
                failed = True
                print(f"    THE RULES ARE WRONG: {broken}\n        {title}\n        {way}")
            for mistake, job in mistakes:
                count, broken = job.result()
                states += count
                if broken:
                    found += 1
                    print(f"    found {mistake}: {part.MISTAKES[mistake]}")
                    print(f"        {broken[1]}: {broken[2]}")
                else:
                    failed = True
                    print(f"    NOT FOUND {mistake}: {part.MISTAKES[mistake]}")
            total += states
    seconds = time.time() - begun
    print(f"{total:,} states in all, {found} mistakes found, {seconds:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main())
