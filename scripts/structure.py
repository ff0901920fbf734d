#!/usr/bin/env python3
"""Checks that the crates are houses in which imports lead downwards; run by `make lint`.

  scripts/structure.py [CRATE...]           check these crates, or all
  scripts/structure.py --report [CRATE...]  check nothing; print the figures of each crate

1. A crate's graph has its files as nodes. An import is a path to another file of the crate, in a
   `use` or anywhere else in code. It leads from the file that names it to the file that has the
   item. `mod child;` is no import. `pub use` is none either, unless the file uses the name itself:
   the check follows it to the file that has the item.
2. There is no circle: no file imports from a file that imports from it, directly or through others.
   This holds inside of a room too. A child may import from its parent (`super::Type`), or the
   parent from its child (`use child::Type`), but not both. Items that both need stand in a third
   file below them.
3. The rooms of a crate are the modules right below its root. The header of lib.rs or main.rs may
   give their order, up to an empty line: `//! Rooms, lowest first: a b c`. Then it names every
   module, and no room imports from a later one, or from the root.
4. Prose is within 100 columns: comments, and Markdown.
5. Imports of tests don't count: items under `#[cfg(test)]`, and files and folders named `tests...`.
6. Markdown names only files and folders that are there, by their path or its end.
7. No file has the marks of a merge that wasn't finished.
"""

import os
import pathlib
import re
import subprocess
import sys

from imports import Source

HOUSES = pathlib.Path("crates")
COLUMNS = 100
ROOTS = (("lib",), ("main",))
QUOTED_PATH = (r"`((?:crates|docs|examples|scripts|tests)/[\w./-]+"
               r"|[\w./-]+\.(?:c|h|js|md|mjs|py|rs|sh|ts))`")


class Crate:
    """The files of one crate, and the imports between them."""

    def __init__(self, folder):
        self.name, self.files, src = folder.name, {}, folder / "src"
        for path in sorted(src.rglob("*.rs")):
            parts = path.relative_to(src).with_suffix("").parts
            if any(re.match(r"tests?$|tests?_", p) for p in parts) or parts[0] == "bin":
                continue
            module = parts[:-1] if parts[-1] == "mod" or parts in ROOTS else parts
            if parts != ("main",) or not self.files.get(()):
                self.files[module] = Source(path)
        tests = {m + (t,) for m, file in self.files.items() for t in file.test_mods}
        is_test = lambda m: any(m[: len(t)] == t for t in tests)
        self.files = {m: file for m, file in self.files.items() if not is_test(m)}
        self.edges = {m: {} for m in self.files}
        for m, file in self.files.items():
            children = [c[-1] for c in self.files if c and c[:-1] == m]
            for path in sorted(file.imports(children)):
                to = self.resolve(m, path)
                if to is not None and to != m:
                    self.edges[m].setdefault(to, "::".join(path))
        self.rooms = sorted({m[0] for m in self.files if m})
        header = "\n".join(self.files[()].header) if () in self.files else ""
        order = re.search(r"^Rooms, lowest first: (.*?)(?:\.?\n\s*$|\Z)", header, re.M | re.S)
        self.order = re.findall(r"\w+", order[1]) if order else None

    def resolve(self, module, path, depth=0):
        """The file that a path named in `module` leads to; `None` if it leads out of the crate."""
        head, rest = path[0] if path else "", list(path[1:])
        if head == "crate":
            at = ()
        elif head in ("self", "super"):
            at = module if head == "self" else module[:-1]
        elif module + (head,) in self.files:
            at = module + (head,)
        else:
            return None
        for i, name in enumerate(rest):
            if name == "super":
                at = at[:-1]
            elif at + (name,) in self.files:
                at += (name,)
            elif depth < 9 and (to := self.files[at].reexports.get(name)):
                return self.resolve(at, [*to, *rest[i + 1 :]], depth + 1) or at
            else:
                break
        return at

    def circles(self):
        """The sets of files that reach each other."""
        reach = {m: set(to) for m, to in self.edges.items()}
        for k in reach:
            for m in reach:
                reach[m] |= reach[k] if k in reach[m] else set()
        rings = (frozenset(n for n in reach[m] if m in reach[n]) for m in reach if m in reach[m])
        return sorted(set(rings), key=sorted)

    def upward(self):
        """The imports from a room to one that stands above it, as (from, to, path)."""
        floor = {name: i for i, name in enumerate(self.order or [])}
        for m, to in ((m, to) for m in self.edges if m and self.order for to in self.edges[m]):
            if not to or floor.get(to[0], -1) > floor.get(m[0], len(floor)):
                yield m, to, self.edges[m][to]

    def floors(self):
        """The most rooms that stand on each other; a circle of rooms has no floors."""
        below = {room: set() for room in self.rooms}
        for m, to in ((m, to) for m in self.edges if m for to in self.edges[m]):
            below[m[0]] |= set(to[:1]) - {m[0]}
        level = dict.fromkeys(self.rooms, 1)
        for _ in range(len(level) + 1):
            new = {r: 1 + max((level[b] for b in below[r]), default=0) for r in level}
            if new == level:
                return max(level.values(), default=0)
            level = new
        return "-"

    def path(self, module):
        return self.files[module].path

    def faults(self):
        for ring in self.circles():
            yield f"{self.name}: these files import from each other in a circle:\n" + "\n".join(
                f"  {self.path(m)}: {self.edges[m][to]} ({self.path(to)})"
                for m in sorted(ring) for to in sorted(set(self.edges[m]) & ring)[:1])
        for name in sorted(set(self.rooms) - set(self.order or self.rooms)):
            yield f"{self.name}: {self.path(())} doesn't name the room `{name}` in its order"
        for name in sorted(set(self.order or []) - set(self.rooms)):
            yield f"{self.name}: {self.path(())} names a room `{name}` that isn't there"
        for m, to, path in self.upward():
            yield f"{self.name}: an import leads upwards: {self.path(m)}: {path} ({self.path(to)})"

    def report(self):
        file = max(self.files.values(), key=lambda f: f.lines)
        fn = max(self.files.values(), key=lambda f: f.longest_fn)
        upward = len(list(self.upward())) if self.order else "no order"
        rings = self.circles()
        return (f"{self.name:7} rooms {len(self.rooms)}, floors {self.floors()},"
                f" circles {len(rings)} ({sum(map(len, rings))} files), upward imports {upward},"
                f" longest file {file.lines} ({file.path.name}),"
                f" longest function {fn.longest_fn[0]} ({fn.path.name}: {fn.longest_fn[1]}),"
                f" lines {sum(f.lines for f in self.files.values())}")


def long_lines(path):
    """The long lines of prose: comments and Markdown, but for pictures, tables, code and links."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code, slashes, text = ("", "//", line) if path.suffix == ".md" else line.partition("//")
        if path.suffix == ".rs":
            text = text.lstrip("/!").removeprefix(" ")
        if not slashes:
            fenced = False
        fenced ^= not code.strip() and text.lstrip().startswith("```")
        is_prose = slashes and not fenced and not text.startswith(("|", "    ")) and '"' not in code
        if is_prose and len(line) > COLUMNS and "](" not in line and "://" not in line:
            yield f"{path}:{number}: {len(line)} columns of prose; {COLUMNS} are the most"


def lost_paths(path, names):
    """The files and folders that a page names in links and backquotes, and that aren't there. In
    `tests/NAME/main.rs`, the word in capitals stands for any name."""
    there = {*names, *(str(folder) for name in names for folder in pathlib.PurePath(name).parents)}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        links = re.findall(r"\]\(([^)#\s:]+)[)#]", line)
        lost = {os.path.normpath(path.parent / link) for link in links} - there
        for quoted in re.findall(QUOTED_PATH, line):
            end = "/" + quoted.rstrip("/")
            is_pattern = any(part.isupper() for part in end.split("/"))
            if not is_pattern and not any(f"/{name}".endswith(end) for name in there):
                lost.add(quoted)
        for name in sorted(lost):
            yield f"{path}:{number}: {name} isn't there"


def tracked(*patterns):
    """The files of the repository, but for the changelog, whose entries are a line each."""
    names = subprocess.run(["git", "ls-files", *patterns], capture_output=True, check=True, text=True)
    return [pathlib.Path(name) for name in names.stdout.splitlines() if name != "CHANGELOG.md"]


def merge_marks():
    """The lines that git leaves where two changes meet."""
    found = subprocess.run(["git", "grep", "-InE", "^(<{7}|>{7}) "], capture_output=True, text=True)
    return [f"{line.partition(': ')[0]}: a merge wasn't finished" for line in found.stdout.splitlines()]


def main(args):
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    names = [a for a in args if not a.startswith("-")]
    folders = [p for p in sorted(HOUSES.iterdir()) if (p / "src").is_dir()]
    if unknown := set(names) - {p.name for p in folders}:
        print(f"scripts/structure.py: no crate is named {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    folders = [p for p in folders if not names or p.name in names]
    if "--report" in args:
        print("\n".join(Crate(p).report() for p in folders))
        return 0
    faults = [fault for p in folders for fault in Crate(p).faults()]
    if not names:
        faults += [fault for p in tracked("*.rs", "*.md") for fault in long_lines(p)]
        names = [str(p) for p in tracked()]
        faults += [fault for p in tracked("*.md") for fault in lost_paths(p, names)]
        faults += merge_marks()
    print("\n".join(faults) or f"{len(folders)} crates: no circles, no imports that lead upwards")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
