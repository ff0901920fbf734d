//! From a command's arguments to its row, through the checks that Redis makes, to where it runs.
//!
//! ```text
//! resolve ──> check (known, arity, AUTH, MULTI) ──> call ──> store | builtin
//!                │ refused: error, and the transaction is spoilt      │ FCALL: the shard batches it
//! ```
//!
//! 1. Each command writes exactly one reply, unless CLIENT REPLY says otherwise.
//! 2. The checks come in Redis's order, so that of two errors the same one is answered.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::{NO_AUTH, NO_MULTI};
use crate::commands::{self, Builtin, Resolved, Row, Run};
use crate::handlers::context::{Context, QUOTED_BYTES, mute, quote};
use crate::handlers::route::{self, Effect, Flow, Target};
use crate::handlers::{insistence, transaction};
use crate::net::client::Client;
use crate::net::output::{Mark, Output};
use crate::net::queued::ReplyMode;
use crate::state::checks;
use crate::turn::exec::exec;
use crate::turn::run::{call, counted};

/// Checks and runs one command.
pub(crate) fn execute(context: &mut Context<'_, '_>, args: &[&[u8]], resolved: Resolved) -> Flow {
    let mark = context.out.mark();
    // While it runs, as CLIENT LIST shows; and what it is, though it may be refused.
    context.client.last_row = resolved.row();
    let flow = match check(context, args, resolved) {
        Ok((row, target)) if queues(context.client, row) => {
            transaction::queue(context, args, row, target);
            Flow::Done
        }
        Ok((row, target)) => match route::elsewhere(context, args, row, target) {
            Flow::Done if run(context, args, row, target) => Flow::Done,
            Flow::Done => {
                context.state.stats.moved_reads += 1;
                return match target {
                    Target::Part(partition) => {
                        Flow::Send(row, context.tenant().keyspace.owner(partition))
                    }
                    _ => Flow::Scatter(row, target),
                };
            }
            flow => return flow,
        },
        Err(text) => {
            refuse(context, resolved, &text);
            Flow::Done
        }
    };
    finish(context.client, context.out, context.settled.take().unwrap_or(mark));
    flow
}

fn run(context: &mut Context<'_, '_>, args: &[&[u8]], row: Row, target: Target) -> bool {
    if commands::of(row).run == Run::Server(Builtin::Exec) {
        return counted(context, args, row, |context| {
            exec(context);
            true
        });
    }
    call(context, args, row, target)
}

/// Applies CLIENT REPLY to what was written since `mark`, and notes what changed for the next
/// command.
pub(crate) fn finish(client: &mut Client, out: &mut Output, mark: Mark) {
    mute(client, out, mark);
    if client.reply_mode == ReplyMode::Skip {
        client.reply_mode = ReplyMode::On;
    }
    if std::mem::take(&mut client.skip_next) && client.reply_mode == ReplyMode::On {
        client.reply_mode = ReplyMode::Skip;
    }
    client.settle();
}

/// In MULTI, whether a command waits for EXEC.
fn queues(client: &Client, row: Row) -> bool {
    use Builtin::{Discard, Exec, Multi, Quit, Reset, Watch};
    client.transaction.is_some()
        && !matches!(
            commands::of(row).run,
            Run::Server(Exec | Discard | Multi | Watch | Quit | Reset)
        )
}

/// The row and the target, or the error that refuses the command.
fn check(
    context: &Context<'_, '_>,
    args: &[&[u8]],
    resolved: Resolved,
) -> Result<(Row, Target), Vec<u8>> {
    let row = match resolved {
        Resolved::Row(row) => row,
        Resolved::Unknown => return Err(unknown_command(args)),
        Resolved::UnknownSub(container) => return Err(unknown_subcommand(container, args)),
    };
    let spec = commands::of(row);
    if !spec.takes(args.len()) || spec.run == Run::Container {
        let text = format!("ERR wrong number of arguments for '{}' command", spec.name);
        return Err(text.into_bytes());
    }
    if !spec.has(NO_AUTH) && !context.state.admits(context.client) {
        return Err(b"NOAUTH Authentication required.".to_vec());
    }
    if context.client.transaction.is_some() && spec.has(NO_MULTI) {
        return Err(b"ERR Command not allowed inside a transaction".to_vec());
    }
    let target = route::target(context.tenant(), spec, args)?;
    if route::leaves_watches(context, args, row, target) {
        return Err(route::CROSS_SLOT.into());
    }
    let logs = &context.state.logs;
    if !logs.is_open() {
        let effect = route::effect_here(context.tenant(), context.client, spec, target);
        let text = logs.refusal(effect == Effect::Removes);
        if let Some(text) = text.filter(|_| effect != Effect::Nothing) {
            return Err(text.into());
        }
    }
    if let Some(text) = insistence::refusal(context, args, row) {
        return Err(text.into_bytes());
    }
    if route::is_refused_check(context, args, row) {
        return Err(checks::TOO_MANY.into());
    }
    Ok((row, target))
}

/// Answers a refusal; a transaction that it happens in can't be executed any more.
fn refuse(context: &mut Context<'_, '_>, resolved: Resolved, text: &[u8]) {
    if let Resolved::Row(row) = resolved {
        context.state.stats.rows[usize::from(row)].rejected += 1;
        // An EXEC that is refused ends its transaction.
        if commands::of(row).run == Run::Server(Builtin::Exec) {
            transaction::drop_transaction(context);
            let text = text.strip_prefix(b"ERR ").unwrap_or(text);
            let text = [b"EXECABORT Transaction discarded because of: ".as_slice(), text].concat();
            context.state.stats.count_error(&text);
            context.reply().error_bytes(&text);
            return;
        }
    }
    if let Some(transaction) = &mut context.client.transaction {
        transaction.aborted = true;
    }
    context.state.stats.count_error(text);
    context.reply().error_bytes(text);
}

fn unknown_command(args: &[&[u8]]) -> Vec<u8> {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend(quote(args.first().copied().unwrap_or_default(), QUOTED_BYTES));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in args.iter().skip(1) {
        let quoted = text.len() - start;
        if quoted >= QUOTED_BYTES {
            break;
        }
        text.push(b'\'');
        text.extend(quote(arg, QUOTED_BYTES - quoted));
        text.extend_from_slice(b"' ");
    }
    text
}

fn unknown_subcommand(container: Row, args: &[&[u8]]) -> Vec<u8> {
    let word = quote(args.get(1).copied().unwrap_or_default(), QUOTED_BYTES);
    let name = commands::of(container).name.to_ascii_uppercase();
    [b"ERR unknown subcommand '", word, format!("'. Try {name} HELP.").as_bytes()].concat()
}
