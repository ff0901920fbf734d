//! Commands on string values.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::key_specs::{
    OW_INSERT, OW_INSERT_PAIRS, OW_UPDATE, OW_UPDATE_PAIRS, RO, RO_ACCESS, RO_ACCESS_ALL,
    RW_ACCESS_DELETE, RW_ACCESS_UPDATE, RW_ACCESS_UPDATE_TTL, RW_ACCESS_UPDATE_VARIABLE_FLAGS_GET,
    RW_INSERT, RW_UPDATE,
};
use super::spec::{CommandSpec, DENYOOM, FAST, PLAIN, READONLY, Run, WRITE};
use nigh_store::Op;

const ROW: CommandSpec = CommandSpec { acl: "string", group: "string", ..PLAIN };
const INCR: CommandSpec =
    CommandSpec { flags: WRITE | DENYOOM | FAST, keys: RW_ACCESS_UPDATE, ..ROW };

pub(super) static STRING: &[CommandSpec] = &[
    CommandSpec {
        name: "get",
        run: Run::Data(Op::Get),
        arity: 2,
        flags: READONLY | FAST,
        keys: RO_ACCESS,
        since: "1.0.0",
        summary: "Answers the value of a key.",
        syntax: "key",
        ..ROW
    },
    CommandSpec {
        name: "set",
        run: Run::Data(Op::Set),
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: RW_ACCESS_UPDATE_VARIABLE_FLAGS_GET,
        since: "1.0.0",
        summary: "Sets the value of a key.",
        syntax: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        ..ROW
    },
    CommandSpec {
        name: "setnx",
        run: Run::Data(Op::SetNx),
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        keys: OW_INSERT,
        since: "1.0.0",
        summary: "Sets the value of a key that doesn't exist.",
        syntax: "key value",
        ..ROW
    },
    CommandSpec {
        name: "setex",
        run: Run::Data(Op::SetEx),
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: OW_UPDATE,
        since: "2.0.0",
        summary: "Sets the value of a key and its time to live in seconds.",
        syntax: "key seconds value",
        ..ROW
    },
    CommandSpec {
        name: "psetex",
        run: Run::Data(Op::PSetEx),
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: OW_UPDATE,
        since: "2.6.0",
        summary: "Sets the value of a key and its time to live in milliseconds.",
        syntax: "key milliseconds value",
        ..ROW
    },
    CommandSpec {
        name: "getset",
        run: Run::Data(Op::GetSet),
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        keys: RW_ACCESS_UPDATE,
        since: "1.0.0",
        summary: "Sets the value of a key and answers the one before.",
        syntax: "key value",
        ..ROW
    },
    CommandSpec {
        name: "getdel",
        run: Run::Data(Op::GetDel),
        arity: 2,
        flags: WRITE | FAST,
        keys: RW_ACCESS_DELETE,
        since: "6.2.0",
        summary: "Answers the value of a key and removes the key.",
        syntax: "key",
        ..ROW
    },
    CommandSpec {
        name: "getex",
        run: Run::Data(Op::GetEx),
        arity: -2,
        flags: WRITE | FAST,
        keys: RW_ACCESS_UPDATE_TTL,
        since: "6.2.0",
        summary: "Answers the value of a key and sets its expiry.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        ..ROW
    },
    CommandSpec {
        name: "mget",
        run: Run::Data(Op::MGet),
        arity: -2,
        flags: READONLY | FAST,
        keys: RO_ACCESS_ALL,
        tips: "request_policy:multi_shard",
        since: "1.0.0",
        complexity: "O(N) where N is the number of keys to retrieve",
        summary: "Answers the values of several keys.",
        syntax: "key ...",
        ..ROW
    },
    CommandSpec {
        name: "mset",
        run: Run::Data(Op::MSet),
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: OW_UPDATE_PAIRS,
        tips: "request_policy:multi_shard response_policy:all_succeeded",
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys to set",
        summary: "Sets several keys, all at once.",
        syntax: "(key value) ...",
        ..ROW
    },
    CommandSpec {
        name: "msetnx",
        run: Run::Data(Op::MSetNx),
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: OW_INSERT_PAIRS,
        tips: "request_policy:multi_shard response_policy:agg_min",
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys to set",
        summary: "Sets several keys at once if none of them exists.",
        syntax: "(key value) ...",
        ..ROW
    },
    CommandSpec {
        name: "append",
        run: Run::Data(Op::Append),
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        keys: RW_INSERT,
        since: "2.0.0",
        complexity: "O(N), N: the length of the new value",
        summary: "Appends to the value of a key.",
        syntax: "key value",
        ..ROW
    },
    CommandSpec {
        name: "strlen",
        run: Run::Data(Op::StrLen),
        arity: 2,
        flags: READONLY | FAST,
        keys: RO,
        since: "2.2.0",
        summary: "Answers the length of a value.",
        syntax: "key",
        ..ROW
    },
    CommandSpec {
        name: "getrange",
        run: Run::Data(Op::GetRange),
        arity: 4,
        flags: READONLY,
        keys: RO_ACCESS,
        since: "2.4.0",
        complexity: "O(N), N: the length of the answer",
        summary: "Answers a part of a value.",
        syntax: "key start end",
        ..ROW
    },
    CommandSpec {
        name: "substr",
        run: Run::Data(Op::SubStr),
        arity: 4,
        flags: READONLY,
        keys: RO_ACCESS,
        since: "1.0.0",
        complexity: "O(N), N: the length of the answer",
        summary: "Answers a part of a value; the old name of GETRANGE.",
        syntax: "key start end",
        ..ROW
    },
    CommandSpec {
        name: "setrange",
        run: Run::Data(Op::SetRange),
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: RW_UPDATE,
        since: "2.2.0",
        complexity: "O(N), N: the length of the new value",
        summary: "Overwrites a part of a value.",
        syntax: "key offset value",
        ..ROW
    },
    CommandSpec {
        name: "incr",
        run: Run::Data(Op::Incr),
        arity: 2,
        since: "1.0.0",
        summary: "Adds one to a number.",
        syntax: "key",
        ..INCR
    },
    CommandSpec {
        name: "decr",
        run: Run::Data(Op::Decr),
        arity: 2,
        since: "1.0.0",
        summary: "Takes one from a number.",
        syntax: "key",
        ..INCR
    },
    CommandSpec {
        name: "incrby",
        run: Run::Data(Op::IncrBy),
        arity: 3,
        since: "1.0.0",
        summary: "Adds an integer to a number.",
        syntax: "key increment",
        ..INCR
    },
    CommandSpec {
        name: "decrby",
        run: Run::Data(Op::DecrBy),
        arity: 3,
        since: "1.0.0",
        summary: "Takes an integer from a number.",
        syntax: "key decrement",
        ..INCR
    },
    CommandSpec {
        name: "incrbyfloat",
        run: Run::Data(Op::IncrByFloat),
        arity: 3,
        since: "2.6.0",
        summary: "Adds a floating-point number to a number.",
        syntax: "key increment:double",
        ..INCR
    },
];
