//! A transaction between MULTI and EXEC: what its client has queued.
//!
//! Plain data of the shard's thread; the commands that change it are in
//! [`crate::handlers::transaction`].

use crate::commands::{self, Row, Run};
use crate::observe::stats::Ran;
use nigh_resp::Protocol;
use nigh_resp::decode::Batch;
use nigh_store::{Keyspace, Turn};
use std::collections::BTreeMap;

/// Whether commands are answered, as CLIENT REPLY says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// This command isn't answered.
    Skip,
}

/// How a client's replies are written, as HELLO and CLIENT REPLY say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyManner {
    pub(crate) protocol: Protocol,
    pub(crate) mode: ReplyMode,
    pub(crate) skip_next: bool,
}

/// A command that isn't about data and has run.
pub(crate) struct Done {
    pub(crate) ran: Ran,
    pub(crate) reply: Vec<u8>,
    /// How the replies behind it are written.
    pub(crate) manner: ReplyManner,
}

/// A transaction between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) queued: Batch,
    pub(crate) rows: Vec<Row>,
    /// Of their arguments, with the place of each.
    pub(crate) bytes: usize,
    /// Of the arguments alone, those of commands that take memory.
    pub(crate) written_bytes: usize,
    /// It has begun before, and found no memory while some was to come back.
    pub(crate) was_busy: bool,
    /// Where its keys lie, once it has some.
    pub(crate) partition: Option<usize>,
    /// A command was refused: EXEC will be too.
    pub(crate) aborted: bool,
    /// One of them looks at all shards' clients.
    pub(crate) looks_around: bool,
    /// Commands that aren't about data and ran when EXEC came before, by their places.
    pub(crate) done: BTreeMap<usize, Done>,
}

impl Transaction {
    /// Commands that wait.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// About how many bytes of values EXEC answers.
    pub(crate) fn reply_bytes(&self, keyspace: &Keyspace, turn: &Turn<'_>) -> usize {
        let of_command = |(index, row): (usize, &Row)| match commands::of(*row).run {
            Run::Data(op) => keyspace.reply_bytes(op, &self.words(index), turn),
            _ => 0,
        };
        self.rows.iter().enumerate().map(of_command).sum()
    }

    /// The words of a command.
    pub(crate) fn words(&self, index: usize) -> Vec<&[u8]> {
        self.queued.args(index).iter(&[]).collect()
    }
}
