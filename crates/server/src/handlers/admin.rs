//! Commands about the server: CONFIG, INFO, SLOWLOG, COMMAND, TIME, SHUTDOWN, and every HELP.
//!
//! Belongs to the shard's thread.

use crate::commands::args::{integer, is};
use crate::commands::spec::CATEGORIES;
use crate::commands::{self, CommandSpec, Resolved, resolve_args};
use crate::config::settings;
use crate::handlers::config_set::setting_text;
use crate::handlers::context::{Context, SYNTAX, wrong_subcommand};
use crate::handlers::{info, introspect, session};
use crate::net::output::ReplyWriter;
use crate::state::logs::one_sentence;
use crate::state::shared::Stop;
use nigh_store::{Glob, LogHealth, ReplySink};
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// Entries that SLOWLOG GET answers unless told, as in Redis.
const SLOWLOG_DEFAULT: i64 = 10;

/// `<CONTAINER> HELP`.
pub(crate) fn help(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let Some(row) = commands::find(args[0]) else { return };
    let mut lines = commands::help(row);
    if commands::of(row).name == "config" {
        lines.push("Settings are:".to_owned());
        for setting in settings() {
            lines.push(format!("{} (default {:?})", setting.name, setting.default));
            lines.push(format!("    {}", setting.help));
        }
    }
    let mut out = context.reply();
    out.array(lines.len());
    lines.iter().for_each(|line| out.simple(line));
}

/// Patterns of a CONFIG GET: to read a long one takes some 0.1 ms.
const PATTERNS_MOST: usize = 1024;

pub(crate) fn config_get(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if args.len() - 2 > PATTERNS_MOST {
        return context.error("ERR too many patterns: at most 1024");
    }
    let mut names = BTreeSet::new();
    for pattern in &args[2..] {
        let pattern = match Glob::new(&pattern.to_ascii_lowercase()) {
            Ok(pattern) => pattern,
            Err(text) => return context.error(text),
        };
        let matches = |(_, name): &(usize, &str)| pattern.matches(name.as_bytes());
        names.extend(settings().iter().map(|row| row.name).enumerate().filter(matches));
    }
    let names: Vec<&str> = names.into_iter().map(|(_, name)| name).collect();
    let texts: Vec<String> = names.iter().map(|name| setting_text(context, name)).collect();
    let mut out = context.reply();
    out.map(names.len());
    for (name, text) in names.into_iter().zip(texts) {
        out.pair(name, &text);
    }
}

/// BGREWRITEAOF.
pub(crate) fn rewrite_log(context: &mut Context<'_, '_>) {
    let state = &*context.state;
    if !state.has_log() {
        return context.error("ERR there is no log to rewrite: appendonly is no");
    }
    // A broken log is written anew, which no fault of compaction hinders.
    let are_well = state.logs.all().iter().all(|log| log.health() != LogHealth::Broken);
    let mut faults = state.logs.all().iter().map(|log| log.compaction_fault());
    let wanted = match faults.find(|fault| are_well && !fault.is_empty()) {
        Some(fault) => Err(format!("the log can't be compacted: {}", one_sentence(&fault))),
        None => state.shared.log_desk.rewrite().map_err(str::to_owned),
    };
    match wanted {
        Ok(()) => context.reply().simple("Background append only file rewriting started"),
        Err(reason) => context.reply().error_bytes(format!("ERR {reason}").as_bytes()),
    }
}

pub(crate) fn config_rewrite(context: &mut Context<'_, '_>) {
    // The disk may take its time, and other shards look at the settings for each new connection:
    // a copy is written.
    let shared = context.state.shared.clone();
    let _one_at_a_time = shared.settings_file();
    let config = shared.config();
    let written = match &config.file {
        None => Err("ERR The server is running without a config file".to_owned()),
        Some(file) => crate::config::rewrite(&config, file)
            .map(|count| (count, file))
            .map_err(|cause| format!("ERR Rewriting config file: {cause}")),
    };
    match written {
        Ok((changed, file)) => {
            tracing::info!(changed, file = %file.display(), "the settings file is written");
            context.reply().ok();
        }
        Err(text) => context.error(&text),
    }
}

pub(crate) fn config_resetstat(context: &mut Context<'_, '_>) {
    context.state.shared.reset_stats();
    context.state.reset_stats();
    context.state.seen.resets = context.state.shared.versions().resets;
    context.reply().ok();
}

pub(crate) fn info(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let all = session::all_clients(context);
    let text = info::render(context.state, &all, &args[1..]);
    context.reply().verbatim(&text);
}

/// A master without replicas, of which no byte was replicated.
pub(crate) fn role(context: &mut Context<'_, '_>) {
    let mut out = context.reply();
    out.array(3);
    out.text("master");
    out.int(0);
    out.array(0);
}

pub(crate) fn time(context: &mut Context<'_, '_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut out = context.reply();
    out.array(2);
    out.pair(&now.as_secs().to_string(), &now.subsec_micros().to_string());
}

pub(crate) fn shutdown(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (mut stop, mut save, mut abort) = (Stop::Keep, false, false);
    for option in &args[1..] {
        match *option {
            word if is(word, "nosave") => stop = Stop::Remove,
            word if is(word, "save") => save = true,
            // Nothing is waited for, so there is nothing to hurry or to force.
            word if is(word, "now") || is(word, "force") => {}
            word if is(word, "abort") => abort = true,
            _ => return context.error(SYNTAX),
        }
    }
    match (abort, args.len()) {
        (true, 2) => context.error("ERR No shutdown in progress."),
        (true, _) => context.error(SYNTAX),
        _ if save && stop == Stop::Remove => context.error(SYNTAX),
        _ => {
            let how =
                if stop == Stop::Remove { "NOSAVE, the arenas go" } else { "the arenas stay" };
            tracing::info!(address = %context.client.address, "SHUTDOWN: ending ({how})");
            context.state.shared.stop(stop);
        }
    }
}

pub(crate) fn slowlog_get(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if args.len() > 3 {
        return wrong_subcommand(context, args);
    }
    let count = match args.get(2) {
        None => SLOWLOG_DEFAULT,
        Some(text) => match integer(text).filter(|count| *count >= -1) {
            Some(count) => count,
            None => return context.error("ERR count should be greater than or equal to -1"),
        },
    };
    let slowlog = context.state.shared.slowlog();
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let entries: Vec<_> = slowlog.entries(context.client.tenant).take(most).collect();
    let mut out = ReplyWriter::new(context.out, context.client.protocol);
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.number(entry.id);
        out.number(entry.time_s);
        out.number(entry.duration_us);
        out.array(entry.args.len());
        entry.args.iter().for_each(|arg| out.bulk(arg));
        out.text(&entry.address);
        out.bulk(&entry.name);
    }
}

pub(crate) fn slowlog_len(context: &mut Context<'_, '_>) {
    let len = context.state.shared.slowlog().entries(context.client.tenant).count();
    context.reply().number(len as u64);
}

pub(crate) fn slowlog_reset(context: &mut Context<'_, '_>) {
    context.state.shared.slowlog().clear(context.client.tenant);
    context.reply().ok();
}

pub(crate) fn command_docs(context: &mut Context<'_, '_>, names: &[&[u8]]) {
    let mut seen = BTreeSet::new(); // the answer is a map
    let rows: Vec<_> = match names {
        [] => commands::commands().map(|(row, _)| row).collect(),
        names => {
            let found = names.iter().filter_map(|name| commands::find_full(name));
            found.filter(|row| seen.insert(*row)).collect()
        }
    };
    let mut out = context.reply();
    out.map(rows.len());
    rows.into_iter().for_each(|row| introspect::docs(row, &mut out));
}

/// COMMAND, and COMMAND INFO: of all commands, or an element for each name, however often it comes.
pub(crate) fn command(context: &mut Context<'_, '_>, names: &[&[u8]]) {
    if names.is_empty() {
        let mut out = context.reply();
        out.array(commands::commands().count());
        return commands::commands().for_each(|(row, _)| introspect::info(row, &mut out));
    }
    let (mark, limit) = (context.out.mark(), context.state.hot.output_limit);
    context.reply().array(names.len());
    for name in names {
        let mut out = context.reply();
        match commands::find_full(name) {
            Some(row) => introspect::info(row, &mut out),
            None => out.null(),
        }
        if context.out.since(mark) > limit {
            return context.out.refuse_since(mark, limit);
        }
    }
}

pub(crate) fn command_list(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let names = match &args[2..] {
        [] => introspect::list(&|_| true),
        [by, kind, value] if is(by, "filterby") && is(kind, "aclcat") => {
            let wanted = value.to_ascii_lowercase();
            match CATEGORIES.split(' ').find(|name| name.as_bytes() == wanted) {
                Some(name) => introspect::list(&|spec: &CommandSpec| spec.in_category(name)),
                None => Vec::new(),
            }
        }
        [by, kind, pattern] if is(by, "filterby") && is(kind, "pattern") => {
            match Glob::new(&pattern.to_ascii_lowercase()) {
                Ok(pattern) => {
                    introspect::list(&|spec: &CommandSpec| pattern.matches(spec.name.as_bytes()))
                }
                Err(text) => return context.error(text),
            }
        }
        [by, kind, _] if is(by, "filterby") && is(kind, "module") => Vec::new(),
        _ => return context.error(SYNTAX),
    };
    let mut out = context.reply();
    out.array(names.len());
    names.into_iter().for_each(|name| out.text(name));
}

pub(crate) fn command_getkeys(context: &mut Context<'_, '_>, command: &[&[u8]], with_flags: bool) {
    let Resolved::Row(row) = resolve_args(command) else {
        return context.error("ERR Invalid command specified");
    };
    let keys = match commands::find_keys(commands::of(row), command) {
        Ok(keys) => keys,
        Err(text) => return context.error(text),
    };
    let mut out = context.reply();
    out.array(keys.len());
    for (at, flags) in keys {
        if with_flags {
            out.array(2);
        }
        out.bulk(command[at]);
        if with_flags {
            introspect::set_of_simple(flags.split(' '), &mut out);
        }
    }
}
