//! A folder of arenas: the names of its files, its manifest, and whether its arenas belong
//! together.
//!
//! ```text
//! <dir>/<tenant>.0.arena    the tenant's data, partition 0; .1 and so on if there are more
//! <dir>/_system.0.arena     libraries
//! <dir>/manifest            the tenants and partitions that were made
//! ```
//!
//! 1. The manifest is written when all arenas of a tenant have been made. An arena that it lists
//!    and that isn't there is missing.
//! 2. Arenas without a manifest have two origins. Either a first start was cut off: then nothing
//!    was written to them. Or a server wrote them that knew no manifest: then all of them are
//!    there.
//! 3. The manifest is removed before any arena is.
//!
//! Thread: any. A thread that opens or converts holds the folder's lock.

pub(crate) mod arena_header;
pub(crate) mod edition;
pub(crate) mod look;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod tmpfs;
