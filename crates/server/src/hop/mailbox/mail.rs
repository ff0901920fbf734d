//! What comes out of a mailbox, and what it counts.
//!
//! Any thread: plain data.

/// The other shard can't take more now. A reply of it is outstanding: try again when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A request that was received; its body is at the end of the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The shard that asks, and is to be answered.
    pub(crate) from: usize,
    /// To be given back with the reply. A notice has none: it isn't answered.
    pub(crate) token: Option<u64>,
    /// What is asked.
    pub(crate) kind: u16,
}

/// A reply that came; its body is in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MailReply {
    /// The shard that was asked.
    pub(crate) from: usize,
    /// As given to [`super::Mailbox::send`].
    pub(crate) token: u64,
}

/// What a mailbox has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MailStats {
    /// Times that a shard was too full to be sent to.
    pub(crate) full: u64,
    /// Times that a sleeping shard was woken.
    pub(crate) wakes: u64,
    /// Requests without a reply, now.
    pub(crate) depth: u64,
}
