//! Copying a tenant's data into other arenas.

pub(crate) mod copying;
pub(crate) mod old_keyspace;
