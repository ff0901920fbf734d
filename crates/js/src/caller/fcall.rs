//! The calls of a batch, the turn in which they run, and the overlay of a transaction. Plain data;
//! any thread.

use std::time::Duration;

/// The number of a tenant of one [`Runtime`](crate::Runtime), which
/// [`open_tenant`](crate::Runtime::open_tenant) gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant(pub(crate) u32);

/// The reply to a call that read [foreign](crate::Mapping::foreign) arenas, and could tell at no
/// moment what some of them had: [`Runtime::untold`](crate::Runtime::untold) says which. The owner
/// of these arenas can run the call; or it runs here again while the owners [stand
/// still](RunTurn::still). No function can make this reply: the reply to a thrown error names the
/// function.
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
    /// The partition of its first declared key. The call writes there alone, unless the function
    /// has the flag `allow-cross-slot-keys`.
    pub partition: u32,
    /// FCALL_RO: a function without the flag `no-writes` is refused.
    pub read_only: bool,
    /// The overlay of the surrounding MULTI; the default outside of one.
    pub overlay: Overlay<'a>,
}

/// The writes of a running transaction. A call's reads look here before they look into the arena.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overlay<'a> {
    /// The entries add to those of the last call, in the same transaction. Allowed only if
    /// [`Runtime::holds_overlay`](crate::Runtime::holds_overlay) says that these are still there.
    pub continues: bool,
    /// The transaction emptied the keyspace first: a key without an entry does not exist.
    pub cleared: bool,
    /// Key, and the reference (offset / 16) of its staged record in the arena of the call's
    /// partition; `None`: deleted.
    pub entries: &'a [(Box<[u8]>, Option<u32>)],
}

impl Overlay<'_> {
    /// Whether there is an overlay.
    pub(crate) fn is_there(&self) -> bool {
        self.cleared || self.continues || !self.entries.is_empty()
    }
}

/// The conditions of all calls of one batch.
#[derive(Clone, Copy, Debug)]
pub struct RunTurn {
    /// Unix time in ms, for expiry, `db.now()` and `Date.now()`.
    pub now_ms: u64,
    /// Seed of `Math.random`, another one for each batch. Each call derives its own seed from it.
    pub random_seed: u64,
    /// Bytes of replies after which no further call runs.
    pub reply_bytes: usize,
    /// Time after which no further call runs. The watchdog sees the clock some ms late.
    pub time: Duration,
    /// Foreign partitions, a bit for each, whose owners stand still: they write nothing until the
    /// batch is over, and they have stored their time since the calls came. Calls can tell all of
    /// them, and judge expiry there by the owners' clocks alone.
    pub still: u64,
}
