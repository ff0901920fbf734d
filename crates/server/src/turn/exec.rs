//! EXEC: runs what was queued, as one.
//!
//! 1. The store shows nothing of a transaction before its commit, and all of it after.
//! 2. If one of its commands, or the commit, finds no memory, it was never there: EXEC has one
//!    error. It has one too if what it deletes would be room enough, since that is there until the
//!    commit; and if there is no room to note all its deletions, which would not survive a kill as
//!    one. If the journal has no room for now, EXEC comes again when that has moved, as any write
//!    does. Only what isn't about data (CONFIG SET, CLIENT SETNAME, FUNCTION LOAD) is done at its
//!    place, and stays: once, also if EXEC comes again.
//! 3. Once it has run for as long as `command-time-limit-ms` says, nothing of it happens, as in 2:
//!    its shard does nothing else meanwhile, and a million calls of functions may be queued.
//! 4. CLIENT REPLY holds from its place in the queue on: what EXEC writes before stays, as in
//!    Redis.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Builtin, Run};
use crate::handlers::context::{Context, mute};
use crate::handlers::route::Target;
use crate::handlers::transaction::forget_watches;
use crate::net::client::Close;
use crate::net::output::Mark;
use crate::net::queued::{Done, Transaction};
use crate::turn::run::{call, count};
use nigh_shm::WriteError;
use nigh_store::{ReplySink, Scarce, together_error_text};

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
            Err(Unfinished::TooLong) => {
                let most = context.state.hot.command_time.as_millis();
                context.error(&format!(
                    "EXECABORT Transaction discarded because of: ERR it ran longer than {most} ms \
                     and was stopped (setting: command-time-limit-ms)"
                ));
            }
            Err(Unfinished::Untold) => {
                // As if EXEC had not come yet: it comes again when others stand still.
                context.client.transaction = Some(transaction);
                return;
            }
            Err(Unfinished::Refused(error))
                if Scarce::of(&error).is_some_and(|it| context.may_wait.is_for(it)) =>
            {
                // It comes again in the next turn.
                transaction.was_busy |= error == WriteError::Busy;
                context.client.transaction = Some(transaction);
                return;
            }
            Err(Unfinished::Refused(error)) => {
                context.tenant_mut().keyspace.take_busy();
                *context.waited_in_vain = Scarce::of(&error).is_some();
                let text = together_error_text(&error, transaction.written_bytes == 0);
                context.error(&format!("EXECABORT Transaction discarded because of: {text}"));
            }
        }
    }
    forget_watches(context);
}

/// Whether a key that the client watches was written.
fn is_touched(context: &mut Context<'_, '_>) -> bool {
    let keyspace = &mut context.state.tenants[context.client.tenant].keyspace;
    let mut watches = context.client.watches.iter();
    watches.any(|(partition, token)| keyspace.part_mut(*partition).watch_dirty(token, context.turn))
}

/// Makes room for what a transaction writes; false if it is to come again in the next turn.
fn has_room(context: &mut Context<'_, '_>, transaction: &Transaction, partition: usize) -> bool {
    let store = context.state.tenants[context.client.tenant].keyspace.part_mut(partition);
    if store.prepare_writes(transaction.written_bytes, transaction.was_busy, context.turn) {
        return true;
    }
    if !context.may_wait.memory {
        store.take_busy();
    }
    !context.may_wait.memory
}

/// Why a transaction has not happened.
enum Unfinished {
    /// A function of it couldn't be told what other partitions have.
    Untold,
    TooLong,
    Refused(WriteError),
}

/// Runs what was queued, as one. If it fails, nothing has happened, nothing is answered, and
/// nothing but EXEC itself is counted: for good, or, if it is busy, until memory has come back.
fn run_queued(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    partition: usize,
) -> Result<(), Unfinished> {
    let mark = context.out.mark();
    let manner = context.client.manner();
    // Each time it begins it may leave a segment behind, which comes back and is left the next
    // time. If nothing else could be gained since, it has had all that there is.
    let store = context.state.tenants[context.client.tenant].keyspace.part_mut(partition);
    let is_last = transaction.was_busy && !store.is_gaining();
    store.begin();
    context.tenant_mut().in_transaction = Some(partition);
    context.tally = Some(Vec::with_capacity(transaction.len()));
    context.client.executes = Some(transaction.len());
    let in_time = apply_queued(context, transaction, partition, mark);
    context.client.executes = None;
    context.tenant_mut().in_transaction = None;
    let tally = context.tally.take().unwrap_or_default();
    let tenant = &mut context.state.tenants[context.client.tenant];
    let store = tenant.keyspace.part_mut(partition);
    if tenant.untold != 0 || !in_time {
        store.rollback();
        context.out.cut(mark);
        context.client.set_manner(manner);
        return Err(if in_time { Unfinished::Untold } else { Unfinished::TooLong });
    }
    let wanted = if store.is_refused() { store.bytes_wanted(context.turn) } else { 0 };
    let Err(error) = store.commit(context.turn) else {
        assert!(!store.is_busy(), "a transaction that has happened doesn't come again");
        context.settled = Some(context.out.mark());
        for (index, ran) in tally.into_iter().enumerate() {
            count(context, &transaction.words(index), &ran);
        }
        return Ok(());
    };
    context.out.cut(mark);
    context.client.set_manner(manner);
    Err(Unfinished::Refused(match error {
        WriteError::Busy if !is_last => error,
        // What only running has told of may go for it.
        WriteError::Denied(denial) if !denial.is_full() => error,
        WriteError::Oom | WriteError::Busy | WriteError::Denied(_) => {
            let wanted = wanted.max(transaction.written_bytes);
            let goes = store.prepare_again(wanted, context.turn);
            let for_good = if error == WriteError::Busy { WriteError::Oom } else { error };
            if goes { WriteError::Busy } else { for_good }
        }
        _ => error,
    }))
}

/// Applies what was queued, up to the first command that finds no memory. False if there was no
/// time for all.
fn apply_queued(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    partition: usize,
    mark: Mark,
) -> bool {
    let (limit, time) = (context.state.hot.output_limit, context.state.hot.command_time);
    let (mut ran_ns, most_ns) = (0, time.as_nanos());
    context.reply().array(transaction.len());
    mute(context.client, context.out, mark);
    for index in 0..transaction.len() {
        if ran_ns >= most_ns {
            return false;
        }
        if let Some(done) = transaction.done.get(&index) {
            answer_again(done, context);
        } else {
            apply_one(context, transaction, index, partition);
            let ran = context.tally.as_ref().and_then(|tally| tally.last());
            ran_ns += ran.map_or(0, |ran| u128::from(ran.elapsed_ns));
        }
        let tenant = context.tenant();
        if tenant.keyspace.part(partition).is_refused() || tenant.untold != 0 {
            // The others must not be committed without it.
            return true;
        }
        if context.out.waiting() > limit {
            // The client will be cut off; the transaction is whole all the same. No reply of it is
            // needed any more.
            context.out.cut(mark);
            context.client.end(Close::Now);
            transaction.done.values_mut().for_each(|done| done.reply = Vec::new());
        }
    }
    true
}

/// Runs a queued command. What it did stays if it isn't about data, so its reply is kept.
fn apply_one(
    context: &mut Context<'_, '_>,
    transaction: &mut Transaction,
    index: usize,
    partition: usize,
) {
    let row = transaction.rows[index];
    let own = context.out.mark();
    let done = call(context, &transaction.words(index), row, Target::Part(partition));
    debug_assert!(done, "a transaction runs at the owner, which asks nobody");
    mute(context.client, context.out, own);
    let is_about_data = match commands::of(row).run {
        Run::Server(builtin) => matches!(builtin, Builtin::Fcall | Builtin::FcallRo),
        Run::Data(_) | Run::Container => true,
    };
    let ran = context.tally.as_ref().and_then(|tally| tally.last());
    if let Some(ran) = ran.filter(|_| !is_about_data).cloned() {
        let reply = context.out.cut_bytes(own);
        context.out.bytes().extend_from_slice(&reply);
        transaction.done.insert(index, Done { ran, reply, manner: context.client.manner() });
    }
}

/// Answers what was answered, and counts it, without running it again.
fn answer_again(done: &Done, context: &mut Context<'_, '_>) {
    context.out.bytes().extend_from_slice(&done.reply);
    context.tally.get_or_insert_default().push(done.ran.clone());
    context.client.set_manner(done.manner);
}
