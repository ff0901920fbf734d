//! Copying a tenant's data into other arenas, and its log, for `nigh convert`.

pub(crate) mod conversion;
pub(crate) mod copying;
pub(crate) mod old_keyspace;
