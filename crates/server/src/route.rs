//! Which partition's a command is.
//!
//! | target | commands |
//! |---|---|
//! | part | all keys lie in one partition; libraries are with partition 0 |
//! | views | reads over several partitions, or all: this shard reads them where they lie |
//! | split | writes of several keys: each partition gets those that lie in it |
//! | owners | about all keys: each owner does it to its partitions |
//!
//! 1. With one partition everything is that one's.
//! 2. What can't go over several is refused: `CROSSSLOT`.
//!
//! Any thread; reads only.

use crate::commands::{self, Builtin, CommandSpec, Run};
use crate::functions;
use crate::state::State;
use nigh_store::{Keyspace, Op, Span};

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
    state: &State,
    spec: &CommandSpec,
    args: &[&[u8]],
) -> Result<Target, &'static str> {
    let keyspace = &state.keyspace;
    if keyspace.partitions() == 1 {
        return Ok(Target::Part(0));
    }
    match spec.run {
        Run::Data(op) => of_data(keyspace, spec, op, args),
        Run::Server(Builtin::Fcall | Builtin::FcallRo) => of_call(state, args).map(Target::Part),
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
    let is_keyless = keys.len() == 0;
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
pub(crate) fn of_call(state: &State, args: &[&[u8]]) -> Result<usize, &'static str> {
    if state.keyspace.partitions() == 1 {
        return Ok(0);
    }
    // Wrong numbers are answered where the call runs.
    let Ok(end) = functions::key_end(&state.libraries, args) else { return Ok(0) };
    let keys = &args[3..end];
    match only_partition(&state.keyspace, keys.iter().copied()) {
        Ok(partition) => Ok(partition.unwrap_or(0)),
        Err(_) if !state.libraries.writes_at_home(args[1]) => {
            Ok(state.keyspace.partition_of(keys[0]))
        }
        Err(error) => Err(error),
    }
}

/// The keys of a command.
pub(crate) fn keys<'a>(
    spec: &CommandSpec,
    args: &[&'a [u8]],
) -> impl ExactSizeIterator<Item = &'a [u8]> {
    let found = commands::find_keys(spec, args).unwrap_or_default();
    let keys: Vec<&'a [u8]> = found.into_iter().map(|(at, _)| args[at]).collect();
    keys.into_iter()
}

/// The partition that all keys lie in, if there are any.
pub(crate) fn only_partition<'a>(
    keyspace: &Keyspace,
    keys: impl Iterator<Item = &'a [u8]>,
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
