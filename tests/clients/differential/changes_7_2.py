"""Changes of Redis from 7.0.15, Debian's version, to 7.2.4, the version that Nigh reports.

Each row names its source in the Redis repository at tag 7.2.4. `CHANGED` has commands whose reply
differs from 7.0's: a rule says what must still hold. `NEW` has commands that 7.0 lacks, with the
reply of 7.2's source. The replies to all other commands must have the same bytes as 7.0's.
"""

from wire import Error, Typed


def shape(ours, theirs):
    """The same kinds of values, nested the same way."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(shape, ours, theirs))
    if isinstance(ours, Typed):
        return ours[0] == theirs[0] and (not isinstance(ours[1], list) or shape(ours[1], theirs[1]))
    return not isinstance(ours, Error) or ours == theirs


def pairs(tree):
    """A map reply of either protocol as a dict."""
    items = tree[1] if isinstance(tree, Typed) and tree[0] == "%" else tree
    return dict(zip(items[::2], items[1::2], strict=True))


def hello(ours, theirs):
    """Redis's map, but for identity and version; the same fields in the same order."""
    if not shape(ours, theirs):
        return False
    ours, theirs = pairs(ours), pairs(theirs)
    free = (b"version", b"id")
    return list(ours) == list(theirs) and all(
        ours[name] == theirs[name] for name in theirs if name not in free
    )


def client_line_fields(text):
    return [field.split(b"=")[0] for field in text.split(b"\n")[0].split(b" ")]


# Fields of a client's line about its state and commands, not about its identity or memory.
SAME_IN_CLIENT_LINES = (b"name", b"flags", b"multi", b"events", b"cmd", b"resp")


def client_line_values(text):
    """The lines in the order of their clients, which both servers number in the order of arrival."""
    text = text.removeprefix(b"txt:")  # of a verbatim string
    lines = (dict(f.split(b"=", 1) for f in line.split(b" ")) for line in text.splitlines() if line)
    lines = sorted(lines, key=lambda line: int(line[b"id"]))
    for line in lines:
        # Redis forgets to take this letter back when RESET ends a transaction with an error in it.
        line[b"flags"] = line[b"flags"].replace(b"d", b"") or b"N"
    # Redis may also count replies that are written right after this one.
    omem = [int(line[b"omem"]) for line in lines]
    return [[line[name] for name in SAME_IN_CLIENT_LINES] for line in lines], omem


def client_info(ours, theirs):
    """All fields of Redis 7.0, in its order; 7.2 adds lib-name and lib-ver. The fields about the
    client's state and commands are the same."""
    ours = ours[1] if isinstance(ours, Typed) else ours
    theirs = theirs[1] if isinstance(theirs, Typed) else theirs
    if type(ours) is not bytes or type(theirs) is not bytes:
        return False
    added = (b"lib-name", b"lib-ver")
    fields = [field for field in client_line_fields(ours) if field not in added]
    (same, omem), (wanted, most) = client_line_values(ours), client_line_values(theirs)
    waits = any(one > 0 and other == 0 for one, other in zip(omem, most, strict=False))
    return fields == client_line_fields(theirs) and same == wanted and not waits


CHANGED = {
    "HELLO": (hello, "the version; src/version.h"),
    "CLIENT INFO": (
        client_info,
        "lib-name and lib-ver are new; src/networking.c catClientInfoString",
    ),
    "CLIENT LIST": (
        client_info,
        "lib-name and lib-ver are new; src/networking.c catClientInfoString",
    ),
}

# src/commands/client-setinfo.json, client-no-touch.json and waitaof.json: since 7.2.0
NEW_COMMANDS = {b"client|setinfo", b"client|no-touch", b"waitaof"}

SETINFO = "src/networking.c clientSetinfoCommand"
NO_TOUCH = "src/networking.c clientCommand, no-touch"

NEW = [
    (["CLIENT", "SETINFO", "LIB-NAME", "some-lib"], b"+OK\r\n", SETINFO),
    (["CLIENT", "SETINFO", "lib-ver", "1.2.3"], b"+OK\r\n", SETINFO),
    (["CLIENT", "SETINFO", "LIB-NAME", ""], b"+OK\r\n", SETINFO),
    (
        ["CLIENT", "SETINFO", "LIB-NAME", "two words"],
        b"-ERR LIB-NAME cannot contain spaces, newlines or special characters.\r\n",
        SETINFO,
    ),
    (["CLIENT", "SETINFO", "FOO", "x"], b"-ERR Unrecognized option 'FOO'\r\n", SETINFO),
    (
        ["CLIENT", "SETINFO", "LIB-NAME"],
        b"-ERR wrong number of arguments for 'client|setinfo' command\r\n",
        "src/commands/client-setinfo.json, arity 4",
    ),
    (["CLIENT", "NO-TOUCH", "ON"], b"+OK\r\n", NO_TOUCH),
    (["CLIENT", "NO-TOUCH", "off"], b"+OK\r\n", NO_TOUCH),
    (["CLIENT", "NO-TOUCH", "maybe"], b"-ERR syntax error\r\n", NO_TOUCH),
]
