//! Commands between shards: what a connection's shard sends to the owner of the data, and what it gets back.
//!
//! ```text
//! connection ── Work::send ──> mailbox ──> peer (a connection whose socket is the mailbox) ── the owner's
//!     ^                                                                                    turn, as any other
//!     └────── Work::take_answers <── mailbox <── Work::answer_peer ◂──────────────────────────┘
//! ```
//!
//! 1. One message is one command, one answer its reply, and the answers of a shard come in the order of
//!    the commands sent to it. The connection puts the answers of several shards in order ([`crate::later`]).
//! 2. A connection sees its own writes: a read is sent after those that its partition's owner still has,
//!    and runs here only if none is. What reads more than one partition waits until all are answered.
//! 3. What a connection may have at the owner at a time is its allowance, which grows with each answer and shrinks
//!    when answers are large: as much as `output-buffer-pause` of replies may be under way, so that who doesn't
//!    read can't make the owner copy without end. (The idea is TCP's: RFC 5681.)
//! 4. A token names slot and number of the connection, so that an answer that comes too late finds nobody.
//! 5. The owner, who has its words, logs a slow command under shard and token; the answer says so, and who gives
//!    it to the client writes the client into the entry first. So a client whose command is answered is named.
//! 6. Who finds no room in a mailbox stands in `held`, and goes on from there only, when there is room for what it
//!    has to send. All outstanding answers bring all room back, so there will be.
//!
//! Belongs to the shard's thread.

use crate::client::{Client, Close};
use crate::commands::Row;
use crate::connection::{Connection, Pending, Stream};
use crate::mailbox::Mailbox;
use crate::slowlog::Origin;
use crate::work::{MOST_COMMANDS, Work};
use nigh_resp::limits::Limits;
use nigh_resp::{Protocol, encode};
use nigh_store::Turn;
use std::time::Instant;

/// The shard that has the libraries, and the first partition.
pub(crate) const LIBRARIAN: usize = 0;
/// Name of a write set, which isn't a command: only shards send it.
pub(crate) const WRITES: &[u8] = b"\0writes";
/// Commands that a new connection may have at the owner: before it is known how large its replies are.
pub(crate) const FIRST_ALLOWANCE: usize = 8;
/// The most: a fourth of a mailbox's credits with two shards.
const MOST_ALLOWANCE: usize = 512;
/// Bit of a token: the reply isn't wanted (CLIENT REPLY).
const SILENT: u64 = 1 << 31;
/// Bit of a message's kind: what it reads stays as old as it is (CLIENT NO-TOUCH).
const KEEPS_AGES: u16 = 1 << 8;
/// Bits of a token that hold the connection's number.
const ID_BITS: u64 = SILENT - 1;

/// A message for which there was no room.
pub(crate) struct Unsent {
    shard: usize,
    token: u64,
    kind: u16,
    message: Vec<u8>,
}

/// A shard as a client of this one.
pub(crate) struct Peer {
    number: usize,
    /// The commands in the batch.
    requests: Vec<Request>,
    /// Where the reply of each ends in the output, and whether it was logged as slow.
    ends: Vec<(usize, bool)>,
    /// Commands of the batch whose replies are sent.
    sent: usize,
}

/// What is known of a command that a shard has sent.
struct Request {
    token: u64,
    protocol: Protocol,
    keeps_ages: bool,
}

impl Peer {
    /// A connection that brings the commands of shard `number`.
    pub(crate) fn connection(number: usize) -> Box<Connection> {
        let address = format!("shard-{number}");
        let client = Client::new(0, address.clone(), address, Instant::now());
        let mut connection = Connection::new(usize::MAX, Stream::Mailbox, client);
        // The client's shard has checked what it may send.
        connection.input.set_limits(Limits::requests(), true);
        connection.input.keep();
        connection.peer =
            Some(Box::new(Self { number, requests: Vec::new(), ends: Vec::new(), sent: 0 }));
        Box::new(connection)
    }

    pub(crate) fn protocol(&self, index: usize) -> Protocol {
        self.requests[index].protocol
    }

    /// Who sent a command of the batch.
    pub(crate) fn origin(&self, index: usize) -> Origin {
        Origin { shard: self.number, token: self.requests[index].token }
    }

    pub(crate) fn keeps_ages(&self, index: usize) -> bool {
        self.requests[index].keeps_ages
    }

    pub(crate) fn answered(&mut self, end: usize, is_logged: bool) {
        self.ends.push((end, is_logged));
    }
}

/// The token of a connection's command.
fn token(connection: &Connection, silent: bool) -> u64 {
    let id = connection.client.id & ID_BITS;
    (connection.slot as u64) << 32 | if silent { SILENT } else { 0 } | id
}

/// Sends what a connection has to send; false if there is no room for some of it.
fn send_unsent(mailbox: &mut Mailbox, connection: &mut Connection) -> bool {
    while let Some(Unsent { shard, token, kind, message }) = connection.unsent.front() {
        if mailbox.send(*shard, *token, *kind, &[message]).is_err() {
            connection.pending = Pending::Room { shard: *shard, bytes: message.len() };
            return false;
        }
        connection.unsent.pop_front();
    }
    true
}

/// Lists a connection as one that waits for room, and lets it run no further.
fn hold(held: &mut Vec<usize>, connection: &mut Connection) {
    connection.stopped = true;
    if !std::mem::replace(&mut connection.is_held, true) {
        held.push(connection.slot);
    }
}

/// What kind of message a client's command is.
fn kind(client: &Client) -> u16 {
    let protocol = if client.protocol == Protocol::Resp3 { 3 } else { 2 };
    if client.no_touch { protocol | KEEPS_AGES } else { protocol }
}

impl Work {
    /// Sends a command of an active connection to a shard; false if its allowance is used up or the
    /// mailbox is full: the connection waits then.
    pub(crate) fn send(
        &mut self,
        at: usize,
        index: usize,
        row: Row,
        shard: usize,
        silent: bool,
    ) -> bool {
        if !self.has_allowance(at) {
            return false;
        }
        let connection = &mut *self.active[at];
        let (args, input) = (connection.input.batch.args(index), connection.input.bytes());
        let message = args.raw(input).unwrap_or_else(|| {
            self.message.clear();
            encode::request(&mut self.message, args.iter(input));
            &self.message
        });
        let (token, kind) = (token(connection, silent), kind(&connection.client));
        if self.mailbox.send(shard, token, kind, &[message]).is_err() {
            connection.pending = Pending::Room { shard, bytes: message.len() };
            hold(&mut self.held, connection);
            return false;
        }
        connection.later.expect(shard);
        connection.pending = Pending::Nothing;
        connection.client.last_row = Some(row);
        connection.input.next = index + 1;
        self.state.stats.hops += 1;
        if self.state.keyspace.partitions() > 1 && self.state.is_about_libraries(row) {
            // What functions there are says where a call goes.
            connection.stopped = true;
            connection.pending = Pending::Answers;
        }
        true
    }

    /// Whether a connection may have more at other shards; else it waits.
    pub(crate) fn has_allowance(&mut self, at: usize) -> bool {
        let connection = &mut *self.active[at];
        let has = connection.later.sent() < connection.allowance
            && !connection.later.is_full(self.state.hot.output_pause);
        if !has {
            connection.stopped = true;
            connection.pending = Pending::Allowance;
        }
        has
    }

    /// Sends parts of what an active connection wants, each to its shard; what finds no room goes when there
    /// is some, before all else of the connection.
    pub(crate) fn send_parts(&mut self, at: usize, parts: Vec<(usize, Vec<u8>)>, silent: bool) {
        let connection = &mut *self.active[at];
        let (token, kind) = (token(connection, silent), kind(&connection.client));
        self.state.stats.hops += parts.len() as u64;
        for (shard, message) in parts {
            connection.unsent.push_back(Unsent { shard, token, kind, message });
        }
        if !send_unsent(&mut self.mailbox, connection) {
            hold(&mut self.held, connection);
        }
    }

    /// Looks whether there is room for what found none before, and sends what waits to be sent.
    pub(crate) fn retry(&mut self, connection: &mut Connection) {
        if connection.is_held {
            return; // its turn comes
        }
        if let Pending::Room { shard, bytes } = connection.pending
            && self.mailbox.can_send(shard, bytes)
        {
            connection.pending = Pending::Nothing;
        }
        let waits = matches!(connection.pending, Pending::Room { .. });
        let sends = connection.pending == Pending::Nothing;
        if waits || sends && !send_unsent(&mut self.mailbox, connection) {
            hold(&mut self.held, connection);
        }
    }

    /// Gives the connections the answers that have come.
    pub(crate) fn take_answers(&mut self) {
        let mut answer = std::mem::take(&mut self.message);
        while let Some(reply) = self.mailbox.next_reply(&mut answer) {
            let token = reply.token;
            let slot = usize::try_from(token >> 32).unwrap_or(usize::MAX);
            let Some(connection) = self.slab.get_mut(slot) else { continue };
            if connection.client.id & ID_BITS != token & ID_BITS {
                continue;
            }
            if reply.is_logged {
                let origin = Origin { shard: self.state.number, token };
                self.state.shared.slowlog().name_sender(origin, &connection.client);
            }
            let wanted = (token & SILENT == 0).then_some(&answer[..]);
            connection.later.came(reply.from, wanted, connection.out.bytes());
            let most = self.state.hot.output_pause / answer.len().max(1);
            connection.allowance = (connection.allowance + 1).min(most.clamp(1, MOST_ALLOWANCE));
            let is_over = match connection.pending {
                Pending::Answers => connection.later.is_empty(),
                Pending::Allowance => connection.later.sent() <= connection.allowance / 2,
                _ => false,
            };
            if is_over {
                connection.pending = Pending::Nothing;
            }
            // Else more is to come: it has nothing to do before that.
            if is_over || connection.later.is_empty() || connection.has_gathered() {
                self.queue(slot);
            }
        }
        self.message = answer;
        if !self.held.is_empty() {
            self.resume_held();
        }
    }

    /// Lets connections that wait for room try again: as many as the credits are for, since each that tries in
    /// vain costs a look at its whole pipeline.
    fn resume_held(&mut self) {
        self.promised.clear();
        self.promised.resize(self.mailbox.shards(), 0);
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&slot| {
            let Some(connection) = self.slab.get_mut(slot) else { return false };
            if let Pending::Room { shard, bytes } = connection.pending {
                let promised = &mut self.promised[shard];
                if *promised >= self.mailbox.credits(shard) || !self.mailbox.can_send(shard, bytes)
                {
                    return true;
                }
                *promised += connection.input.commands().max(1);
            }
            connection.is_held = false;
            self.queue(slot);
            false
        });
        self.held = held;
    }

    /// Whether there is room for a connection that waits for some.
    pub(crate) fn may_resume(&mut self) -> bool {
        let Self { held, slab, mailbox, .. } = self;
        held.iter().any(|&slot| match slab.get_mut(slot).map(|connection| connection.pending) {
            Some(Pending::Room { shard, bytes }) => mailbox.can_send(shard, bytes),
            _ => true,
        })
    }

    /// Takes what the other shards have sent into the turn; first, what is left of the last turn's.
    pub(crate) fn receive_peers(&mut self, turn: &Turn<'_>) {
        if !std::mem::take(&mut self.peers_have_work) {
            self.read_mail();
        }
        if self.state.has_notes() && !std::mem::replace(&mut self.postponed_peers, true) {
            // Something was changed, maybe before the mail was sent: first this shard looks at that.
            self.peers_have_work = true;
            return;
        }
        self.postponed_peers = false;
        for number in 0..self.peers.len() {
            let has_work = self.peers[number]
                .as_ref()
                .is_some_and(|peer| peer.input.has_commands() || !peer.input.buf.is_empty());
            let Some(mut connection) = self.peers[number].take_if(|_| has_work) else { continue };
            connection.stopped = false;
            connection.parked = false;
            if !connection.input.has_commands() {
                connection.input.decode(MOST_COMMANDS, &mut self.pool);
                let sent = connection.peer.as_ref().map_or(0, |peer| peer.requests.len());
                let (input, decoded) = (&connection.input, connection.input.batch.len());
                assert!(
                    input.error.is_none() && decoded == sent,
                    "a message between shards is one command"
                );
            }
            self.active.push(connection);
            self.prepare(self.active.len() - 1, turn);
        }
    }

    /// Reads what the other shards have sent, as much as a turn may take.
    fn read_mail(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        while let Some(request) = self.mailbox.receive(&mut message) {
            let connection = self.peers[request.from].as_mut().expect("nobody writes to itself");
            connection.input.buf.extend_from_slice(&message);
            let peer = connection.peer.as_mut().expect("peers are made with it");
            let keeps_ages = request.kind & KEEPS_AGES != 0;
            let is_resp3 = request.kind & !KEEPS_AGES == 3;
            let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
            peer.requests.push(Request { token: request.token, protocol, keeps_ages });
            if keeps_ages {
                // Until these commands are done, each of the shard's is looked at.
                connection.client.no_touch = true;
                connection.client.settle();
            }
        }
        self.message = message;
    }

    /// Sends a shard the replies of what ran.
    pub(crate) fn answer_peer(&mut self, mut connection: Box<Connection>, turn: &Turn<'_>) {
        let keyspace = &self.state.keyspace;
        connection.out.settle_all(&|partition| keyspace.reader(partition), turn.pin);
        let Some(peer) = &mut connection.peer else { return };
        let mut from = 0;
        let replies = connection.out.bytes();
        for ((end, is_logged), request) in peer.ends.drain(..).zip(&peer.requests[peer.sent..]) {
            self.mailbox.reply(peer.number, request.token, is_logged, &[&replies[from..end]]);
            from = end;
            peer.sent += 1;
        }
        assert!(from == replies.len(), "every byte answers a command");
        replies.clear();
        let number = peer.number;
        if connection.input.has_commands() {
            self.peers_have_work = true;
        } else {
            peer.requests.clear();
            peer.sent = 0;
            connection.client.no_touch = false;
            connection.client.settle();
        }
        connection.input.consume(&mut self.pool);
        debug_assert!(connection.client.close == Close::No, "nobody closes a mailbox");
        self.peers[number] = Some(connection);
    }
}
