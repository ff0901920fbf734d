"""Rules that say when two replies to one command count as equal.

Equal bytes always do. Where Redis itself promises no bytes (time, order, identity), a rule says what
must hold instead. A rule belongs to a command name, or to a name and a subcommand, and gets both
replies as trees. Without a rule, replies must be equal byte by byte.
"""

from collections import Counter

import changes_7_2
from changes_7_2 import pairs, shape
from wire import Error, Simple, Typed, parse

# Commands that the compared Redis doesn't have: those of 7.2, and our own.
LOCAL = {b"local", b"local|attach", b"local|help", b"local|kill", b"local|list", b"local|stats"}
NOT_IN_REDIS = changes_7_2.NEW_COMMANDS | LOCAL | {b"backup", b"debug|help", b"debug|reload"}
NEAR_SECONDS = 3  # both servers get a command within this time of each other
NEAR_MS = 1000 * NEAR_SECONDS


def near(tolerance):
    def rule(ours, theirs):
        if type(ours) is not int or type(theirs) is not int:
            return False
        # The negative answers (no expiry, no key) are exact.
        return min(ours, theirs) > 0 and abs(ours - theirs) <= tolerance

    return rule


def idle_time(ours, theirs):
    """Seconds since the last use: a slow machine may count a few."""
    return some_int(ours, theirs) and abs(ours - theirs) <= 60


def some_encoding(ours, theirs):
    """Nigh answers the encoding that Redis gives the value's bytes. Redis's answer also depends on
    the last command: APPEND leaves `raw`, an integral INCRBYFLOAT `embstr`."""
    encodings = (b"int", b"embstr", b"raw")
    return ours in encodings and theirs in encodings


def as_set(ours, theirs):
    """The same elements in any order."""
    return (
        type(ours) is type(theirs)
        and isinstance(ours, list)
        and Counter(map(repr, ours)) == Counter(map(repr, theirs))
    )


def some_bulk(ours, theirs):
    """Any element will do; null must be null."""
    return type(ours) is bytes and type(theirs) is bytes


def some_int(ours, theirs):
    return type(ours) is int and type(theirs) is int


def command_info(ours, theirs):
    """One row per command asked for, or null; see `same_command`."""
    if type(ours) is not list or type(theirs) is not list or len(ours) != len(theirs):
        return False
    return all(
        same_command(one, other) if one is not None and other is not None else one is other
        for one, other in zip(ours, theirs, strict=True)
    )


def all_commands(ours, theirs):
    """Each command that Nigh has is one that Redis has, with the same row."""
    known = {row[0]: row for row in theirs}
    ours = [row for row in ours if row[0] not in NOT_IN_REDIS]
    return all(row[0] in known and same_command(row, known[row[0]]) for row in ours)


def same_command(one, other):
    """Name, arity, flags, first key, last key, step and categories are equal.

    Tips, key specifications and subcommands are hints: only their presence counts.
    """
    return (
        len(one) == len(other)
        and one[:2] == other[:2]
        and one[3:6] == other[3:6]
        and all(sorted(members(one[at])) == sorted(members(other[at])) for at in (2, 6))
    )


def command_list(ours, theirs):
    """Commands that Redis has, too; with subcommands, if Redis answers them for some command."""
    ours, theirs = set(members(ours)) - NOT_IN_REDIS, set(members(theirs))
    containers = [{name.split(b"|")[0] for name in names if b"|" in name} for names in (ours, theirs)]
    return ours <= theirs and containers[1] & ours <= containers[0]


def scan_page(ours, theirs):
    """A cursor and some keys. The server chooses which keys; @SCAN compares whole iterations."""
    return shape(ours[:1], theirs[:1]) and type(ours[1]) is type(theirs[1])


def members(tree):
    return tree[1] if isinstance(tree, Typed) else tree


def function_stats(ours, theirs):
    """No script runs. The engines differ."""
    return pairs(ours).get(b"running_script", 0) is None and list(pairs(ours)) == list(
        pairs(theirs)
    )


def help_text(ours, theirs):
    """Help is for people: lines of text, of which the first names the command."""
    return (
        isinstance(ours, list)
        and all(isinstance(line, Simple) for line in ours)
        and ours[0] == theirs[0]
    )


RULES = {
    "TTL": near(NEAR_SECONDS),
    "PTTL": near(NEAR_MS),
    "EXPIRETIME": near(NEAR_SECONDS),
    "PEXPIRETIME": near(NEAR_MS),
    "KEYS": as_set,
    "@SCAN": as_set,
    "RANDOMKEY": some_bulk,
    "TIME": shape,
    "CLIENT ID": some_int,
    "SCAN": scan_page,
    "COMMAND INFO": command_info,
    "COMMAND LIST": command_list,
    "COMMAND COUNT": some_int,
    "OBJECT ENCODING": some_encoding,
    "OBJECT IDLETIME": idle_time,
    "OBJECT REFCOUNT": some_int,
    "FUNCTION STATS": function_stats,
    **{name: rule for name, (rule, _) in changes_7_2.CHANGED.items()},
}


def rule_for(args):
    name = args[0].decode("latin-1").upper()
    sub = args[1].decode("latin-1").upper() if len(args) > 1 else ""
    if sub == "HELP" and len(args) == 2:
        return help_text
    if name == "COMMAND" and (len(args) == 1 or (sub == "INFO" and len(args) == 2)):
        return all_commands
    return RULES.get(name) or RULES.get(f"{name} {sub}")


def same(args, ours, theirs, queued=None):
    """True if raw replies `ours` and `theirs` to `args` agree; `queued` are EXEC's commands."""
    if ours == theirs:
        return True
    if args[0].upper() == b"EXEC" and queued:
        ours, theirs = parse(ours), parse(theirs)
        return (
            isinstance(ours, list)
            and isinstance(theirs, list)
            and len(ours) == len(theirs) == len(queued)
            and all(map(same_tree, queued, ours, theirs))
        )
    return same_tree(args, parse(ours), parse(theirs))


def same_tree(args, ours, theirs):
    if type(ours) is type(theirs) and ours == theirs and repr(ours) == repr(theirs):
        return True
    if isinstance(ours, Error) or isinstance(theirs, Error):
        return False
    rule = rule_for(args)
    return rule is not None and rule(ours, theirs)
