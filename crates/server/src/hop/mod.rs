//! What shards say to each other, and how it travels: messages, mailboxes, and replies that are to
//! come.

pub(crate) mod allowance;
pub(crate) mod later;
pub(crate) mod mailbox;
pub(crate) mod message;
