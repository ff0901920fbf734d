//! Commands between shards: the sender gives them to the owner of the data, and its clients the
//! answers.
//!
//! ```text
//! connection ── Work::send ──> mailbox ──> peer ── the owner's turn, as any other party's
//!     ^                                                           │
//!     └────── Work::take_answers <── mailbox <── Work::answer_peer ◂──┘
//! ```
//!
//! 1. A request is one command of a connection, or several that follow each other; an answer is the
//!    replies to them ([`crate::hop::message`]). The answers of an owner come in the order of the
//!    commands sent to it. The connection puts the answers of several owners in order
//!    ([`crate::hop::later`]).
//! 2. A connection sees its own writes. While the owner of a partition has writes of it to answer,
//!    its reads of that partition are sent after them. A read of several partitions waits until all
//!    are answered.
//! 3. A connection has at most its allowance at other shards ([`crate::hop::allowance`]). A command
//!    by parts is looked at once, and counts by its parts.
//! 4. A token is a [`Return`], so that an answer that comes too late finds nobody.
//! 5. The owner has a slow command's words, so it logs the command under shard and token, and the
//!    answer says so. The sender then writes the client into the entry, before the client has the
//!    answer.
//! 6. A copied reply is no longer than a client's output may be. The replies to a request leave
//!    together, when its last command has run. All of them are short, but for a request of one
//!    command.
//! 7. The owner reads nothing from a shard of which commands are left, and runs none of them while
//!    that shard has many bytes of replies to take ([`crate::hop::mailbox`]). Others have their
//!    turns meanwhile.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Row, Run};
use crate::hop::mailbox::{DEFAULT_BODY_BYTES, MailReply};
use crate::hop::message::commands::{self as codec, Known, Scratch};
use crate::hop::message::replies::{Replies, reply_of};
use crate::hop::message::{LEAD_BYTES, MOST_IN_MESSAGE, MessageKind, led_by};
use crate::net::client::Close;
use crate::net::connection::{Connection, Unsent};
use crate::net::output::Mark;
use crate::net::party::Party;
use crate::net::peer::{Command, Peer};
use crate::net::pipeline::Pending;
use crate::net::slab::Return;
use crate::observe::slowlog::Origin;
use crate::turn::prepared::{LARGE_INPUT_BYTES, Prepared};
use crate::turn::work::{MOST_COMMANDS, Work};
use nigh_resp::decode::Args;
use nigh_store::{Op, Turn};

/// Bytes of requests after which a turn takes no more of them; one body more may be among them.
const MOST_MAIL_BYTES: usize = DEFAULT_BODY_BYTES;
/// Answers that are taken before their connections are looked at.
const ANSWERS_AT_ONCE: usize = 8;
/// Bytes that buffers of messages keep from turn to turn.
const KEEP_BYTES: usize = 64 << 10;

/// Whether the reply to a command is short whatever it is about. Only such commands share a request
/// with others, since the replies to a request leave together.
fn answers_briefly(row: Row, args: Args<'_>, input: &[u8]) -> bool {
    let gets = || args.from(3).iter(input).any(|word| word.eq_ignore_ascii_case(b"get"));
    match commands::of(row).run {
        Run::Data(Op::Set) => args.len() == 3 || !gets(),
        Run::Data(op) => op.answers_briefly(),
        _ => false,
    }
}

/// The connection of an active party that sends something to another shard, or waits for one: a
/// shard that is asked asks nobody.
pub(crate) fn sender(active: &mut [Party], at: usize) -> &mut Connection {
    active[at].connection_mut().expect("only a client's commands go on to other shards")
}

impl Work {
    /// Sends a command of an active connection to a shard; false if its allowance is used up or the
    /// mailbox is full: the connection waits then.
    pub(crate) fn send(
        &mut self,
        prepared: &Prepared,
        row: Row,
        shard: usize,
        silent: bool,
    ) -> bool {
        let (at, index) = (prepared.party, prepared.index);
        let input = &self.active[at].input;
        let is_brief = answers_briefly(row, input.batch.args(index), input.bytes());
        if !self.has_allowance(at) {
            return false;
        }
        let connection = sender(&mut self.active, at);
        let (args, input) =
            (connection.pipe.input.batch.args(index), connection.pipe.input.bytes());
        let known = Known { row, key: prepared.key() };
        let mut scratch = Scratch::default();
        let parts = codec::parts_of(&mut scratch, prepared.tenant, known, args, input);
        let joined = [&parts[0][LEAD_BYTES..], parts[1]];
        let token = Return::to(connection, silent, is_brief).0;
        let kind = MessageKind::Commands(connection.pipe.client.run_manner()).code();
        // One whose reply may be long stands alone: its token says so, as no other's does.
        if !(is_brief && self.mailbox.join(shard, token, kind, MOST_IN_MESSAGE, &joined))
            && self.mailbox.send(shard, token, kind, &parts).is_err()
        {
            let bytes = parts.iter().map(|part| part.len()).sum();
            self.held.hold(connection, shard, bytes);
            return false;
        }
        if !is_brief {
            connection.allowance.sent_long();
        }
        connection.later.expect(shard);
        connection.pipe.pending = Pending::Nothing;
        connection.pipe.client.last_row = Some(row);
        connection.pipe.input.next = index + 1;
        if prepared.is_call && self.is_durable_call(prepared.tenant, at, index) {
            self.insist(at);
        } else {
            self.note_sent(at, index, row);
        }
        let connection = sender(&mut self.active, at);
        self.state.stats.hops_out += 1;
        if !is_brief && self.state.is_about_libraries(row) {
            // What functions there are says where a call goes, and whether its reply waits.
            connection.pipe.stopped = true;
            connection.pipe.pending = Pending::Answers;
        }
        true
    }

    /// Whether a connection may have one more at other shards; else it waits.
    pub(crate) fn has_allowance(&mut self, at: usize) -> bool {
        let connection = sender(&mut self.active, at);
        let has = connection.allowance.allows(connection.later.sent)
            && !connection.later.is_full(self.state.hot.output_pause);
        if !has {
            connection.pipe.stopped = true;
            connection.pipe.pending = Pending::Allowance;
        }
        has
    }

    /// Sends parts of what an active connection wants, each to its shard; what finds no room goes
    /// when there is some, before all else of the connection.
    pub(crate) fn send_parts(
        &mut self,
        at: usize,
        parts: Vec<(usize, Vec<u8>)>,
        kind: MessageKind,
        silent: bool,
        is_brief: bool,
    ) {
        let connection = sender(&mut self.active, at);
        let token = Return::to(connection, silent, is_brief).0;
        self.state.stats.hops_out += parts.len() as u64;
        for (shard, message) in parts {
            if !is_brief {
                connection.allowance.sent_long();
            }
            connection.unsent.push_back(Unsent { shard, token, kind: kind.code(), message });
        }
        self.held.send_unsent(&mut self.mailbox, connection);
    }

    /// Refuses a reply that is longer than a client's output may be, if it is to be copied: it goes
    /// to another shard, or behind what others have still to answer, or `waits` for what they have
    /// still to do. (What a socket takes is written from where it lies.)
    #[inline]
    pub(crate) fn bound_reply(&mut self, at: usize, mark: Mark, waits: bool) {
        let party = &mut self.active[at];
        let is_copied = waits || party.copies_replies();
        if is_copied && party.out.since(mark) > self.state.hot.output_limit {
            party.out.refuse_since(mark, self.state.hot.output_limit);
        }
    }

    /// Gives the connections the answers that have come: some at a time, so that the cache misses
    /// of their connections overlap.
    pub(crate) fn take_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        loop {
            let mut came = 0;
            while came < ANSWERS_AT_ONCE {
                if answers.len() == came {
                    answers.push((MailReply { from: 0, token: 0 }, Vec::new()));
                }
                let (reply, answer) = &mut answers[came];
                let Some(next) = self.mailbox.next_reply(answer) else { break };
                self.slab.prefetch(Return(next.token).slot());
                *reply = next;
                came += 1;
            }
            for (reply, answer) in &mut answers[..came] {
                self.give(*reply, answer);
                answer.clear();
                answer.shrink_to(KEEP_BYTES);
            }
            if came < ANSWERS_AT_ONCE {
                break;
            }
        }
        self.answers = answers;
        self.held.resume(&mut self.mailbox, &mut self.slab, &mut self.ready);
    }

    /// Gives a connection an answer, if it is still there.
    fn give(&mut self, reply: MailReply, answer: &[u8]) {
        let MailReply { from, token } = reply;
        let to = Return(token);
        let Some(connection) = self.slab.addressee(to) else { return };
        let slot = connection.slot;
        let replies = Replies::of(answer);
        let bytes = replies.bytes();
        let is_wanted = !to.is_silent() && connection.pipe.client.close != Close::Now;
        let out = connection.pipe.out.bytes();
        if connection.later.came(from, replies, is_wanted, out) {
            let origin = Origin { shard: self.state.number, token };
            self.state.shared.slowlog().name_sender(
                origin,
                &connection.pipe.client.address,
                &connection.pipe.client.name,
            );
        }
        if !to.is_brief() {
            connection.allowance.long_came(bytes, self.state.hot.output_pause);
        }
        let is_over = match connection.pipe.pending {
            Pending::Answers => connection.later.is_empty(),
            Pending::Allowance => connection.allowance.is_half_free(connection.later.sent),
            _ => false,
        };
        if is_over {
            connection.pipe.pending = Pending::Nothing;
        }
        // Else more is to come: it has nothing to do before that.
        let waiting = connection.pipe.out.waiting() + connection.later.bytes;
        let is_flooded = is_wanted && waiting > self.state.hot.output_limit;
        if is_over || is_flooded || connection.later.is_empty() || connection.has_gathered() {
            self.ready.queue(slot);
        }
        // Before the others of the same turn have come, which are as long maybe.
        if is_flooded && let Some(mut connection) = self.slab.take(slot) {
            self.cut_off(&mut connection, "its waiting replies exceed output-buffer-limit");
            self.slab.put(connection);
        }
    }

    /// Takes what the other shards have sent into the turn.
    pub(crate) fn receive_peers(&mut self, turn: &Turn<'_>) {
        let (were_left, in_turn) = self.peers.begin_turn();
        if were_left {
            in_turn.clone().for_each(|number| self.run_peer(number, false, turn));
        }
        self.read_mail();
        // A sender that has seen that the log is broken knows that no write of it is done here.
        self.state.logs.look(self.now, self.state.hot.journal_wait);
        // Something was changed, maybe before the mail was sent: first this shard looks at that.
        let is_early = self.state.has_notes();
        in_turn.for_each(|number| self.run_peer(number, is_early, turn));
    }

    /// Takes the commands of a shard into the turn, if there are any, unless they came too early,
    /// it has enough to take, or they wait for others to stand still.
    pub(crate) fn run_peer(&mut self, number: usize, is_early: bool, turn: &Turn<'_>) {
        let Some(mut peer) = self.peers.take(number) else { return };
        let waits = self.mailbox.is_behind(number) || !peer.pipe.pending.lets_go_on();
        if is_early || waits {
            self.peers.note_left(waits);
            self.mailbox.hold_back(number, true);
            return self.peers.put(peer);
        }
        peer.pipe.stopped = false;
        peer.pipe.parked = false;
        self.active.push(Party::Peer(peer));
        self.prepare(self.active.len() - 1, turn);
    }

    /// Reads what the other shards have sent, as much as a turn may take.
    fn read_mail(&mut self) {
        let (mut commands, mut bytes) = (0, 0);
        while commands < MOST_COMMANDS
            && bytes < MOST_MAIL_BYTES
            && let Some(from) = self.mailbox.next_sender()
        {
            let peer = self.peers.get_mut(from).expect("its last commands are done");
            let before = peer.commands.len();
            let receive = |buf: &mut Vec<u8>| self.mailbox.receive(from, buf);
            let commands_of = &mut peer.commands;
            let (request, came_bytes) =
                peer.pipe.input.take_mail(receive, |request, input, start, batch| {
                    let token = request.token.expect("no kind of message is a notice yet");
                    let kind = MessageKind::of_code(request.kind);
                    let bytes = input.len() - start;
                    let is_large = bytes > LARGE_INPUT_BYTES;
                    let (tenant, _) = led_by(&input[start..]);
                    let mut add = |known| {
                        commands_of.push(Command { token, kind, tenant, is_large, known });
                    };
                    match kind {
                        MessageKind::Commands(_) | MessageKind::Part(_) => {
                            codec::read(input, start, batch, |known| add(Some(known)));
                        }
                        MessageKind::Writes => {
                            let bytes = u32::try_from(bytes).expect("a write set is bounded");
                            batch.push_places(start, std::iter::once((0, bytes)));
                            add(None);
                        }
                    }
                });
            let came = peer.commands.len() - before;
            peer.requests.extend(request.token.map(|token| (token, came)));
            self.state.stats.hops_in += came as u64;
            commands += came;
            bytes += came_bytes;
            if MessageKind::of_code(request.kind).manner().keeps_ages {
                // Until these commands are done, each of the shard's is looked at.
                peer.pipe.client.no_touch = true;
                peer.pipe.client.settle();
            }
        }
    }

    /// Sends a shard the replies of what ran.
    pub(crate) fn answer_peer(&mut self, mut peer: Box<Peer>, turn: &Turn<'_>) {
        peer.pipe.out.settle_all(&self.state.tenants.readers(), turn.pin);
        self.state.stats.copied_bytes += peer.pipe.out.take_copied() as u64;
        let number = peer.number;
        let replies = peer.pipe.out.bytes();
        let (mut from, mut ended, mut answered) = (0, 0, 0);
        for (token, commands) in &peer.requests {
            let Some(ends) = peer.ends.get(ended..ended + commands) else { break };
            let (mut start, end) = (from, ends.last().map_or(from, |(end, _)| *end));
            let lengths = ends
                .iter()
                .map(|(end, is_logged)| (end - std::mem::replace(&mut start, *end), *is_logged));
            let parts = reply_of(&mut self.lengths, lengths, &replies[from..end]);
            self.mailbox.reply(number, *token, &parts);
            (from, ended, answered) = (end, ended + commands, answered + 1);
        }
        peer.requests.drain(..answered);
        peer.ends.drain(..ended);
        peer.ends.iter_mut().for_each(|(end, _)| *end -= from);
        replies.drain(..from);
        let has_commands = peer.pipe.input.has_commands();
        self.mailbox.hold_back(number, has_commands);
        if has_commands {
            self.peers.note_left(!peer.pipe.pending.lets_go_on());
        } else {
            assert!(replies.is_empty() && peer.requests.is_empty(), "every command is answered");
            replies.shrink_to(KEEP_BYTES);
            peer.commands.clear();
            peer.pipe.client.no_touch = false;
            peer.pipe.client.settle();
        }
        peer.pipe.input.consume_mail();
        debug_assert!(peer.pipe.client.close == Close::No, "nobody closes a mailbox");
        self.peers.put(peer);
    }
}
