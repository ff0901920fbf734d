//! What a client has said and set about its connection.
//!
//! Plain data of the shard's thread; the commands that change it are in
//! [`crate::handlers::session`].

use crate::commands::{self, Row};
use crate::hop::message;
use crate::net::queued::{ReplyManner, ReplyMode, Transaction};
use crate::observe::slowlog::{Origin, Sender};
use crate::observe::snapshot::ClientRow;
use crate::tenant::TenantId;
use nigh_resp::Protocol;
use nigh_store::{Keyspace, WatchToken};
use std::time::Instant;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Close {
    No,
    /// When the replies are written.
    AfterReplies,
    Now,
}

/// The other end of a local client's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalPeer {
    /// Its process, if that has a number here, and user, when it connected.
    pub(crate) process_id: Option<i32>,
    pub(crate) user_id: u32,
    /// Of each of its rings.
    pub(crate) ring_bytes: u32,
}

/// The client of one connection.
pub(crate) struct Client {
    pub(crate) id: u64,
    /// Whose it is. Another one's only when none of its commands is under way, here or at other
    /// shards: replies, requests and batches of functions are one tenant's each. Of a shard: whose
    /// the command is that runs.
    pub(crate) tenant: TenantId,
    pub(crate) address: String,
    pub(crate) local_address: String,
    pub(crate) descriptor: i32,
    pub(crate) is_unix: bool,
    /// It is attached: its commands come by a ring.
    pub(crate) local: Option<LocalPeer>,
    pub(crate) created: Instant,
    /// When it last sent something.
    pub(crate) active: Instant,
    /// When it last took a byte of waiting replies, or there were none.
    pub(crate) drained: Instant,
    pub(crate) name: Vec<u8>,
    pub(crate) lib_name: Vec<u8>,
    pub(crate) lib_version: Vec<u8>,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    pub(crate) reply_mode: ReplyMode,
    /// The command after this one isn't answered.
    pub(crate) skip_next: bool,
    pub(crate) no_evict: bool,
    /// Its reads leave keys as old as they are. Of a shard: those of some of its clients do.
    pub(crate) no_touch: bool,
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Commands of the transaction that EXEC runs now.
    pub(crate) executes: Option<usize>,
    /// EXEC has called a function with the flag `durable`: its reply waits until all is on disk.
    pub(crate) insists: bool,
    pub(crate) watches: Vec<(usize, WatchToken)>,
    /// Of the keys of `watches`.
    pub(crate) watched_bytes: usize,
    pub(crate) last_row: Option<Row>,
    pub(crate) close: Close,
    pub(crate) bytes_in: u64,
    /// The sender of the command that runs, if this is another shard.
    pub(crate) origin: Option<Origin>,
    /// That command is in the slow log: its reply says so.
    pub(crate) is_logged: bool,
    /// Authenticated, not in MULTI, answered, and its reads make keys young: data commands need no
    /// further look.
    pub(crate) plain: bool,
}

impl Client {
    /// A client that has just connected.
    pub(crate) fn new(id: u64, address: String, local_address: String, now: Instant) -> Self {
        Self {
            id,
            tenant: TenantId::DEFAULT,
            address,
            local_address,
            descriptor: -1,
            is_unix: false,
            local: None,
            created: now,
            active: now,
            drained: now,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_version: Vec::new(),
            protocol: Protocol::Resp2,
            authenticated: true,
            reply_mode: ReplyMode::On,
            skip_next: false,
            no_evict: false,
            no_touch: false,
            transaction: None,
            executes: None,
            insists: false,
            watches: Vec::new(),
            watched_bytes: 0,
            last_row: None,
            close: Close::No,
            bytes_in: 0,
            origin: None,
            is_logged: false,
            plain: true,
        }
    }

    /// Asks for the end of the connection; the earlier end wins.
    pub(crate) fn end(&mut self, close: Close) {
        self.close = self.close.max(close);
    }

    /// The partition that its transaction or what it watches is bound to.
    pub(crate) fn partition(&self) -> Option<usize> {
        let queued = self.transaction.as_ref().and_then(|transaction| transaction.partition);
        queued.or_else(|| self.watches.first().map(|(partition, _)| *partition))
    }

    pub(crate) fn forget_watches(&mut self, keyspace: &mut Keyspace) {
        self.watched_bytes = 0;
        for (partition, token) in self.watches.drain(..) {
            keyspace.part_mut(partition).unwatch(token);
        }
    }

    /// How its replies are written.
    pub(crate) fn manner(&self) -> ReplyManner {
        let Self { protocol, reply_mode: mode, skip_next, .. } = *self;
        ReplyManner { protocol, mode, skip_next }
    }

    /// Writes its replies as at another time.
    pub(crate) fn set_manner(&mut self, manner: ReplyManner) {
        let ReplyManner { protocol, mode, skip_next } = manner;
        (self.protocol, self.reply_mode, self.skip_next) = (protocol, mode, skip_next);
    }

    /// How another shard runs a command of it.
    pub(crate) fn run_manner(&self) -> message::Manner {
        message::Manner { protocol: self.protocol, keeps_ages: self.no_touch }
    }

    /// As the slow log names it. A command that another shard has sent is in that log from now on.
    pub(crate) fn logged(&mut self) -> Sender<'_> {
        self.is_logged = self.origin.is_some();
        let Self { tenant, origin, .. } = *self;
        Sender { tenant, address: &self.address, name: &self.name, origin }
    }

    /// Brings `plain` up to date.
    pub(crate) fn settle(&mut self) {
        self.plain = self.authenticated
            && self.transaction.is_none()
            && self.reply_mode == ReplyMode::On
            && !self.no_touch
            && self.close == Close::No;
    }
}

/// What CLIENT LIST shows of a connection's buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Buffers {
    /// Bytes of the connection itself.
    pub(crate) itself: usize,
    pub(crate) input: usize,
    pub(crate) input_capacity: usize,
    pub(crate) output: usize,
    pub(crate) output_capacity: usize,
    /// Some of the output has been to the socket, which didn't take it.
    pub(crate) is_behind: bool,
}

/// A client as CLIENT LIST and CLIENT KILL see it.
pub(crate) fn client_row(client: &Client, buffers: Buffers, now: Instant) -> ClientRow {
    ClientRow {
        id: client.id,
        tenant: client.tenant,
        address: client.address.clone(),
        local_address: client.local_address.clone(),
        line: describe(client, buffers, now),
        local_line: client.local.map(|peer| describe_local(client, peer, buffers, now)),
    }
}

/// One line of LOCAL LIST, without its end.
fn describe_local(client: &Client, peer: LocalPeer, buffers: Buffers, now: Instant) -> String {
    format!(
        "id={} pid={} uid={} addr={} name={} age={} idle={} ring-bytes={} qbuf={} obl={} cmd={}",
        client.id,
        peer.process_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        peer.user_id,
        client.address,
        String::from_utf8_lossy(&client.name),
        now.duration_since(client.created).as_secs(),
        now.duration_since(client.active).as_secs(),
        peer.ring_bytes,
        buffers.input,
        buffers.output,
        client.last_row.map_or("NULL", |row| commands::of(row).name),
    )
}

/// One line of CLIENT LIST, without its end.
pub(crate) fn describe(client: &Client, buffers: Buffers, now: Instant) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = client.last_row.map_or("NULL", |row| commands::of(row).name);
    let queued = client.transaction.as_ref().map(|transaction| transaction.len());
    let multi = queued.or(client.executes).map_or(-1, |len| i64::try_from(len).unwrap_or(0));
    let multi_bytes = client.transaction.as_ref().map_or(0, |t| t.bytes);
    let total = buffers.input_capacity + buffers.output_capacity + multi_bytes + buffers.itself;
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 \
         multi={multi} qbuf={} qbuf-free={} argv-mem=0 multi-mem={multi_bytes} rbs={} rbp=0 obl={} \
         oll=0 omem={} tot-mem={total} events={} cmd={command} user=default redir=-1 resp={} \
         lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        client.descriptor,
        text(&client.name),
        now.duration_since(client.created).as_secs(),
        now.duration_since(client.active).as_secs(),
        flags(client),
        buffers.input,
        buffers.input_capacity - buffers.input.min(buffers.input_capacity),
        buffers.output_capacity,
        buffers.output,
        if buffers.is_behind { buffers.output_capacity } else { 0 },
        if buffers.is_behind { "rw" } else { "r" },
        if client.protocol == Protocol::Resp3 { 3 } else { 2 },
        text(&client.lib_name),
        text(&client.lib_version),
    )
}

/// Redis's letters for what a client is in.
fn flags(client: &Client) -> String {
    let letters = [
        ('x', client.transaction.is_some() || client.executes.is_some()),
        ('d', client.transaction.as_ref().is_some_and(|t| t.aborted)),
        ('c', client.close == Close::AfterReplies),
        ('A', client.close == Close::Now),
        ('U', client.is_unix),
        ('L', client.local.is_some()),
        ('e', client.no_evict),
        ('T', client.no_touch),
    ];
    let flags: String = letters.iter().filter(|letter| letter.1).map(|letter| letter.0).collect();
    if flags.is_empty() { "N".to_owned() } else { flags }
}
