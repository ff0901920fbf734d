//! Data commands, where they run: at the owner of their keys, or at a view of what another shard
//! owns.
//!
//! 1. A view answers what it can tell: of several keys of a partition what they were at one moment,
//!    and a key that is over by its owner's clock. What it can't tell after a few tries, the owner
//!    answers, or the owners each a part of it.
//!
//! Belongs to the shard's thread.

use crate::handlers::context::Context;
use crate::net::output::{Mark, Output, ReplyWriter};
use nigh_store::{Lack, Op};

/// How often a view reads several keys that change under it, before it asks the owners.
const TRIES_TOGETHER: u32 = 4;

/// Whether a try has told all, with the reply kept; or that another one can't either. `None` if it
/// may.
fn outcome(out: &mut Output, mark: Mark, lack: Lack) -> Option<bool> {
    if lack != Lack::Nothing {
        out.cut(mark);
    }
    match lack {
        Lack::Nothing => Some(true),
        Lack::Clock => Some(false),
        Lack::Moment => None,
    }
}

/// Runs a data command; false, without a reply, if only the owner can answer it: a view has met a
/// key whose time is over by our clock alone, or has read several keys and could not be told what
/// they were at any of the moments that it took.
pub(crate) fn apply(
    context: &mut Context<'_, '_>,
    args: &[&[u8]],
    op: Op,
    partition: usize,
) -> bool {
    let mark = context.out.mark();
    let store = context.state.tenants[context.client.tenant].keyspace.part_mut(partition);
    if store.is_owner() {
        let mut out = ReplyWriter::new(context.out, context.client.protocol);
        store.apply(op, args, context.turn, &mut out);
        return true;
    }
    for _ in 0..TRIES_TOGETHER {
        if op.reads_several() && !store.take_moment(context.turn) {
            return false;
        }
        let mut out = ReplyWriter::new(context.out, context.client.protocol);
        store.apply(op, args, context.turn, &mut out);
        let lack = store.take_lack();
        if let Some(is_told) = outcome(context.out, mark, lack) {
            return is_told;
        }
    }
    false
}

/// Runs a command that reads several partitions, or all. Of each of them it shows one moment, if it
/// reads keys that belong together; false, without a reply, if that can't be told here of some, and
/// their owners are to read them.
pub(crate) fn apply_over_views(context: &mut Context<'_, '_>, args: &[&[u8]], op: Op) -> bool {
    let mark = context.out.mark();
    let keyspace = &mut context.state.tenants[context.client.tenant].keyspace;
    if !op.reads_several() {
        let mut out = ReplyWriter::new(context.out, context.client.protocol);
        keyspace.apply_over_views(op, args, context.turn, &mut out);
        keyspace.take_lack(); // a list of keys may miss one whose time is over by our clock alone
        return true;
    }
    for _ in 0..TRIES_TOGETHER {
        if !keyspace.take_moments(&args[1..], context.turn) {
            keyspace.take_lack(); // forgets those that were taken
            continue;
        }
        let mut out = ReplyWriter::new(context.out, context.client.protocol);
        keyspace.apply_over_views(op, args, context.turn, &mut out);
        let lack = keyspace.take_lack();
        if let Some(is_told) = outcome(context.out, mark, lack) {
            return is_told;
        }
    }
    false
}
