//! From a command's arguments to its row, through the checks that Redis makes, to who runs it.
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

use crate::commands::spec::{NO_AUTH, NO_MULTI, SKIP_SLOWLOG};
use crate::commands::{self, Builtin, Row, Run};
use crate::handlers::route::{self, Target};
use crate::handlers::{admin, functions, session, transaction, usage, views};
use crate::hop::later::Later;
use crate::net::client::{Client, ReplyMode};
use crate::net::connection::Connection;
use crate::net::output::{Mark, Output, Writer};
use crate::net::slab::Slab;
use crate::state::State;
use nigh_store::{Reply, Turn};
use std::time::Instant;

/// Bytes of arguments that an unknown command's error quotes, as in Redis.
const QUOTED_BYTES: usize = 128;

/// The connections but for the one whose command runs.
pub(crate) struct Others<'a> {
    pub(crate) slab: &'a mut Slab,
    pub(crate) before: &'a mut [Box<Connection>],
    pub(crate) after: &'a mut [Box<Connection>],
}

impl Others<'_> {
    /// Visits each of them that is a client's.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut Connection)) {
        self.slab.each(&mut visit);
        let active = self.before.iter_mut().chain(self.after.iter_mut());
        active.filter(|other| other.peer.is_none()).for_each(|other| visit(other));
    }
}

/// What a command works on.
pub(crate) struct Context<'a, 't> {
    pub(crate) state: &'a mut State,
    pub(crate) turn: &'a Turn<'t>,
    pub(crate) client: &'a mut Client,
    pub(crate) out: &'a mut Output,
    pub(crate) others: Others<'a>,
    /// Bytes of input held, and their capacity.
    pub(crate) input: (usize, usize),
    /// Replies that other shards have still to give this connection.
    pub(crate) later: &'a Later,
    /// Another shard sent it.
    pub(crate) is_peer: bool,
    /// It is a part of a client's command, which that shard counts.
    pub(crate) is_part: bool,
    /// This command has run before, and couldn't be told what other partitions have. Now their owners stand still, or
    /// it is to be sent to the one that owns all.
    pub(crate) unstable: bool,
    /// The other shards have told what this command wants to know.
    pub(crate) refreshed: bool,
    /// A write for which memory is still to come back may wait for the next turn.
    pub(crate) may_wait: bool,
    /// What lies before it was answered as CLIENT REPLY said then: EXEC does so for each of its commands.
    pub(crate) settled: Option<Mark>,
    /// In EXEC: its commands, which are counted when they are committed.
    pub(crate) tally: Option<Vec<Ran>>,
}

/// A command that ran, to be counted.
#[derive(Clone)]
pub(crate) struct Ran {
    row: Row,
    elapsed_ns: u64,
    error: Option<Box<[u8]>>,
}

impl Context<'_, '_> {
    /// A writer of this client's protocol.
    pub(crate) fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.client.protocol)
    }

    /// Answers an error.
    pub(crate) fn error(&mut self, text: &str) {
        self.reply().error(text);
    }
}

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    Row(Row),
    /// No such command.
    Unknown,
    /// No such subcommand of the container.
    UnknownSub(Row),
}

impl Resolved {
    /// The row, if there is one.
    #[inline]
    pub(crate) fn row(self) -> Option<Row> {
        match self {
            Self::Row(row) => Some(row),
            Self::Unknown | Self::UnknownSub(_) => None,
        }
    }
}

/// Finds the row of a command.
#[inline]
pub(crate) fn resolve<'a>(name: &[u8], second: impl FnOnce() -> Option<&'a [u8]>) -> Resolved {
    let Some(row) = commands::find(name) else { return Resolved::Unknown };
    let spec = State::spec(row);
    match spec.run {
        Run::Data(_) => Resolved::Row(row),
        Run::Server(Builtin::Command) | Run::Container => match second() {
            None => Resolved::Row(row),
            Some(sub) => match commands::find_subcommand(row, sub) {
                Some(sub) => Resolved::Row(sub),
                None => Resolved::UnknownSub(row),
            },
        },
        Run::Server(_) => Resolved::Row(row),
    }
}

/// Resolves a whole command.
pub(crate) fn resolve_args(args: &[&[u8]]) -> Resolved {
    resolve(args.first().copied().unwrap_or_default(), || args.get(1).copied())
}

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
}

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
            Flow::Done if call(context, args, row, target) => Flow::Done,
            Flow::Done => {
                context.state.stats.moved_reads += 1;
                return match target {
                    Target::Part(partition) => Flow::Send(row, context.state.owner(partition)),
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

/// Applies CLIENT REPLY to what was written since `mark`, and notes what changed for the next command.
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

/// Takes back what was written since `mark`, unless replies are wanted.
pub(crate) fn mute(client: &Client, out: &mut Output, mark: Mark) {
    if client.reply_mode != ReplyMode::On {
        out.cut(mark);
    }
}

/// In MULTI, whether a command waits for EXEC.
fn queues(client: &Client, row: Row) -> bool {
    use Builtin::{Discard, Exec, Multi, Quit, Reset, Watch};
    client.transaction.is_some()
        && !matches!(
            State::spec(row).run,
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
    let spec = State::spec(row);
    if !spec.takes(args.len()) || spec.run == Run::Container {
        let text = format!("ERR wrong number of arguments for '{}' command", spec.name);
        return Err(text.into_bytes());
    }
    if !context.client.authenticated && !spec.has(NO_AUTH) {
        return Err(b"NOAUTH Authentication required.".to_vec());
    }
    if context.client.transaction.is_some() && spec.has(NO_MULTI) {
        return Err(b"ERR Command not allowed inside a transaction".to_vec());
    }
    let target = route::target(context.state, spec, args)?;
    if route::leaves_watches(context, args, row, target) {
        return Err(route::CROSS_SLOT.into());
    }
    Ok((row, target))
}

/// Answers a refusal; a transaction that it happens in can't be executed any more.
fn refuse(context: &mut Context<'_, '_>, resolved: Resolved, text: &[u8]) {
    if let Resolved::Row(row) = resolved {
        context.state.stats.rows[usize::from(row)].rejected += 1;
        // An EXEC that is refused ends its transaction.
        if State::spec(row).run == Run::Server(Builtin::Exec) {
            transaction::drop_transaction(context);
            let text = text.strip_prefix(b"ERR ").unwrap_or(text);
            let text = [b"EXECABORT Transaction discarded because of: ".as_slice(), text].concat();
            context.state.stats.count_error(&text);
            context.reply().error_bytes(&text);
            return;
        }
    }
    if let Some(transaction) = &mut context.client.transaction {
        transaction.abort();
    }
    context.state.stats.count_error(text);
    context.reply().error_bytes(text);
}

/// What a client sent, cut and without line breaks, as Redis quotes it.
pub(crate) fn quote(bytes: &[u8], most: usize) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(most);
    bytes[..end].to_vec()
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
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend(quote(args.get(1).copied().unwrap_or_default(), QUOTED_BYTES));
    let name = State::spec(container).name.to_ascii_uppercase();
    text.extend_from_slice(format!("'. Try {name} HELP.").as_bytes());
    text
}

/// Answers that a subcommand was given wrong arguments, as Redis does where arity doesn't tell.
pub(crate) fn wrong_subcommand(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend(quote(args[1], QUOTED_BYTES));
    let container = String::from_utf8_lossy(args[0]).to_ascii_uppercase();
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    context.reply().error_bytes(&text);
}

/// Runs a command that passed the checks, and counts it. False if only the owner can answer it, or the owners each a
/// part of it; nothing has happened then.
pub(crate) fn call(
    context: &mut Context<'_, '_>,
    args: &[&[u8]],
    row: Row,
    target: Target,
) -> bool {
    let mark = context.out.mark();
    let began = Instant::now();
    match (State::spec(row).run, target) {
        (Run::Data(op), Target::Part(partition)) if !views::apply(context, args, op, partition) => {
            return false;
        }
        (Run::Data(_), Target::Part(_)) => {}
        (Run::Data(op), Target::Views) if !views::apply_over_views(context, args, op) => {
            return false;
        }
        (Run::Data(_), Target::Views) => {}
        (Run::Data(op), _) => {
            let mut out = Writer::new(context.out, context.client.protocol);
            context.state.keyspace.apply_to_owned(op, args, context.turn, &mut out);
        }
        (Run::Server(builtin), _) => run_builtin(context, args, builtin),
        (Run::Container, _) => {
            unreachable!("a container has no command of its own: checked before")
        }
    }
    let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let error = context.out.error_at(mark).map(Box::from);
    let ran = Ran { row, elapsed_ns, error };
    match &mut context.tally {
        Some(tally) => tally.push(ran),
        None => ran.count(context, args),
    }
    true
}

impl Ran {
    /// Counts the command, and logs it if it was slow.
    pub(crate) fn count(self, context: &mut Context<'_, '_>, args: &[&[u8]]) {
        let Ran { row, elapsed_ns, error } = self;
        let state = &mut *context.state;
        match context.is_part {
            false => state.stats.count_calls(row, 1, elapsed_ns),
            true => state.stats.rows[usize::from(row)].nanoseconds += elapsed_ns,
        }
        if let Some(text) = error {
            state.stats.rows[usize::from(row)].failed += 1;
            state.stats.count_error(&text);
        }
        let is_slow = state.hot.slow_ns.is_some_and(|limit| elapsed_ns >= limit);
        if is_slow && !State::spec(row).has(SKIP_SLOWLOG) {
            let (time_s, elapsed_us) = (context.turn.now_ms / 1000, elapsed_ns / 1000);
            state.shared.slowlog().add(args, time_s, elapsed_us, context.client);
        }
    }
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
        B::ClientId
        | B::ClientGetname
        | B::ClientSetname
        | B::ClientSetinfo
        | B::ClientInfo
        | B::ClientList
        | B::ClientKill
        | B::ClientNoEvict
        | B::ClientNoTouch
        | B::ClientReply => {
            session::client(context, args, builtin);
        }
        B::ClientHelp
        | B::ConfigHelp
        | B::SlowlogHelp
        | B::LatencyHelp
        | B::MemoryHelp
        | B::CommandHelp
        | B::FunctionHelp => admin::help(context, args),
        B::Info => admin::info(context, args),
        B::ConfigGet => admin::config_get(context, args),
        B::ConfigSet => admin::config_set(context, args),
        B::ConfigResetstat => admin::config_resetstat(context),
        B::Time => admin::time(context),
        B::Shutdown => admin::shutdown(context, args),
        B::SlowlogGet => admin::slowlog_get(context, args),
        B::SlowlogLen => {
            let len = context.state.shared.slowlog().len();
            context.reply().count(len);
        }
        B::SlowlogReset => {
            context.state.shared.slowlog().clear();
            context.reply().ok();
        }
        B::MemoryDoctor => usage::doctor(context),
        B::MemoryMallocStats => context.reply().bulk(usage::NO_ALLOCATOR_STATS),
        B::MemoryPurge => {
            nigh_js::allocator::trim();
            context.reply().ok();
        }
        B::MemoryStats => usage::stats(context),
        B::LatencyDoctor
        | B::LatencyGraph
        | B::LatencyHistogram
        | B::LatencyHistory
        | B::LatencyLatest
        | B::LatencyReset => crate::handlers::latency::run(context, args, builtin),
        B::Command
        | B::CommandCount
        | B::CommandInfo
        | B::CommandDocs
        | B::CommandGetkeys
        | B::CommandGetkeysandflags
        | B::CommandList => admin::command(context, args, builtin),
        B::Multi => transaction::multi(context),
        B::Exec => transaction::exec(context),
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
