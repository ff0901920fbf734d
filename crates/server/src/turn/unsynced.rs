//! Replies that wait until what they depend on is on disk, and connections that wait for that by
//! WAIT or WAITAOF.
//!
//! ```text
//! command ──(looks)──> depends ──(finish: not on disk)──> kept, in `keeping` ──(synced)──> written, it goes on
//! the turn's end: the logs that are waited for are told ──> their threads sync, store durable LSNs, count, wake
//! ```
//!
//! 1. With `appendfsync always` a client's replies leave only when the changes are on disk that had
//!    begun in the streams that its commands looked at, by a load behind all of these looks. A GET
//!    whose record is on disk depends on nothing more. So does a read of one key, if all is on disk
//!    that has begun in its partition, by a load behind its look: one load for a whole window.
//! 2. Replies that came behind the load aren't covered by it: when the others may leave, it is
//!    made anew for all. A connection that keeps replies runs no command. So only answers of
//!    other shards come meanwhile, of which there are few.
//! 3. A connection stands in `keeping` if and only if it keeps replies. It leaves the list when
//!    they are written, when the mode has changed, or when it is gone.
//! 4. A shard keeps the replies of its own clients only. What it answers to another shard, that one
//!    keeps.
//! 5. A call of a function with the flag `durable` insists: its connection's replies wait in any
//!    mode, for all that the tenant had begun. It is refused before it runs unless all logs are
//!    well ([`crate::handlers::insistence`]). Other connections don't wait for it. If the log ends
//!    meanwhile, its reply never leaves.
//! 6. No wake-up is lost. A log's thread stores durable LSNs, then counts (`Shared::tell_synced`).
//!    A shard loads the count, then the durable LSNs: at the beginning of a turn, and again before
//!    it sleeps. So what isn't seen is counted later than what the shard has seen.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::WRITE;
use crate::commands::{self, Builtin, Row, Run};
use crate::handlers::waiting::Asked;
use crate::net::client::Close;
use crate::net::connection::Connection;
use crate::net::depends::{Depends, Need, Streams};
use crate::net::pipeline::{Pending, Pipeline};
use crate::net::slab::Occupant;
use crate::state::State;
use crate::state::streams::Outlook;
use crate::tenant::TenantId;
use crate::turn::exchange::sender;
use crate::turn::prepared::{Prepared, WINDOW};
use crate::turn::synced_lists::Wish;
use crate::turn::work::{MOST_ACTIVE, Work};
use nigh_resp::decode::Args;
use nigh_store::{Op, Turn};
use std::time::{Duration, Instant};

const _: () = assert!(WINDOW <= u64::BITS as usize, "a bit for each command of a window");

/// Whether a command reads one key, and nothing else.
const fn reads_one_key(op: Op) -> bool {
    matches!(
        op,
        Op::Get
            | Op::StrLen
            | Op::GetRange
            | Op::SubStr
            | Op::Type
            | Op::Ttl
            | Op::PTtl
            | Op::ExpireTime
            | Op::PExpireTime
    )
}

/// What a command looks at, and where it may write. Nothing if it isn't about data.
fn streams_of(
    state: &State,
    tenant: TenantId,
    row: Row,
    (args, bytes): (&Args<'_>, &[u8]),
) -> (Streams, Streams) {
    use Builtin as B;
    let of = &state.tenants[tenant];
    let all = || state.streams(tenant);
    let arg = |at| (at < args.len()).then(|| args.get(bytes, at));
    let (looked, writes) = match commands::of(row).run {
        Run::Data(op) => {
            let keyspace = &of.keyspace;
            let key = arg(op.first_key()).filter(|_| op.first_key() > 0);
            let looked = match key {
                _ if keyspace.partitions() == 1 => Streams::of(0),
                Some(key) if !op.takes_several_keys() => Streams::of(keyspace.partition_of(key)),
                _ => Streams::of_all(keyspace.partitions()),
            };
            (looked, commands::of(row).has(WRITE))
        }
        Run::Server(B::Fcall | B::FcallRo) => {
            (all(), arg(1).is_none_or(|name| of.libraries.traits(name).writes))
        }
        Run::Server(B::Exec) => (all(), true),
        Run::Server(
            B::FunctionLoad
            | B::FunctionDelete
            | B::FunctionFlush
            | B::FunctionRestore
            | B::FunctionList
            | B::FunctionDump
            | B::FunctionStats,
        ) => (Streams::LIBRARIES, commands::of(row).has(WRITE)),
        Run::Server(_) | Run::Container => (Streams::NONE, false),
    };
    // One that was broken refuses writes.
    let wrote = if writes { state.writable(tenant, looked) } else { Streams::NONE };
    (looked, wrote)
}

impl Work {
    /// A client's command has run: notes what its reply depends on.
    #[inline]
    pub(crate) fn note_look(&mut self, at: usize, index: usize, row: Row, turn: &Turn<'_>) {
        if self.active[at].client.insists {
            self.insist(at);
        } else if self.state.hot.replies_wait {
            self.note_streams(at, index, row, Some(turn));
        }
    }

    /// The same of a quick one, but for reads of one key: those are noted at the window's end.
    #[inline]
    pub(crate) fn note_quick(&mut self, prepared: &Prepared, row: Row, op: Op, turn: &Turn<'_>) {
        if self.state.hot.replies_wait && !reads_one_key(op) {
            self.note_streams(prepared.party, prepared.index, row, Some(turn));
        }
    }

    /// Whether a quick command that has run is one of those.
    #[inline]
    pub(crate) fn is_noted_later(&self, prepared: &Prepared) -> bool {
        self.state.hot.replies_wait && prepared.quick.is_some_and(reads_one_key)
    }

    /// Notes what the reads of a window depend on, a bit for each of its commands. Nothing, if all
    /// is on disk that they may have seen: see 1.
    #[inline]
    pub(crate) fn note_reads(&mut self, window: &[Prepared], reads: u64, turn: &Turn<'_>) {
        let mut last = None; // mostly all are of one partition
        let mut left = reads;
        while left != 0 {
            let prepared = &window[left.trailing_zeros() as usize];
            left &= left - 1;
            let place = (prepared.tenant, prepared.partition);
            if last == Some(place) {
                continue;
            }
            if self.state.unsynced_of(prepared.tenant, prepared.partition).is_some() {
                return self.note_each_read(window, reads, turn);
            }
            last = Some(place);
        }
    }

    #[cold]
    fn note_each_read(&mut self, window: &[Prepared], reads: u64, turn: &Turn<'_>) {
        let is_read = |at: usize| reads >> at & 1 == 1;
        for (at, prepared) in window.iter().enumerate().take(WINDOW) {
            let Some(connection) = self.active[prepared.party].connection_mut() else { continue };
            if !is_read(at) {
                continue;
            }
            // The client may be in a transaction by now: the read was before that.
            let pipe = &mut connection.pipe;
            let (args, bytes) = (pipe.input.batch.args(prepared.index), pipe.input.bytes());
            let shows = prepared.quick == Some(Op::Get)
                && shows_durable(&self.state, prepared.tenant, args.get(bytes, 1), turn);
            if !shows {
                pipe.depends.add(Streams::of(prepared.partition), Streams::NONE);
            }
        }
    }

    /// The same of one that is sent to another shard, which looks later.
    #[inline]
    pub(crate) fn note_sent(&mut self, at: usize, index: usize, row: Row) {
        if self.state.hot.replies_wait {
            self.note_streams(at, index, row, None);
        }
    }

    /// A function with the flag `durable` has run, or was sent to another shard: see 5.
    #[cold]
    pub(crate) fn insist(&mut self, at: usize) {
        let Some(connection) = self.active[at].connection_mut() else { return };
        let Pipeline { client, depends, .. } = &mut connection.pipe;
        client.insists = false;
        let all = self.state.streams(client.tenant);
        depends.add(all, all);
        depends.insists = true;
    }

    #[cold]
    fn note_streams(&mut self, at: usize, index: usize, row: Row, ran: Option<&Turn<'_>>) {
        let Some(connection) = self.active[at].connection_mut() else { return };
        let Connection { pipe, .. } = connection;
        if pipe.client.transaction.is_some() {
            return; // queued
        }
        let (input, tenant) = (&pipe.input, pipe.client.tenant);
        let (args, bytes) = (input.batch.args(index), input.bytes());
        if let (Run::Data(Op::Get), Some(turn), 2) = (commands::of(row).run, ran, args.len())
            && shows_durable(&self.state, tenant, args.get(bytes, 1), turn)
        {
            return;
        }
        let (looked, wrote) = streams_of(&self.state, tenant, row, (&args, bytes));
        pipe.depends.add(looked, wrote);
    }

    /// Whether a connection's replies are to be kept: with `appendfsync always`, some of what they
    /// depend on isn't on disk. Ends it if that can't get there.
    #[cold]
    pub(crate) fn keeps_replies(&mut self, connection: &mut Connection, turn: &Turn<'_>) -> bool {
        let Connection { pipe, kept, later, .. } = &mut *connection;
        let insists = pipe.depends.insists;
        if !self.state.hot.replies_wait && !insists {
            pipe.depends = Depends::default();
            return kept.keeps(); // until the next turn: see `release_kept`
        }
        if kept.keeps() {
            return true; // what has come since is looked at when these may leave
        }
        let tenant = pipe.client.tenant;
        kept.needs.extend(self.state.unsynced(tenant, pipe.depends.looked));
        kept.bytes = pipe.out.waiting();
        let outlook = self.state.look_at_needs(tenant, &mut kept.needs, pipe.depends.wrote);
        match or_never(&self.state, insists, outlook) {
            Outlook::Wait => {}
            Outlook::Leave => {
                if later.is_empty() {
                    pipe.depends = Depends::default();
                }
                return false;
            }
            Outlook::Never => {
                kept.needs.clear();
                end_unanswered(connection);
                return true;
            }
        }
        self.synced.wanted |= self.state.loggers(tenant, &kept.needs);
        pipe.out.settle_all(&self.state.tenants.readers(), turn.pin);
        self.synced.keeping.push(Occupant::of(connection));
        self.synced.by_mode += usize::from(!insists);
        if self.synced.keeping.len() > 2 * self.slab.len() {
            // Most of them are gone, and the logs tell nothing.
            let (slab, own) = (&mut self.slab, connection.slot);
            let is_there = |who: &Occupant| who.slot == own || slab.occupant(*who).is_some();
            self.synced.keeping.retain(is_there);
        }
        true
    }

    /// Lets a connection wait for what it asked for.
    pub(crate) fn wait_for_sync(&mut self, at: usize, asked: Asked) {
        let now = self.now;
        let pipe = &mut *self.active[at];
        (pipe.stopped, pipe.pending) = (true, Pending::Synced);
        let tenant = pipe.client.tenant;
        let needs: Vec<Need> = self.state.unsynced(tenant, self.state.streams(tenant)).collect();
        self.synced.wanted |= self.state.loggers(tenant, &needs);
        let most = Some(Duration::from_millis(asked.most_ms)).filter(|most| !most.is_zero());
        // None if that is beyond all time.
        let until = most.and_then(|most| now.checked_add(most));
        let who = Occupant::of(sender(&mut self.active, at));
        self.synced.wishes.push(Wish { who, tenant, needs, asked, until });
        self.synced.next_end = self.synced.next_end.into_iter().chain(until).min();
        // If they are on disk already, the next turn says so.
        self.synced.look_again();
        self.state.blocked = self.synced.wishes.len();
    }

    /// At the beginning of a turn: writes the replies that may leave now, and lets those go on that
    /// have waited for enough.
    pub(crate) fn release_synced(&mut self, turn: &Turn<'_>) {
        if self.synced.is_empty() {
            return;
        }
        let syncs = self.state.shared.syncs();
        let has_news = std::mem::replace(&mut self.synced.seen, syncs) != syncs;
        if has_news || self.keeps_for_nothing() {
            self.release_kept(turn);
        }
        if has_news || self.synced.next_end.is_some_and(|end| self.now >= end) {
            self.grant_wishes();
        }
    }

    /// Whether the mode has changed, and replies are kept for its sake.
    #[inline]
    fn keeps_for_nothing(&self) -> bool {
        self.synced.by_mode > 0 && !self.state.hot.replies_wait
    }

    fn release_kept(&mut self, turn: &Turn<'_>) {
        let mut keeping = std::mem::take(&mut self.synced.keeping);
        let (mut released, mut by_mode) = (0, 0);
        keeping.retain(|&who| {
            let Some(connection) = self.slab.occupant(who) else { return false };
            let for_mode = usize::from(!connection.pipe.depends.insists);
            if released == MOST_ACTIVE {
                by_mode += for_mode;
                return true; // the next turn's
            }
            match outlook(&self.state, connection) {
                Outlook::Wait => {
                    // What was asked for may have come too late for what was synced.
                    let (tenant, kept) = (connection.pipe.client.tenant, &connection.kept);
                    self.synced.wanted |= self.state.loggers(tenant, &kept.needs);
                    by_mode += for_mode;
                    return true;
                }
                Outlook::Leave => {}
                Outlook::Never => end_unanswered(connection),
            }
            released += 1;
            connection.kept.needs.clear();
            if connection.later.is_empty() {
                connection.pipe.depends = Depends::default();
            }
            // Before more commands run, whose replies would keep these.
            if let Some(mut connection) = self.slab.take(who.slot) {
                if connection.pipe.client.close != Close::Now {
                    self.write(&mut connection, turn);
                }
                self.slab.put(connection);
            }
            self.ready.queue(who.slot);
            false
        });
        (self.synced.keeping, self.synced.by_mode) = (keeping, by_mode);
        if released == MOST_ACTIVE {
            self.synced.look_again();
        }
    }

    fn grant_wishes(&mut self) {
        let (now, mut next_end) = (self.now, None);
        let mut wishes = std::mem::take(&mut self.synced.wishes);
        wishes.retain_mut(|wish| {
            let Some(connection) = self.slab.occupant(wish.who) else { return false };
            wish.needs.retain(|need| !self.state.is_durable(wish.tenant, need));
            let Asked { local, replicas, .. } = wish.asked;
            let is_granted = (wish.needs.is_empty() || !local) && !replicas;
            // Without a log it is told so.
            let is_vain = local && !self.state.has_log();
            if !is_granted && !is_vain && wish.until.is_none_or(|until| now < until) {
                self.synced.wanted |= self.state.loggers(wish.tenant, &wish.needs);
                next_end = next_end.into_iter().chain(wish.until).min();
                return true;
            }
            connection.pipe.pending = Pending::Waited { durable: wish.needs.is_empty() };
            self.ready.queue(wish.who.slot);
            false
        });
        (self.synced.wishes, self.synced.next_end) = (wishes, next_end);
        self.state.blocked = self.synced.wishes.len();
    }

    /// A connection is closed that may have a wish.
    pub(crate) fn forget_wish(&mut self, connection: &Connection) {
        if connection.pipe.pending == Pending::Synced {
            let who = Occupant::of(connection);
            self.synced.wishes.retain(|wish| wish.who != who);
            self.state.blocked = self.synced.wishes.len();
        }
    }

    /// At the turn's end: tells the logs that are waited for.
    #[inline]
    pub(crate) fn want_syncs(&mut self) {
        if self.synced.wanted != 0 {
            self.state.logs.want_syncs(std::mem::take(&mut self.synced.wanted));
        }
    }

    /// Whether a turn would release somebody, maybe.
    #[inline]
    pub(crate) fn has_synced(&self, now: Instant) -> bool {
        if self.synced.is_empty() {
            return false;
        }
        self.state.shared.syncs() != self.synced.seen
            || self.keeps_for_nothing()
            || self.synced.next_end.is_some_and(|end| now >= end)
    }

    /// Whether the shard may sleep, as far as the logs are concerned: whatever they tell from now
    /// on wakes it.
    pub(crate) fn awaits_sync(&self, awaits: bool) -> bool {
        if self.synced.is_empty() {
            return true;
        }
        self.state.shared.seats[self.state.number].await_sync(awaits);
        self.state.shared.syncs() == self.synced.seen
    }
}

/// Whether what a GET has shown is on disk. It is looked at again: if the key's record is on disk
/// now, so was whatever the key had before, as changes get there in their order.
fn shows_durable(state: &State, tenant: TenantId, key: &[u8], turn: &Turn<'_>) -> bool {
    let keyspace = &state.tenants[tenant].keyspace;
    let hash = keyspace.hash(key);
    let reader = keyspace.reader(keyspace.partition(key, hash));
    reader.get(turn.pin, hash, key).is_some_and(|record| record.lsn() <= reader.durable_lsn())
}

/// What is to become of kept replies, and of those that have come behind them.
fn outlook(state: &State, connection: &mut Connection) -> Outlook {
    let Connection { pipe, kept, .. } = connection;
    let insists = pipe.depends.insists;
    if !state.hot.replies_wait && !insists {
        return Outlook::Leave;
    }
    let (tenant, wrote) = (pipe.client.tenant, pipe.depends.wrote);
    let first = state.look_at_needs(tenant, &mut kept.needs, wrote);
    let first = or_never(state, insists, first);
    if first != Outlook::Leave || kept.bytes == pipe.out.waiting() {
        return first;
    }
    kept.needs.extend(state.unsynced(tenant, pipe.depends.looked));
    kept.bytes = pipe.out.waiting();
    state.look_at_needs(tenant, &mut kept.needs, wrote)
}

/// The outlook of replies of which one insists maybe: without a log it can't be kept.
fn or_never(state: &State, insists: bool, outlook: Outlook) -> Outlook {
    let is_vain = insists && outlook == Outlook::Wait && !state.has_log();
    if is_vain { Outlook::Never } else { outlook }
}

/// Ends a connection whose replies can't be given.
fn end_unanswered(connection: &mut Connection) {
    tracing::warn!(
        address = %connection.pipe.client.address,
        "client disconnected: the log broke or ended before its last writes were on disk"
    );
    connection.pipe.client.end(Close::Now);
    connection.pipe.client.settle();
}
