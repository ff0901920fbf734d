//! What a batch is made of: calls, the turn they run in, and what a transaction has staged before
//! them. Plain data; any thread.

use std::time::Duration;

/// A tenant of one [`Runtime`](crate::Runtime), as [`open_tenant`](crate::Runtime::open_tenant)
/// numbered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant(pub(crate) u32);

/// The reply to a call that read [foreign](crate::Mapping::foreign) arenas, and couldn't tell at
/// any moment what some of them had: [`Runtime::untold`](crate::Runtime::untold) says which. Their
/// owner can run it; or it runs again while their owners [stand still](RunTurn::still). No function
/// can make this reply: errors that it throws name the function.
pub const UNSTABLE: &[u8] =
    b"-TRYAGAIN the keys were changing each time that the function read them\r\n";

/// One FCALL or FCALL_RO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// Name of the function, as the client sent it.
    pub function: &'a [u8],
    /// Declared keys.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub args: &'a [&'a [u8]],
    /// The reply is to be RESP3, else RESP2.
    pub resp3: bool,
    /// The partition that it runs for: that of its first declared key. It writes there alone,
    /// unless the function has the flag `allow-cross-slot-keys`.
    pub partition: u32,
    /// FCALL_RO: a function without the flag `no-writes` is refused.
    pub read_only: bool,
    /// What the surrounding MULTI has staged; default outside.
    pub overlay: Overlay<'a>,
}

/// What an open transaction has staged: seen by a call before the arena.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overlay<'a> {
    /// The entries come on top of those of the call before, in the same transaction: only if
    /// [`Runtime::holds_overlay`](crate::Runtime::holds_overlay) says that they are still there.
    pub continues: bool,
    /// The transaction emptied the keyspace first: what is in no entry does not exist.
    pub cleared: bool,
    /// Key, and the reference (offset / 16) of its staged record in the arena of the call's
    /// partition; `None`: deleted.
    pub entries: &'a [(Box<[u8]>, Option<u32>)],
}

impl Overlay<'_> {
    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.cleared || self.continues || !self.entries.is_empty()
    }
}

/// What holds for all calls of one batch.
#[derive(Clone, Copy, Debug)]
pub struct RunTurn {
    /// Unix time in ms: rules expiry, `db.now()` and `Date.now()`.
    pub now_ms: u64,
    /// Seed of `Math.random`, from which each call's own seed is derived. Another one for each
    /// batch.
    pub random_seed: u64,
    /// Bytes of replies after which the other calls don't run.
    pub reply_bytes: usize,
    /// Time after which the other calls don't run. The watchdog looks at the clock, a few ms later.
    pub time: Duration,
    /// Foreign partitions, a bit for each, that aren't written until the batch is over, and whose
    /// owners have stored their time since the calls came: all that they say can be told, and
    /// expiry is judged by their clocks alone.
    pub still: u64,
}
