"""Bytes of broken or hostile clients: (title, bytes).

Both servers must send the same output, and both close the connection or both keep it.
"""

QUIET_S = 0.25  # a server that is silent for so long has sent all

BIG = 1 << 16

RAW = [
    ("inline PING", b"PING\r\n"),
    ("inline with a bare newline", b"PING\nPING\n"),
    ("empty lines", b"\r\n\r\n\nPING\r\n"),
    ("spaces only", b"   \r\nPING\r\n"),
    ("inline with quotes", b'SET "a b" "x\\x41\\n\\"y"\r\nGET "a b"\r\nGET \'a b\'\r\n'),
    ("single quotes", b"SET 'it\\'s' 'a\\nb'\r\nGET 'it\\'s'\r\n"),
    ("unbalanced double quote", b'SET a "x\r\nPING\r\n'),
    ("unbalanced single quote", b"SET a 'x\r\n"),
    ("quote inside a word", b'SET a b"c"\r\n'),
    ("text after a closing quote", b'SET a "b"c\r\n'),
    ("tabs and many spaces", b"  SET\ta   1  \r\nGET a\r\n"),
    ("inline with a null byte", b"GET a\x00b\r\nPING\r\n"),
    ("array of no elements", b"*0\r\nPING\r\n"),
    ("array of minus one", b"*-1\r\nPING\r\n"),
    ("array of minus ten", b"*-10\r\nPING\r\n"),
    ("array length that is no number", b"*abc\r\nPING\r\n"),
    ("array length with a space", b"* 1\r\n$4\r\nPING\r\n"),
    ("array length with a plus", b"*+1\r\n$4\r\nPING\r\n"),
    ("array length with a leading zero", b"*01\r\n$4\r\nPING\r\n"),
    ("empty array length", b"*\r\nPING\r\n"),
    ("array length over the limit", b"*2147483648\r\nPING\r\n"),
    ("array length over 64 bits", b"*99999999999999999999\r\nPING\r\n"),
    ("array length at a million, then nothing", b"*1048576\r\n"),
    ("bulk length that is no number", b"*1\r\n$abc\r\nPING\r\n"),
    ("bulk length of minus one", b"*1\r\n$-1\r\nPING\r\n"),
    ("empty bulk length", b"*1\r\n$\r\nPING\r\n"),
    ("bulk length over the limit", b"*1\r\n$536870913\r\nPING\r\n"),
    ("bulk length over 64 bits", b"*1\r\n$99999999999999999999\r\nPING\r\n"),
    ("bulk of no bytes as command", b"*1\r\n$0\r\n\r\nPING\r\n"),
    ("not a bulk", b"*1\r\n+PING\r\nPING\r\n"),
    ("an integer as argument", b"*2\r\n$4\r\nECHO\r\n:5\r\n"),
    ("a nested array", b"*1\r\n*1\r\n$4\r\nPING\r\n"),
    ("a line end in place of a bulk", b"*1\r\n\r\nPING\r\n"),
    ("a printable byte as kind", b"*1\r\nPING\r\n"),
    ("an unprintable byte as kind", b"*1\r\n\x01\r\n"),
    ("bulk shorter than its length says", b"*1\r\n$3\r\nPING\r\nPING\r\n"),
    ("wrong line end after a bulk", b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n"),
    ("good, then bad, then good", b"PING\r\n*1\r\n$x\r\nPING\r\n"),
    ("cut in the length", b"*1\r\n$4"),
    ("cut in the bulk", b"*1\r\n$4\r\nPI"),
    ("a long array length", b"*" + b"1" * (BIG + 10)),
    ("a long bulk length", b"*1\r\n$" + b"1" * (BIG + 10)),
    ("a long inline request", b"x" * (BIG + 10)),
    ("a long inline request that ends", b"ECHO " + b"x" * 60_000 + b"\r\n"),
    ("HTTP POST", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("HTTP GET with a Host line", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("only a line end", b"\r\n"),
    ("a byte that is no protocol", b"\x00\r\nPING\r\n"),
    ("QUIT, then more", b"QUIT\r\nPING\r\n"),
    ("QUIT in a pipeline", b"PING\r\nQUIT\r\nSET a 1\r\n"),
    (
        "CLIENT REPLY OFF and ON",
        b"CLIENT REPLY OFF\r\nPING\r\nNOSUCH\r\nCLIENT REPLY ON\r\nPING x\r\n",
    ),
    ("CLIENT REPLY SKIP", b"CLIENT REPLY SKIP\r\nPING\r\nPING x\r\nPING y\r\n"),
    ("CLIENT REPLY SKIP twice", b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING x\r\nPING y\r\n"),
    (
        "CLIENT REPLY SKIP while off",
        b"CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nCLIENT REPLY ON\r\n",
    ),
    ("RESET ends REPLY OFF", b"CLIENT REPLY OFF\r\nRESET\r\nPING\r\n"),
    ("a protocol error inside MULTI", b"MULTI\r\nSET a 1\r\n*1\r\n$x\r\nEXEC\r\n"),
    ("arguments up to a thousand", b"*1001\r\n$3\r\nDEL\r\n" + b"$1\r\nk\r\n" * 1000),
    ("many commands at once", b"PING\r\n" * 5000),
]

# Redis answers nothing to these: for Redis a null byte ends the line too early.
BETTER = {
    "inline with a null byte": b"$-1\r\n+PONG\r\n",
    "a byte that is no protocol": (
        b"-ERR unknown command '', with args beginning with: \r\n+PONG\r\n"
    ),
}
