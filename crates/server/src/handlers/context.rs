//! What a command that the server answers works on.
//!
//! Belongs to the shard's thread.

use crate::hop::later::Later;
use crate::hop::message::MessageKind;
use crate::net::client::Client;
use crate::net::connection::Connection;
use crate::net::local::Local;
use crate::net::output::{Mark, Output, ReplyWriter};
use crate::net::party::Party;
use crate::net::pipeline::{MayWait, Pending};
use crate::net::queued::ReplyMode;
use crate::net::slab::Slab;
use crate::observe::stats::Ran;
use crate::state::State;
use crate::state::tenants::LocalTenant;
use nigh_store::{ReplySink, Turn};
use std::os::fd::BorrowedFd;

/// The error of arguments that make no sense together.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// The error of an argument that is no number, or none that fits.
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// Bytes of arguments that an unknown command's error quotes, as in Redis.
pub(crate) const QUOTED_BYTES: usize = 128;
/// Bytes of a client's word that any other error quotes. Redis quotes all of it.
const MOST_WORD_BYTES: usize = 4096;

/// The connections but for the one whose command runs.
pub(crate) struct Others<'a> {
    pub(crate) slab: &'a mut Slab,
    pub(crate) before: &'a mut [Party],
    pub(crate) after: &'a mut [Party],
    /// Those that have left the slab in this turn, for other shards.
    pub(crate) moving: &'a mut [(usize, Box<Connection>)],
}

impl Others<'_> {
    /// Visits each of them that is a client's.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut Connection)) {
        self.slab.each(&mut visit);
        let active = self.before.iter_mut().chain(self.after.iter_mut());
        active.filter_map(Party::connection_mut).for_each(&mut visit);
        self.moving.iter_mut().for_each(|(_, connection)| visit(connection));
    }
}

/// What LOCAL ATTACH works on.
pub(crate) struct Attachable<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) local: &'a mut Option<Box<Local>>,
    /// More has come behind the command.
    pub(crate) is_followed: bool,
}

/// What a command works on.
pub(crate) struct Context<'a, 't> {
    pub(crate) state: &'a mut State,
    pub(crate) turn: &'a Turn<'t>,
    pub(crate) client: &'a mut Client,
    pub(crate) out: &'a mut Output,
    pub(crate) others: Others<'a>,
    /// Bytes of input held, and their capacity.
    pub(crate) input: (usize, usize),
    /// Replies that other shards have still to give this connection.
    pub(crate) later: &'a Later,
    /// The connection's stream and rings; `None` if another shard sent it.
    pub(crate) attachable: Option<Attachable<'a>>,
    /// The kind of the message by which another shard sent it.
    pub(crate) sent: Option<MessageKind>,
    /// What it has waited for, and why it comes again, if it does.
    pub(crate) pending: Pending,
    /// For what a write may still wait till the next turn.
    pub(crate) may_wait: MayWait,
    /// It is refused, since it has waited in vain.
    pub(crate) waited_in_vain: &'a mut bool,
    /// What lies before it was answered as CLIENT REPLY said then: EXEC does so for each of its
    /// commands.
    pub(crate) settled: Option<Mark>,
    /// In EXEC: its commands, which are counted when they are committed.
    pub(crate) tally: Option<Vec<Ran>>,
}

impl Context<'_, '_> {
    /// Whose command it is.
    pub(crate) fn tenant(&self) -> &LocalTenant {
        &self.state.tenants[self.client.tenant]
    }

    /// Whose command it is.
    pub(crate) fn tenant_mut(&mut self) -> &mut LocalTenant {
        &mut self.state.tenants[self.client.tenant]
    }

    /// A writer of this client's protocol.
    pub(crate) fn reply(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.out, self.client.protocol)
    }

    pub(crate) fn error(&mut self, text: &str) {
        self.reply().error(text);
    }

    /// Answers an error that quotes a client's word.
    pub(crate) fn error_about(&mut self, before: &str, word: &[u8], after: &str) {
        self.reply().error_bytes(&about(before, word, after));
    }
}

/// Takes back what was written since `mark`, unless replies are wanted.
pub(crate) fn mute(client: &Client, out: &mut Output, mark: Mark) {
    if client.reply_mode != ReplyMode::On {
        out.cut(mark);
    }
}

/// What a client sent, cut and without line breaks, as Redis quotes it.
pub(crate) fn quote(bytes: &[u8], most: usize) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(most);
    &bytes[..end]
}

/// An error that quotes a client's word.
pub(crate) fn about(before: &str, word: &[u8], after: &str) -> Vec<u8> {
    [before.as_bytes(), quote(word, MOST_WORD_BYTES), after.as_bytes()].concat()
}

/// Answers that a subcommand was given wrong arguments, as Redis does where arity doesn't tell.
pub(crate) fn wrong_subcommand(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let container = String::from_utf8_lossy(args[0]).to_ascii_uppercase();
    context.error_about(
        "ERR unknown subcommand or wrong number of arguments for '",
        quote(args[1], QUOTED_BYTES),
        &format!("'. Try {container} HELP."),
    );
}
