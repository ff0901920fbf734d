//! FUNCTION and FCALL: libraries, and calls into the engine.
//!
//! ```text
//! FCALL ... FCALL (any connections) ──> one batch ──> Engine::run ──> replies, in order
//!                                                      │ write sets, scans
//!                                                      └──> StoreHost ──> Store
//! ```
//!
//! 1. A library is in its engine, in `Libraries` and in the system arena, or in none of them. (One
//!    that was kept but no longer compiles, or is skipped (`starts`), is in the arena alone:
//!    FUNCTION LIST says why.)
//! 2. Texts of errors about calls are the engine's, so that their order in a batch is kept.
//!
//! Belongs to the shard's thread.

use crate::commands::args::is;
use crate::engine::{self, Call, Library, Overlay, Reason, RunTurn};
use crate::handlers::context::{Context, wrong_subcommand};
use crate::handlers::store_host::StoreHost;
use crate::handlers::{insistence, introspect, payload};
use crate::net::output::ReplyWriter;
use crate::state::State;
use crate::state::libraries::{ChangedLibraries, Libraries, Listed, key_end};
use crate::state::seat::Seat;
use crate::state::tenants::LocalTenant;
use crate::tenant::TenantId;
use nigh_resp::Protocol;
use nigh_shm::RecordRef;
use nigh_store::{Glob, ReplySink, Turn, write_error_text};
use std::time::Instant;

/// Loads and installs a library, which may have to be `named` so, and says which engine has it; the
/// error is the whole reply.
fn install(
    state: &mut State,
    tenant: TenantId,
    source: &[u8],
    named: Option<&[u8]>,
    replace: bool,
) -> Result<(usize, Library), String> {
    let number = engine::of_source(&state.engines, source);
    let engine = &mut state.engines[number];
    if let Some(limits) = engine.tries() {
        state.shared.checks.take(source, limits)?;
    }
    state.logs.hand_over_journal();
    let library = engine.load(tenant, source, false).map_err(|error| error.to_string())?;
    if named.is_some_and(|name| name != library.name.as_bytes()) {
        return Err(WRONG_PAYLOAD.to_owned());
    }
    let libraries = &state.tenants[tenant].libraries;
    libraries.check_names(&library).map_err(|error| error.to_string())?;
    if !replace && libraries.has(&library.name) {
        return Err(format!("ERR Library '{}' already exists", library.name));
    }
    engine.install(tenant, &library, source).map_err(|error| error.to_string())?;
    let before = libraries.engine_of_library(&library.name).filter(|before| *before != number);
    if let Some(before) = before {
        state.engines[before].unload(tenant, Some(&library.name));
    }
    Ok((number, library))
}

pub(crate) fn load(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (options, source) = (&args[2..args.len() - 1], args[args.len() - 1]);
    for option in options {
        if !is(option, "replace") {
            return context.error_about("ERR Unknown option given: ", option, "");
        }
    }
    let (state, tenant) = (&mut *context.state, context.client.tenant);
    let (engine, library) = match install(state, tenant, source, None, !options.is_empty()) {
        Ok(installed) => installed,
        Err(text) => return context.error(&text),
    };
    let name = library.name.clone();
    let LocalTenant { keyspace, libraries, .. } = &mut state.tenants[tenant];
    match keyspace.librarian_mut().put_library(name.as_bytes(), source, context.turn) {
        Ok(()) => {
            state.shared.skips.forget(&name);
            libraries.insert(engine, library);
            state.shared.libraries_changed(tenant, &ChangedLibraries::of(&name));
            context.reply().text(&name);
        }
        Err(error) => {
            // The engine back to what the arena has.
            state.engines[engine].unload(tenant, Some(&name));
            let (changed, most) = (ChangedLibraries::of(&name), state.hot.command_time);
            state.renew_libraries(tenant, changed, most, context.turn);
            context.error(write_error_text(&error));
        }
    }
}

pub(crate) fn delete(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (state, tenant) = (&mut *context.state, context.client.tenant);
    let LocalTenant { keyspace, libraries, .. } = &mut state.tenants[tenant];
    let name = String::from_utf8_lossy(args[2]);
    if !libraries.has(&name) {
        return context.error("ERR Library not found");
    }
    if let Err(error) = keyspace.librarian_mut().delete_library(args[2], context.turn) {
        return context.error(write_error_text(&error));
    }
    state.engines.iter_mut().for_each(|engine| engine.unload(tenant, Some(&name)));
    libraries.remove(&name);
    state.shared.skips.forget(&name);
    state.shared.libraries_changed(tenant, &ChangedLibraries::of(&name));
    context.reply().ok();
}

pub(crate) fn flush(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if args.len() > 3 {
        return wrong_subcommand(context, args);
    }
    if args.get(2).is_some_and(|mode| !is(mode, "sync") && !is(mode, "async")) {
        return context.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    }
    let (state, tenant) = (&mut *context.state, context.client.tenant);
    let LocalTenant { keyspace, libraries, .. } = &mut state.tenants[tenant];
    if let Err(error) = keyspace.librarian_mut().clear_libraries(context.turn) {
        return context.error(write_error_text(&error));
    }
    state.engines.iter_mut().for_each(|engine| engine.unload(tenant, None));
    *libraries = Libraries::default();
    state.shared.skips.forget_all();
    state.shared.libraries_changed(tenant, &ChangedLibraries::All);
    context.reply().ok();
}

pub(crate) fn list(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (mut pattern, mut with_code, mut with_state) = (None, false, false);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        if is(option, "withcode") && !with_code {
            with_code = true;
        } else if is(option, "withstate") {
            with_state = true; // Redis has no such option
        } else if is(option, "libraryname") && pattern.is_none() {
            let Some(name) = options.next() else {
                return context.error("ERR library name argument was not given");
            };
            match Glob::new(&name.to_ascii_lowercase()) {
                Ok(read) => pattern = Some(read),
                Err(text) => return context.error(text),
            }
        } else {
            return context.error_about("ERR Unknown argument ", option, "");
        }
    }
    let LocalTenant { keyspace, libraries, .. } = &context.state.tenants[context.client.tenant];
    let librarian = keyspace.librarian();
    let sources = if with_code { librarian.libraries(context.turn) } else { Vec::new() };
    let is_shown = |listed: &Listed<'_>| {
        let name = listed.name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| pattern.matches(name.as_bytes()))
    };
    let shown: Vec<Listed<'_>> = libraries.listed().filter(is_shown).collect();
    let mut out = ReplyWriter::new(context.out, context.client.protocol);
    out.array(shown.len());
    for library in shown {
        let not_running = library.broken.filter(|_| with_state);
        out.map(3 + usize::from(with_code) + usize::from(not_running.is_some()));
        out.pair("library_name", library.name);
        out.pair("engine", context.state.engines[library.engine].name());
        out.text("functions");
        out.array(library.functions.len());
        for function in library.functions {
            out.map(3);
            out.pair("name", &function.name);
            out.text("description");
            match &function.description {
                Some(text) => out.text(text),
                None => out.null(),
            }
            out.text("flags");
            introspect::set_of_simple(function.flags(), &mut out);
        }
        if with_code {
            let name = library.name.as_bytes();
            let source = sources.iter().find(|source| source.0 == name);
            out.text("library_code");
            out.bulk(source.map_or(&[], |source| source.1));
        }
        if let Some(reason) = not_running {
            out.pair("not_running", reason);
        }
    }
}

pub(crate) fn stats(context: &mut Context<'_, '_>) {
    let state = &*context.state;
    let mut out = ReplyWriter::new(context.out, context.client.protocol);
    out.map(2);
    // This shard runs this command, so only others can be running a function.
    out.text("running_script");
    match state.shared.seats.iter().find_map(Seat::running) {
        None => out.null(),
        Some(running) => {
            out.map(3);
            out.pair("name", &running.function);
            out.text("command");
            out.array(2);
            out.pair("FCALL", &running.function);
            let millis = u64::try_from(running.since.as_millis()).unwrap_or(u64::MAX);
            out.figure("duration_ms", millis);
        }
    }
    out.text("engines");
    out.map(state.engines.len());
    for (number, engine) in state.engines.iter().enumerate() {
        let (libraries, functions) =
            state.tenants[context.client.tenant].libraries.of_engine(number);
        out.text(engine.name());
        out.figures([("libraries_count", libraries as u64), ("functions_count", functions as u64)]);
    }
}

/// FUNCTION KILL: ends the functions that run on other shards. What they wrote never happened, so
/// none is beyond killing.
pub(crate) fn kill(context: &mut Context<'_, '_>) {
    let seats = &context.state.shared.seats;
    let killed = seats.iter().filter_map(|seat| seat.terminate(Reason::Kill)).count();
    if killed == 0 {
        return context.error("NOTBUSY No scripts in execution right now.");
    }
    context.reply().ok();
}

pub(crate) fn dump(context: &mut Context<'_, '_>) {
    let keyspace = &context.tenant().keyspace;
    let payload = payload::write(&keyspace.librarian().libraries(context.turn));
    context.reply().bulk(&payload);
}

const WRONG_PAYLOAD: &str = "ERR DUMP payload version or checksum are wrong";
const WRONG_POLICY: &str =
    "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";

/// What FUNCTION RESTORE does with libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestorePolicy {
    Append,
    Replace,
    Flush,
}

pub(crate) fn restore(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if args.len() > 4 {
        return wrong_subcommand(context, args);
    }
    let policy = match args.get(3).copied().unwrap_or(b"append") {
        word if is(word, "append") => RestorePolicy::Append,
        word if is(word, "replace") => RestorePolicy::Replace,
        word if is(word, "flush") => RestorePolicy::Flush,
        _ => return context.error(WRONG_POLICY),
    };
    let Some(libraries) = payload::read(args[2]) else {
        return context.error(WRONG_PAYLOAD);
    };
    let (state, tenant) = (&mut *context.state, context.client.tenant);
    let names = || libraries.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let changed = match policy {
        RestorePolicy::Flush => ChangedLibraries::All,
        RestorePolicy::Append | RestorePolicy::Replace => ChangedLibraries::Some(names().collect()),
    };
    match restore_all(state, tenant, &libraries, policy, context.turn) {
        Ok(()) => {
            names().for_each(|name| state.shared.skips.forget(&name));
            state.shared.libraries_changed(tenant, &changed);
            context.reply().ok();
        }
        Err(text) => {
            state.renew_libraries(tenant, changed, state.hot.command_time, context.turn);
            context.error(&text);
        }
    }
}

fn restore_all(
    state: &mut State,
    tenant: TenantId,
    libraries: &[(&[u8], &[u8])],
    policy: RestorePolicy,
    turn: &Turn<'_>,
) -> Result<(), String> {
    if policy == RestorePolicy::Flush {
        state.engines.iter_mut().for_each(|engine| engine.unload(tenant, None));
        state.tenants[tenant].libraries = Libraries::default();
    }
    let (began, most) = (Instant::now(), state.hot.command_time);
    for (name, source) in libraries {
        if began.elapsed() >= most {
            return Err(format!(
                "ERR the libraries took longer than {} ms to load (setting: command-time-limit-ms)",
                most.as_millis()
            ));
        }
        let replaces = policy == RestorePolicy::Replace;
        let (engine, library) = install(state, tenant, source, Some(name), replaces)?;
        state.tenants[tenant].libraries.insert(engine, library);
    }
    state.tenants[tenant]
        .keyspace
        .librarian_mut()
        .put_libraries(libraries, policy == RestorePolicy::Flush, turn)
        .map_err(|error| write_error_text(&error).to_owned())
}

/// What holds for a tenant's next batch in this turn: other randomness than for any before.
pub(crate) fn run_turn(state: &mut State, tenant: TenantId, turn: &Turn<'_>) -> RunTurn {
    state.batches = state.batches.wrapping_add(1);
    // A turn's number counts by another odd constant, so what both give hardly ever comes twice.
    let random_seed = turn.random ^ state.batches.wrapping_mul(0xD1B5_4A32_D192_ED03);
    let (now_ms, reply_bytes) = (turn.now_ms, state.hot.output_pause);
    let (time, still) = (crate::state::PART_TIME, state.tenants[tenant].still);
    RunTurn { now_ms, random_seed, reply_bytes, time, still }
}

/// FCALL inside a transaction: runs in place, and sees what the transaction has staged. The engine
/// keeps what it was told of that from one call to the next, so each call costs what is new since
/// the last one. If it has lost it, such as by a call that was stopped, it is told all again. One
/// that can't be told what other partitions have says so in `LocalTenant::untold`: the transaction
/// is to run again.
pub(crate) fn call_in_transaction(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if context.tenant().libraries.is_durable(args[1]) {
        // EXEC has looked, but its library may have been loaded since.
        if let Some(text) = insistence::refusal_of_call(context, args[1]) {
            return context.error(&text);
        }
        context.client.insists = true;
    }
    let (state, tenant) = (&mut *context.state, context.client.tenant);
    let run_turn = run_turn(state, tenant, context.turn);
    let LocalTenant { keyspace, libraries, in_transaction, untold, .. } =
        &mut state.tenants[tenant];
    let end = match key_end(libraries, args) {
        Ok(end) => end,
        Err(text) => return context.error(text),
    };
    keyspace.note_reads(&args[3..end]);
    let partition = in_transaction.unwrap_or(0);
    let mut call = Call {
        function: args[1],
        keys: &args[3..end],
        args: &args[end..],
        resp3: context.client.protocol == Protocol::Resp3,
        read_only: is(args[0], "fcall_ro"),
        partition: u32::try_from(partition).unwrap_or(0),
        ..Call::default()
    };
    let store = keyspace.part_mut(partition);
    let entries: Vec<(Box<[u8]>, Option<u32>)>;
    let engine = &mut state.engines[libraries.traits(call.function).engine];
    // One that is refused is told nothing.
    if let Some(holds_overlay) = engine.admits(tenant, &call) {
        let staged = store.take_overlay(!holds_overlay);
        let reference = |record: RecordRef| u32::try_from(record.offset() / 16).unwrap_or(0);
        let told = staged.entries.into_iter().map(|(key, record)| (key, record.map(reference)));
        entries = told.collect();
        let (continues, cleared) = (!staged.is_whole, store.overlay_cleared());
        call.overlay = Overlay { continues, cleared, entries: &entries };
    }
    let mut reply = Vec::new();
    let (turn, stays) = (context.turn, Some(partition));
    let (logs, mail) = (&state.logs, Vec::new());
    logs.hand_over_journal();
    let mut host = StoreHost { tenant, keyspace, logs, turn, mail, sends: false, stays };
    let ran = engine.run(tenant, &[call], run_turn, &mut host, &mut |_, bytes| {
        reply.extend_from_slice(bytes);
    });
    *untold = ran.untold;
    context.reply().raw(&reply);
}
