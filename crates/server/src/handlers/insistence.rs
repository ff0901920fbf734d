//! Calls of functions with the flag `durable`: what refuses them before they run.
//!
//! 1. Such a call answers when all is on disk that had begun in its tenant. So it needs a log, and
//!    all logs have to be well: its reply could not be given otherwise.
//! 2. In a transaction it is refused when it is queued, and looked at again by EXEC.
//!
//! Reads only. Belongs to the shard's thread.

use crate::commands::{self, Builtin, Row, Run};
use crate::handlers::context::{Context, QUOTED_BYTES, quote};

/// The error that refuses a command, if it calls such a function, and that can't be.
pub(crate) fn refusal(context: &Context<'_, '_>, args: &[&[u8]], row: Row) -> Option<String> {
    let libraries = &context.tenant().libraries;
    if !libraries.has_durable() {
        return None;
    }
    match commands::of(row).run {
        Run::Server(Builtin::Fcall | Builtin::FcallRo) if libraries.is_durable(args[1]) => {
            refusal_of_call(context, args[1])
        }
        Run::Server(Builtin::Exec) => {
            let transaction = context.client.transaction.as_ref()?;
            let is_call = |row: &Row| {
                let run = commands::of(*row).run;
                matches!(run, Run::Server(Builtin::Fcall | Builtin::FcallRo))
            };
            let calls = transaction.rows.iter().enumerate().filter(|(_, row)| is_call(row));
            let mut names = calls.map(|(index, _)| transaction.words(index)[1]);
            let name = names.find(|name| libraries.is_durable(name))?;
            refusal_of_call(context, name)
        }
        _ => None,
    }
}

/// The error that refuses a call of such a function, if it can't be.
pub(crate) fn refusal_of_call(context: &Context<'_, '_>, name: &[u8]) -> Option<String> {
    let state = &*context.state;
    if state.has_log() {
        return state.logs.refusal_of_any();
    }
    let name = String::from_utf8_lossy(quote(name, QUOTED_BYTES));
    Some(format!(
        "ERR function '{name}' has the flag durable, and this server keeps no log: CONFIG SET \
         appendonly yes begins one, or load the function without the flag; nothing was run"
    ))
}
