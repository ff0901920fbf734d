//! MULTI, DISCARD, WATCH, UNWATCH, and what is queued for EXEC.
//!
//! ```text
//! MULTI ──> queue (copies) ──> EXEC: watched keys touched? null : begin, apply each, commit
//! ```
//!
//! 1. A queue holds at most `client-query-buffer-limit` bytes: those of its words, and the place of
//!    each. The keys that a connection watches have at most as many.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Builtin, Row, Run};
use crate::handlers::context::Context;
use crate::handlers::route::{self, CROSS_SLOT, Target};
use crate::state::place::Place;
use nigh_resp::decode::Batch;
use nigh_store::ReplySink;

/// Commands queued by one transaction, at most: a second of work, far beyond real ones.
const MOST_QUEUED: usize = 1 << 20;

/// Keys that one connection watches, at most.
const MOST_WATCHED: usize = 1 << 20;

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
    let wanted = match partition_wanted(context, args, row, target) {
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
    let word_bytes: usize = args.iter().map(|arg| arg.len()).sum();
    let bytes = word_bytes + args.len() * Batch::PLACE_BYTES;
    let fits = transaction.bytes + bytes <= limit && transaction.len() < MOST_QUEUED;
    if !fits || transaction.queued.push(args.iter().copied()).is_err() {
        transaction.aborted = true;
        return context.error(
            "ERR the transaction is too long: over client-query-buffer-limit or 1048576 commands",
        );
    }
    transaction.bytes += bytes;
    let takes_memory = match commands::of(row).run {
        Run::Data(op) => op.takes_memory(),
        Run::Server(builtin) => builtin == Builtin::Fcall,
        Run::Container => false,
    };
    transaction.written_bytes += if takes_memory { word_bytes } else { 0 };
    transaction.partition = transaction.partition.or(wanted);
    transaction.looks_around |= context.state.place(row) == Place::Refresh;
    transaction.rows.push(row);
    context.reply().simple("QUEUED");
}

/// Refuses a command, and with it the transaction.
fn refuse(context: &mut Context<'_, '_>, text: &str) {
    if let Some(transaction) = &mut context.client.transaction {
        transaction.aborted = true;
    }
    context.error(text);
}

/// The partition in which a command of a transaction has to run, if it needs a certain one.
fn partition_wanted(
    context: &Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> Result<Option<usize>, &'static str> {
    let state = &*context.state;
    if context.tenant().keyspace.partitions() == 1 {
        return Ok(None);
    }
    let spec = commands::of(row);
    match (state.place(row), target) {
        (Place::View | Place::Owner | Place::Call, Target::Part(partition)) => {
            let has_keys = !route::keys(spec, args).is_empty();
            // Libraries are with the first partition; a function without keys goes where the others
            // are.
            Ok((has_keys || state.place(row) == Place::Owner).then_some(partition))
        }
        (_, Target::Part(_)) => Ok(None),
        (_, _) => Err(CROSS_SLOT),
    }
}

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

pub(crate) fn watch(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if context.client.transaction.is_some() {
        return context.error("ERR WATCH inside MULTI is not allowed");
    }
    if context.client.watches.len() + args.len() > MOST_WATCHED {
        return context.error("ERR too many watched keys: at most 1048576 on a connection");
    }
    let key_bytes: usize = args[1..].iter().map(|key| key.len()).sum();
    let watched_bytes = context.client.watched_bytes + key_bytes;
    let limit = context.state.hot.query_limit;
    if watched_bytes > limit {
        return context.error(&format!(
            "ERR the watched keys would take {watched_bytes} bytes, and client-query-buffer-limit \
             is {limit}: watch fewer or shorter ones, or UNWATCH first"
        ));
    }
    let keyspace = &mut context.state.tenants[context.client.tenant].keyspace;
    let wanted = keyspace.partition_of(args[1]);
    if context.client.partition().is_some_and(|bound| bound != wanted) {
        return context.error(CROSS_SLOT);
    }
    for key in &args[1..] {
        let token = keyspace.part_mut(wanted).watch(key, context.turn);
        context.client.watches.push((wanted, token));
    }
    context.client.watched_bytes = watched_bytes;
    context.reply().ok();
}

/// UNWATCH. In a transaction it does nothing: EXEC forgets the watches at its end, and until then
/// they hold, since it may come again.
pub(crate) fn unwatch(context: &mut Context<'_, '_>) {
    if context.client.executes.is_none() {
        forget_watches(context);
    }
    context.reply().ok();
}

pub(crate) fn forget_watches(context: &mut Context<'_, '_>) {
    let tenant = &mut context.state.tenants[context.client.tenant];
    context.client.forget_watches(&mut tenant.keyspace);
}
