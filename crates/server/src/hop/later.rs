//! Replies of a connection that wait for earlier ones, which other shards have still to give.
//!
//! ```text
//! commands  SET a  SET b   GET c      DEL d e            SET f
//! order     Of { 1, two }  Own        Joined { 1, 2 }    Of { 2, one }
//!           └─ leaves as shard 1 answers; what comes before its turn stands in `early`
//! ```
//!
//! 1. Replies leave in the order of the commands, whichever shard answers first; those of one shard
//!    come in the order of what was sent to it, so the first of the order that waits for a shard
//!    gets its next reply.
//! 2. The first command of the order never has its reply in `early`: it left when it came, or when
//!    the command became the first.
//! 3. The sender bounds what waits: see [`Later::is_full`].
//! 4. Non-empty means that at least one shard has still to answer. So a connection that waits for
//!    room is always called.
//! 5. While all of them are OK, as those to writes nearly always are, only the shard that gives
//!    each is kept, in `oks`, and nothing in `order`. When the last has come that is to come, all
//!    leave, and nobody looks which shard gave which. The first that isn't OK, or the one too many
//!    for [`MOST_OKS`], brings all to `order`.
//!
//! What a pipeline of 16 writes over two shards leaves here lies in the connection itself, whose
//! memory is asked for before it is looked at: each piece of the heap would be one more cache miss
//! for each pipeline.
//!
//! Belongs to the shard's thread.

#[cfg(test)]
mod tests;
mod values;

use crate::hop::mailbox::MOST_MAILBOXES;
use crate::hop::message::replies::{MOST_OKS, Replies, oks};
use nigh_resp::encode;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// In place of the shard that gives a reply: it was given here.
pub(crate) const HERE: u8 = u8::MAX;
const _: () = assert!(MOST_MAILBOXES <= HERE as usize, "no shard has that number");
/// Runs of commands behind one that is still to be answered, at most: a run is answered by one
/// shard.
const MOST_RUNS: usize = 1024;
/// Bytes of own replies that have left before what waits is moved to their place.
const MOST_LEFT_BYTES: usize = 4 << 10;

/// Places for early replies that a connection keeps for each shard without waiting for anything.
const KEEP_EARLY: usize = 64;
/// Runs that lie in the connection: a pipeline of 16 has no more.
const RUNS_INSIDE: usize = 16;

/// A reply that came early. Most are as short as `+OK`, and lie where they stand.
type Early = SmallVec<[u8; 24]>;
/// Own replies, one after the other: as many of `+OK` lie in the connection.
pub(crate) type Own = SmallVec<[u8; RUNS_INSIDE * b"+OK\r\n".len()]>;

/// How the replies to the parts of a command become its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Join {
    /// Numbers, to be added.
    Sum,
    /// OK, if all say so.
    Ok,
    /// Values, in the order of their keys: for each the shard that gives it, [`HERE`] if that is
    /// this one. A shard has one part.
    Values(Box<[u8]>),
}

/// Commands that follow each other and whose replies come from the same place.
#[derive(Debug)]
enum Stretch {
    /// Their replies are here: so many bytes of `own`.
    Own { commands: u32, bytes: usize },
    /// A shard has still to answer all of them.
    Of { shard: u8, commands: u32 },
    /// A command by parts.
    Joined(Box<Joined>),
}

/// A command by parts: replies that came (nothing, if they aren't wanted), and the shards that have
/// still to answer.
#[derive(Debug)]
struct Joined {
    join: Join,
    /// With the shard that gave it.
    came: Vec<(u8, Vec<u8>)>,
    waits: Vec<usize>,
}

/// Runs in their order.
#[derive(Debug, Default)]
struct Runs {
    all: SmallVec<[Stretch; RUNS_INSIDE]>,
    /// Those at the front of `all` that are over.
    over: usize,
}

impl Runs {
    fn len(&self) -> usize {
        self.all.len() - self.over
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn front_mut(&mut self) -> Option<&mut Stretch> {
        self.all.get_mut(self.over)
    }

    /// The last one, unless it is over.
    fn back_mut(&mut self) -> Option<&mut Stretch> {
        self.all[self.over..].last_mut()
    }

    /// A command more that a shard has to answer.
    fn expect(&mut self, shard: u8) {
        match self.back_mut() {
            Some(Stretch::Of { shard: last, commands }) if *last == shard => *commands += 1,
            _ => self.all.push(Stretch::Of { shard, commands: 1 }),
        }
    }

    /// One more that was answered here, with so many bytes.
    fn add_own(&mut self, more: usize) {
        match self.back_mut() {
            // Replies of no bytes (CLIENT REPLY) are bounded by nothing else; what is sent is by
            // the allowance.
            Some(Stretch::Own { commands, bytes }) if *commands < u32::MAX => {
                *commands += 1;
                *bytes += more;
            }
            _ => self.all.push(Stretch::Own { commands: 1, bytes: more }),
        }
    }

    /// Forgets the first.
    fn pop_front(&mut self) {
        let over = Stretch::Of { shard: 0, commands: 0 };
        self.all[self.over] = over; // which drops what a command by parts holds
        self.over += 1;
        if self.is_empty() {
            self.all.clear();
            self.over = 0;
            self.all.shrink_to_fit(); // the next pipeline's lie in the connection again
        } else if self.over > RUNS_INSIDE.max(self.all.len() / 2) {
            // Each is moved once on average.
            self.all.drain(..self.over);
            self.over = 0;
        }
    }
}

/// Replies in the order of their commands, from the first that is still to come.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// The shard that gives each reply, or [`HERE`], as long as none is known to be another than
    /// OK.
    oks: SmallVec<[u8; MOST_OKS]>,
    /// By shard: those of them that came before their turn.
    early_oks: SmallVec<[u8; 8]>,
    order: Runs,
    /// Replies of this shard's, and how many bytes of it have left.
    own: Own,
    own_left: usize,
    /// By shard: replies that came before their turn, if ever some did.
    early: Vec<VecDeque<Early>>,
    /// Bytes of replies that are here, but for those in `oks`, which are few.
    pub(crate) bytes: usize,
    /// Commands whose replies have left, ever, and those that are still here.
    left: u64,
    commands: u64,
    /// Replies that are still to come: of all shards, and by shard.
    pub(crate) sent: usize,
    sent_to: SmallVec<[usize; 4]>,
}

impl Later {
    /// Whether no reply is to come.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Which of all commands ever is the first to leave, and which is the first that isn't here
    /// yet.
    #[inline]
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.left, self.left + self.commands)
    }

    /// Those that this one has still to give.
    #[inline]
    pub(crate) fn sent_to(&self, shard: usize) -> usize {
        self.sent_to.get(shard).copied().unwrap_or(0)
    }

    /// Whether a connection is to wait before more replies are put here.
    pub(crate) fn is_full(&self, most_bytes: usize) -> bool {
        self.order.len() >= MOST_RUNS || self.bytes > most_bytes
    }

    /// A command was sent to a shard.
    #[inline]
    pub(crate) fn expect(&mut self, shard: usize) {
        self.expect_from(shard);
        self.commands += 1;
        if !self.counts(narrow(shard)) {
            self.order.expect(narrow(shard));
        }
    }

    /// Counts a reply among those that are OK, or may be; false if there are others.
    #[inline]
    fn counts(&mut self, from: u8) -> bool {
        if !self.order.is_empty() {
            return false;
        }
        let fits = self.oks.len() < MOST_OKS;
        if fits {
            self.oks.push(from);
        } else {
            self.tell_apart();
        }
        fits
    }

    /// From now on replies have a text, until none waits.
    #[inline]
    fn tell_apart(&mut self) {
        if !self.oks.is_empty() {
            self.write_down();
        }
    }

    /// Gives those that are OK, or may be, the places that they have beside others.
    #[cold]
    fn write_down(&mut self) {
        for from in std::mem::take(&mut self.oks) {
            if from == HERE {
                self.own.extend_from_slice(encode::OK);
                self.bytes += encode::OK.len();
                self.order.add_own(encode::OK.len());
            } else {
                self.order.expect(from);
            }
        }
        for (shard, count) in std::mem::take(&mut self.early_oks).into_iter().enumerate() {
            (0..count).for_each(|_| self.put_early(shard, encode::OK));
        }
    }

    /// Keeps a reply that came before its turn.
    fn put_early(&mut self, shard: usize, reply: &[u8]) {
        self.bytes += reply.len();
        if self.early.len() <= shard {
            self.early.resize_with(shard + 1, VecDeque::new);
        }
        self.early[shard].push_back(Early::from_slice(reply));
    }

    /// Parts of a command were sent to shards, and others were answered here.
    pub(crate) fn expect_parts(&mut self, join: Join, came: Vec<Vec<u8>>, shards: &[usize]) {
        self.tell_apart();
        self.bytes += came.iter().map(Vec::len).sum::<usize>();
        self.commands += 1;
        shards.iter().for_each(|shard| self.expect_from(*shard));
        let came = came.into_iter().map(|reply| (HERE, reply)).collect();
        let joined = Joined { join, came, waits: shards.to_vec() };
        self.order.all.push(Stretch::Joined(Box::new(joined)));
    }

    #[inline]
    fn expect_from(&mut self, shard: usize) {
        if self.sent_to.len() <= shard {
            self.sent_to.resize(shard + 1, 0);
        }
        self.sent_to[shard] += 1;
        self.sent += 1;
    }

    /// A command was answered OK here, behind what is to come.
    #[inline]
    pub(crate) fn put_ok(&mut self) {
        if self.counts(HERE) {
            self.commands += 1;
        } else {
            self.put(|own| own.extend_from_slice(encode::OK));
        }
    }

    /// A command was answered here, behind what is to come: its reply is what `write` appends.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Own)) {
        debug_assert!(!self.is_empty(), "a reply that waits for nothing goes to the output");
        self.tell_apart();
        let before = self.own.len();
        write(&mut self.own);
        let more = self.own.len() - before;
        self.bytes += more;
        self.commands += 1;
        self.order.add_own(more);
    }

    /// A shard has answered what it was sent first; writes what can go now, but nothing for these
    /// replies if they aren't wanted. Tells whether one of them is in the slow log. Panics if the
    /// shard has nothing to answer.
    pub(crate) fn came(
        &mut self,
        shard: usize,
        replies: Replies<'_>,
        wanted: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        self.sent -= replies.len();
        self.sent_to[shard] -= replies.len();
        if wanted
            && self.order.is_empty()
            && let Some(count) = replies.oks()
        {
            self.oks_came(shard, count, out);
            return false;
        }
        self.tell_apart();
        let mut some_logged = false;
        for (reply, is_logged) in replies {
            some_logged |= is_logged;
            let reply = if wanted { reply } else { &[] };
            match self.order.front_mut() {
                Some(Stretch::Of { shard: first, commands }) if usize::from(*first) == shard => {
                    out.extend_from_slice(reply);
                    *commands -= 1;
                    let is_over = *commands == 0;
                    self.leave(1);
                    if is_over {
                        self.order.pop_front();
                        self.write_complete(out);
                    }
                }
                _ => {
                    self.put_early(shard, reply);
                    self.write_complete(out);
                }
            }
        }
        some_logged
    }

    /// A shard has given so many OKs, and no other reply waits: writes what can go.
    fn oks_came(&mut self, shard: usize, count: u8, out: &mut Vec<u8>) {
        let mut left = self.oks.len();
        if self.sent == 0 {
            self.oks.clear();
            self.early_oks.clear();
        } else {
            if self.early_oks.len() <= shard {
                self.early_oks.resize(shard + 1, 0);
            }
            self.early_oks[shard] += count;
            let early = &mut self.early_oks;
            let waits = |from: &u8| match early.get_mut(usize::from(*from)) {
                Some(came @ 1..) => {
                    *came -= 1;
                    false
                }
                _ => *from != HERE,
            };
            left = self.oks.iter().position(waits).unwrap_or(left);
            self.oks.drain(..left);
        }
        out.extend_from_slice(oks(left));
        self.leave(left as u64);
    }

    fn leave(&mut self, commands: u64) {
        self.left += commands;
        self.commands -= commands;
    }

    /// Writes the replies at the front that are complete.
    pub(crate) fn write_complete(&mut self, out: &mut Vec<u8>) {
        while let Some(first) = self.order.front_mut() {
            let done = match first {
                Stretch::Own { commands, bytes } => {
                    let end = self.own_left + *bytes;
                    out.extend_from_slice(&self.own[self.own_left..end]);
                    self.own_left = end;
                    self.bytes -= *bytes;
                    *commands
                }
                Stretch::Of { shard, commands } => {
                    let early = self.early.get_mut(usize::from(*shard));
                    let Some(reply) = early.and_then(VecDeque::pop_front) else { break };
                    out.extend_from_slice(&reply);
                    self.bytes -= reply.len();
                    *commands -= 1;
                    if *commands > 0 {
                        self.leave(1);
                        continue;
                    }
                    1
                }
                Stretch::Joined(joined) => {
                    let Joined { join, came, waits } = &mut **joined;
                    let early = &mut self.early;
                    let mut next =
                        |shard: usize| early.get_mut(shard).and_then(VecDeque::pop_front);
                    waits.retain(|shard| match next(*shard) {
                        Some(reply) => {
                            came.push((narrow(*shard), reply.into_vec()));
                            false
                        }
                        None => true,
                    });
                    if !waits.is_empty() {
                        break;
                    }
                    write_joined(join, came, out);
                    self.bytes -= came.iter().map(|(_, reply)| reply.len()).sum::<usize>();
                    1
                }
            };
            self.leave(done.into());
            self.order.pop_front();
        }
        if self.order.is_empty() {
            self.own.clear();
            self.own_left = 0;
            self.own.shrink_to_fit();
            self.early.iter_mut().for_each(|early| early.shrink_to(KEEP_EARLY));
        } else if self.own_left > MOST_LEFT_BYTES.max(self.own.len() / 2) {
            // Each byte is moved once on average.
            self.own.drain(..self.own_left);
            self.own_left = 0;
        }
    }
}

/// The number of a shard, as kept here.
pub(crate) fn narrow(shard: usize) -> u8 {
    u8::try_from(shard).expect("mailboxes are made for few shards")
}

/// Writes the reply that the parts' replies are; the first error if there is one. Parts whose
/// replies aren't wanted are empty.
fn write_joined(join: &Join, replies: &[(u8, Vec<u8>)], out: &mut Vec<u8>) {
    let error = replies.iter().find(|(_, reply)| reply.first() == Some(&b'-'));
    if let Some((_, error)) = error {
        out.extend_from_slice(error);
        return;
    }
    match join {
        Join::Values(order) => values::write(order, replies, out),
        Join::Sum if replies.iter().all(|(_, reply)| !reply.is_empty()) => {
            let sum = replies.iter().map(|(_, reply)| integer(reply)).sum();
            nigh_resp::encode::integer(out, sum);
        }
        Join::Sum | Join::Ok => {
            out.extend(replies.first().into_iter().flat_map(|(_, first)| first))
        }
    }
}

/// The number of a reply that is one.
fn integer(reply: &[u8]) -> i64 {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).expect("a part that is added answers a number")
}
