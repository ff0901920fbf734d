//! The numbers of an RDB file: types of values, and opcodes between them.

use super::ValueKind;

pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const ZSET: u8 = 3;
pub(super) const HASH: u8 = 4;
pub(super) const ZSET_2: u8 = 5;
pub(super) const MODULE_2: u8 = 7;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const ZSET_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
pub(super) const LIST_QUICKLIST: u8 = 14;
pub(super) const STREAM_LISTPACKS: u8 = 15;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const ZSET_LISTPACK: u8 = 17;
pub(super) const LIST_QUICKLIST_2: u8 = 18;
pub(super) const STREAM_LISTPACKS_2: u8 = 19;
pub(super) const SET_LISTPACK: u8 = 20;
pub(super) const STREAM_LISTPACKS_3: u8 = 21;
/// Valkey 9: a hash whose fields have expiries. (Redis used the number in no release.)
pub(super) const VALKEY_HASH_2: u8 = 22;
/// Redis 7.4: a hash whose fields have expiries.
pub(super) const HASH_METADATA: u8 = 24;
/// Redis 7.4: the same as a listpack.
pub(super) const HASH_LISTPACK_EX: u8 = 25;

pub(super) const OP_SLOT_IMPORT: u8 = 243;
pub(super) const OP_SLOT_INFO: u8 = 244;
pub(super) const OP_FUNCTION_2: u8 = 245;
pub(super) const OP_FUNCTION_PRE_GA: u8 = 246;
pub(super) const OP_MODULE_AUX: u8 = 247;
pub(super) const OP_IDLE: u8 = 248;
pub(super) const OP_FREQ: u8 = 249;
pub(super) const OP_AUX: u8 = 250;
pub(super) const OP_RESIZE_DB: u8 = 251;
pub(super) const OP_EXPIRY_MS: u8 = 252;
pub(super) const OP_EXPIRY_S: u8 = 253;
pub(super) const OP_SELECT_DB: u8 = 254;
pub(super) const OP_EOF: u8 = 255;

/// The kind of a type of the dialect; `None` if it isn't known there.
pub(super) fn kind_of(number: u8, is_valkey: bool) -> Option<ValueKind> {
    Some(match number {
        STRING => ValueKind::String,
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => ValueKind::List,
        SET | SET_INTSET | SET_LISTPACK => ValueKind::Set,
        ZSET | ZSET_2 | ZSET_ZIPLIST | ZSET_LISTPACK => ValueKind::SortedSet,
        HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK => ValueKind::Hash,
        VALKEY_HASH_2 if is_valkey => ValueKind::Hash,
        HASH_METADATA | HASH_LISTPACK_EX if !is_valkey => ValueKind::Hash,
        STREAM_LISTPACKS | STREAM_LISTPACKS_2 | STREAM_LISTPACKS_3 => ValueKind::Stream,
        MODULE_2 => ValueKind::Module,
        _ => return None,
    })
}
