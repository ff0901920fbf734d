//! OBJECT: what Redis tells of a value's insides, told of ours.
//!
//! | subcommand | answer |
//! |---|---|
//! | ENCODING | derived from the value: `int`, `embstr` up to 44 bytes, else `raw` |
//! | REFCOUNT | 2147483647 for the integers that Redis shares (0 to 9999), else 1 |
//! | IDLETIME | 0 unless a policy is LRU; a view doesn't know it, so it is asked of the owner |
//! | FREQ | the error of a server without an LFU policy, as in Redis |
//!
//! Redis remembers how a value was made: after APPEND and SETRANGE it is `raw`, after INCRBYFLOAT
//! `embstr` or `raw`, and shared by nobody, even if the value alone would say `int`.
//!
//! Thread: the shard that owns the store.

use crate::call::{Call, Outcome, Refusal};
use crate::partition::store::Store;
use crate::reply_sink::Reply;
use crate::text::arguments::{echo, integer, is_option};

/// Longest value that Redis embeds in its object.
const EMBEDDED_BYTES: usize = 44;
/// Redis keeps one object for each integer below this.
const SHARED_INTEGERS: i64 = 10_000;
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

impl Store {
    pub(crate) fn object<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
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
        let Some(record) = self.peek(call.hash, call.arg(2), call.turn) else {
            out.null();
            return Ok(());
        };
        let value = record.value();
        match name {
            "ENCODING" => out.bulk(encoding(value)),
            "REFCOUNT" => out.int(references(value)),
            "IDLETIME" => {
                let idle_s = self.idle_ms(record.hash(), call.turn).unwrap_or(0) / 1000;
                out.int(i64::try_from(idle_s).unwrap_or(i64::MAX));
            }
            _ => return Err(NO_LFU.into()),
        }
        Ok(())
    }
}

fn encoding(value: &[u8]) -> &'static [u8] {
    if integer(value).is_some() {
        b"int"
    } else if value.len() <= EMBEDDED_BYTES {
        b"embstr"
    } else {
        b"raw"
    }
}

fn references(value: &[u8]) -> i64 {
    match integer(value) {
        Some(0..SHARED_INTEGERS) => i64::from(i32::MAX),
        _ => 1,
    }
}
