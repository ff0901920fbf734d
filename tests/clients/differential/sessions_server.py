"""Fixed sessions on connections, settings and functions, and the arity of commands."""

from session import session

SERVER_SESSIONS = [
    session(
        "HELLO, names and RESET",
        """
        1: HELLO
        1: HELLO 3
        1: HELLO 3 SETNAME me
        1: CLIENT GETNAME
        1: HELLO 2 SETNAME
        1: HELLO 3 AUTH
        1: HELLO 3 AUTH default x
        1: HELLO 3 AUTH other x
        1: HELLO 3 FOO
        1: HELLO 5
        1: HELLO 0
        1: HELLO three
        1: HELLO 3 SETNAME bad\\x20name
        1: HELLO 2
        1: AUTH x
        1: AUTH default x
        1: AUTH other x
        1: AUTH a b c
        1: AUTH
        1: HELLO 3
        1: RESET
        1: GET missing
        1: RESET x
        1: CLIENT GETNAME
        1: QUIT
        """,
    ),
    session(
        "CLIENT",
        """
        1: CLIENT
        1: CLIENT ID x
        1: CLIENT SETNAME
        1: CLIENT SETNAME one
        1: CLIENT GETNAME
        1: CLIENT SETNAME ''
        1: CLIENT GETNAME
        1: CLIENT KILL 1.2.3.4:5
        1: CLIENT KILL ID 99999999
        1: CLIENT KILL ID x
        1: CLIENT KILL ID 0
        1: CLIENT KILL ADDR 1.2.3.4:5 SKIPME yes
        1: CLIENT KILL SKIPME maybe
        1: CLIENT KILL TYPE nosuch
        1: CLIENT KILL USER nosuch
        1: CLIENT KILL FOO bar
        1: CLIENT KILL ID
        1: CLIENT LIST TYPE nosuch
        1: CLIENT LIST ID 99999999
        1: CLIENT LIST ID x
        1: CLIENT LIST FOO
        1: CLIENT REPLY
        1: CLIENT REPLY maybe
        1: CLIENT REPLY ON
        1: CLIENT NO-EVICT
        1: CLIENT NO-EVICT on
        1: CLIENT INFO
        1: CLIENT INFO x
        1: client list
        1: MULTI
        1: CLIENT INFO
        1: EXEC
        1: NOSUCH
        1: GET a b
        2: SET a
        1: CLIENT LIST
        2: CLIENT NOSUCH
        1: CLIENT LIST
        2: CLIENT
        1: CLIENT LIST
        2: SET a 1
        2: INCR a
        1: CLIENT LIST
        2: OBJECT ENCODING a
        1: CLIENT LIST
        1: DEL a
        1: CLIENT HELP x
        1: CLIENT GETNAME x
        """,
    ),
    session(
        "SELECT",
        """
        1: SELECT
        1: SELECT 0
        1: SELECT 1
        1: SELECT -1
        1: SELECT x
        1: SELECT 99999999999999999999
        1: SELECT 0 0
        """,
    ),
    session(
        "COMMAND",
        """
        1: COMMAND GETKEYS GET a
        1: COMMAND GETKEYS MSET a 1 b 2
        1: COMMAND GETKEYS MSET a 1 b
        1: COMMAND GETKEYS PING
        1: COMMAND GETKEYS NOSUCH a
        1: COMMAND GETKEYS GET
        1: COMMAND GETKEYS FCALL f 2 a b c
        1: COMMAND GETKEYS FCALL f 0 a
        1: COMMAND GETKEYS FCALL f x a
        1: COMMAND GETKEYS SET a 1 EX 1
        1: COMMAND GETKEYS RENAME a b
        1: COMMAND GETKEYS OBJECT ENCODING a
        1: COMMAND GETKEYS
        1: COMMAND INFO
        1: COMMAND INFO nosuch
        1: COMMAND INFO get set mset del nosuch expire incr scan
        1: COMMAND INFO ping echo hello auth select time dbsize flushall
        1: COMMAND INFO append strlen getrange substr setrange
        1: COMMAND INFO copy rename renamenx randomkey keys type touch unlink exists
        1: COMMAND INFO multi exec discard watch unwatch
        1: COMMAND INFO object|encoding client|id nosuch|sub
        1: COMMAND INFO CONFIG|GET config|nosuch get|x object|help
        1: COMMAND COUNT x
        1: COMMAND LIST
        1: COMMAND LIST FILTERBY PATTERN config
        1: COMMAND LIST FILTERBY PATTERN config|g*
        1: COMMAND LIST FILTERBY PATTERN object*
        1: COMMAND LIST FILTERBY ACLCAT dangerous
        1: COMMAND LIST FILTERBY ACLCAT nosuch
        1: COMMAND LIST FILTERBY MODULE nosuch
        1: COMMAND DOCS get|x
        1: COMMAND NOSUCH
        1: COMMAND LIST FILTERBY PATTERN mset*
        1: COMMAND LIST FILTERBY FOO x
        1: COMMAND LIST FOO
        1: COMMAND DOCS nosuch
        """,
    ),
    session(
        "FUNCTION without a library",
        """
        1: FUNCTION
        1: FUNCTION LIST
        1: FUNCTION LIST WITHCODE
        1: FUNCTION LIST LIBRARYNAME nosuch
        1: FUNCTION LIST LIBRARYNAME
        1: FUNCTION LIST FOO
        1: FUNCTION LIST LIBRARYNAME a LIBRARYNAME b
        1: FUNCTION DELETE nosuch
        1: FUNCTION DELETE
        1: FUNCTION FLUSH
        1: FUNCTION FLUSH ASYNC
        1: FUNCTION FLUSH SYNC
        1: FUNCTION FLUSH FOO
        1: FUNCTION FLUSH SYNC x
        1: FUNCTION KILL
        1: FUNCTION STATS
        1: FUNCTION LOAD nocode
        1: FUNCTION LOAD ''
        1: FUNCTION LOAD #!nosuch\\x20name=a\\nx
        1: FUNCTION LOAD #!\\x20name=t\\nx
        1: FUNCTION LOAD #!\\nx
        1: FUNCTION LOAD #!js
        1: FUNCTION LOAD #!js\\x20name=t
        1: FUNCTION LOAD #!js\\x20name\\nx
        1: FUNCTION LOAD #!js\\x20name=\\nx
        1: FUNCTION LOAD #!js\\x20name=\\x20t\\nx
        1: FUNCTION LOAD #!js\\x20name="t\\nx
        1: FUNCTION LOAD #!js\\x20"name=t\\nx
        1: FUNCTION LOAD #!js\\x20name='t\\nx
        1: FUNCTION LOAD #!js\\x20name="a"b\\nx
        1: FUNCTION LOAD #!js\\x20name=''\\nx
        1: FUNCTION LOAD #!js\\x20name="a-b"\\nx
        1: FUNCTION LOAD #!js\\x20"name=a\\\\n"\\nx
        1: FUNCTION LOAD #!js\\x20name=a\\x20"Name=b"\\nx
        1: FUNCTION LOAD #!js\\x20'foo=1'\\nx
        1: FUNCTION LOAD #!js\\x20name=a\\x00b\\nx
        1: FUNCTION LOAD #!\\x20js\\x20name=a\\nx
        1: FUNCTION LOAD #!"nosuch"\\x20name="\\\\x41"\\nx
        1: FUNCTION LOAD #!nosuch\\nx
        1: FUNCTION LOAD REPLACE
        1: FUNCTION LOAD FOO x
        1: FUNCTION RESTORE x
        1: FUNCTION RESTORE x FOO
        1: FUNCTION NOSUCH
        1: FCALL
        1: FCALL f
        1: FCALL f 0
        1: FCALL f x
        1: FCALL f -1
        1: FCALL f 2 a
        1: FCALL_RO f 0
        1: FCALL_RO f 2 a
        1: HELLO 3
        1: FUNCTION LIST
        1: FUNCTION STATS
        """,
    ),
    session(
        "settings and logs",
        """
        1: CONFIG
        1: CONFIG GET
        1: CONFIG GET nosuch
        1: CONFIG GET nosuch* other
        1: CONFIG SET
        1: CONFIG SET maxclients
        1: CONFIG SET nosuch 1
        1: CONFIG SET maxclients x
        1: CONFIG SET timeout 10 timeout 20
        1: CONFIG SET timeout -1
        1: CONFIG SET timeout 0
        1: CONFIG GET timeout
        1: CONFIG SET timeout 1\\x00
        1: CONFIG SET timeout\\x00 1
        1: CONFIG GET timeout\\x00
        1: CONFIG SET requirepass a\\x00b
        1: AUTH a
        1: AUTH a\\x00c
        1: AUTH a\\x00b
        1: CONFIG GET requirepass
        1: CONFIG SET requirepass ''
        1: CONFIG RESETSTAT
        1: CONFIG RESETSTAT x
        1: CONFIG NOSUCH
        1: HELLO 3
        1: CONFIG GET timeout
        1: CONFIG GET nosuch
        1: SLOWLOG RESET
        1: SLOWLOG LEN
        1: SLOWLOG GET
        1: SLOWLOG GET -2
        1: SLOWLOG GET x
        1: SLOWLOG GET 1 2
        1: SLOWLOG NOSUCH
        1: SLOWLOG
        1: LATENCY LATEST
        1: LATENCY HISTORY foo
        1: LATENCY RESET
        1: LATENCY RESET foo
        1: LATENCY NOSUCH
        1: LATENCY
        1: INFO nosuch
        1: SHUTDOWN FOO
        1: SHUTDOWN ABORT
        1: SHUTDOWN SAVE NOSAVE
        1: DBSIZE x
        1: TIME x
        1: PING a b
        1: ECHO
        1: ECHO a b
        """,
    ),
    session(
        "case and arity",
        """
        1: get
        1: GeT a b
        1: sEt a
        1: set
        1: MSET
        1: MSET a
        1: MSET a 1 b
        1: MSETNX a 1 b
        1: mget
        1: DEL
        1: exists
        1: EXPIRE a
        1: TTL
        1: RENAME a
        1: COPY a
        1: SCAN
        1: KEYS
        1: INCR
        1: INCRBY a
        1: GETRANGE a 0
        1: SETRANGE a 0
        1: WATCH
        1: UNWATCH x
        1: DISCARD x
        1: RANDOMKEY x
        1: SUBSTR a 0
        1: NOSUCHCOMMAND
        1: NOSUCHCOMMAND with args that\\x20are quoted
        1: NOSUCH\\r\\nCOMMAND with\\r\\nlines
        """,
    ),
]
