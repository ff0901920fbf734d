//! Commands about the connection itself: PING, HELLO, AUTH, RESET, SELECT, QUIT, CLIENT.
//!
//! Belongs to the shard's thread.

use crate::commands::Builtin;
use crate::commands::args::{integer, is, natural};
use crate::handlers::context::{Context, NOT_AN_INTEGER, SYNTAX, about};
use crate::handlers::transaction;
use crate::net::client::{Buffers, Client, Close, describe};
use crate::net::connection::Connection;
use crate::net::output::{Output, ReplyWriter};
use crate::net::queued::ReplyMode;
use crate::observe::snapshot::{ClientRow, Snapshot};
use crate::state::told;
use nigh_resp::Protocol;
use nigh_store::ReplySink;
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const BAD_CLIENT_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
pub(crate) const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
    otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
    and select the RESP protocol version at the same time";
pub(crate) const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";
/// The version of Redis that clients are told: the one whose commands these are.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
/// Longest name of a connection or client library, in bytes.
const MOST_NAME_BYTES: usize = 4096;

pub(crate) fn ping(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    match args {
        [_] => context.reply().simple("PONG"),
        [_, message] => context.reply().bulk(message),
        _ => context.error("ERR wrong number of arguments for 'ping' command"),
    }
}

pub(crate) fn quit(context: &mut Context<'_, '_>) {
    context.reply().ok();
    context.client.end(Close::AfterReplies);
}

pub(crate) fn select(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    match integer(args[1]).and_then(|index| i32::try_from(index).ok()) {
        Some(0) => context.reply().ok(),
        Some(_) => context.error("ERR DB index is out of range"),
        None => context.error(NOT_AN_INTEGER),
    }
}

/// RESET: as if the client had just connected.
pub(crate) fn reset(context: &mut Context<'_, '_>) {
    transaction::drop_transaction(context);
    let authenticated = context.state.hot.password.is_empty();
    let client = &mut *context.client;
    client.name.clear();
    client.protocol = Protocol::Resp2;
    if client.reply_mode != ReplyMode::Skip {
        client.reply_mode = ReplyMode::On; // as in Redis: what SKIP silences stays silent
    }
    client.skip_next = false;
    client.no_evict = false;
    client.no_touch = false;
    client.authenticated = authenticated;
    context.reply().simple("RESET");
}

/// Whether these are the right credentials, where this password is `wanted`; any is if there is
/// none. There is one user, `default`.
pub(crate) fn is_right(wanted: &str, user: &[u8], password: &[u8]) -> bool {
    let wanted = wanted.as_bytes();
    // The time doesn't tell how much of the password is right.
    let differs = wanted.iter().zip(password).fold(0, |sum, (a, b)| sum | (a ^ b));
    user == b"default" && (wanted.is_empty() || (wanted.len() == password.len() && differs == 0))
}

pub(crate) fn auth(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let (user, password): (&[u8], &[u8]) = match args {
        [_, _] if context.state.hot.password.is_empty() => return context.error(NO_PASSWORD),
        [_, password] => (b"default", password),
        [_, user, password] => (user, password),
        _ => return context.error(SYNTAX),
    };
    if is_right(&context.state.hot.password, user, password) {
        context.client.authenticated = true;
        context.reply().ok();
    } else {
        context.error(WRONG_PASSWORD);
    }
}

/// What HELLO asks for.
pub(crate) struct Hello<'a> {
    /// `None`: the one that it has.
    pub(crate) protocol: Option<Protocol>,
    /// User and password.
    pub(crate) credentials: Option<(&'a [u8], &'a [u8])>,
    pub(crate) name: Option<&'a [u8]>,
}

/// Reads HELLO; the error if a word of it is wrong.
pub(crate) fn read_hello<'a>(args: &[&'a [u8]]) -> Result<Hello<'a>, Vec<u8>> {
    let protocol = match args.get(1).map(|version| integer(version)) {
        None => None,
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
        Some(None) => {
            return Err(b"ERR Protocol version is not an integer or out of range".to_vec());
        }
    };
    let mut hello = Hello { protocol, credentials: None, name: None };
    let mut options = args.get(2..).unwrap_or_default();
    while let [option, given @ ..] = options {
        options = match given {
            [user, password, rest @ ..] if is(option, "auth") => {
                hello.credentials = Some((*user, *password));
                rest
            }
            [word, rest @ ..] if is(option, "setname") => {
                if !is_printable(word) {
                    return Err(BAD_CLIENT_NAME.into());
                }
                hello.name = Some(*word);
                rest
            }
            _ => return Err(about("ERR Syntax error in HELLO option '", option, "'")),
        };
    }
    Ok(hello)
}

pub(crate) fn hello(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let hello = match read_hello(args) {
        Ok(hello) => hello,
        Err(text) => return context.reply().error_bytes(&text),
    };
    if let Some((user, password)) = hello.credentials {
        if !is_right(&context.state.hot.password, user, password) {
            return context.error(WRONG_PASSWORD);
        }
        context.client.authenticated = true;
    }
    if !context.state.admits(context.client) {
        return context.error(HELLO_FIRST);
    }
    if let Some(name) = hello.name {
        context.client.name = name.to_vec();
    }
    context.client.protocol = hello.protocol.unwrap_or(context.client.protocol);
    write_hello(context.out, context.client.protocol, context.client.id);
}

/// The answer to HELLO.
pub(crate) fn write_hello(out: &mut Output, protocol: Protocol, id: u64) {
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    let mut out = ReplyWriter::new(out, protocol);
    out.map(7);
    for text in ["server", "redis", "version", REDIS_VERSION, "proto"] {
        out.text(text);
    }
    out.int(version);
    out.figure("id", id);
    for text in ["mode", "standalone", "role", "master", "modules"] {
        out.text(text);
    }
    out.array(0);
}

/// Redis allows only the printable ASCII characters but blanks in names.
pub(crate) fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte)) && name.len() <= MOST_NAME_BYTES
}

pub(crate) fn client_id(context: &mut Context<'_, '_>) {
    let id = context.client.id;
    context.reply().number(id);
}

pub(crate) fn get_name(context: &mut Context<'_, '_>) {
    let name = context.client.name.clone();
    if name.is_empty() { context.reply().null() } else { context.reply().bulk(&name) }
}

pub(crate) fn client_info(context: &mut Context<'_, '_>) {
    let line = describe(context.client, own_buffers(context), Instant::now());
    context.reply().verbatim(&format!("{line}\n"));
}

/// CLIENT NO-EVICT and NO-TOUCH.
pub(crate) fn switch(context: &mut Context<'_, '_>, args: &[&[u8]], builtin: Builtin) {
    let on = match args[2] {
        word if is(word, "on") => true,
        word if is(word, "off") => false,
        _ => return context.error(SYNTAX),
    };
    if builtin == Builtin::ClientNoEvict {
        context.client.no_evict = on;
    } else {
        context.client.no_touch = on;
        // What follows in the same transaction has heard it too.
        context.tenant_mut().keyspace.keep_ages(on);
    }
    context.reply().ok();
}

pub(crate) fn set_name(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    if !is_printable(args[2]) {
        return context.error(BAD_CLIENT_NAME);
    }
    context.client.name = args[2].to_vec();
    context.reply().ok();
}

pub(crate) fn set_info(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let is_name = is(args[2], "lib-name");
    if !is_name && !is(args[2], "lib-ver") {
        return context.error_about("ERR Unrecognized option '", args[2], "'");
    }
    if !is_printable(args[3]) {
        // The option as it was sent, as Redis quotes it.
        let reason = " cannot contain spaces, newlines or special characters.";
        return context.error_about("ERR ", args[2], reason);
    }
    let Client { lib_name, lib_version, .. } = context.client;
    *(if is_name { lib_name } else { lib_version }) = args[3].to_vec();
    context.reply().ok();
}

pub(crate) fn reply_mode(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    match args[2] {
        word if is(word, "on") => {
            context.client.reply_mode = ReplyMode::On;
            context.reply().ok();
        }
        word if is(word, "off") => context.client.reply_mode = ReplyMode::Off,
        word if is(word, "skip") => {
            context.client.skip_next |= context.client.reply_mode != ReplyMode::Off;
        }
        _ => context.error(SYNTAX),
    }
}

fn own_buffers(context: &Context<'_, '_>) -> Buffers {
    Connection::buffers_of(context.input, context.out)
}

/// What all shards tell, with all their clients in the order of their numbers.
pub(crate) fn all_clients(context: &mut Context<'_, '_>) -> Snapshot {
    let now = Instant::now();
    let mut own = told::snapshot(context.state, true, context.others.slab.len());
    told::add_client(&mut own, context.client, own_buffers(context), now);
    context.others.each(|other| told::add_connection(&mut own, other, now));
    let mut all = told::with_others(own, &context.state.shared, context.state.number);
    // One that is moving may be seen twice.
    all.clients.sort_unstable_by_key(|client| client.id);
    all.clients.dedup_by_key(|client| client.id);
    all
}

/// The clients of the asking one's tenant, at all shards, in the order of their numbers.
pub(crate) fn clients(context: &mut Context<'_, '_>) -> Vec<ClientRow> {
    let mut clients = all_clients(context).clients;
    clients.retain(|row| row.tenant == context.client.tenant);
    clients
}

pub(crate) fn list(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let mut wanted: Option<BTreeSet<u64>> = None;
    match args {
        [_, _] => {}
        [_, _, option, kind] if is(option, "type") => match client_type(kind) {
            Ok(true) => {}
            Ok(false) => wanted = Some(BTreeSet::new()),
            Err(text) => return context.reply().error_bytes(&text),
        },
        [_, _, option, ids @ ..] if is(option, "id") && !ids.is_empty() => {
            match ids.iter().map(|id| natural(id)).collect::<Option<BTreeSet<u64>>>() {
                Some(ids) if ids.iter().all(|id| *id > 0) => wanted = Some(ids),
                _ => return context.error("ERR Invalid client ID"),
            }
        }
        _ => return context.error(SYNTAX),
    }
    let shown = |row: &&ClientRow| wanted.as_ref().is_none_or(|ids| ids.contains(&row.id));
    let clients = clients(context);
    let lines = clients.iter().filter(shown).flat_map(|row| [row.line.as_str(), "\n"]);
    let text: String = lines.collect();
    context.reply().verbatim(&text);
}

/// Whether clients of that type exist here: all are normal ones. The error for an unknown type.
fn client_type(name: &[u8]) -> Result<bool, Vec<u8>> {
    let has = |words: &[&str]| words.iter().any(|word| is(name, word));
    let is_known = has(&["normal", "master", "slave", "replica", "pubsub"]);
    is_known.then(|| has(&["normal"])).ok_or_else(|| about("ERR Unknown client type '", name, "'"))
}

/// Which clients CLIENT KILL ends.
struct Filter {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    /// Of a type that there is.
    normal: bool,
    skip_me: bool,
}

impl Filter {
    fn matches(&self, row: &ClientRow) -> bool {
        self.normal
            && self.id.is_none_or(|wanted| wanted == row.id)
            && self.address.as_ref().is_none_or(|a| a == row.address.as_bytes())
            && self.local_address.as_ref().is_none_or(|a| a == row.local_address.as_bytes())
    }
}

pub(crate) fn kill(context: &mut Context<'_, '_>, args: &[&[u8]]) {
    let mut filter =
        Filter { id: None, address: None, local_address: None, normal: true, skip_me: true };
    let by_address = args.len() == 3;
    if by_address {
        filter.address = Some(args[2].to_vec());
        filter.skip_me = false;
    } else if let Err(text) = kill_options(&args[2..], &mut filter) {
        return context.reply().error_bytes(&text);
    }
    let own = context.client.id;
    let matches = |row: &&ClientRow| filter.matches(row) && !(filter.skip_me && row.id == own);
    let clients = clients(context);
    let ids: BTreeSet<u64> = clients.iter().filter(matches).map(|row| row.id).collect();
    end_clients(context, &ids);
    match (by_address, ids.len()) {
        (true, 0) => context.error("ERR No such client"),
        (true, _) => context.reply().ok(),
        (false, killed) => context.reply().number(killed as u64),
    }
}

/// Ends clients, whatever shards they are at; this one when it has its replies.
pub(crate) fn end_clients(context: &mut Context<'_, '_>, ids: &BTreeSet<u64>) {
    context.others.each(|other| other.end_if_among(|id| ids.contains(id)));
    context.state.some_killed |= !ids.is_empty();
    context.state.shared.kill(context.state.number, ids);
    if ids.contains(&context.client.id) {
        context.client.end(Close::AfterReplies);
    }
}

/// Reads CLIENT KILL's pairs of options; the error if one is wrong.
fn kill_options(options: &[&[u8]], filter: &mut Filter) -> Result<(), Vec<u8>> {
    let (pairs, odd) = options.as_chunks::<2>();
    for [name, value] in pairs {
        match *name {
            name if is(name, "id") => {
                let id = natural(value).filter(|id| *id > 0);
                filter.id = Some(id.ok_or(b"ERR client-id should be greater than 0")?);
            }
            name if is(name, "type") => filter.normal &= client_type(value)?,
            name if is(name, "addr") => filter.address = Some(value.to_vec()),
            name if is(name, "laddr") => filter.local_address = Some(value.to_vec()),
            name if is(name, "user") && *value == b"default" => {}
            name if is(name, "user") => return Err(about("ERR No such user '", value, "'")),
            name if is(name, "skipme") && is(value, "yes") => filter.skip_me = true,
            name if is(name, "skipme") && is(value, "no") => filter.skip_me = false,
            _ => return Err(SYNTAX.into()),
        }
    }
    if odd.is_empty() { Ok(()) } else { Err(SYNTAX.into()) }
}

/// Whether a browser was led to send this: Redis drops such connections too.
pub(crate) fn is_attack(args: &[&[u8]]) -> bool {
    let name = args.first().copied().unwrap_or_default();
    is(name, "post") || is(name, "host:")
}
