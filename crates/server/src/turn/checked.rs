//! Commands of a window that aren't quick: executed with all checks, sent on, or put aside.
//!
//! A command that has to wait leaves its party stopped at it, so that what follows waits too.
//!
//! Belongs to the shard's thread.

use crate::commands::{Resolved, Row};
use crate::handlers::context::{Attachable, Context, Others};
use crate::handlers::route::Flow;
use crate::handlers::{session, store_host};
use crate::hop::later::Later;
use crate::hop::message::{Manner, MessageKind};
use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::output::Mark;
use crate::net::party::Party;
use crate::net::pipeline::{Lacking, MayWait, Pending, Pipeline};
use crate::net::queued::ReplyMode;
use crate::net::slab::Occupant;
use crate::turn::call_queue::WaitingCall;
use crate::turn::dispatch;
use crate::turn::exchange::sender;
use crate::turn::prepared::Prepared;
use crate::turn::work::Work;
use nigh_store::Turn;
use std::os::fd::AsFd;

impl Work {
    /// Executes a command with all checks, or puts it aside.
    pub(super) fn run_other(&mut self, prepared: Prepared, turn: &Turn<'_>) {
        if self.waits(&prepared) {
            return;
        }
        let (at, tenant, may_wait) =
            (prepared.party, prepared.tenant, self.may_wait(prepared.party));
        let pipe = &*self.active[at];
        let (mark, reply_mode) = (pipe.out.mark(), pipe.client.reply_mode);
        let was_local = pipe.client.local.is_some();
        let flow = self.execute(&prepared, may_wait, turn);
        let of = &mut self.state.tenants[tenant];
        let scarce = of.keyspace.take_busy();
        let waits_for = scarce.filter(|scarce| may_wait.is_for(*scarce));
        let untold = std::mem::take(&mut of.untold);
        let Pipeline { client, out, waited_in_vain, .. } = &mut *self.active[at];
        *waited_in_vain |= scarce.is_some() && waits_for.is_none();
        if waits_for.is_some() || untold != 0 {
            out.cut(mark);
            client.reply_mode = reply_mode;
            client.skip_next = false;
            client.settle();
            *waited_in_vain = false;
            if untold != 0 {
                self.wait_for_still(at, tenant, untold);
            } else if let Some(scarce) = waits_for {
                self.wait_for(at, scarce);
            }
            return;
        }
        let is_attached = client.local.is_some() && !was_local;
        self.follow(flow, prepared, reply_mode != ReplyMode::On, mark, turn);
        if is_attached {
            let who = Occupant::of(sender(&mut self.active, at));
            self.attached.push(who);
        }
    }

    /// Runs a command, or tells where or when it is to run.
    fn execute(&mut self, prepared: &Prepared, may_wait: MayWait, turn: &Turn<'_>) -> Flow {
        let (before, rest) = self.active.split_at_mut(prepared.party);
        let (party, after) = rest.split_first_mut().expect("its party is active");
        let Manner { protocol, keeps_ages } = party.manner(prepared.index);
        let none; // of a peer: a shard that is asked asks nobody
        let (pipe, later, sent, sides) = match party {
            Party::Client(connection) => {
                let Connection { pipe, later, stream, local, .. } = &mut **connection;
                (pipe, &*later, None, Some(((*stream).as_fd(), local)))
            }
            Party::Peer(peer) => {
                peer.pipe.client.protocol = protocol;
                peer.pipe.client.tenant = prepared.tenant;
                peer.pipe.client.origin = Some(peer.origin(prepared.index));
                let kind = peer.kind(prepared.index);
                none = Later::default();
                (&mut peer.pipe, &none, Some(kind), None)
            }
        };
        let Pipeline { input, out, client, pending, waited_in_vain, .. } = pipe;
        let args = input.words(prepared.index);
        out.tenant = prepared.tenant;
        if keeps_ages {
            self.state.tenants[prepared.tenant].keyspace.keep_ages(true);
        }
        let is_followed = input.is_followed(prepared.index);
        let mut context = Context {
            state: &mut self.state,
            turn,
            client: &mut *client,
            out,
            others: Others { slab: &mut self.slab, before, after, moving: &mut self.moving },
            input: (input.bytes().len(), input.buf.capacity()),
            later,
            attachable: sides.map(|(socket, local)| Attachable { socket, local, is_followed }),
            sent,
            pending: *pending,
            may_wait,
            waited_in_vain,
            settled: None,
            tally: None,
        };
        let flow = match sent {
            None | Some(MessageKind::Commands(_) | MessageKind::Part(_)) => {
                flow_of(&mut context, &args, prepared.resolved)
            }
            Some(MessageKind::Writes) => {
                store_host::commit_for_peer(&mut context, args[0]);
                Flow::Done
            }
        };
        if keeps_ages || client.no_touch {
            self.state.tenants[prepared.tenant].keyspace.keep_ages(false);
        }
        flow
    }

    /// Does what has to be done about a command that has run, or is to run elsewhere or later.
    fn follow(
        &mut self,
        flow: Flow,
        prepared: Prepared,
        silent: bool,
        mark: Mark,
        turn: &Turn<'_>,
    ) {
        let (at, index) = (prepared.party, prepared.index);
        match flow {
            Flow::Done => self.conclude(&prepared, mark, turn),
            Flow::Function(row) => self.put_in_batch(&prepared, row),
            Flow::Send(row, shard) => {
                if self.send(&prepared, row, shard, silent) {
                    self.finish_sent(at);
                }
            }
            Flow::Scatter(row, target) => {
                if self.scatter(at, index, row, target, silent, turn) {
                    self.finish_sent(at);
                }
            }
            Flow::Await => self.stop(at, Pending::Answers),
            Flow::Move(shard) => self.stop(at, Pending::Move(shard)),
            Flow::Refresh => {
                let ticket = self.state.shared.refresh(self.state.number);
                self.ask(at, Pending::Ticket(ticket));
            }
            Flow::Check => self.ask(at, Pending::Check),
            Flow::Wait(asked) => self.wait_for_sync(at, asked),
        }
    }

    /// A command has its reply, which was written since `mark`.
    fn conclude(&mut self, prepared: &Prepared, mark: Mark, turn: &Turn<'_>) {
        let (at, index) = (prepared.party, prepared.index);
        self.bound_reply(at, mark, false);
        let pipe = &mut *self.active[at];
        self.budget.count_reply(pipe.out.since(mark));
        pipe.pending = Pending::Nothing;
        // Of a command that was refused when it came again: the next one has its own parts.
        if let Some(connection) = self.active[at].connection_mut() {
            connection.done_parts.clear();
        }
        self.step_over(at, index);
        if let Some(row) = prepared.resolved.row() {
            self.note_look(at, index, row, turn);
        }
        self.defer(at, mark, turn);
        self.active[at].answered();
    }

    /// Puts a function call aside for the turn's batch.
    fn put_in_batch(&mut self, prepared: &Prepared, row: Row) {
        let (party, index) = (prepared.party, prepared.index);
        let call = WaitingCall { party, index, row, tenant: prepared.tenant };
        self.calls.push(call);
        self.step_over(party, index);
        if self.crosses(&call) {
            // What it writes elsewhere is under way when it has run: whatever follows looks at
            // that.
            let pipe = &mut *self.active[party];
            (pipe.stopped, pipe.parked) = (true, true);
        }
    }

    /// The command behind this one is the next, unless its client is to end, or has enough to read.
    fn step_over(&mut self, at: usize, index: usize) {
        let pipe = &mut *self.active[at];
        pipe.input.next = index + 1;
        pipe.stopped =
            pipe.client.close != Close::No || pipe.out.waiting() > self.state.hot.output_pause;
    }

    /// Lets a connection wait with its next command for what another thread tells.
    fn ask(&mut self, at: usize, pending: Pending) {
        let who = Occupant::of(sender(&mut self.active, at));
        self.asking.push((who, self.now));
        self.stop(at, pending);
    }

    /// Lets a connection wait with its next command.
    fn stop(&mut self, at: usize, pending: Pending) {
        let pipe = &mut sender(&mut self.active, at).pipe;
        (pipe.stopped, pipe.pending, pipe.lacks) = (true, pending, Lacking::default());
    }

    /// A command that was sent has no reply here, but changes what CLIENT REPLY says of the next.
    fn finish_sent(&mut self, at: usize) {
        let pipe = &mut *self.active[at];
        pipe.has_waited();
        let mark = pipe.out.mark();
        dispatch::finish(&mut pipe.client, &mut pipe.out, mark);
    }
}

/// Executes a command; hangs up on what is none.
fn flow_of(context: &mut Context<'_, '_>, args: &[&[u8]], resolved: Resolved) -> Flow {
    if session::is_attack(args) {
        tracing::warn!(address = %context.client.address, "HTTP request: client disconnected");
        context.client.end(Close::Now);
        return Flow::Done;
    }
    dispatch::execute(context, args, resolved)
}
