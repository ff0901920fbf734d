//! Commands of a window that aren't quick: executed with all checks, sent on, or put aside.
//!
//! A command that has to wait leaves its party stopped at it, so that what follows waits too.
//!
//! Belongs to the shard's thread.

use crate::commands::Resolved;
use crate::handlers::context::{Attachable, Context, Others};
use crate::handlers::route::Flow;
use crate::handlers::{session, store_host};
use crate::hop::later::Later;
use crate::hop::message::{Kind, Manner};
use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::output::Mark;
use crate::net::party::Party;
use crate::net::pipeline::{Pending, Pipeline};
use crate::net::queued::ReplyMode;
use crate::net::slab::Occupant;
use crate::turn::call_queue::WaitingCall;
use crate::turn::dispatch;
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
        let may_wait = self.may_wait();
        let (before, rest) = self.active.split_at_mut(prepared.party);
        let Some((party, after)) = rest.split_first_mut() else { return };
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
        let Pipeline { input, out, client, pending, .. } = pipe;
        let args: Vec<&[u8]> = input.batch.args(prepared.index).iter(input.bytes()).collect();
        let tenant = prepared.tenant;
        out.tenant = tenant;
        if keeps_ages {
            self.state.tenants[tenant].keyspace.keep_ages(true);
        }
        let reply_mode = client.reply_mode;
        let silent = reply_mode != ReplyMode::On;
        let mark = out.mark();
        let was_local = client.local.is_some();
        let is_followed = input.is_followed(prepared.index);
        let mut context = Context {
            state: &mut self.state,
            turn,
            client: &mut *client,
            out: &mut *out,
            others: Others { slab: &mut self.slab, before, after },
            input: (input.bytes().len(), input.buf.capacity()),
            later,
            attachable: sides.map(|(socket, local)| Attachable { socket, local, is_followed }),
            is_peer: sent.is_some(),
            is_part: matches!(sent, Some(Kind::Part(_))),
            unstable: matches!(pending, Pending::Unstable(_)),
            refreshed: *pending == Pending::Refreshed,
            waited: match *pending {
                Pending::Waited { durable } => Some(durable),
                _ => None,
            },
            may_wait,
            settled: None,
            tally: None,
        };
        let flow = match sent {
            None | Some(Kind::Commands(_) | Kind::Part(_)) => {
                flow_of(&mut context, &args, prepared.resolved)
            }
            Some(Kind::Writes) => {
                store_host::commit_for_peer(&mut context, args[0]);
                Flow::Done
            }
        };
        let of = &mut self.state.tenants[tenant];
        if keeps_ages || client.no_touch {
            of.keyspace.keep_ages(false);
        }
        let is_busy = of.keyspace.take_busy() && may_wait;
        let untold = std::mem::take(&mut of.untold);
        if is_busy || untold != 0 {
            out.cut(mark);
            client.reply_mode = reply_mode;
            client.skip_next = false;
            client.settle();
            if untold == 0 {
                return self.wait_for_memory(prepared.party);
            }
            self.wait_for_still(prepared.party, tenant, untold);
            return;
        }
        let is_attached = client.local.is_some() && !was_local;
        self.follow(flow, prepared, silent, mark, turn);
        if is_attached {
            let who = Occupant::of(self.sender(prepared.party));
            self.attached.push(who);
        }
    }

    /// A command that was sent has no reply here, but changes what CLIENT REPLY says of the next.
    fn finish_sent(&mut self, at: usize) {
        let pipe = &mut *self.active[at];
        let mark = pipe.out.mark();
        dispatch::finish(&mut pipe.client, &mut pipe.out, mark);
    }

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
            Flow::Done => {
                self.bound_reply(at, mark, false);
                let pipe = &mut *self.active[at];
                self.budget.count_reply(pipe.out.since(mark));
                pipe.pending = Pending::Nothing;
                pipe.input.next = index + 1;
                pipe.stopped = pipe.client.close != Close::No
                    || pipe.out.waiting() > self.state.hot.output_pause;
                if let Some(row) = prepared.resolved.row() {
                    self.note_look(at, index, row, turn);
                }
                self.defer(at, mark, turn);
                return self.active[at].answered();
            }
            Flow::Function(row) => {
                let call = WaitingCall { party: at, index, row, tenant: prepared.tenant };
                self.calls.push(call);
                if self.crosses(&call) {
                    // What it writes elsewhere is under way when it has run: whatever follows looks
                    // at that.
                    let pipe = &mut *self.active[at];
                    pipe.input.next = index + 1;
                    (pipe.stopped, pipe.parked) = (true, true);
                    return;
                }
            }
            Flow::Send(row, shard) => {
                if self.send(&prepared, row, shard, silent) {
                    self.finish_sent(at);
                }
                return;
            }
            Flow::Scatter(row, target) => {
                if self.scatter(at, index, row, target, silent, turn) {
                    self.finish_sent(at);
                }
                return;
            }
            Flow::Wait(asked) => return self.wait_for_sync(at, asked),
            Flow::Await | Flow::Move(_) | Flow::Refresh | Flow::Check => {
                let who = Occupant::of(self.sender(at));
                let pending = match flow {
                    Flow::Await => Pending::Answers,
                    Flow::Move(shard) => Pending::Move(shard),
                    Flow::Check => {
                        self.checking.push(who);
                        Pending::Check
                    }
                    _ => {
                        self.asking.push((who, self.now));
                        Pending::Ticket(self.state.shared.refresh(self.state.number))
                    }
                };
                let pipe = &mut *self.active[at];
                (pipe.stopped, pipe.pending) = (true, pending);
                return;
            }
        }
        let pipe = &mut *self.active[at];
        pipe.input.next = index + 1;
        pipe.stopped =
            pipe.client.close != Close::No || pipe.out.waiting() > self.state.hot.output_pause;
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
