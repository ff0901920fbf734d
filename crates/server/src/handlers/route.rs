//! Which partition's a command is, and at which shard it runs then.
//!
//! | target | commands |
//! |---|---|
//! | part | all keys lie in one partition; libraries are with partition 0 |
//! | views | reads over several partitions, or all: this shard reads them where they lie, or the owners their parts |
//! | split | writes of several keys: each partition gets those that lie in it |
//! | owners | about all keys: each owner does it to its partitions |
//!
//! 1. With one partition everything is that one's.
//! 2. What can't go over several is refused: `CROSSSLOT`.
//!
//! 3. A connection sees its own writes: a read is sent after those that its partition's owner still
//!    has; what reads more than one partition waits until all are answered.
//!
//! Reads only. Belongs to the shard's thread.

use crate::commands::spec::WRITE;
use crate::commands::{self, Builtin, CommandSpec, Row, Run};
use crate::engine::{self, FunctionLimits};
use crate::handlers::config_set;
use crate::handlers::context::Context;
use crate::handlers::waiting::{self, Asked};
use crate::net::client::Client;
use crate::net::pipeline::Pending;
use crate::state::libraries::{self, Traits};
use crate::state::place::Place;
use crate::state::tenants::LocalTenant;
use nigh_store::{Keyspace, Op, Span};

/// Whether the shard has to do something more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The command has its reply.
    Done,
    /// It is a function call for the turn's batch.
    Function(Row),
    /// It runs at this shard.
    Send(Row, usize),
    /// Its parts run at several shards.
    Scatter(Row, Target),
    /// It runs when what was sent before is answered.
    Await,
    /// The connection goes to this shard, and it runs there.
    Move(usize),
    /// It runs when the other shards have told of themselves.
    Refresh,
    /// It runs when the source that it loads has been checked.
    Check,
    /// It runs when that is so, or after some time.
    Wait(Asked),
}

/// The error that refuses keys of several partitions, as Redis Cluster's.
pub(crate) const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Which partition's a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Part(usize),
    Views,
    Split { step: usize },
    Owners,
}

/// The target of a command that has passed the checks; the error if there is none.
pub(crate) fn target(
    tenant: &LocalTenant,
    spec: &CommandSpec,
    args: &[&[u8]],
) -> Result<Target, &'static str> {
    let keyspace = &tenant.keyspace;
    if keyspace.partitions() == 1 {
        return Ok(Target::Part(0));
    }
    match spec.run {
        Run::Data(op) => of_data(keyspace, spec, op, args),
        Run::Server(Builtin::Fcall | Builtin::FcallRo) => of_call(tenant, args).map(Target::Part),
        Run::Server(_) | Run::Container => {
            Ok(Target::Part(only_partition(keyspace, keys(spec, args))?.unwrap_or(0)))
        }
    }
}

fn of_data(
    keyspace: &Keyspace,
    spec: &CommandSpec,
    op: Op,
    args: &[&[u8]],
) -> Result<Target, &'static str> {
    let keys = keys(spec, args);
    let is_keyless = keys.is_empty();
    let partition = only_partition(keyspace, keys);
    match (partition, op.span()) {
        (Ok(Some(partition)), _) => Ok(Target::Part(partition)),
        (Ok(None) | Err(_), Span::Views) => Ok(Target::Views),
        (Ok(None), Span::Owners) => Ok(Target::Owners),
        // A pair without a value is for the store to refuse.
        (Err(_), Span::Split { step }) if (args.len() - 1).is_multiple_of(step) => {
            Ok(Target::Split { step })
        }
        // Such as OBJECT HELP.
        (Ok(None), _) if is_keyless => Ok(Target::Part(0)),
        (Err(_), Span::Split { .. }) => Ok(Target::Part(0)),
        (_, _) => Err(CROSS_SLOT),
    }
}

/// The partition of a function call: that of its keys.
#[inline]
pub(crate) fn of_call(tenant: &LocalTenant, args: &[&[u8]]) -> Result<usize, &'static str> {
    if tenant.keyspace.partitions() == 1 { Ok(0) } else { of_call_among_several(tenant, args) }
}

fn of_call_among_several(tenant: &LocalTenant, args: &[&[u8]]) -> Result<usize, &'static str> {
    // Wrong numbers are answered where the call runs.
    let Ok(end) = libraries::key_end(&tenant.libraries, args) else { return Ok(0) };
    let keys = &args[3..end];
    match only_partition(&tenant.keyspace, keys.iter().copied()) {
        Ok(partition) => Ok(partition.unwrap_or(0)),
        Err(error) => match tenant.libraries.traits(args[1]) {
            Traits { writes: true, crosses: false, .. } => Err(error),
            _ => Ok(tenant.keyspace.partition_of(keys[0])),
        },
    }
}

pub(crate) fn keys<'a>(spec: &CommandSpec, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let found = commands::find_keys(spec, args).unwrap_or_default();
    found.into_iter().map(|(at, _)| args[at]).collect()
}

/// The partition that all keys lie in, if there are any.
pub(crate) fn only_partition<'a>(
    keyspace: &Keyspace,
    keys: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<usize>, &'static str> {
    let mut found = None;
    for key in keys {
        let partition = keyspace.partition_of(key);
        if *found.get_or_insert(partition) != partition {
            return Err(CROSS_SLOT);
        }
    }
    Ok(found)
}

/// Where a command runs; `Done` if right here and now.
pub(crate) fn elsewhere(
    context: &Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> Flow {
    let (state, tenant) = (&*context.state, context.tenant());
    let waits = !context.later.is_empty();
    match (state.place(row), target) {
        (Place::Owner, _) if waits_for_check(context, args, row) => Flow::Check,
        (Place::Call, Target::Part(partition)) => where_called(context, args, row, partition),
        (Place::View, Target::Part(partition)) => {
            let owner = tenant.keyspace.owner(partition);
            let waits = owner != state.number && context.later.sent_to(owner) > 0;
            if waits { Flow::Send(row, owner) } else { Flow::Done }
        }
        (Place::Owner, Target::Part(partition)) if !tenant.owns(partition) => {
            Flow::Send(row, tenant.keyspace.owner(partition))
        }
        (Place::Owner, Target::Part(_)) => Flow::Done,
        (Place::Owner, Target::Owners) if context.sent.is_some() => Flow::Done,
        (Place::Owner, Target::Split { .. } | Target::Owners) => Flow::Scatter(row, target),
        (_, _) if waits => Flow::Await,
        (Place::Desk, _) if config_set::waits_for_keeper(context, args) => Flow::Check,
        (Place::Move, Target::Part(partition)) => where_moved(context, partition),
        (Place::Wait(builtin), _) => {
            waiting::waits(context, builtin, args).map_or(Flow::Done, Flow::Wait)
        }
        (Place::Refresh, _)
            if state.shared.shards() > 1 && context.pending != Pending::Refreshed =>
        {
            Flow::Refresh
        }
        (_, _) => Flow::Done,
    }
}

/// Whether a command loads a source whose check isn't done.
fn waits_for_check(context: &Context<'_, '_>, args: &[&[u8]], row: Row) -> bool {
    let limits = limits_of_check(context, args, row);
    limits.is_some_and(|(source, limits)| !context.state.shared.checks.is_done(source, limits))
}

/// Whether a command would load a source, and too many wait for their checks before it.
pub(crate) fn is_refused_check(context: &Context<'_, '_>, args: &[&[u8]], row: Row) -> bool {
    let limits =
        limits_of_check(context, args, row).filter(|_| context.client.transaction.is_none());
    limits.is_some_and(|(source, limits)| context.state.shared.checks.refuses(source, limits))
}

/// The source that a client's command loads here, and the limits by which it is tried.
fn limits_of_check<'a>(
    context: &'a Context<'_, '_>,
    args: &[&'a [u8]],
    row: Row,
) -> Option<(&'a [u8], &'a FunctionLimits)> {
    let is_clients = context.sent.is_none();
    if commands::of(row).run != Run::Server(Builtin::FunctionLoad) || !is_clients {
        return None;
    }
    let (source, engines) = (args[args.len() - 1], &context.state.engines);
    Some((source, engines[engine::of_source(engines, source)].tries()?))
}

fn where_called(context: &Context<'_, '_>, args: &[&[u8]], row: Row, partition: usize) -> Flow {
    let (tenant, later) = (context.tenant(), context.later);
    let owner = tenant.keyspace.owner(partition);
    let is_undivided = tenant.keyspace.partitions() == 1;
    let Traits { writes, crosses, .. } = tenant.libraries.traits(args[1]);
    // It reads all that the connection has written.
    let waits = !later.is_empty();
    if tenant.owns(partition) {
        return if waits { Flow::Await } else { Flow::Function(row) };
    }
    if !writes && !(is_undivided && (waits || context.pending.is_unstable())) {
        return if waits { Flow::Await } else { Flow::Function(row) };
    }
    if writes && crosses && !is_undivided {
        // What it writes to other partitions, the shard that runs it sends.
        return if waits { Flow::Await } else { Flow::Move(owner) };
    }
    if later.sent == later.sent_to(owner) { Flow::Send(row, owner) } else { Flow::Await }
}

/// Whether a function call would take the connection away from what it watches, which only the
/// owner of that can tell.
pub(crate) fn leaves_watches(
    context: &Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> bool {
    let (state, client) = (&*context.state, &*context.client);
    let bound = client.watches.first().map(|(partition, _)| Target::Part(*partition));
    bound.is_some_and(|bound| bound != target)
        && client.transaction.is_none()
        && state.place(row) == Place::Call
        && context.tenant().libraries.traits(args[1]).crosses
}

/// Where WATCH and EXEC take the connection.
fn where_moved(context: &Context<'_, '_>, partition: usize) -> Flow {
    let keyspace = &context.tenant().keyspace;
    let owner = keyspace.owner(context.client.partition().unwrap_or(partition));
    match () {
        () if owner != context.state.number => Flow::Move(owner),
        // Others stand still only once it was refreshed, and don't wait for that again.
        () if looks_around(context)
            && context.pending != Pending::Refreshed
            && !context.pending.is_unstable() =>
        {
            Flow::Refresh
        }
        () => Flow::Done,
    }
}

/// Whether a command of the transaction, if this is EXEC, wants to know what other shards have to
/// tell.
fn looks_around(context: &Context<'_, '_>) -> bool {
    let transaction = context.client.transaction.as_ref();
    context.state.shared.shards() > 1 && transaction.is_some_and(|it| it.looks_around)
}

/// What a command does to the data that this shard owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// It changes nothing here.
    Nothing,
    /// It may remove keys, and do nothing else.
    Removes,
    Writes,
}

/// The effect of running a command; what functions do is their own.
pub(crate) fn effect_here(
    tenant: &LocalTenant,
    client: &Client,
    spec: &CommandSpec,
    target: Target,
) -> Effect {
    let transaction = client.transaction.as_ref();
    let (effect, target) = match (spec.run, transaction) {
        (Run::Server(Builtin::Exec), Some(transaction)) => {
            let effects = transaction.rows.iter().map(|row| effect(commands::of(*row)));
            let partition = client.partition().unwrap_or(0);
            (effects.max().unwrap_or(Effect::Nothing), Target::Part(partition))
        }
        (_, Some(_)) => (Effect::Nothing, target), // queued
        (_, None) => (effect(spec), target),
    };
    let is_here = match target {
        Target::Part(partition) => tenant.owns(partition),
        Target::Views => false,
        Target::Split { .. } | Target::Owners => tenant.keyspace.owns_some(),
    };
    if is_here { effect } else { Effect::Nothing }
}

fn effect(spec: &CommandSpec) -> Effect {
    match spec.run {
        _ if !spec.has(WRITE) => Effect::Nothing,
        Run::Data(op) if op.only_removes() => Effect::Removes,
        _ => Effect::Writes,
    }
}
