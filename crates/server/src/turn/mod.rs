//! A shard's turn: from the bytes of all connections that have some to the replies.

pub(crate) mod budget;
pub(crate) mod call_queue;
pub(crate) mod calls;
pub(crate) mod checked;
pub(crate) mod cycle;
pub(crate) mod dispatch;
pub(crate) mod exchange;
pub(crate) mod exec;
pub(crate) mod finish;
pub(crate) mod held;
pub(crate) mod leaving;
pub(crate) mod peers;
pub(crate) mod prepared;
pub(crate) mod ready;
pub(crate) mod rings;
pub(crate) mod run;
pub(crate) mod scatter;
pub(crate) mod shard;
pub(crate) mod synced_lists;
pub(crate) mod trimmer;
pub(crate) mod turn_clock;
pub(crate) mod unsynced;
pub(crate) mod untold;
pub(crate) mod window;
pub(crate) mod work;

#[cfg(test)]
mod tests;
