//! Commands on keys, whatever they hold.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::key_specs::{
    RM_DELETE_ALL, RO, RO_ACCESS, RO_ACCESS_THEN_OW_UPDATE_AT2, RO_ALL, RO_AT2,
    RW_ACCESS_DELETE_THEN_OW_INSERT_AT2, RW_ACCESS_DELETE_THEN_OW_UPDATE_AT2, RW_UPDATE,
};
use super::spec::{
    Builtin, CommandSpec, DENYOOM, FAST, NOSCRIPT, PLAIN, READONLY, Run, WRITE, container, help,
};
use nigh_store::Op;

const ROW: CommandSpec = CommandSpec { acl: "keyspace", group: "generic", ..PLAIN };
const OBJECT: CommandSpec = CommandSpec {
    run: Run::Data(Op::Object),
    arity: 3,
    flags: READONLY,
    keys: RO_AT2,
    tips: "nondeterministic_output",
    since: "2.2.3",
    syntax: "key",
    ..ROW
};
const EXPIRE: CommandSpec = CommandSpec { arity: -3, flags: WRITE | FAST, keys: RW_UPDATE, ..ROW };
const TTL: CommandSpec =
    CommandSpec { arity: 2, flags: READONLY | FAST, keys: RO_ACCESS, syntax: "key", ..ROW };
const WAIT: CommandSpec = CommandSpec {
    flags: NOSCRIPT,
    acl: "connection",
    tips: "request_policy:all_shards response_policy:agg_min",
    ..ROW
};
const KEYS_COUNTED: CommandSpec = CommandSpec {
    arity: -2,
    tips: "request_policy:multi_shard response_policy:agg_sum",
    syntax: "key ...",
    ..ROW
};

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static GENERIC: &[CommandSpec] = &[
    CommandSpec { name: "del", run: Run::Data(Op::Del), flags: WRITE,
        keys: RM_DELETE_ALL, since: "1.0.0", complexity: "O(N), N: the number of keys",
        summary: "Removes keys.", ..KEYS_COUNTED },
    CommandSpec { name: "unlink", run: Run::Data(Op::Unlink), flags: WRITE | FAST,
        keys: RM_DELETE_ALL, since: "4.0.0", complexity: "O(1) for each key",
        summary: "Removes keys; their memory is reclaimed later.", ..KEYS_COUNTED },
    CommandSpec { name: "exists", run: Run::Data(Op::Exists), flags: READONLY | FAST,
        keys: RO_ALL, since: "1.0.0", complexity: "O(N) where N is the number of keys to check",
        summary: "Counts how many of the keys exist.", ..KEYS_COUNTED },
    CommandSpec { name: "touch", run: Run::Data(Op::Touch), flags: READONLY | FAST,
        keys: RO_ALL, since: "3.2.1",
        complexity: "O(N) where N is the number of keys that will be touched",
        summary: "Counts how many of the keys exist, as a use of them.", ..KEYS_COUNTED },
    CommandSpec { name: "type", run: Run::Data(Op::Type), arity: 2, flags: READONLY | FAST,
        keys: RO, since: "1.0.0",
        summary: "Answers the type of a value.", syntax: "key", ..ROW },
    CommandSpec { name: "rename", run: Run::Data(Op::Rename), arity: 3, flags: WRITE,
        keys: RW_ACCESS_DELETE_THEN_OW_UPDATE_AT2, since: "1.0.0",
        summary: "Gives a key another name, and overwrites what has it.", syntax: "key newkey",
        ..ROW },
    CommandSpec { name: "renamenx", run: Run::Data(Op::RenameNx), arity: 3, flags: WRITE | FAST,
        keys: RW_ACCESS_DELETE_THEN_OW_INSERT_AT2, since: "1.0.0",
        summary: "Gives a key another name if that is free.", syntax: "key newkey", ..ROW },
    CommandSpec { name: "copy", run: Run::Data(Op::Copy), arity: -3, flags: WRITE | DENYOOM,
        keys: RO_ACCESS_THEN_OW_UPDATE_AT2, since: "6.2.0",
        complexity: "O(N), N: the length of the value",
        summary: "Copies a value to another key.",
        syntax: "source destination [DB destination-db:integer] [REPLACE]", ..ROW },
    CommandSpec { name: "randomkey", run: Run::Data(Op::RandomKey), arity: 1, flags: READONLY,
        tips: "request_policy:all_shards nondeterministic_output", since: "1.0.0",
        summary: "Answers some key.", ..ROW },
    CommandSpec { name: "keys", run: Run::Data(Op::Keys), arity: 2, flags: READONLY,
        acl: "keyspace dangerous", tips: "request_policy:all_shards nondeterministic_output_order",
        since: "1.0.0", complexity: "O(N), N: the number of keys in the database",
        summary: "Answers all keys that match a pattern.", syntax: "pattern", ..ROW },
    CommandSpec { name: "scan", run: Run::Data(Op::Scan), arity: -2, flags: READONLY,
        tips: "nondeterministic_output request_policy:special", since: "2.8.0",
        complexity: "O(1) a call, O(N) for a whole iteration, N: the number of keys",
        summary: "Answers some keys, and where to go on.",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]", ..ROW },
    CommandSpec { name: "expire", run: Run::Data(Op::Expire),
        since: "1.0.0",
        summary: "Sets the time to live of a key in seconds.",
        syntax: "key seconds [NX | XX | GT | LT]", ..EXPIRE },
    CommandSpec { name: "pexpire", run: Run::Data(Op::PExpire),
        since: "2.6.0",
        summary: "Sets the time to live of a key in milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT]", ..EXPIRE },
    CommandSpec { name: "expireat", run: Run::Data(Op::ExpireAt),
        since: "1.2.0",
        summary: "Sets when a key expires, in seconds.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]", ..EXPIRE },
    CommandSpec { name: "pexpireat", run: Run::Data(Op::PExpireAt),
        since: "2.6.0",
        summary: "Sets when a key expires, in milliseconds.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]", ..EXPIRE },
    CommandSpec { name: "ttl", run: Run::Data(Op::Ttl),
        tips: "nondeterministic_output", since: "1.0.0",
        summary: "Answers the time to live of a key in seconds.", ..TTL },
    CommandSpec { name: "pttl", run: Run::Data(Op::PTtl),
        tips: "nondeterministic_output", since: "2.6.0",
        summary: "Answers the time to live of a key in milliseconds.", ..TTL },
    CommandSpec { name: "expiretime", run: Run::Data(Op::ExpireTime),
        since: "7.0.0",
        summary: "Answers when a key expires, in seconds.", ..TTL },
    CommandSpec { name: "pexpiretime", run: Run::Data(Op::PExpireTime),
        since: "7.0.0",
        summary: "Answers when a key expires, in milliseconds.", ..TTL },
    CommandSpec { name: "persist", run: Run::Data(Op::Persist), arity: 2, flags: WRITE | FAST,
        keys: RW_UPDATE, since: "2.2.0",
        summary: "Removes the expiry of a key.", syntax: "key", ..ROW },
    container("object", "Commands about how a value is kept.", "2.2.3", ROW.group),
    CommandSpec { name: "object|encoding", summary: "Answers how a value is encoded.", ..OBJECT },
    CommandSpec { name: "object|freq",
        since: "4.0.0",
        summary: "Answers how often a key is used.", ..OBJECT },
    CommandSpec { name: "object|idletime",
        summary: "Answers how long a key hasn't been used.", ..OBJECT },
    CommandSpec { name: "object|refcount",
        summary: "Answers how many refer to a value.", ..OBJECT },
    help("object|help", Run::Data(Op::Object), "6.2.0", ROW),
    CommandSpec { name: "wait", run: Run::Server(Builtin::Wait), arity: 3,
        since: "3.0.0",
        summary: "Waits until replicas have the connection's writes, and counts these replicas.",
        syntax: "numreplicas:integer timeout:integer", ..WAIT },
    CommandSpec { name: "waitaof", run: Run::Server(Builtin::Waitaof), arity: 4,
        since: "7.2.0",
        summary: "Waits until the connection's writes are on disk, here and at replicas.",
        syntax: "numlocal:integer numreplicas:integer timeout:integer", ..WAIT },
];
