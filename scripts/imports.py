"""Reads the imports of a Rust file, for structure.py: by a few patterns, without a compiler.

It reads a file without its comments, strings and tests. It finds the paths in `use` and elsewhere
in the code, and expands no macros.
"""

import re

TEST = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*\))\)\]")
NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r"|\bb?r(#*)\".*?\"\1|\"(?:\\.|[^\"\\])*\""  # strings
    r"|'(?:\\[^']*|[^\\'])'",  # characters
    re.S,
)
USE = re.compile(r"\b(pub\s+)?use\s+([^;]+);")
FN = re.compile(r"\bfn\s+(\w+)(?:\[[^\]]*\]|[^;{\[])*\{")


def blank(match):
    """The line breaks of the removed text, so that lines keep their numbers."""
    return "\n" * match.group().count("\n") or " "


def end_of_block(text, start):
    """The end of the block that opens at or behind `start`."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


def end_of_item(text, start):
    """The end of the item, field or statement at `start`, with its other attributes."""
    start = re.compile(r"(?:\s*#\[[^\]]*\])*\s*").match(text, start).end()
    is_field = re.compile(r"(?:pub\s+)?\w+\s*:(?!:)").match(text, start)
    match = re.compile("[,}]" if is_field else "[{;]").search(text, start)
    if match is None:
        return len(text)
    return end_of_block(text, match.start()) if match.group() == "{" else match.start()


def split_outside(text):
    """Splits at the commas that stand in no braces."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part for part in parts if part.strip()]


def paths_of(tree, before=()):
    """The paths of a use tree as (segments, the name that each gets)."""
    head, brace, inner = tree.partition("{")
    head, _, alias = re.sub(r"\s+as\s+", "=", head).partition("=")
    path = [*before, *(s.strip() for s in head.split("::") if s.strip())]
    if brace:
        inner = inner[: inner.rindex("}")]
        return [found for part in split_outside(inner) for found in paths_of(part, path)]
    if path[-1] == "self" and len(path) > 1:
        path.pop()
    return [(path, alias.strip() or path[-1])]


class Source:
    """A source file without comments, strings and tests."""

    def __init__(self, path):
        self.path = path
        raw = path.read_text()
        self.lines, self.header = raw.count("\n"), re.findall(r"^//! ?(.*)$", raw, re.M)
        text = re.sub(r"\bpub\s*\([^)]*\)", "pub", NOISE.sub(blank, raw))
        self.test_mods = set()
        while match := TEST.search(text):
            start, end = match.start(), end_of_item(text, match.end())
            self.test_mods |= set(re.findall(r"\bmod\s+(\w+)\s*$", text[start:end]))
            text = text[:start] + "\n" * text.count("\n", start, end) + text[end:]
        # `super` of a module inside of the file is the file.
        for match in re.finditer(r"\bmod\s+\w+\s*\{", text):
            end = end_of_block(text, match.start())
            inner = re.sub(r"(?<!:)\bsuper::", " self::", text[match.start() : end])
            text = text[: match.start()] + inner + text[end:]
        self.uses = [(bool(m[1]), *found) for m in USE.finditer(text) for found in paths_of(m[2])]
        self.code = re.sub(r"\bmod\s+\w+\s*;", "", USE.sub(blank, text))
        self.reexports = {name: path for public, path, name in self.uses if public}
        lines = lambda m: text.count("\n", m.start(), end_of_block(text, m.end() - 1)) + 1
        self.longest_fn = max(((lines(m), m[1]) for m in FN.finditer(text)), default=(0, "-"))

    def imports(self, children):
        """The paths that this file names, each once. Re-exports only if it uses the name itself."""
        is_used = lambda name: re.search(rf"\b{re.escape(name)}\b", self.code)
        found = {tuple(p) for public, p, name in self.uses if not public or is_used(name)}
        starts = "|".join(["crate", "self", "super", *children])
        inline = re.findall(rf"(?<![\w:])((?:{starts})(?:\s*::\s*\w+)+)", self.code)
        return found | {tuple(re.split(r"\s*::\s*", path)) for path in inline}
