//! BACKUP, and the commands by which Redis saves to disk.
//!
//! Belongs to the shard's thread.

use crate::commands::args::{is, natural};
use crate::handlers::context::{Context, NOT_AN_INTEGER, SYNTAX};
use crate::observe::log_totals::one_line;
use crate::state::backup_run;
use nigh_store::ReplySink;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Why SAVE and BGSAVE do nothing.
pub(crate) const NO_SNAPSHOT: &str = "ERR Nigh saves no snapshot: with appendonly yes its log has every \
    change, and `nigh backup DIR` (BACKUP DIR) copies that while it serves";
/// Why DEBUG RELOAD does nothing.
pub(crate) const NO_RELOAD: &str = "ERR Nigh doesn't reload a running server's data: restart it, or restore a \
    backup into an empty folder by `nigh restore`";

/// `BACKUP directory`, `BACKUP STATUS [number]`, `BACKUP CANCEL`.
pub(crate) fn backup(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    match args {
        [_, word] if is(word, "status") => status(context, None),
        [_, word, number] if is(word, "status") => match natural(number) {
            Some(number) => status(context, Some(number)),
            None => context.error(NOT_AN_INTEGER),
        },
        [_, word] if is(word, "cancel") => match context.state.shared.backups.cancel() {
            true => context.reply().ok(),
            false => context.error("ERR no backup is under way"),
        },
        [_, dir] => begin(context, PathBuf::from(OsStr::from_bytes(dir))),
        _ => context.error(SYNTAX),
    }
}

fn begin(context: &mut Context<'_, '_>, dir: PathBuf) {
    let shared = Arc::clone(&context.state.shared);
    match backup_run::begin(&shared, dir) {
        Ok(number) => context.reply().number(number),
        Err(text) => context.error(&one_line(&format!("ERR {text}"))),
    }
}

/// A map: number, directory, state, and how far it is.
fn status(context: &mut Context<'_, '_>, number: Option<u64>) {
    let Some(state) = context.state.shared.backups.state(number) else {
        return context.reply().null();
    };
    let mut error = String::new();
    let (mut files, mut reused_files, mut bytes) = (0, 0, 0);
    match &state.outcome {
        Some(Ok(report)) => {
            (files, reused_files, bytes) = (report.files, report.reused_files, report.bytes);
        }
        Some(Err(text)) => error = one_line(text),
        None => {}
    }
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let figures = [
        ("number", state.number),
        ("done-bytes", state.progress.done_bytes),
        ("all-bytes", state.progress.all_bytes),
        ("reused-bytes", state.progress.reused_bytes),
        ("files", files),
        ("reused-files", reused_files),
        ("bytes", bytes),
        ("stood-usec", micros(state.stood)),
        ("usec", micros(state.took)),
    ];
    let mut out = context.reply();
    out.map(3 + figures.len());
    out.text("directory");
    out.bulk(state.dir.as_os_str().as_bytes());
    out.pair("state", state.word());
    out.pair("error", &error);
    figures.into_iter().for_each(|(name, figure)| out.figure(name, figure));
}

pub(crate) fn lastsave(context: &mut Context<'_, '_>) {
    let seconds = context.state.shared.backups.last_s();
    context.reply().number(seconds);
}
