//! Runs a command that has passed the checks: a data command at the store, any other by its
//! handler.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::SKIP_SLOWLOG;
use crate::commands::{self, Builtin, Row, Run};
use crate::handlers::context::Context;
use crate::handlers::route::Target;
use crate::handlers::{
    admin, backup, config_set, functions, latency, local, session, transaction, usage, views,
    waiting,
};
use crate::hop::message::MessageKind;
use crate::net::client::Client;
use crate::net::output::ReplyWriter;
use crate::net::party::Party;
use crate::net::pipeline::Pipeline;
use crate::observe::stats::{MOST_CODE_BYTES, Ran};
use crate::state::State;
use crate::tenant::TenantId;
use nigh_store::ReplySink;
use std::time::Instant;

/// Runs a command and counts it. False if only the owner can answer it, or the owners each a
/// part of it; nothing has happened then.
pub(crate) fn call(
    context: &mut Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> bool {
    counted(context, args, row, |context| perform(context, args, row, target))
}

/// Runs what `run` does for a command, and counts it if it is done, and doesn't come again.
pub(crate) fn counted(
    context: &mut Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    run: impl FnOnce(&mut Context<'_, '_>) -> bool,
) -> bool {
    let mark = context.out.mark();
    let began = Instant::now();
    if !run(context) {
        return false;
    }
    if context.tally.is_none() && comes_again(context) {
        return true;
    }
    let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let error = context.out.error_at(mark);
    let error = error.map(|text| Box::from(&text[..text.len().min(MOST_CODE_BYTES)]));
    let ran = Ran { row, elapsed_ns, error };
    match &mut context.tally {
        Some(tally) => tally.push(ran),
        None => count(context, args, &ran),
    }
    true
}

/// Whether the command that has just run is to run again, since it lacks something that comes back:
/// its reply isn't one.
fn comes_again(context: &Context<'_, '_>) -> bool {
    let tenant = context.tenant();
    let scarce = tenant.keyspace.busy();
    scarce.is_some_and(|scarce| context.may_wait.is_for(scarce)) || tenant.untold != 0
}

fn perform(context: &mut Context<'_, '_>, args: &[&[u8]], row: Row, target: Target) -> bool {
    match (commands::of(row).run, target) {
        (Run::Data(op), Target::Part(partition)) => views::apply(context, args, op, partition),
        (Run::Data(op), Target::Views) => views::apply_over_views(context, args, op),
        (Run::Data(op), _) => {
            let mut out = ReplyWriter::new(context.out, context.client.protocol);
            let keyspace = &mut context.state.tenants[context.client.tenant].keyspace;
            keyspace.apply_to_owned(op, args, &mut out);
            true
        }
        (Run::Server(builtin), _) => {
            run_builtin(context, args, builtin);
            true
        }
        (Run::Container, _) => {
            unreachable!("a container has no command of its own: checked before")
        }
    }
}

/// Counts a command that ran, and logs it if it was slow.
pub(crate) fn count(context: &mut Context<'_, '_>, args: &[&[u8]], ran: &Ran) {
    let state = &mut *context.state;
    // The sender of a part counts the command.
    state.stats.count_ran(ran, matches!(context.sent, Some(MessageKind::Part(_))));
    log_if_slow(state, args, ran.row, ran.elapsed_ns, context.turn.now_ms, context.client);
}

/// Puts a command that took so long into the slow log, if that is for it.
pub(crate) fn log_if_slow(
    state: &State,
    args: &[&[u8]],
    row: Row,
    elapsed_ns: u64,
    now_ms: u64,
    client: &mut Client,
) {
    if state.hot.is_slow(elapsed_ns) && !commands::of(row).has(SKIP_SLOWLOG) {
        let (time_s, elapsed_us) = (now_ms / 1000, elapsed_ns / 1000);
        state.shared.slowlog().add(args, time_s, elapsed_us, client.logged());
    }
}

/// [`log_if_slow`] of a command that stands at `index` of what a party has sent.
pub(crate) fn log_party_if_slow(
    state: &State,
    party: &mut Party,
    (row, tenant, index): (Row, TenantId, usize),
    elapsed_ns: u64,
    now_ms: u64,
) {
    if !state.hot.is_slow(elapsed_ns) {
        return;
    }
    if let Party::Peer(peer) = party {
        peer.pipe.client.tenant = tenant;
        peer.pipe.client.origin = Some(peer.origin(index));
    }
    let Pipeline { input, client, .. } = &mut **party;
    log_if_slow(state, &input.words(index), row, elapsed_ns, now_ms, client);
}

fn run_builtin(context: &mut Context<'_, '_>, args: &[&[u8]], builtin: Builtin) {
    use Builtin as B;
    match builtin {
        B::Ping => session::ping(context, args),
        B::Echo => context.reply().bulk(args[1]),
        B::Hello => session::hello(context, args),
        B::Auth => session::auth(context, args),
        B::Quit => session::quit(context),
        B::Reset => session::reset(context),
        B::Select => session::select(context, args),
        B::ClientId => session::client_id(context),
        B::ClientGetname => session::get_name(context),
        B::ClientSetname => session::set_name(context, args),
        B::ClientSetinfo => session::set_info(context, args),
        B::ClientInfo => session::client_info(context),
        B::ClientList => session::list(context, args),
        B::ClientKill => session::kill(context, args),
        B::ClientNoEvict | B::ClientNoTouch => session::switch(context, args, builtin),
        B::ClientReply => session::reply_mode(context, args),
        B::LocalAttach => local::attach(context, args),
        B::LocalList => local::list(context),
        B::LocalKill => local::kill(context, args),
        B::LocalStats => local::stats(context),
        B::Help => admin::help(context, args),
        B::Info => admin::info(context, args),
        B::ConfigGet => admin::config_get(context, args),
        B::ConfigSet => config_set::config_set(context, args),
        B::ConfigResetstat => admin::config_resetstat(context),
        B::Bgrewriteaof => admin::rewrite_log(context),
        B::ConfigRewrite => admin::config_rewrite(context),
        B::Role => admin::role(context),
        B::Time => admin::time(context),
        B::Shutdown => admin::shutdown(context, args),
        B::Backup => backup::backup(context, args),
        B::Lastsave => backup::lastsave(context),
        B::Save => context.error(backup::NO_SNAPSHOT),
        B::DebugReload => context.error(backup::NO_RELOAD),
        B::SlowlogGet => admin::slowlog_get(context, args),
        B::SlowlogLen => admin::slowlog_len(context),
        B::SlowlogReset => admin::slowlog_reset(context),
        B::MemoryDoctor => usage::doctor(context),
        B::MemoryMallocStats => context.reply().bulk(usage::NO_ALLOCATOR_STATS),
        B::MemoryPurge => usage::purge(context),
        B::MemoryStats => usage::stats(context),
        B::Latency(command) => latency::answer(context, args, command),
        B::CommandCount => context.reply().number(commands::commands().count() as u64),
        B::Command => admin::command(context, &[]),
        B::CommandInfo => admin::command(context, &args[2..]),
        B::CommandDocs => admin::command_docs(context, &args[2..]),
        B::CommandList => admin::command_list(context, args),
        B::CommandGetkeys => admin::command_getkeys(context, &args[2..], false),
        B::CommandGetkeysandflags => admin::command_getkeys(context, &args[2..], true),
        B::Wait | B::Waitaof => waiting::answer(context, builtin, args),
        B::Multi => transaction::multi(context),
        B::Exec => unreachable!("EXEC is never queued, and is dispatched apart"),
        B::Discard => transaction::discard(context),
        B::Watch => transaction::watch(context, args),
        B::Unwatch => transaction::unwatch(context),
        B::FunctionLoad => functions::load(context, args),
        B::FunctionList => functions::list(context, args),
        B::FunctionDelete => functions::delete(context, args),
        B::FunctionFlush => functions::flush(context, args),
        B::FunctionDump => functions::dump(context),
        B::FunctionRestore => functions::restore(context, args),
        B::FunctionStats => functions::stats(context),
        B::FunctionKill => functions::kill(context),
        B::Fcall | B::FcallRo => functions::call_in_transaction(context, args),
    }
}
