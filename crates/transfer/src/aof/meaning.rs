//! What each command of an AOF means for Nigh.
//!
//! 1. A command stands in an AOF only if it succeeded. So SETNX is a SET here, MSETNX an MSET, and
//!    RENAMENX a RENAME.
//! 2. A command that isn't known is left out and named, never guessed.
//! 3. A command of another type that overwrites its target, whatever that was, removes a string
//!    that lies there: the target isn't a string any more.

use super::Words;
use crate::left_out::SCRIPTS;

/// What to do with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing: transactions are applied command by command.
    Nothing,
    /// Another database from here on.
    Select,
    /// All keys go: of all databases, or (false) of the selected one.
    Flush {
        /// Of all databases.
        all: bool,
    },
    /// SET with its options.
    Set,
    /// SETEX or PSETEX: milliseconds for each unit of its time.
    SetFor(i64),
    /// Send it as it is, under this name: what it does stands on the string that was there.
    As(&'static str),
    /// Keys, each with this many words: send them in parts, under this name.
    Keys(&'static str, usize),
    /// An expiry: the unit in ms, and whether it counts from now.
    Expire {
        /// Milliseconds.
        unit: i64,
        /// Counts from now.
        relative: bool,
    },
    /// No expiry any more.
    Persist,
    /// GETEX: an expiry, or none.
    GetEx,
    /// RENAME and RENAMENX.
    Rename,
    /// COPY.
    Copy,
    /// MOVE to another database.
    Move,
    /// RESTORE: a value as DUMP gave it.
    Restore,
    /// Two databases change places.
    SwapDb,
    /// Left out, of this kind.
    Other(&'static str),
    /// Left out; the key at this place is of that kind afterwards.
    Overwrites(usize, &'static str),
    /// Left out; it may have a target behind STORE.
    MayStore(&'static str),
    /// Left out; it has changed the string at this place in a way that Nigh has no command for.
    ChangesString(usize),
    /// Not known.
    Unknown,
}

const LISTS: &str = "commands on lists";
const SETS: &str = "commands on sets";
const SORTED_SETS: &str = "commands on sorted sets";
const HASHES: &str = "commands on hashes";
const STREAMS: &str = "commands on streams";

/// Names by meaning. They stand in upper case.
const TABLE: &[(Meaning, &str)] = &[
    (Meaning::Nothing, "MULTI EXEC PING"),
    (Meaning::Select, "SELECT"),
    (Meaning::Flush { all: true }, "FLUSHALL"),
    (Meaning::Flush { all: false }, "FLUSHDB"),
    (Meaning::Set, "SET SETNX GETSET"),
    (Meaning::SetFor(1000), "SETEX"),
    (Meaning::SetFor(1), "PSETEX"),
    (Meaning::As("APPEND"), "APPEND"),
    (Meaning::As("SETRANGE"), "SETRANGE"),
    (Meaning::As("INCR"), "INCR"),
    (Meaning::As("DECR"), "DECR"),
    (Meaning::As("INCRBY"), "INCRBY"),
    (Meaning::As("DECRBY"), "DECRBY"),
    (Meaning::As("INCRBYFLOAT"), "INCRBYFLOAT"),
    (Meaning::Keys("DEL", 1), "DEL UNLINK GETDEL"),
    (Meaning::Keys("MSET", 2), "MSET MSETNX"),
    (Meaning::Expire { unit: 1000, relative: true }, "EXPIRE"),
    (Meaning::Expire { unit: 1, relative: true }, "PEXPIRE"),
    (Meaning::Expire { unit: 1000, relative: false }, "EXPIREAT"),
    (Meaning::Expire { unit: 1, relative: false }, "PEXPIREAT"),
    (Meaning::Persist, "PERSIST"),
    (Meaning::GetEx, "GETEX"),
    (Meaning::Rename, "RENAME RENAMENX"),
    (Meaning::Copy, "COPY"),
    (Meaning::Move, "MOVE"),
    (Meaning::Restore, "RESTORE RESTORE-ASKING"),
    (Meaning::SwapDb, "SWAPDB"),
    (
        Meaning::Other(LISTS),
        "LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LREM LTRIM LINSERT LMOVE RPOPLPUSH LMPOP BLMOVE \
         BRPOPLPUSH BLPOP BRPOP BLMPOP",
    ),
    (Meaning::Other(SETS), "SADD SREM SPOP SMOVE"),
    (Meaning::Overwrites(1, SETS), "SINTERSTORE SUNIONSTORE SDIFFSTORE"),
    (
        Meaning::Other(SORTED_SETS),
        "ZADD ZREM ZINCRBY ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX ZPOPMIN ZPOPMAX ZMPOP \
         BZPOPMIN BZPOPMAX BZMPOP GEOADD",
    ),
    (
        Meaning::Overwrites(1, SORTED_SETS),
        "ZINTERSTORE ZUNIONSTORE ZDIFFSTORE ZRANGESTORE GEOSEARCHSTORE",
    ),
    (Meaning::MayStore(SORTED_SETS), "GEORADIUS GEORADIUSBYMEMBER"),
    (Meaning::MayStore(LISTS), "SORT"),
    (
        Meaning::Other(HASHES),
        "HSET HMSET HSETNX HDEL HINCRBY HINCRBYFLOAT HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT \
         HPERSIST HSETEX HGETEX HGETDEL",
    ),
    (
        Meaning::Other(STREAMS),
        "XADD XDEL XTRIM XACK XCLAIM XAUTOCLAIM XGROUP XSETID XREADGROUP XACKDEL XDELEX",
    ),
    (Meaning::Other(SCRIPTS), "FUNCTION SCRIPT FCALL EVAL EVALSHA"),
    (Meaning::ChangesString(1), "SETBIT BITFIELD PFADD PFMERGE"),
    (Meaning::ChangesString(2), "BITOP"),
];

/// The command's name in upper case.
pub(crate) fn name_of(words: &Words) -> String {
    String::from_utf8_lossy(words.get(0)).to_ascii_uppercase()
}

/// What a command means.
pub(crate) fn meaning_of(words: &Words) -> Meaning {
    let name = words.get(0);
    let is_it = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
    let row = TABLE.iter().find(|(_, names)| names.split_ascii_whitespace().any(is_it));
    row.map_or(Meaning::Unknown, |(meaning, _)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No name stands twice, all are in upper case, and case doesn't matter in a file.
    #[test]
    fn the_table_is_sound() {
        let names = TABLE.iter().flat_map(|(_, names)| names.split_ascii_whitespace());
        let mut names: Vec<_> = names.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| *name == name.to_uppercase()));
    }
}
