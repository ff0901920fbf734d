//! Replies of a connection that wait for earlier ones, which other shards have still to give.
//!
//! ```text
//! commands   SET a   DEL b c        GET d
//! parts      Waits   Waits  Came    Came          each from one shard
//!            └─ whoever is first and has come goes to the output
//! ```
//!
//! 1. Replies leave in the order of the commands, whichever shard answers first; those of one shard come in
//!    the order of what was sent to it, so the first part that waits for a shard is the one it answers.
//! 2. What waits is bounded by who sends: see [`Later::is_full`].
//! 3. If something is here, something waits for a shard; so whoever has to wait for room will be called.
//!
//! Belongs to the shard's thread.

use smallvec::SmallVec;
use std::collections::VecDeque;

/// Commands behind one that is still to be answered, at most: those of other shards, and rows of own ones between them.
const MOST_COMMANDS: usize = 1024;

/// A reply that waits. Most are as short as `+OK`, and lie where they stand.
pub(crate) type Deferred = SmallVec<[u8; 24]>;

/// How the replies to the parts of a command become its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// There is one part, and its reply is the command's.
    Only,
    /// Numbers, to be added.
    Sum,
    /// OK, if all say so.
    Ok,
}

#[derive(Debug)]
enum Part {
    /// A shard has still to answer.
    Waits(usize),
    /// Nothing, if the reply isn't wanted.
    Came(Deferred),
}

#[derive(Debug, Clone, Copy)]
struct Command {
    join: Join,
    parts: usize,
}

/// Replies in the order of their commands, from the first that is still to come.
#[derive(Debug, Default)]
pub(crate) struct Later {
    commands: VecDeque<Command>,
    parts: VecDeque<Part>,
    /// Bytes of the parts that came.
    bytes: usize,
    /// Commands whose replies have left, ever.
    left: u64,
    /// Parts that wait: of all shards, and by shard.
    sent: usize,
    sent_to: Vec<usize>,
}

impl Later {
    /// Whether no reply is to come.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Which of all commands ever is the first to leave, and which is the first that isn't here yet.
    #[inline]
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.left, self.left + self.commands.len() as u64)
    }

    /// Parts that other shards have and haven't answered.
    #[inline]
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Those that this one has.
    #[inline]
    pub(crate) fn sent_to(&self, shard: usize) -> usize {
        self.sent_to.get(shard).copied().unwrap_or(0)
    }

    /// Whether a connection is to wait before more replies are put here.
    pub(crate) fn is_full(&self, most_bytes: usize) -> bool {
        self.commands.len() >= MOST_COMMANDS || self.bytes > most_bytes
    }

    /// A command was sent to a shard.
    pub(crate) fn expect(&mut self, shard: usize) {
        self.expect_part(shard);
        self.commands.push_back(Command { join: Join::Only, parts: 1 });
    }

    /// Parts of a command were sent to shards, and others were answered here.
    pub(crate) fn expect_parts(&mut self, join: Join, came: Vec<Vec<u8>>, shards: &[usize]) {
        let parts = came.len() + shards.len();
        for reply in came {
            self.bytes += reply.len();
            self.parts.push_back(Part::Came(Deferred::from_vec(reply)));
        }
        shards.iter().for_each(|shard| self.expect_part(*shard));
        self.commands.push_back(Command { join, parts });
    }

    fn expect_part(&mut self, shard: usize) {
        if self.sent_to.len() <= shard {
            self.sent_to.resize(shard + 1, 0);
        }
        self.sent_to[shard] += 1;
        self.sent += 1;
        self.parts.push_back(Part::Waits(shard));
    }

    /// A command was answered here, behind what is to come. Replies in a row stand together.
    pub(crate) fn put(&mut self, reply: Deferred) {
        debug_assert!(!self.is_empty(), "a reply that waits for nothing goes to the output");
        self.bytes += reply.len();
        let last = self.commands.back().map(|command| command.join);
        match self.parts.back_mut() {
            Some(Part::Came(before)) if last == Some(Join::Only) => {
                before.extend_from_slice(&reply);
            }
            _ => {
                self.parts.push_back(Part::Came(reply));
                self.commands.push_back(Command { join: Join::Only, parts: 1 });
            }
        }
    }

    /// A shard has answered what it was sent first; writes what can go now. No reply is wanted if it is `None`.
    ///
    /// # Panics
    /// If the shard has nothing to answer.
    pub(crate) fn came(&mut self, shard: usize, reply: Option<&[u8]>, out: &mut Vec<u8>) {
        self.sent -= 1;
        self.sent_to[shard] -= 1;
        let reply = reply.unwrap_or_default();
        let is_next = matches!(self.parts.front(), Some(Part::Waits(first)) if *first == shard);
        if is_next && self.commands.front().is_some_and(|command| command.join == Join::Only) {
            out.extend_from_slice(reply);
            self.parts.pop_front();
            self.commands.pop_front();
            self.left += 1;
        } else {
            let waits = |part: &&mut Part| matches!(part, Part::Waits(other) if *other == shard);
            let part = self.parts.iter_mut().find(waits);
            *part.expect("who answers was asked") = Part::Came(Deferred::from_slice(reply));
            self.bytes += reply.len();
        }
        self.write_complete(out);
    }

    /// Writes the replies at the front that are complete.
    pub(crate) fn write_complete(&mut self, out: &mut Vec<u8>) {
        while let Some(Command { join, parts }) = self.commands.front().copied() {
            if join == Join::Only {
                let Some(Part::Came(reply)) = self.parts.front() else { return };
                out.extend_from_slice(reply);
                self.bytes -= reply.len();
                self.parts.pop_front();
            } else {
                let came = |part: &Part| matches!(part, Part::Came(_));
                if !self.parts.iter().take(parts).all(came) {
                    return;
                }
                let reply = |part| match part {
                    Part::Came(reply) => reply,
                    Part::Waits(_) => unreachable!("all have come"),
                };
                let replies: Vec<Deferred> = self.parts.drain(..parts).map(reply).collect();
                self.bytes -= replies.iter().map(SmallVec::len).sum::<usize>();
                write_joined(join, &replies, out);
            }
            self.commands.pop_front();
            self.left += 1;
        }
    }
}

/// Writes the reply that the parts' replies are; the first error if there is one.
fn write_joined(join: Join, replies: &[Deferred], out: &mut Vec<u8>) {
    let error = replies.iter().find(|reply| reply.first() == Some(&b'-'));
    match (join, error, replies) {
        (_, Some(error), _) => out.extend_from_slice(error),
        (Join::Sum, None, _) if replies.iter().all(|reply| !reply.is_empty()) => {
            let sum = replies.iter().map(|reply| integer(reply)).sum();
            nigh_resp::encode::integer(out, sum);
        }
        (_, None, [first, ..]) => out.extend_from_slice(first),
        (_, None, []) => {}
    }
}

/// The number of a reply that is one.
fn integer(reply: &[u8]) -> i64 {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).expect("a part that is added answers a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>) -> String {
        String::from_utf8(std::mem::take(out)).expect("text")
    }

    #[test]
    fn replies_leave_in_the_order_of_commands() {
        let (mut later, mut out) = (Later::default(), Vec::new());
        later.expect(1);
        later.expect(2);
        later.put(Deferred::from_slice(b"own"));
        later.expect(1);
        assert_eq!(
            (later.sent(), later.sent_to(1), later.sent_to(2), later.sent_to(9)),
            (3, 2, 1, 0)
        );
        later.came(2, Some(b"two "), &mut out);
        assert_eq!(text(&mut out), "");
        later.came(1, Some(b"one "), &mut out);
        assert_eq!(text(&mut out), "one two own");
        assert!(!later.is_empty());
        later.came(1, None, &mut out);
        assert!(out.is_empty() && later.is_empty() && later.sent() == 0 && later.bytes == 0);
    }

    #[test]
    fn parts_are_joined() {
        let (mut later, mut out) = (Later::default(), Vec::new());
        later.expect_parts(Join::Sum, vec![b":2\r\n".to_vec()], &[3, 1]);
        later.expect_parts(Join::Ok, vec![], &[1, 3]);
        later.expect_parts(Join::Sum, vec![b":1\r\n".to_vec()], &[2]);
        later.came(1, Some(b":40\r\n"), &mut out);
        later.came(2, Some(b"-OOM full\r\n"), &mut out);
        later.came(1, Some(b"+OK\r\n"), &mut out);
        assert!(out.is_empty());
        later.came(3, Some(b":0\r\n"), &mut out);
        assert_eq!(text(&mut out), ":42\r\n");
        later.came(3, Some(b"+OK\r\n"), &mut out);
        assert_eq!(text(&mut out), "+OK\r\n-OOM full\r\n");
        assert!(later.is_empty() && later.bytes == 0);
    }

    #[test]
    fn what_is_not_wanted_is_nothing() {
        let (mut later, mut out) = (Later::default(), Vec::new());
        later.expect_parts(Join::Sum, vec![Vec::new()], &[1]);
        later.came(1, None, &mut out);
        assert!(out.is_empty() && later.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut later = Later::default();
        later.expect(1);
        later.put(Deferred::from_vec(vec![0; 100]));
        assert!(later.is_full(99) && !later.is_full(100));
        (0..MOST_COMMANDS).for_each(|_| later.put(Deferred::new()));
        assert!(!later.is_full(usize::MAX), "replies in a row stand together");
        (0..MOST_COMMANDS).for_each(|_| later.expect(1));
        assert!(later.is_full(usize::MAX));
    }
}
