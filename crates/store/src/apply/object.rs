//! OBJECT.
//!
//! | subcommand | answer |
//! |---|---|
//! | ENCODING, REFCOUNT | see the data type |
//! | IDLETIME | 0 unless a policy is LRU. Only the owner knows it, so the server asks there |
//! | FREQ | the error of a server without an LFU policy, as in Redis |
//!
//! Thread: the shard that owns the store, or the view.

use crate::call::{Call, CommandResult, Refusal};
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::{echo, is_option};
use crate::types::string;

/// Longest part of an unknown subcommand that Redis repeats.
const SHOWN_BYTES: usize = 128;

const NO_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
    Please note that when switching between policies at runtime LRU and LFU data will take some \
    time to adjust.";

const HELP: [&str; 15] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

pub(crate) fn object<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let subcommand = call.arg(1);
    let names = [("HELP", 2), ("ENCODING", 3), ("REFCOUNT", 3), ("IDLETIME", 3), ("FREQ", 3)];
    let Some((name, arity)) = names.into_iter().find(|(name, _)| is_option(subcommand, name))
    else {
        let shown = echo(subcommand, SHOWN_BYTES);
        let text = format!("ERR unknown subcommand '{shown}'. Try OBJECT HELP.");
        return Err(Refusal::Owned(text));
    };
    if call.args.len() != arity {
        let name = name.to_ascii_lowercase();
        let text = format!("ERR wrong number of arguments for 'object|{name}' command");
        return Err(Refusal::Owned(text));
    }
    if name == "HELP" {
        out.array(HELP.len());
        for line in HELP {
            out.simple(line);
        }
        return Ok(());
    }
    let Some(record) = store.peek(call.hash, call.arg(2), call.turn) else {
        out.null();
        return Ok(());
    };
    let value = record.value();
    match name {
        "ENCODING" => out.bulk(string::encoding::encoding(value)),
        "REFCOUNT" => out.int(string::encoding::references(value)),
        "IDLETIME" => {
            let idle_s = store.usage.idle_ms(record.hash(), call.turn.now_ms).unwrap_or(0) / 1000;
            out.int(i64::try_from(idle_s).unwrap_or(i64::MAX));
        }
        _ => return Err(NO_LFU.into()),
    }
    Ok(())
}
