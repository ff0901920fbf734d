//! Another shard as a client of this one: the commands that it has sent, and the replies that it is
//! to get.
//!
//! Belongs to the shard's thread.

use crate::hop::message::commands::Known;
use crate::hop::message::{Manner, MessageKind};
use crate::net::client::Client;
use crate::net::input::Input;
use crate::net::pipeline::Pipeline;
use crate::observe::slowlog::Origin;
use crate::tenant::TenantId;
use std::time::Instant;

/// A shard as a client of this one.
pub(crate) struct Peer {
    pub(crate) pipe: Pipeline,
    pub(crate) number: usize,
    /// The commands in the batch.
    pub(crate) commands: Vec<Command>,
    /// Requests that aren't answered: the token, and how many commands.
    pub(crate) requests: Vec<(u64, usize)>,
    /// Of the commands that ran and aren't answered, where the reply ends in the output, and
    /// whether it was logged as slow.
    pub(crate) ends: Vec<(usize, bool)>,
}

/// A command that a shard has sent.
pub(crate) struct Command {
    pub(crate) token: u64,
    /// Of the message that it came in.
    pub(crate) kind: MessageKind,
    pub(crate) tenant: TenantId,
    /// That message takes long to copy.
    pub(crate) is_large: bool,
    /// `None`: it is a write set, its only argument.
    pub(crate) known: Option<Known>,
}

impl Peer {
    /// Shard `number`, of which nothing has come.
    pub(crate) fn new(number: usize) -> Self {
        let name = format!("shard-{number}");
        let client = Client::new(0, name.clone(), name, Instant::now());
        let pipe = Pipeline::new(client, Input::new());
        let (commands, requests, ends) = (Vec::new(), Vec::new(), Vec::new());
        Self { pipe, number, commands, requests, ends }
    }

    /// What kind of message brought a command of the batch.
    pub(crate) fn kind(&self, index: usize) -> MessageKind {
        self.commands[index].kind
    }

    /// How a command of the batch is run.
    pub(crate) fn manner(&self, index: usize) -> Manner {
        self.kind(index).manner()
    }

    /// Whether a command of the batch is a part of a client's, which the sender counts.
    pub(crate) fn is_part(&self, index: usize) -> bool {
        matches!(self.kind(index), MessageKind::Part(_))
    }

    /// The sender of a command of the batch.
    pub(crate) fn origin(&self, index: usize) -> Origin {
        Origin { shard: self.number, token: self.commands[index].token }
    }

    /// A command has its reply.
    pub(crate) fn answered(&mut self) {
        let is_logged = std::mem::take(&mut self.pipe.client.is_logged);
        self.ends.push((self.pipe.out.waiting(), is_logged));
    }
}
