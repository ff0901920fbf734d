//! The data commands that a store applies, one [`Op`] each.
//!
//! 1. The server's command table maps names to these. It checks the number of arguments before it
//!    calls the store: `args.len()` is at least the command's arity. All else, from the order of
//!    checks to the texts, is the store's.
//!
//! Thread: any; it is plain data.

/// How a command runs over several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Not at all: its keys lie in one partition, or it is refused.
    Never,
    /// One shard reads all of them: see [`crate::Keyspace::apply_over_views`].
    Views,
    /// Each partition gets the part with its keys. A key with its value is `step` arguments.
    Split {
        /// 1, or 2 if a value follows each key.
        step: usize,
    },
    /// Each owner runs it on its partitions: see [`crate::Keyspace::apply_to_owned`].
    Owners,
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])+ $op:ident = $name:literal key $key:literal;)+) => {
        /// A data command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op { $($(#[doc = $doc])+ $op,)+ }

        impl Op {
            /// All commands, in the order of their declaration.
            pub const ALL: &'static [Op] = &[$(Op::$op,)+];

            /// The command's name in lower case, as error texts have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Op::$op => $name,)+ }
            }

            /// Whether a view can run it: it changes nothing, and the index and the records are all
            /// that it needs. (Only the owner knows DBSIZE's number exactly.)
            #[must_use]
            #[inline]
            pub const fn only_reads(self) -> bool {
                matches!(
                    self,
                    Op::Get
                        | Op::MGet
                        | Op::StrLen
                        | Op::GetRange
                        | Op::SubStr
                        | Op::Exists
                        | Op::Touch
                        | Op::Type
                        | Op::Ttl
                        | Op::PTtl
                        | Op::ExpireTime
                        | Op::PExpireTime
                        | Op::RandomKey
                        | Op::Keys
                        | Op::Scan
                        | Op::Object
                        | Op::MemoryUsage
                )
            }

            /// Whether it may store a record. Under a policy that evicts, room is made before.
            #[must_use]
            pub const fn takes_memory(self) -> bool {
                !self.only_reads()
                    && !matches!(
                        self,
                        Op::Del | Op::Unlink | Op::GetDel | Op::DbSize | Op::FlushDb | Op::FlushAll
                    )
            }

            /// Whether it changes nothing but that keys go: it may while the log's disk is full.
            #[must_use]
            pub const fn only_removes(self) -> bool {
                matches!(
                    self,
                    Op::Del | Op::Unlink | Op::GetDel | Op::FlushDb | Op::FlushAll
                )
            }

            /// Whether it reads several keys, which then belong to one moment.
            #[must_use]
            #[inline]
            pub const fn reads_several(self) -> bool {
                matches!(self, Op::MGet | Op::Exists | Op::Touch)
            }

            /// Whether its reply is always a status or a number; but for SET with GET.
            #[must_use]
            pub const fn answers_briefly(self) -> bool {
                !matches!(
                    self,
                    Op::Get
                        | Op::GetSet
                        | Op::GetDel
                        | Op::GetEx
                        | Op::GetRange
                        | Op::SubStr
                        | Op::MGet
                        | Op::RandomKey
                        | Op::Keys
                        | Op::Scan
                        | Op::Object
                )
            }

            /// Whether it may have several keys.
            #[must_use]
            pub const fn takes_several_keys(self) -> bool {
                matches!(
                    self,
                    Op::MGet
                        | Op::MSet
                        | Op::MSetNx
                        | Op::Del
                        | Op::Unlink
                        | Op::Exists
                        | Op::Touch
                        | Op::Rename
                        | Op::RenameNx
                        | Op::Copy
                )
            }

            /// How it runs if its keys lie in several partitions, or if it has no keys.
            #[must_use]
            pub const fn span(self) -> Span {
                match self {
                    Op::MGet | Op::Exists | Op::Touch | Op::Keys | Op::Scan | Op::RandomKey => {
                        Span::Views
                    }
                    Op::MSet => Span::Split { step: 2 },
                    Op::Del | Op::Unlink => Span::Split { step: 1 },
                    Op::DbSize | Op::FlushDb | Op::FlushAll => Span::Owners,
                    _ => Span::Never,
                }
            }

            /// Position of the first key in the arguments, 0 if the command has none.
            #[must_use]
            #[inline]
            pub const fn first_key(self) -> usize {
                match self { $(Op::$op => $key,)+ }
            }
        }
    };
}

ops! {
    /// `GET key`
    Get = "get" key 1;
    /// `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]`
    Set = "set" key 1;
    /// `SETNX key value`
    SetNx = "setnx" key 1;
    /// `SETEX key seconds value`
    SetEx = "setex" key 1;
    /// `PSETEX key milliseconds value`
    PSetEx = "psetex" key 1;
    /// `GETSET key value`
    GetSet = "getset" key 1;
    /// `GETDEL key`
    GetDel = "getdel" key 1;
    /// `GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]`
    GetEx = "getex" key 1;
    /// `MGET key...`
    MGet = "mget" key 1;
    /// `MSET key value...`
    MSet = "mset" key 1;
    /// `MSETNX key value...`
    MSetNx = "msetnx" key 1;
    /// `APPEND key value`
    Append = "append" key 1;
    /// `STRLEN key`
    StrLen = "strlen" key 1;
    /// `GETRANGE key start end`
    GetRange = "getrange" key 1;
    /// `SUBSTR key start end`
    SubStr = "substr" key 1;
    /// `SETRANGE key offset value`
    SetRange = "setrange" key 1;
    /// `INCR key`
    Incr = "incr" key 1;
    /// `DECR key`
    Decr = "decr" key 1;
    /// `INCRBY key increment`
    IncrBy = "incrby" key 1;
    /// `DECRBY key decrement`
    DecrBy = "decrby" key 1;
    /// `INCRBYFLOAT key increment`
    IncrByFloat = "incrbyfloat" key 1;
    /// `DEL key...`
    Del = "del" key 1;
    /// `UNLINK key...`
    Unlink = "unlink" key 1;
    /// `EXISTS key...`
    Exists = "exists" key 1;
    /// `TOUCH key...`
    Touch = "touch" key 1;
    /// `TYPE key`
    Type = "type" key 1;
    /// `RENAME key newkey`
    Rename = "rename" key 1;
    /// `RENAMENX key newkey`
    RenameNx = "renamenx" key 1;
    /// `COPY source destination [DB index] [REPLACE]`
    Copy = "copy" key 1;
    /// `RANDOMKEY`
    RandomKey = "randomkey" key 0;
    /// `KEYS pattern`
    Keys = "keys" key 0;
    /// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
    Scan = "scan" key 0;
    /// `EXPIRE key seconds [NX|XX|GT|LT]`
    Expire = "expire" key 1;
    /// `PEXPIRE key milliseconds [NX|XX|GT|LT]`
    PExpire = "pexpire" key 1;
    /// `EXPIREAT key unix-seconds [NX|XX|GT|LT]`
    ExpireAt = "expireat" key 1;
    /// `PEXPIREAT key unix-milliseconds [NX|XX|GT|LT]`
    PExpireAt = "pexpireat" key 1;
    /// `TTL key`
    Ttl = "ttl" key 1;
    /// `PTTL key`
    PTtl = "pttl" key 1;
    /// `EXPIRETIME key`
    ExpireTime = "expiretime" key 1;
    /// `PEXPIRETIME key`
    PExpireTime = "pexpiretime" key 1;
    /// `PERSIST key`
    Persist = "persist" key 1;
    /// `OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key`, `OBJECT HELP`
    Object = "object" key 2;
    /// `MEMORY USAGE key [SAMPLES count]`
    MemoryUsage = "memory|usage" key 2;
    /// `DBSIZE`
    DbSize = "dbsize" key 0;
    /// `FLUSHDB [ASYNC|SYNC]`
    FlushDb = "flushdb" key 0;
    /// `FLUSHALL [ASYNC|SYNC]`
    FlushAll = "flushall" key 0;
}
