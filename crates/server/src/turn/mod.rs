//! A shard's turn: from the bytes of all connections that have some to the replies.

pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod dispatch;
pub(crate) mod finish;
pub(crate) mod held;
pub(crate) mod peer;
pub(crate) mod scatter;
pub(crate) mod shard;
pub(crate) mod trimmer;
pub(crate) mod untold;
pub(crate) mod window;
pub(crate) mod work;
