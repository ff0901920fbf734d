//! The commands that change nothing: a request of theirs whose reply is lost may be sent again.
//!
//! Any thread: plain data.

/// Their names: those that a server of Nigh flags as `readonly`, and those that touch no key.
const NAMES: [&str; 21] = [
    "GET",
    "MGET",
    "STRLEN",
    "GETRANGE",
    "SUBSTR",
    "EXISTS",
    "TOUCH",
    "TYPE",
    "TTL",
    "PTTL",
    "EXPIRETIME",
    "PEXPIRETIME",
    "KEYS",
    "SCAN",
    "RANDOMKEY",
    "DBSIZE",
    "FCALL_RO",
    "PING",
    "ECHO",
    "TIME",
    "INFO",
];

/// Whether a command changes nothing, by its name.
#[must_use]
pub fn reads_only(command: &[u8]) -> bool {
    NAMES.iter().any(|name| command.eq_ignore_ascii_case(name.as_bytes()))
}
