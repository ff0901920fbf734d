//! Commands in their order, and the replies to them: what a client's connection and another shard
//! have in common.
//!
//! ```text
//! input ──(executed in order)──> out
//! ```
//!
//! What executes commands takes a pipeline; a [`crate::net::party::Party`] says whose it is.
//!
//! Belongs to the shard's thread.

use crate::net::client::Client;
use crate::net::depends::Depends;
use crate::net::input::Input;
use crate::net::output::Output;
use std::time::Instant;

/// Commands that arrive, and replies that wait to leave.
pub(crate) struct Pipeline {
    pub(crate) input: Input,
    pub(crate) out: Output,
    pub(crate) client: Client,
    /// Not to be executed further in this round: it waits for functions, a reader, or its end.
    pub(crate) stopped: bool,
    /// Stopped only until the functions of this turn have run.
    pub(crate) parked: bool,
    /// Its next command is put off: see [`crate::turn::budget`].
    pub(crate) is_put_off: bool,
    /// What the replies that wait depend on; of a client.
    pub(crate) depends: Depends,
    /// What it waits for, if another shard has to do something first.
    pub(crate) pending: Pending,
    /// Its next command has been waiting for memory or the journal, turn after turn. None when that
    /// is answered or sent.
    pub(crate) lacks: Option<Lacking>,
}

/// A command that lacks memory, or room in the journal, which is still to come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lacking {
    pub(crate) since: Instant,
    pub(crate) is_journal: bool,
}

impl Pipeline {
    /// An empty one.
    pub(crate) fn new(client: Client, input: Input) -> Self {
        Self {
            input,
            out: Output::default(),
            client,
            stopped: false,
            parked: false,
            is_put_off: false,
            depends: Depends::default(),
            pending: Pending::Nothing,
            lacks: None,
        }
    }
}

/// What a pipeline waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// Answers of the owner.
    Answers,
    /// Room for so many bytes in the mailbox of the shard in whose queue it stands
    /// ([`crate::turn::held`]).
    Room {
        bytes: usize,
    },
    /// Answers to half of what it may have at other shards at a time.
    Allowance,
    /// To be moved to this shard.
    Move(usize),
    /// Snapshots as new as this ticket.
    Ticket(u64),
    /// They are there: the command that asked for them runs next.
    Refreshed,
    /// The check of a source.
    Check,
    /// Changes to be on disk, or for a time that the client has said.
    Synced,
    /// That is over: the command that asked for it runs next, and says whether they are.
    Waited {
        durable: bool,
    },
    /// The owners of these partitions, a bit for each, to stand still.
    Still(u64),
    /// Nothing: but the next command couldn't be told what it read, before these stood still; or
    /// with one partition, which only the owner tells.
    Unstable(u64),
}

impl Pending {
    /// Whether commands run.
    pub(crate) fn lets_go_on(self) -> bool {
        matches!(self, Self::Nothing | Self::Refreshed | Self::Waited { .. } | Self::Unstable(_))
    }
}
