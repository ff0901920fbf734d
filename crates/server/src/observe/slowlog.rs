//! The log of slow commands.
//!
//! 1. Bounded: entries by `slowlog-max-len`, arguments and their lengths as in Redis.
//!
//! One for all shards, behind a lock that only a slow command and SLOWLOG take.

use crate::commands::args::is;
use crate::tenant::TenantId;
use std::collections::VecDeque;

/// Arguments that an entry keeps; the last one then says how many more there were.
const MOST_ARGS: usize = 32;
/// The newest entries among which those of a sender are looked for, at each reply: others have the
/// name of the sender's shard. A log may have a hundred times as many.
const MOST_NAMED: usize = 1000;
/// Bytes that an entry keeps of an argument.
const MOST_ARG_BYTES: usize = 128;

/// The sender of a command to the owner of the data: a shard's connection, as the shard's tokens
/// name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) shard: usize,
    pub(crate) token: u64,
}

/// The sender of a command: its client, or the shard that sent it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) address: &'a str,
    pub(crate) name: &'a [u8],
    pub(crate) origin: Option<Origin>,
}

/// A command that took long.
#[derive(Debug)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    tenant: TenantId,
    /// Unix time, s.
    pub(crate) time_s: u64,
    pub(crate) duration_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
    /// Whose it is, while only the sending shard knows the client.
    origin: Option<Origin>,
}

/// The newest slow commands.
#[derive(Debug)]
pub(crate) struct Slowlog {
    entries: VecDeque<SlowCommand>,
    next_id: u64,
    capacity: usize,
}

impl Slowlog {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { entries: VecDeque::new(), next_id: 0, capacity: entries }
    }

    /// Adds a command of a client. That of another shard's client is its shard's until
    /// [`Self::name_sender`], which the reply has to ask for.
    pub(crate) fn add(
        &mut self,
        args: &[&[u8]],
        time_s: u64,
        duration_us: u64,
        sender: Sender<'_>,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let entry = SlowCommand {
            id,
            tenant: sender.tenant,
            time_s,
            duration_us,
            args: shorten(&redacted(args)),
            address: sender.address.to_owned(),
            name: sender.name.to_vec(),
            origin: sender.origin,
        };
        self.entries.push_front(entry);
        self.entries.truncate(self.capacity);
    }

    /// Writes the client into the entries of what it sent.
    pub(crate) fn name_sender(&mut self, origin: Origin, address: &str, name: &[u8]) {
        let newest = self.entries.iter_mut().take(MOST_NAMED);
        for entry in newest.filter(|entry| entry.origin == Some(origin)) {
            address.clone_into(&mut entry.address);
            name.clone_into(&mut entry.name);
            entry.origin = None;
        }
    }

    /// A tenant's entries, the newest first.
    pub(crate) fn entries(&self, tenant: TenantId) -> impl Iterator<Item = &SlowCommand> {
        self.entries.iter().filter(move |entry| entry.tenant == tenant)
    }

    pub(crate) fn clear(&mut self, tenant: TenantId) {
        self.entries.retain(|entry| entry.tenant != tenant);
    }

    /// Changes how many entries are kept.
    pub(crate) fn set_capacity(&mut self, entries: usize) {
        self.capacity = entries;
        self.entries.truncate(entries);
    }
}

/// Arguments without the passwords in them.
fn redacted<'a>(args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| is(arg, word));
    let sets = is(0, "config") && is(1, "set");
    let is_secret = |at: usize| {
        is(0, "auth") && at > 0
            // A client's name may be `auth`: then more is hidden than is secret.
            || is(0, "hello") && at > 1 && (is(at - 1, "auth") || is(at - 2, "auth"))
            || sets && at > 2 && at % 2 == 1 && is(at - 1, "requirepass")
    };
    let secret: &[u8] = b"(redacted)";
    (0..args.len()).map(|at| if is_secret(at) { secret } else { args[at] }).collect()
}

fn shorten(args: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = if args.len() > MOST_ARGS { MOST_ARGS - 1 } else { args.len() };
    let mut short: Vec<Vec<u8>> = args[..kept]
        .iter()
        .map(|arg| match arg.len() {
            0..=MOST_ARG_BYTES => arg.to_vec(),
            len => {
                let rest = format!("... ({} more bytes)", len - MOST_ARG_BYTES);
                [&arg[..MOST_ARG_BYTES], rest.as_bytes()].concat()
            }
        })
        .collect();
    if kept < args.len() {
        short.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Sender<'_> =
        Sender { tenant: TenantId::DEFAULT, address: "", name: b"", origin: None };

    /// What another shard's client sent is under the shard's name until that shard names the
    /// client.
    #[test]
    fn the_sender_of_a_command_is_named_by_its_shard() {
        let mut log = Slowlog::with_capacity(4);
        let origin = |token| Origin { shard: 1, token };
        for token in [5, 6] {
            let sender = Sender { address: "shard-1", origin: Some(origin(token)), ..NOBODY };
            log.add(&[b"keys", b"*"], 1, 2, sender);
        }
        log.name_sender(origin(5), "127.0.0.1:7", b"me");
        log.name_sender(origin(7), "127.0.0.1:7", b"me");
        let shown: Vec<(&str, &[u8])> = log
            .entries(NOBODY.tenant)
            .map(|entry| (entry.address.as_str(), entry.name.as_slice()))
            .collect();
        assert_eq!(shown, [("shard-1", b"".as_slice()), ("127.0.0.1:7", b"me")]);
    }

    /// Each reply to a slow command of another shard looked through the whole log, behind its lock.
    #[test]
    fn a_sender_is_looked_for_among_the_newest() {
        let mut log = Slowlog::with_capacity(2 * MOST_NAMED);
        let origin = Origin { shard: 1, token: 5 };
        let sender = Sender { address: "shard-1", origin: Some(origin), ..NOBODY };
        (0..=MOST_NAMED).for_each(|_| log.add(&[b"keys", b"*"], 1, 2, sender));
        log.name_sender(origin, "127.0.0.1:7", b"me");
        let named = log.entries(NOBODY.tenant).map(|entry| entry.address == "127.0.0.1:7");
        let named: Vec<bool> = named.collect();
        assert!(named[..MOST_NAMED].iter().all(|is_named| *is_named));
        assert_eq!(named[MOST_NAMED..], [false], "the oldest");
    }

    /// Passwords stood in the log as they were sent.
    #[test]
    fn passwords_are_not_logged() {
        for (sent, logged) in [
            ("AUTH me pw", "AUTH (redacted) (redacted)"),
            ("auth pw", "auth (redacted)"),
            ("HELLO 3 AUTH me pw SETNAME n", "HELLO 3 AUTH (redacted) (redacted) SETNAME n"),
            ("HELLO 3 auth", "HELLO 3 auth"),
            // The word behind SETNAME was taken for the option.
            (
                "HELLO 3 SETNAME auth AUTH me pw",
                "HELLO 3 SETNAME auth (redacted) (redacted) (redacted)",
            ),
            ("HELLO auth AUTH me pw", "HELLO auth (redacted) (redacted) (redacted)"),
            ("HELLO 3 no AUTH me pw", "HELLO 3 no AUTH (redacted) (redacted)"),
            ("config set port 1 RequirePass pw", "config set port 1 RequirePass (redacted)"),
            ("CONFIG SET loglevel requirepass", "CONFIG SET loglevel requirepass"),
            ("CONFIG GET requirepass", "CONFIG GET requirepass"),
            ("SET auth requirepass", "SET auth requirepass"),
        ] {
            let args: Vec<&[u8]> = sent.split(' ').map(str::as_bytes).collect();
            assert_eq!(redacted(&args).join(&b' '), logged.as_bytes());
        }
    }

    /// A hostile command leaves a bounded entry, and the log keeps only the newest.
    #[test]
    fn entries_and_arguments_are_bounded() {
        let mut log = Slowlog::with_capacity(2);
        let long = vec![b'x'; 1000];
        let args: Vec<&[u8]> = std::iter::repeat_n(long.as_slice(), 100).collect();
        for _ in 0..3 {
            log.add(&args, 1, 2, NOBODY);
        }
        let entries: Vec<&SlowCommand> = log.entries(NOBODY.tenant).collect();
        assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(entries[0].args.len(), MOST_ARGS);
        assert_eq!(entries[0].args[31], b"... (69 more arguments)");
        assert!(entries[0].args[0].ends_with(b"... (872 more bytes)"));
    }
}
