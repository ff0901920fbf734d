//! CONFIG SET, and a setting's text for CONFIG GET. What begins or ends the log is the log's
//! keeper's: the command waits for its answer.
//!
//! Belongs to the shard's thread.

use crate::commands::args::is;
use crate::config::{Config, Setting, Value};
use crate::folder::log_folder;
use crate::handlers::context::{Context, SYNTAX, about};
use crate::state::log_desk::Wanted;
use crate::state::logs::one_sentence;
use nigh_store::ReplySink;

pub(crate) fn config_set(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (pairs, odd) = args[2..].as_chunks::<2>();
    if !odd.is_empty() {
        return context.error(SYNTAX);
    }
    if let Err(text) = keeper_answer(context, pairs) {
        return context.reply().error_bytes(&text);
    }
    let others = |config: &Config| -> Result<Config, Vec<u8>> {
        let mut changed = changed_config(context, config, pairs)?;
        // The log's keeper sets this, and may have changed it since.
        changed.copy("appendonly", config);
        Ok(changed)
    };
    match context.state.shared.change_config(others) {
        Ok(()) => {
            context.state.config_changed();
            context.reply().ok();
        }
        Err(text) => context.reply().error_bytes(&text),
    }
}

/// What the log's keeper has answered, if it is to begin or end the log.
fn keeper_answer(context: &Context<'_, '_>, pairs: &[[&[u8]; 2]]) -> Result<(), Vec<u8>> {
    let failed = |reason: &str| failed("appendonly", reason);
    match context.state.shared.log_desk.take(context.client.id) {
        Some(outcome) => outcome.map_err(|reason| failed(&one_sentence(&reason))),
        None if wanted_log(context, pairs).is_some() => {
            Err(failed("a log can't begin or end inside of a transaction"))
        }
        None => Ok(()),
    }
}

/// The settings that a CONFIG SET leads to, if these begin or end a log.
fn wanted_log(context: &Context<'_, '_>, pairs: &[[&[u8]; 2]]) -> Option<Config> {
    let config = context.state.shared.config();
    let changed = changed_config(context, &config, pairs).ok()?;
    (changed.flag("appendonly") != config.flag("appendonly")).then_some(changed)
}

/// Whether a CONFIG SET waits for the log's keeper.
pub(crate) fn waits_for_keeper(context: &Context<'_, '_>, args: &[&[u8]]) -> bool {
    let (pairs, odd) = args[2..].as_chunks::<2>();
    let (desk, client) = (&context.state.shared.log_desk, context.client.id);
    if !pairs.iter().any(|[name, _]| is(name, "appendonly")) || !odd.is_empty() {
        return false;
    }
    // The keeper changes the setting before it gives the outcome, which mustn't be left there.
    if let Some(done) = desk.is_done(client) {
        return !done;
    }
    let Some(config) = wanted_log(context, pairs) else { return false };
    let wanted = match config.flag("appendonly") {
        true => Wanted::On(Box::new(config)),
        false => Wanted::Off,
    };
    desk.ask(client, wanted);
    desk.is_done(client) == Some(false)
}

/// The error reply about a setting.
fn failed(name: &str, reason: &str) -> Vec<u8> {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}").into_bytes()
}

/// A setting as CONFIG GET shows it: what holds, where the setting leaves it to the server.
pub(crate) fn setting_text(context: &Context<'_, '_>, name: &str) -> String {
    let state = &*context.state;
    match name {
        "maxmemory" => context.tenant().keyspace.capacity_bytes().to_string(),
        "maxclients" => state.max_clients().to_string(),
        "port" => state.shared.port.to_string(),
        // From the root on, as Redis answers it: the client may be in another folder.
        "dir" => log_folder::path_of(&state.config)
            .map_or_else(|_| state.config.text(name), |path| path.display().to_string()),
        "shm-dir" => state.config.shm_dir(state.shared.port).display().to_string(),
        _ => state.config.text(name),
    }
}

/// Whether a setting that only a start chooses has this value already, as with `CONFIG SET save
/// ''`: the one that it was given, if that holds, or what CONFIG GET answers. Else the reason of
/// the refusal: of a value that no start takes, why not.
fn stays(
    context: &Context<'_, '_>,
    config: &Config,
    row: &Setting,
    value: &[u8],
) -> Result<(), String> {
    // 0 asks the server to choose, which only a start does. Of another size each partition has its
    // part, or less if it is older and can't grow that far.
    let keyspace = &context.tenant().keyspace;
    let part = |bytes: u64| bytes / keyspace.partitions() as u64;
    let differs = |wanted: &Value| match wanted {
        Value::Number(bytes) if row.name == "maxmemory" => {
            *bytes == 0 || part(keyspace.capacity_bytes()) < part(bytes.unsigned_abs())
        }
        _ => false,
    };
    let holds = || row.parse(&setting_text(context, row.name));
    match row.parse(&String::from_utf8_lossy(value)) {
        Ok(wanted) if wanted == *config.value(row.name) && !differs(&wanted) => Ok(()),
        Ok(wanted) if holds().is_ok_and(|holds| holds == wanted) => Ok(()),
        Ok(_) => Err(format!("can't set immutable config: give --{} at a start", row.name)),
        Err(error) => Err(error.reason()),
    }
}

/// The settings with all pairs applied, or the error reply if one of them is wrong.
fn changed_config(
    context: &Context<'_, '_>,
    config: &Config,
    pairs: &[[&[u8]; 2]],
) -> Result<Config, Vec<u8>> {
    let mut rows = Vec::with_capacity(pairs.len());
    for [name, _] in pairs {
        let row = std::str::from_utf8(name).ok().and_then(crate::config::setting);
        let Some(row) = row else {
            let text = "ERR Unknown option or number of arguments for CONFIG SET - '";
            return Err(about(text, name, "'"));
        };
        rows.push(row);
    }
    for (at, (row, [_, value])) in rows.iter().zip(pairs).enumerate() {
        if !row.mutable {
            stays(context, config, row, value).map_err(|reason| failed(row.name, &reason))?;
        }
        if rows[..at].iter().any(|earlier| earlier.name == row.name) {
            return Err(failed(row.name, "duplicate parameter"));
        }
    }
    let mut changed = config.clone();
    for (row, [_, value]) in rows.iter().zip(pairs).filter(|(row, _)| row.mutable) {
        let text = std::str::from_utf8(value)
            .map_err(|_| failed(row.name, "argument must be UTF-8 text"))?;
        changed.set(row.name, text).map_err(|error| failed(row.name, &error.reason()))?;
    }
    Ok(changed)
}
