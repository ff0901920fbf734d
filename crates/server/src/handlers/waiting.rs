//! WAIT and WAITAOF: a client asks to be answered when its writes are safe.
//!
//! 1. There are no replicas: a client that waits for some waits for as long as it said.
//! 2. WAITAOF waits for all changes of the tenant that had begun when it came. The client's own
//!    are among them, since all that other shards have of it was answered before.
//! 3. Inside of a transaction nobody waits.
//!
//! Belongs to the shard's thread.

use crate::commands::Builtin;
use crate::commands::args::integer;
use crate::handlers::context::{Context, NOT_AN_INTEGER};
use nigh_store::ReplySink;

const NO_LOG: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// That all is on disk here.
    pub(crate) local: bool,
    pub(crate) replicas: bool,
    /// 0: without end.
    pub(crate) most_ms: u64,
}

fn asked(builtin: Builtin, args: &[&[u8]], has_log: bool) -> Result<Asked, &'static str> {
    if builtin == Builtin::Wait {
        let replicas = integer(args[1]).ok_or(NOT_AN_INTEGER)? > 0;
        return Ok(Asked { local: false, replicas, most_ms: timeout_ms(args[2])? });
    }
    let local = match integer(args[1]).ok_or(NOT_AN_INTEGER)? {
        number @ (0 | 1) => number == 1,
        _ => return Err("ERR value is out of range, value must between 0 and 1"),
    };
    let replicas = integer(args[2]).filter(|number| *number >= 0);
    let replicas = replicas.ok_or("ERR value is out of range, must be positive")? > 0;
    let most_ms = timeout_ms(args[3])?;
    if local && !has_log {
        return Err(NO_LOG);
    }
    Ok(Asked { local, replicas, most_ms })
}

fn timeout_ms(arg: &[u8]) -> Result<u64, &'static str> {
    let number = integer(arg).ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(number).map_err(|_| "ERR timeout is negative")
}

/// What the command waits for first, if it does.
pub(crate) fn waits(context: &Context<'_, '_>, builtin: Builtin, args: &[&[u8]]) -> Option<Asked> {
    let asked = asked(builtin, args, context.state.has_log()).ok()?;
    (context.pending.waited().is_none() && (asked.local || asked.replicas)).then_some(asked)
}

/// Answers, also in a transaction.
pub(crate) fn answer(context: &mut Context<'_, '_>, builtin: Builtin, args: &[&[u8]]) {
    let has_log = context.state.has_log();
    if let Err(text) = asked(builtin, args, has_log) {
        return context.error(text);
    }
    if builtin == Builtin::Wait {
        return context.reply().int(0);
    }
    let (state, tenant) = (&*context.state, context.client.tenant);
    let is_durable = || state.unsynced(tenant, state.streams(tenant)).next().is_none();
    let is_local = has_log && context.pending.waited().unwrap_or_else(is_durable);
    let mut out = context.reply();
    out.array(2);
    out.int(i64::from(is_local));
    out.int(0);
}
