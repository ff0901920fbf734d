//! LOCAL: clients of this machine that read the arenas themselves, and ask by rings in shared
//! memory.
//!
//! 1. ATTACH either gives a client all that it needs, or an error; nothing of it stays then.
//! 2. What is given of an arena is opened for the client, for reading only. The server's own
//!    description of the file isn't given away, and the file's mode lets no other user open it for
//!    writing.
//!
//! Belongs to the shard's thread.

use crate::commands::args::{integer, is, natural};
use crate::handlers::context::{Context, NOT_AN_INTEGER, SYNTAX};
use crate::handlers::session;
use crate::net::client::LocalPeer;
use crate::net::local::Local;
use crate::net::queued::ReplyMode;
use nigh_shm::local::{LocalSpec, PROTOCOL, create, peer_of};
use nigh_store::ReplySink;
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) fn attach(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if let Err(text) = try_attach(context, args) {
        context.state.shared.locals.refused.fetch_add(1, Relaxed);
        context.error(&text);
    }
}

pub(crate) fn stats(context: &mut Context<'_, '_>) {
    let figures = context.state.shared.locals.figures();
    context.reply().figures(figures.map(|(name, _, value)| (name, value)));
}

/// Gives the client its rings and arenas; else the error that refuses it.
fn try_attach(context: &mut Context<'_, '_>, args: &[&[u8]]) -> Result<(), String> {
    refuse_others(context, args)?;
    let (config, shared) = (&context.state.config, &context.state.shared);
    let ring_bytes = u32::try_from(config.size("local-ring-bytes")).unwrap_or(u32::MAX);
    let spec = LocalSpec { request_bytes: ring_bytes, reply_bytes: ring_bytes };
    let regions = context.tenant().keyspace.regions();
    let partitions = context.tenant().keyspace.partitions();
    let most = config.size("local-max-clients");
    let Some(attachable) = &context.attachable else { return Err(NO_SOCKET.to_owned()) };
    let peer = peer_of(attachable.socket)
        .map_err(|error| format!("ERR the client's process can't be told: {error}"))?;
    let process_id = peer.process.map(|process| process.as_raw_nonzero().get());
    // Those of the arenas and rings are the server's until they are sent; the process's stays.
    let files = partitions + 2;
    let costs = (spec.memory_bytes(), files);
    let counted = shared.locals.admit(most, costs, (context.client.id, process_id));
    let counted = counted.ok_or_else(|| {
        format!("ERR max number of local clients reached: local-max-clients is {most}")
    })?;
    let open = shared.client_files();
    if open > shared.file_limit {
        return Err(format!(
            "ERR too few descriptors for a local client: {open} would be in use, and the limit of \
             open files leaves {}: raise it (ulimit -n)",
            shared.file_limit
        ));
    }
    let arenas = shared.arenas.get().ok_or("ERR the arenas aren't open")?;
    let mut given: Vec<OwnedFd> = Vec::with_capacity(partitions + 1);
    for region in regions.iter().take(partitions) {
        let path = region.path();
        let arena = arenas.open_read_only(path).map_err(|error| {
            format!("ERR the arena {} can't be given to a client: {error}", path.display())
        })?;
        given.push(arena);
    }
    let (memory, end) = create(spec)
        .map_err(|error| format!("ERR no memory for the rings of a local client: {error}"))?;
    given.push(memory);
    // Without, the end of the socket is what tells.
    let process = peer.process.and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
    shared.locals.attached.fetch_add(1, Relaxed);
    let shard = context.state.number;
    let before = context.out.waiting();
    let local = Local::new(end, (before, given), process, counted);
    context.client.local = Some(LocalPeer { process_id, user_id: peer.user_id, ring_bytes });
    let figures = [
        ("protocol", u64::from(PROTOCOL)),
        ("shard", shard as u64),
        ("partitions", partitions as u64),
        ("request-bytes", u64::from(spec.request_bytes)),
        ("reply-bytes", u64::from(spec.reply_bytes)),
    ];
    context.reply().figures(figures);
    let bytes = context.out.waiting() - before;
    if let Some(attachable) = &mut context.attachable {
        attachable.local.insert(Box::new(local)).set_reply_bytes(bytes);
    }
    Ok(())
}

const NO_SOCKET: &str = "ERR LOCAL ATTACH works over the server's Unix socket only: connect to the \
    path of the setting unixsocket";

/// Refuses what is no LOCAL ATTACH of a client that can have it.
fn refuse_others(context: &Context<'_, '_>, args: &[&[u8]]) -> Result<(), String> {
    match integer(args[2]) {
        Some(version) if version == i64::from(PROTOCOL) => {}
        Some(version) => {
            return Err(format!(
                "ERR this server speaks version {PROTOCOL} of the protocol of local clients, and \
                 the client version {version}: use a client of the server's version"
            ));
        }
        None => return Err(NOT_AN_INTEGER.to_owned()),
    }
    let Some(attachable) = context.attachable.as_ref().filter(|_| context.client.is_unix) else {
        return Err(NO_SOCKET.to_owned());
    };
    if attachable.local.is_some() {
        return Err("ERR this client is attached already".to_owned());
    }
    if attachable.is_followed {
        return Err(
            "ERR LOCAL ATTACH has to be the last command that is sent by the socket: wait \
            for its reply"
                .to_owned(),
        );
    }
    if context.client.reply_mode != ReplyMode::On {
        return Err("ERR LOCAL ATTACH needs a reply: send CLIENT REPLY ON first".to_owned());
    }
    Ok(())
}

pub(crate) fn list(context: &mut Context<'_, '_>) {
    let clients = session::clients(context);
    let lines = clients.iter().filter_map(|row| row.local_line.as_deref());
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    context.reply().verbatim(&text);
}

/// LOCAL KILL ID id: ends that client, if it is a local one.
pub(crate) fn kill(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let [_, _, option, id] = args else { return context.error(SYNTAX) };
    if !is(option, "id") {
        return context.error(SYNTAX);
    }
    let Some(id) = natural(id).filter(|id| *id > 0) else {
        return context.error("ERR client-id should be greater than 0");
    };
    let mut clients = session::clients(context).into_iter();
    if !clients.any(|row| row.id == id && row.local_line.is_some()) {
        return context.error("ERR No such local client");
    }
    session::end_clients(context, &BTreeSet::from([id]));
    context.reply().ok();
}
