//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! ```text
//! MULTI ──> queue (copies) ──> EXEC: watched keys touched? null : begin, apply each, commit
//! ```
//!
//! 1. The store shows nothing of a transaction before its commit, and all of it after.
//! 2. If one of its commands, or the commit, finds no memory, it was never there: EXEC has one error. It has one too if
//!    what it deletes would be room enough, since that is there until the commit; and if there is no room to note all its
//!    deletions, which would not survive a kill as one. Only what isn't about data (CONFIG SET,
//!    CLIENT SETNAME, FUNCTION LOAD) is done at its place, and stays: once, also if EXEC comes again.
//! 3. CLIENT REPLY holds from its place in the queue on: what EXEC writes before stays, as in Redis.
//! 4. A queue holds at most `client-query-buffer-limit` bytes.
//!
//! Belongs to the shard's thread.

use crate::commands::{Builtin, Row, Run};
use crate::handlers::route::{self, CROSS_SLOT, Target};
use crate::net::client::{Client, Close, ReplyMode};
use crate::net::output::Mark;
use crate::state::State;
use crate::state::place::Place;
use crate::turn::dispatch::{Context, Ran, call, mute};
use nigh_resp::Protocol;
use nigh_resp::decode::Batch;
use nigh_shm::WriteError;
use nigh_store::{Keyspace, Reply, Turn, together_error_text};
use std::collections::BTreeMap;

/// Commands queued by one transaction, at most: a second of work, far beyond real ones.
const MOST_QUEUED: usize = 1 << 20;

/// Keys that one connection watches, at most.
const MOST_WATCHED: usize = 1 << 20;

/// How a client's replies are written, as HELLO and CLIENT REPLY say.
#[derive(Debug, Clone, Copy)]
struct Manner {
    protocol: Protocol,
    mode: ReplyMode,
    skip_next: bool,
}

impl Manner {
    fn of(client: &Client) -> Self {
        let Client { protocol, reply_mode: mode, skip_next, .. } = *client;
        Self { protocol, mode, skip_next }
    }

    fn set(self, client: &mut Client) {
        (client.protocol, client.reply_mode, client.skip_next) =
            (self.protocol, self.mode, self.skip_next);
    }
}

/// A command that isn't about data and has run.
struct Done {
    ran: Ran,
    reply: Vec<u8>,
    /// How the replies behind it are written.
    manner: Manner,
}

/// A transaction between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    queued: Batch,
    rows: Vec<Row>,
    bytes: usize,
    /// Of those, the bytes of commands that take memory.
    written_bytes: usize,
    /// It has begun before, and found no memory while some was to come back.
    was_busy: bool,
    /// Where its keys lie, once it has some.
    partition: Option<usize>,
    aborted: bool,
    /// One of them looks at all shards' clients.
    looks_around: bool,
    /// Commands that aren't about data and ran when EXEC came before, by their places.
    done: BTreeMap<usize, Done>,
}

impl Transaction {
    /// Commands that wait.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of their arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where its keys lie, if it has some.
    pub(crate) fn partition(&self) -> Option<usize> {
        self.partition
    }

    /// About how many bytes of values EXEC answers.
    pub(crate) fn reply_bytes(&self, keyspace: &Keyspace, turn: &Turn<'_>) -> usize {
        let of_command = |(index, row): (usize, &Row)| match State::spec(*row).run {
            Run::Data(op) => {
                let args: Vec<&[u8]> = self.queued.args(index).iter(&[]).collect();
                keyspace.reply_bytes(op, &args, turn)
            }
            _ => 0,
        };
        self.rows.iter().enumerate().map(of_command).sum()
    }

    /// Whether EXEC needs to know of all shards' clients.
    pub(crate) fn looks_around(&self) -> bool {
        self.looks_around
    }

    /// A command was refused: EXEC will be too.
    pub(crate) fn abort(&mut self) {
        self.aborted = true;
    }

    /// Whether EXEC will be refused.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted
    }
}

/// MULTI.
pub(crate) fn multi(context: &mut Context<'_, '_>) {
    if context.client.transaction.is_some() {
        return context.error("ERR MULTI calls can not be nested");
    }
    context.client.transaction = Some(Box::default());
    context.reply().ok();
}

/// A command inside MULTI.
pub(crate) fn queue(context: &mut Context<'_, '_>, args: &[&[u8]], row: Row, target: Target) {
    let limit = context.state.hot.query_limit;
    let wanted = match partition_wanted(context.state, args, row, target) {
        Ok(wanted) => wanted,
        Err(text) => return refuse(context, text),
    };
    let bound = context.client.partition();
    if wanted.is_some() && bound.is_some() && wanted != bound {
        return refuse(context, CROSS_SLOT);
    }
    let Some(transaction) = &mut context.client.transaction else { return };
    if transaction.aborted {
        // It can't be executed any more: nothing is kept, as in Redis.
        return context.reply().simple("QUEUED");
    }
    let bytes: usize = args.iter().map(|arg| arg.len()).sum();
    let fits = transaction.bytes + bytes <= limit && transaction.len() < MOST_QUEUED;
    if !fits || transaction.queued.push(args.iter().copied()).is_err() {
        transaction.abort();
        return context.error(
            "ERR the transaction is too long: over client-query-buffer-limit or 1048576 commands",
        );
    }
    transaction.bytes += bytes;
    let takes_memory = match State::spec(row).run {
        Run::Data(op) => op.takes_memory(),
        Run::Server(builtin) => builtin == Builtin::Fcall,
        Run::Container => false,
    };
    transaction.written_bytes += if takes_memory { bytes } else { 0 };
    transaction.partition = transaction.partition.or(wanted);
    transaction.looks_around |= context.state.place(row) == Place::Refresh;
    transaction.rows.push(row);
    context.reply().simple("QUEUED");
}

/// Refuses a command, and with it the transaction.
fn refuse(context: &mut Context<'_, '_>, text: &str) {
    if let Some(transaction) = &mut context.client.transaction {
        transaction.abort();
    }
    context.error(text);
}

/// The partition in which a command of a transaction has to run, if it needs a certain one.
fn partition_wanted(
    state: &State,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> Result<Option<usize>, &'static str> {
    if state.keyspace.partitions() == 1 {
        return Ok(None);
    }
    let spec = State::spec(row);
    match (state.place(row), target) {
        (Place::View(_) | Place::Owner | Place::Call, Target::Part(partition)) => {
            let has_keys = route::keys(spec, args).len() > 0;
            // Libraries are with the first partition; a function without keys goes where the others are.
            Ok((has_keys || state.place(row) == Place::Owner).then_some(partition))
        }
        (_, Target::Part(_)) => Ok(None),
        (_, _) => Err(CROSS_SLOT),
    }
}

/// DISCARD.
pub(crate) fn discard(context: &mut Context<'_, '_>) {
    if context.client.transaction.is_none() {
        return context.error("ERR DISCARD without MULTI");
    }
    drop_transaction(context);
    context.reply().ok();
}

/// Forgets the queued commands and the watched keys.
pub(crate) fn drop_transaction(context: &mut Context<'_, '_>) {
    context.client.transaction = None;
    forget_watches(context);
}

/// EXEC.
pub(crate) fn exec(context: &mut Context<'_, '_>) {
    let Some(mut transaction) = context.client.transaction.take() else {
        return context.error("ERR EXEC without MULTI");
    };
    let partition = transaction.partition.or(context.client.partition()).unwrap_or(0);
    let mut touched = is_touched(context);
    if !transaction.aborted && !touched {
        if !has_room(context, &transaction, partition) {
            context.client.transaction = Some(transaction);
            return;
        }
        // What went for it may be what it watches.
        touched = is_touched(context);
    }
    if transaction.aborted {
        context.error("EXECABORT Transaction discarded because of previous errors.");
    } else if touched {
        context.reply().null_array();
    } else {
        match run_queued(context, &mut transaction, partition) {
            Ok(()) => {}
            Err(Unfinished::Untold) => {
                // As if EXEC had not come yet: it comes again when others stand still.
                context.client.transaction = Some(transaction);
                return;
            }
            Err(Unfinished::Refused(WriteError::Busy)) if context.may_wait => {
                // It comes again in the next turn.
                transaction.was_busy = true;
                context.client.transaction = Some(transaction);
                return;
            }
            Err(Unfinished::Refused(error)) => {
                context.state.keyspace.take_busy();
                let text = together_error_text(&error, transaction.written_bytes == 0);
                context.error(&format!("EXECABORT Transaction discarded because of: {text}"));
            }
        }
    }
    forget_watches(context);
}

/// Whether a key that the client watches was written.
fn is_touched(context: &mut Context<'_, '_>) -> bool {
    let keyspace = &mut context.state.keyspace;
    let mut watches = context.client.watches.iter();
    watches.any(|(partition, token)| keyspace.part_mut(*partition).watch_dirty(token, context.turn))
}

/// Makes room for what a transaction writes; false if it is to come again in the next turn.
fn has_room(context: &mut Context<'_, '_>, transaction: &Transaction, partition: usize) -> bool {
    let store = context.state.keyspace.part_mut(partition);
    if store.prepare_writes(transaction.written_bytes, transaction.was_busy, context.turn) {
        return true;
    }
    if !context.may_wait {
        store.take_busy();
    }
    !context.may_wait
}

/// Why a transaction has not happened.
enum Unfinished {
    /// A function of it couldn't be told what other partitions have.
    Untold,
    Refused(WriteError),
}

impl From<WriteError> for Unfinished {
    fn from(error: WriteError) -> Self {
        Self::Refused(error)
    }
}

/// Runs what was queued, as one. If it fails, nothing has happened, nothing is answered, and nothing but EXEC itself is
/// counted: for good, or, if it is busy, until memory has come back.
fn run_queued(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    partition: usize,
) -> Result<(), Unfinished> {
    let mark = context.out.mark();
    let manner = Manner::of(context.client);
    // Each time it begins it may leave a segment behind, which comes back and is left the next time. If nothing else
    // could be gained since, it has had all that there is.
    let store = context.state.keyspace.part_mut(partition);
    let is_last = transaction.was_busy && !store.is_gaining();
    store.begin();
    context.state.in_transaction = Some(partition);
    context.tally = Some(Vec::with_capacity(transaction.len()));
    context.client.executes = Some(transaction.len());
    apply_queued(context, transaction, partition, mark);
    context.client.executes = None;
    context.state.in_transaction = None;
    let tally = context.tally.take().unwrap_or_default();
    let store = context.state.keyspace.part_mut(partition);
    if context.state.untold != 0 {
        store.rollback();
        context.out.cut(mark);
        manner.set(context.client);
        return Err(Unfinished::Untold);
    }
    let wanted = if store.is_refused() { store.bytes_wanted(context.turn) } else { 0 };
    let Err(error) = store.commit(context.turn) else {
        assert!(!store.is_busy(), "a transaction that has happened doesn't come again");
        context.settled = Some(context.out.mark());
        for (index, ran) in tally.into_iter().enumerate() {
            let args: Vec<&[u8]> = transaction.queued.args(index).iter(&[]).collect();
            ran.count(context, &args);
        }
        return Ok(());
    };
    context.out.cut(mark);
    manner.set(context.client);
    match error {
        WriteError::Busy if !is_last => Err(error.into()),
        // What only running has told of may go for it.
        WriteError::Denied(denial) if !denial.is_full() => Err(error.into()),
        WriteError::Oom | WriteError::Busy | WriteError::Denied(_) => {
            let wanted = wanted.max(transaction.written_bytes);
            let goes = store.prepare_again(wanted, context.turn);
            let for_good = if error == WriteError::Busy { WriteError::Oom } else { error };
            Err(if goes { WriteError::Busy } else { for_good }.into())
        }
        _ => Err(error.into()),
    }
}

/// Applies what was queued, up to the first command that finds no memory.
fn apply_queued(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    partition: usize,
    mark: Mark,
) {
    let limit = context.state.hot.output_limit;
    context.reply().array(transaction.len());
    mute(context.client, context.out, mark);
    for index in 0..transaction.len() {
        if let Some(done) = transaction.done.get(&index) {
            done.answer(context);
        } else {
            apply_one(context, transaction, index, partition);
        }
        if context.state.keyspace.part(partition).is_refused() || context.state.untold != 0 {
            // The others must not be committed without it.
            return;
        }
        if context.out.waiting() > limit {
            // The client will be cut off; the transaction is whole all the same.
            context.out.cut(mark);
            context.client.end(Close::Now);
        }
    }
}

/// Runs a queued command. What it did stays if it isn't about data, so its reply is kept.
fn apply_one(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    index: usize,
    partition: usize,
) {
    let row = transaction.rows[index];
    let args: Vec<&[u8]> = transaction.queued.args(index).iter(&[]).collect();
    let own = context.out.mark();
    let done = call(context, &args, row, Target::Part(partition));
    debug_assert!(done, "a transaction runs at the owner, which asks nobody");
    mute(context.client, context.out, own);
    let is_about_data = match State::spec(row).run {
        Run::Server(builtin) => matches!(builtin, Builtin::Fcall | Builtin::FcallRo),
        Run::Data(_) | Run::Container => true,
    };
    let ran = context.tally.as_ref().and_then(|tally| tally.last());
    if let Some(ran) = ran.filter(|_| !is_about_data).cloned() {
        let reply = context.out.cut_bytes(own);
        context.out.bytes().extend_from_slice(&reply);
        transaction.done.insert(index, Done { ran, reply, manner: Manner::of(context.client) });
    }
}

impl Done {
    /// Answers what was answered, and counts it, without running it again.
    fn answer(&self, context: &mut Context<'_, '_>) {
        context.out.bytes().extend_from_slice(&self.reply);
        context.tally.get_or_insert_default().push(self.ran.clone());
        self.manner.set(context.client);
    }
}

/// WATCH.
pub(crate) fn watch(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if context.client.transaction.is_some() {
        return context.error("ERR WATCH inside MULTI is not allowed");
    }
    if context.client.watches.len() + args.len() > MOST_WATCHED {
        return context.error("ERR too many watched keys: at most 1048576 on a connection");
    }
    let keyspace = &mut context.state.keyspace;
    let wanted = keyspace.partition_of(args[1]);
    if context.client.partition().is_some_and(|bound| bound != wanted) {
        return context.error(CROSS_SLOT);
    }
    for key in &args[1..] {
        let token = keyspace.part_mut(wanted).watch(key, context.turn);
        context.client.watches.push((wanted, token));
    }
    context.reply().ok();
}

/// UNWATCH.
pub(crate) fn unwatch(context: &mut Context<'_, '_>) {
    forget_watches(context);
    context.reply().ok();
}

/// Forgets the watched keys.
pub(crate) fn forget_watches(context: &mut Context<'_, '_>) {
    for (partition, token) in context.client.watches.drain(..) {
        context.state.keyspace.part_mut(partition).unwatch(token);
    }
}
