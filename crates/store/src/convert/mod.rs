//! Copying a tenant's data into other arenas, for `nigh convert`.

pub(crate) mod copying;
pub(crate) mod old_keyspace;
