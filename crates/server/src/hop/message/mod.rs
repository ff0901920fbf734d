//! What shards say to each other: the kinds of messages, each with its codec.
//!
//! | kind | number | what the sender wants | body | answer |
//! |---|---|---|---|---|
//! | commands | 0 | the receiver runs these commands of one client, in order | [`commands`] | [`replies`] |
//! | part | 1 | the same of the receiver's part of a client's command; the sender counts the call | [`commands`] | [`replies`] |
//! | writes | 2 | the receiver commits this write set of a function | [`writes`] | [`replies`], of one |
//!
//! ```text
//! kind of a ring's entry, u16:   number u8 | how it is run u8: 1 RESP3, 2 reads leave keys as old as they are
//! request, after its token:      tenant u32 | u32 of the kind's own | body
//! ```
//!
//! A message without an answer (`Mailbox::tell`, a notice) would have a kind of its own here too;
//! there is none yet.
//!
//! 1. Both ends are this process: a malformed message is a bug, and panics.
//! 2. A request is for one tenant. So commands join a request only if they are of one client:
//!    `hop::mailbox` compares the token. A client's tenant changes only when nothing of it is under
//!    way (`Client::tenant`).
//!
//! To add a kind: a row above, a variant here with its number, also in `of_code` and the test, a
//! codec beside the others. The compiler then asks for arms in `turn::exchange`, which receives it,
//! and in `turn::checked`, which executes it.
//!
//! Little-endian. Any thread.

pub(crate) mod commands;
pub(crate) mod replies;
pub(crate) mod writes;

use crate::tenant::TenantId;
use nigh_resp::Protocol;

/// Commands in a message, at most: the replies of writes are short enough to fit a ring's reply
/// together.
pub(crate) const MOST_IN_MESSAGE: usize = 16;
const OUR_FORMAT: &str = "a message between shards has the format that shards write";

/// Bytes in front of a request's body.
pub(crate) const LEAD_BYTES: usize = 8;

/// What stands in front of a request's body.
#[inline]
fn lead(tenant: TenantId, own: u32) -> [u8; LEAD_BYTES] {
    word(tenant.0, own)
}

/// Two numbers as a word.
#[inline]
fn word(low: u32, high: u32) -> [u8; 8] {
    (u64::from(low) | u64::from(high) << 32).to_le_bytes()
}

/// The two numbers of a word.
#[inline]
fn numbers(word: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, high @ ..] = word;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(high))
}

/// Whose a request is, and the number of its kind's own. Panics if it is shorter than any.
#[inline]
pub(crate) fn led_by(request: &[u8]) -> (TenantId, u32) {
    let (tenant, own) = numbers(*request.first_chunk().expect(OUR_FORMAT));
    (TenantId(tenant), own)
}

/// How the receiver runs a client's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Replies are written in this protocol.
    pub(crate) protocol: Protocol,
    /// What is read stays as old as it is (CLIENT NO-TOUCH).
    pub(crate) keeps_ages: bool,
}

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Commands of one client.
    Commands(Manner),
    /// The receiver's part of a client's command.
    Part(Manner),
    /// A function's write set for one partition of the receiver.
    Writes,
}

impl MessageKind {
    const COMMANDS: u8 = 0;
    const PART: u8 = 1;
    const WRITES: u8 = 2;
    /// Bits of how it is run.
    const RESP3: u8 = 1;
    const KEEPS_AGES: u8 = 2;

    /// As the kind of a ring's entry.
    #[inline]
    pub(crate) fn code(self) -> u16 {
        let how = |manner: Manner| {
            let resp3 = if manner.protocol == Protocol::Resp3 { Self::RESP3 } else { 0 };
            resp3 | if manner.keeps_ages { Self::KEEPS_AGES } else { 0 }
        };
        u16::from_le_bytes(match self {
            Self::Commands(manner) => [Self::COMMANDS, how(manner)],
            Self::Part(manner) => [Self::PART, how(manner)],
            Self::Writes => [Self::WRITES, 0],
        })
    }

    /// The kind of a ring's entry. Panics if there is no such kind.
    #[inline]
    pub(crate) fn of_code(code: u16) -> Self {
        let [number, how] = code.to_le_bytes();
        let protocol = if how & Self::RESP3 != 0 { Protocol::Resp3 } else { Protocol::Resp2 };
        let manner = Manner { protocol, keeps_ages: how & Self::KEEPS_AGES != 0 };
        match number {
            Self::COMMANDS => Self::Commands(manner),
            Self::PART => Self::Part(manner),
            Self::WRITES => Self::Writes,
            _ => panic!("{OUR_FORMAT}: kind {number}"),
        }
    }

    /// How it is run; a write set has no replies that depend on it, and reads nothing.
    #[inline]
    pub(crate) fn manner(self) -> Manner {
        match self {
            Self::Commands(manner) | Self::Part(manner) => manner,
            Self::Writes => Manner { protocol: Protocol::Resp2, keeps_ages: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_arrives_as_it_was_sent() {
        let manners = [(Protocol::Resp2, false), (Protocol::Resp3, false), (Protocol::Resp3, true)];
        for (protocol, keeps_ages) in manners {
            let manner = Manner { protocol, keeps_ages };
            for kind in
                [MessageKind::Commands(manner), MessageKind::Part(manner), MessageKind::Writes]
            {
                assert_eq!(MessageKind::of_code(kind.code()), kind);
            }
        }
    }

    #[test]
    #[should_panic(expected = "kind 9")]
    fn an_unknown_kind_is_our_mistake() {
        MessageKind::of_code(9);
    }
}
