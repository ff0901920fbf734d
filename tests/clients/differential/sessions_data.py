"""Fixed sessions on keys and transactions: sequences that a generator would hardly produce."""

from session import session

DATA_SESSIONS = [
    session(
        "WATCH sees every kind of touch",
        """
        1: WATCH a
        2: SET a 1
        1: MULTI
        1: SET b 1
        1: EXEC
        1: WATCH a
        1: MULTI
        1: GET a
        1: EXEC
        1: WATCH a missing
        2: DEL a
        1: MULTI
        1: EXEC
        1: WATCH a
        2: DEL a
        1: MULTI
        1: PING
        1: EXEC
        1: SET a 1
        1: WATCH a
        2: EXPIRE a 100
        1: MULTI
        1: EXEC
        1: WATCH a
        2: PERSIST a
        1: MULTI
        1: EXEC
        1: WATCH a
        2: FLUSHALL
        1: MULTI
        1: EXEC
        1: WATCH a
        2: FLUSHALL
        1: MULTI
        1: EXEC
        1: SET a 1
        1: WATCH b
        2: RENAME a b
        1: MULTI
        1: EXEC
        1: WATCH a
        2: COPY b a
        1: MULTI
        1: EXEC
        1: WATCH a
        2: SET a 1 NX
        1: MULTI
        1: PING
        1: EXEC
        1: WATCH a
        2: APPEND a ''
        1: MULTI
        1: PING
        1: EXEC
        1: WATCH a
        1: SET a own
        1: MULTI
        1: PING
        1: EXEC
        1: WATCH a
        1: UNWATCH
        2: SET a 2
        1: MULTI
        1: PING
        1: EXEC
        1: WATCH a
        2: SET a 2
        1: MULTI
        1: DISCARD
        1: MULTI
        1: PING
        1: EXEC
        """,
    ),
    session(
        "expiry while watched",
        """
        1: SET a 1 PX 1000
        1: WATCH a
        1: @SLEEP 1100
        1: MULTI
        1: PING
        1: EXEC
        1: SET a 1 PX 5
        1: @SLEEP 20
        1: WATCH a
        1: MULTI
        1: GET a
        1: EXEC
        """,
    ),
    session(
        "transactions and their errors",
        """
        1: EXEC
        1: DISCARD
        1: MULTI
        1: MULTI
        1: WATCH a
        1: SET a 1
        1: INCR a
        1: EXEC
        1: MULTI
        1: SET a
        1: SET a 2
        1: EXEC
        1: GET a
        1: MULTI
        1: NOSUCH x
        1: EXEC
        1: MULTI
        1: SET a text
        1: INCR a
        1: GET a
        1: EXEC
        1: MULTI
        1: EXEC
        1: MULTI x
        1: EXEC x
        1: MULTI
        1: UNWATCH
        1: PING
        1: ECHO hi
        1: TTL a
        1: EXEC
        1: MULTI
        1: SET a in
        1: RESET
        1: GET a
        1: EXEC
        1: MULTI
        1: FLUSHALL
        1: SET a x
        1: EXEC
        1: DBSIZE
        1: MULTI
        1: SET k1 v1
        1: RENAME k1 k2
        1: GET k1
        1: GET k2
        1: EXISTS k1 k2
        1: DEL k2
        1: RENAME k2 k3
        1: MSET a 1 b 2
        1: MGET a b k1 k2
        1: SCAN 0 COUNT 0
        1: KEYS *
        1: EXEC
        1: MULTI
        1: SET s value EX 100
        1: TTL s
        1: PERSIST s
        1: TTL s
        1: EXPIRE s 1000 GT
        1: EXPIRE s 1000 NX
        1: EXPIREAT s 1
        1: EXISTS s
        1: EXEC
        1: MULTI
        1: SELECT 0
        1: SELECT 1
        1: CLIENT GETNAME
        1: AUTH x
        1: EXEC
        """,
    ),
    session(
        "the edges of numbers",
        """
        1: SET n 9223372036854775807
        1: INCR n
        1: INCRBY n 1
        1: DECRBY n -1
        1: INCRBY n -1
        1: SET n -9223372036854775808
        1: DECR n
        1: DECRBY n 1
        1: DECRBY n -9223372036854775808
        1: INCRBY n -1
        1: SET f 3.0e3
        1: INCRBYFLOAT f 200
        1: SET f 10.50
        1: INCRBYFLOAT f 0.1
        1: INCRBYFLOAT f -5
        1: INCRBYFLOAT f 1e308
        1: INCRBYFLOAT f 1e4931
        1: INCRBYFLOAT f 1e4932
        1: INCRBYFLOAT f inf
        1: INCRBYFLOAT f nan
        1: SET f 0
        1: INCRBYFLOAT f 1e-17
        1: INCRBYFLOAT f 1e-18
        1: INCRBYFLOAT f 0.1
        1: INCRBYFLOAT f 0.2
        1: INCRBYFLOAT f 0.3
        1: INCRBYFLOAT f -0.6
        1: SET f 17179869184
        1: INCRBYFLOAT f 1.5
        1: SET f 123456789012345678
        1: INCRBYFLOAT f 0.125
        1: SET f 0.0001
        1: INCRBYFLOAT f 0
        1: SET f -0
        1: INCRBYFLOAT f 0
        1: GET f
        1: SET f 100000000000000000000000
        1: INCRBYFLOAT f 1
        1: SET f 18446744073709551615
        1: INCRBYFLOAT f 1
        """,
    ),
    session(
        "encodings",
        """
        1: SET a 123
        1: OBJECT ENCODING a
        1: SET a 0123
        1: OBJECT ENCODING a
        1: SET a 9223372036854775807
        1: OBJECT ENCODING a
        1: SET a 9223372036854775808
        1: OBJECT ENCODING a
        1: SET a 12345678901234567890123456789012345678901234
        1: OBJECT ENCODING a
        1: SET a 123456789012345678901234567890123456789012345
        1: OBJECT ENCODING a
        1: INCRBYFLOAT b 3
        1: OBJECT ENCODING b
        1: INCR c
        1: OBJECT ENCODING c
        1: OBJECT ENCODING missing
        1: OBJECT IDLETIME missing
        1: OBJECT FREQ a
        1: OBJECT FREQ missing
        1: OBJECT REFCOUNT missing
        1: OBJECT ENCODING
        1: OBJECT
        1: OBJECT NOSUCH a
        1: OBJECT HELP x
        """,
    ),
    session(
        "ranges",
        """
        1: SET s Hello,\\x20World
        1: GETRANGE s 0 4
        1: GETRANGE s -5 -1
        1: GETRANGE s 5 2
        1: GETRANGE s -100 100
        1: GETRANGE s -1 -5
        1: GETRANGE s 100 200
        1: GETRANGE s 0 9223372036854775807
        1: GETRANGE s -9223372036854775808 -1
        1: GETRANGE s a 1
        1: GETRANGE missing 0 -1
        1: SUBSTR s 0 0
        1: SETRANGE s 7 Redis
        1: GET s
        1: SETRANGE s -1 x
        1: SETRANGE s 20 x
        1: GET s
        1: SETRANGE missing 0 ''
        1: EXISTS missing
        1: SETRANGE missing 5 ''
        1: EXISTS missing
        1: SETRANGE missing 536870911 xx
        1: SETRANGE missing 536870912 ''
        1: SETRANGE missing 9223372036854775807 x
        1: SETRANGE missing 3 x
        1: GET missing
        1: APPEND new ''
        1: EXISTS new
        1: STRLEN new
        """,
    ),
    session(
        "expiry that is over at once",
        """
        1: SET a 1
        1: EXPIRE a 0
        1: EXISTS a
        1: SET a 1
        1: EXPIRE a -1
        1: EXISTS a
        1: SET a 1
        1: PEXPIREAT a 1
        1: GET a
        1: SET a 1 EXAT 1
        1: GET a
        1: SET a 1 PXAT 1
        1: EXISTS a
        1: SET a 1
        1: GETEX a EXAT 1
        1: EXISTS a
        1: SET a 1 EX 0
        1: SET a 1 PX -1
        1: SET a 1 EX 9223372036854775807
        1: SET a 1 PX 9223372036854775807
        1: SETEX a 0 x
        1: PSETEX a -1 x
        1: GETEX a EX 0
        1: EXPIRE a 9223372036854775807
        1: PEXPIRE a 9223372036854775807
        1: PEXPIREAT a 9223372036854775807
        1: EXPIRE missing 9223372036854775807
        1: EXPIRE missing x
        1: SET a 1
        1: EXPIRE a -9223372036854775808
        1: SET a 1
        1: EXPIRE a 100 NX XX
        1: EXPIRE a 100 GT LT
        1: EXPIRE a 100 NX GT
        1: EXPIRE a 100 FOO
        1: EXPIRE a 100 GT
        1: EXPIRE a 1000 LT
        1: EXPIRE a 100 LT
        1: EXPIRE a 5000 GT
        1: EXPIRE a 1 NX
        1: EXPIRE a 5000 XX
        1: SET a 1 PX 5
        1: @SLEEP 20
        1: GET a
        1: TTL a
        1: DBSIZE
        1: EXISTS a
        1: SET a 1 PX 5
        1: @SLEEP 20
        1: SET a 2 XX
        1: SET a 2 NX
        1: SET a 3 KEEPTTL EX 5
        1: SET a 3 GET
        1: SET a 3 NX GET
        1: SET a 3 XX GET
        1: SET new 3 NX GET
        1: SET missing 3 XX GET
        1: SET a 3 NX XX
        1: SET a 3 EX 1 PX 1
        1: SET a 3 EX
        1: SET a b c d e f g
        """,
    ),
    session(
        "keys that expire are not seen by any command",
        """
        1: SET a 1 PX 5
        1: SET b 1 PX 5
        1: SET c 1
        1: @SLEEP 20
        1: KEYS *
        1: @SCAN
        1: RANDOMKEY
        1: RENAME a x
        1: RENAMENX b c
        1: COPY a x
        1: TOUCH a b c
        1: UNLINK a b
        1: TYPE a
        1: PERSIST a
        1: EXPIRE a 100
        1: STRLEN a
        1: APPEND a x
        1: TTL a
        1: INCR b
        1: TTL b
        """,
    ),
]
