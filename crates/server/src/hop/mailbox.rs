//! Mailboxes: how shards ask each other for what only the owner may do, and how they are told.
//!
//! ```text
//!            requests (ring of a -> b) ──────>
//!  shard a   <────── replies (ring of b -> a)   shard b        one such link for each ordered pair
//!            bodies ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─>                 what is too long for a ring
//!
//!  a turn:   replies ... receive, apply, reply ... send ... flush ── prepare_sleep, sleep, woken
//! ```
//!
//! 1. No thread waits inside this module. A sender without a credit or room is told [`Full`]. It
//!    always has a reply outstanding at that shard, and retries when the reply arrives.
//! 2. A reply always fits. A request needs a credit. A credit is the room of one reply of
//!    [`nigh_shm::ring::REPLY_BYTES`]. A longer reply leaves its body in a queue, which has no more
//!    entries than there are credits (invariant 1 of the shm crate's link, which loom checks).
//! 3. No cycle of waiting can form. The receiver answers a request without asking a third shard. So
//!    every shard can always go on with what it received; each request becomes a reply, and each
//!    reply makes room for a request. Only clients wait. A sender that is held back
//!    ([`Mailbox::is_behind`]) has replies to take, and takes them whatever it waits for.
//! 4. Replies of a pair come in the order of its requests. A sender that has the reply to a write
//!    finds the write in the arena.
//! 5. Nothing is visible before [`Mailbox::flush`]. It stores once for each ring, and wakes a
//!    sleeping receiver once for each sleep. A shard flushes before it sleeps, and looks at all
//!    rings after it said that it sleeps.
//! 6. A body is in its queue before its message is published, so the receiver of the message finds
//!    it.
//!
//! 7. A notice ([`Mailbox::tell`]) is a request whose reply this module writes itself, when all
//!    before it are answered, and drops at the other end. So it has a bound, an order, and no way
//!    of its own.
//!
//! A [`Mailbox`] belongs to its shard's thread.

mod mail;
mod pair;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use mail::{Full, MailReply, MailStats, Request};
use mio::Waker;
use nigh_shm::ring::{Bell, PushError, Requester, Responder};
use pair::{OUR_RULES, Pair};
pub(crate) use settings::{
    DEFAULT_BODY_BYTES, DEFAULT_REQUEST_BYTES, MOST_MAILBOXES, MailSettings,
};
use std::sync::Arc;

/// Requests received in a turn, at most. The reader of the mail bounds their commands.
const MOST_IN_TURN: usize = 1024;
/// Requests received from one shard before others have their chance.
const MOST_FROM_ONE: usize = 16;
/// The token of a message without an answer. Its empty reply only gives the credit back.
const NOBODY: u64 = u64::MAX;
/// Flag of a message whose body is in the queue; the payload is its length.
const BODY: u16 = 1;

/// What all shards see.
struct PostOffice {
    settings: MailSettings,
    /// The link from `a` to `b` is at `a * shards + b`.
    pairs: Vec<Pair>,
    bells: Vec<Bell>,
    wakers: Vec<Arc<Waker>>,
}

impl PostOffice {
    fn pair(&self, from: usize, to: usize) -> &Pair {
        &self.pairs[from * self.bells.len() + to]
    }
}

/// What a shard knows of its links with another. One thread makes all of them, and gets memory for
/// them in a row. Aligned so that two shards' share no line, nor the pair of lines that cores
/// fetch.
#[derive(Default)]
#[repr(align(128))]
struct Side {
    /// To ask it, once it was asked.
    outbox: Option<Requester>,
    /// To answer it, once it has asked.
    inbox: Option<Responder>,
    /// Parts of the request that was staged for it last.
    parts: usize,
    /// It is in the list of those that were touched.
    is_touched: bool,
    /// Its requests wait: see [`Mailbox::hold_back`].
    is_held_back: bool,
    /// It may have bodies of replies to take.
    has_bodies: bool,
}

/// One shard's mailbox.
pub(crate) struct Mailbox {
    me: usize,
    shared: Arc<PostOffice>,
    /// By shard.
    sides: Vec<Side>,
    /// Shards with something to publish, or room to give back, at the next flush.
    touched: Vec<usize>,
    /// Whose turn it is to be received from, and how often still.
    from: usize,
    left_of_one: usize,
    left_in_turn: usize,
    /// Whose replies are taken next.
    replies_from: usize,
    pub(crate) stats: MailStats,
}

/// The mailboxes of as many shards as there are wakers, in their order. A waker belongs to the poll
/// that its shard sleeps in. Panics if there are more than [`MOST_MAILBOXES`], or the settings are
/// none that [`nigh_shm::ring::LinkSpec`] allows.
pub(crate) fn mailboxes(settings: &MailSettings, wakers: Vec<Arc<Waker>>) -> Vec<Mailbox> {
    let shards = wakers.len();
    assert!(shards <= MOST_MAILBOXES, "{shards} shards: {MOST_MAILBOXES} are the most");
    let shared = Arc::new(PostOffice {
        settings: *settings,
        pairs: (0..shards * shards).map(|_| Pair::default()).collect(),
        bells: (0..shards).map(|_| Bell::new()).collect(),
        wakers,
    });
    let mailbox = |me| Mailbox {
        me,
        shared: Arc::clone(&shared),
        sides: (0..shards).map(|_| Side::default()).collect(),
        touched: Vec::new(), // its memory is of the shard's own thread
        from: me,
        left_of_one: MOST_FROM_ONE,
        left_in_turn: MOST_IN_TURN,
        replies_from: me,
        stats: MailStats::default(),
    };
    (0..shards).map(mailbox).collect()
}

impl Mailbox {
    /// Requests to a shard that are without a reply.
    #[cfg(test)]
    pub(crate) fn outstanding(&self, to: usize) -> u32 {
        self.sides[to].outbox.as_ref().map_or(0, Requester::outstanding)
    }

    /// Whether a request with a body of so many bytes would be taken now.
    pub(crate) fn can_send(&mut self, to: usize, bytes: usize) -> bool {
        let outbox = self.outbox(to);
        let is_short = bytes as u64 <= outbox.most_payload();
        let inside = if is_short { bytes as u64 } else { size_of::<u64>() as u64 };
        if !outbox.can_send(inside).expect(OUR_RULES) {
            return false;
        }
        let most = self.shared.settings.body_bytes;
        is_short || self.shared.pair(self.me, to).requests.has_room(bytes, most)
    }

    /// Bytes that requests to a shard may take now. Each takes its [`Self::share`].
    pub(crate) fn room(&mut self, to: usize) -> usize {
        let each = self.each_request();
        let outbox = self.outbox(to);
        let free = usize::try_from(outbox.free_bytes().expect(OUR_RULES)).unwrap_or(usize::MAX);
        let outstanding = outbox.outstanding();
        free.min((self.shared.settings.credits - outstanding) as usize * each)
    }

    /// What requests of so many bytes together take of [`Self::room`], about: as many bytes, and at
    /// least those that a credit stands for. No sender waits for more than a fourth of the ring.
    pub(crate) fn share(&self, bytes: usize) -> usize {
        let most = (self.shared.settings.request_bytes / 4) as usize;
        bytes.min(most).max(self.each_request())
    }

    /// Bytes of the ring of requests for each credit.
    fn each_request(&self) -> usize {
        let MailSettings { request_bytes, credits, .. } = self.shared.settings;
        (request_bytes / credits) as usize
    }

    /// Adds to the request to a shard that was staged last, from its body's next whole word on.
    /// False, and nothing has changed, if that has another token or kind, has left, has `most`
    /// parts, or finds no room.
    pub(crate) fn join(
        &mut self,
        to: usize,
        token: u64,
        kind: u16,
        most: usize,
        parts: &[&[u8]],
    ) -> bool {
        let side = &mut self.sides[to];
        let Some(outbox) = side.outbox.as_mut().filter(|_| side.parts < most) else {
            return false;
        };
        let is_added = outbox.extend(token, kind, parts).expect(OUR_RULES);
        side.parts += usize::from(is_added);
        is_added
    }

    /// Stages a request whose body is the joined `parts`. The token comes back with the reply. If
    /// the error is [`Full`], nothing has changed.
    pub(crate) fn send(
        &mut self,
        to: usize,
        token: u64,
        kind: u16,
        parts: &[&[u8]],
    ) -> Result<(), Full> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let outbox = self.outbox(to);
        let most_inside = outbox.most_payload();
        let sent = if bytes as u64 <= most_inside {
            match outbox.send(token, kind, 0, parts) {
                Ok(()) => true,
                Err(PushError::Full) => false,
                Err(error) => panic!("{OUR_RULES}: {error}"),
            }
        } else if self.can_send(to, bytes) {
            self.shared.pair(self.me, to).requests.push(parts.concat());
            let length = (bytes as u64).to_le_bytes();
            let outbox = self.outbox(to);
            outbox.send(token, kind, BODY, &[&length]).expect("a credit and room: just seen");
            true
        } else {
            false
        };
        if !sent {
            self.stats.full += 1;
            return Err(Full);
        }
        self.touch(to);
        // To a body nothing can be added.
        self.sides[to].parts = if bytes as u64 <= most_inside { 1 } else { usize::MAX };
        self.stats.depth += 1;
        Ok(())
    }

    /// Stages a message that has no answer: a notice. It is bounded as a request is, by a credit
    /// and by room, and is received in the order of the requests.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "no kind of message is a notice yet: pushes to clients will be"
        )
    )]
    pub(crate) fn tell(&mut self, to: usize, kind: u16, parts: &[&[u8]]) -> Result<(), Full> {
        self.send(to, NOBODY, kind, parts)
    }

    /// The shard whose request is to be received next: each has its turn. In a turn of this shard
    /// (until the next [`Self::flush`]) at most [`MOST_IN_TURN`] are.
    pub(crate) fn next_sender(&mut self) -> Option<usize> {
        if self.left_in_turn == 0 {
            return None;
        }
        // Once round, and back to the shard that had used up its chance.
        for _ in 0..=self.sides.len() {
            let from = self.from;
            if self.left_of_one > 0 && self.has_request(from) {
                return Some(from);
            }
            self.from = (from + 1) % self.sides.len();
            self.left_of_one = MOST_FROM_ONE;
        }
        None
    }

    /// Takes the next request of a shard that [`Self::next_sender`] has named, and adds its body to
    /// `body`. Panics if there is none.
    pub(crate) fn receive(&mut self, from: usize, body: &mut Vec<u8>) -> Request {
        let before = body.len();
        let inbox = self.inbox(from).expect("it has asked");
        let request = inbox.receive(body).expect(OUR_RULES).expect("a request that was seen");
        if request.flags == BODY {
            let long = self.shared.pair(from, self.me).requests.pop(&body[before..]);
            body.truncate(before);
            body.extend_from_slice(&long);
        }
        self.left_of_one = self.left_of_one.saturating_sub(1);
        self.left_in_turn = self.left_in_turn.saturating_sub(1);
        self.give_back_credits(from);
        self.touch(from);
        let token = (request.token != NOBODY).then_some(request.token);
        Request { from, token, kind: request.kind }
    }

    /// Stages the reply to the oldest unanswered request of a shard. It always fits (invariant 2).
    /// Panics if `token` is not that request's.
    pub(crate) fn reply(&mut self, to: usize, token: u64, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let side = &mut self.sides[to];
        let inbox = side.inbox.as_mut().expect("it has asked");
        if bytes as u64 <= inbox.most_payload() {
            inbox.reply(token, 0, parts).expect(OUR_RULES);
        } else {
            self.shared.pair(to, self.me).replies.push(parts.concat());
            side.has_bodies = true;
            let length = (bytes as u64).to_le_bytes();
            inbox.reply(token, BODY, &[&length]).expect(OUR_RULES);
        }
        self.give_back_credits(to);
        self.touch(to);
    }

    /// Gives back the credits of notices whose turn it is: an empty reply to each.
    #[inline]
    fn give_back_credits(&mut self, to: usize) {
        let inbox = self.sides[to].inbox.as_mut().expect("it has asked");
        while inbox.oldest_unanswered() == Some(NOBODY) {
            inbox.reply(NOBODY, 0, &[]).expect(OUR_RULES);
        }
    }

    /// Lets requests of a shard wait: they are neither received nor mail. Its commands that came
    /// before aren't done yet.
    pub(crate) fn hold_back(&mut self, from: usize, waits: bool) {
        self.sides[from].is_held_back = waits;
    }

    /// Whether a shard has so many bytes of replies to take that it should get no more before.
    pub(crate) fn is_behind(&mut self, to: usize) -> bool {
        if !self.sides[to].has_bodies {
            return false;
        }
        let bytes = self.shared.pair(to, self.me).replies.bytes();
        self.sides[to].has_bodies = bytes > 0;
        bytes > self.shared.settings.body_bytes
    }

    /// Takes the next reply of any shard; replaces what `body` holds. Not bounded by a turn: there
    /// are no more than credits.
    pub(crate) fn next_reply(&mut self, body: &mut Vec<u8>) -> Option<MailReply> {
        if self.stats.depth == 0 {
            return None;
        }
        for _ in 0..self.sides.len() {
            let from = self.replies_from;
            while let Some(outbox) =
                self.sides[from].outbox.as_mut().filter(|o| o.outstanding() > 0)
                && let Some((token, flags)) = outbox.reply(body).expect(OUR_RULES)
            {
                if token == NOBODY {
                    self.stats.depth -= 1;
                    continue;
                }
                if flags == BODY {
                    *body = self.shared.pair(self.me, from).replies.pop(body);
                }
                self.stats.depth -= 1;
                return Some(MailReply { from, token });
            }
            self.replies_from = (from + 1) % self.sides.len();
        }
        None
    }

    /// Ends the turn: makes all that is staged visible, one store a ring, and wakes shards that
    /// sleep and have mail.
    pub(crate) fn flush(&mut self) {
        self.left_in_turn = MOST_IN_TURN;
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&peer| {
            let side = &mut self.sides[peer];
            side.is_touched = false;
            let asked = side.outbox.as_mut().is_some_and(Requester::publish);
            let answered = side.inbox.as_mut().is_some_and(Responder::publish);
            asked || answered
        });
        if let Some(&any) = touched.first() {
            let fenced = self.shared.bells[any].fence();
            for peer in touched.drain(..) {
                let woken = self.shared.bells[peer].ring(&fenced, || {
                    // It can only fail if the shard, which would read it, is gone.
                    let _ = self.shared.wakers[peer].wake();
                });
                self.stats.wakes += u64::from(woken);
            }
        }
        self.touched = touched;
    }

    /// Whether a reply is there, or a request that isn't held back.
    pub(crate) fn has_mail(&mut self) -> bool {
        let has_reply = |outbox: &mut Requester| outbox.has_reply().expect(OUR_RULES);
        (0..self.sides.len()).any(|peer| {
            self.has_request(peer) || self.sides[peer].outbox.as_mut().is_some_and(has_reply)
        })
    }

    /// Whether a shard has a request here that isn't held back.
    #[inline]
    fn has_request(&mut self, from: usize) -> bool {
        let has_request = |inbox: &mut Responder| inbox.has_request().expect(OUR_RULES);
        !self.sides[from].is_held_back && self.inbox(from).is_some_and(has_request)
    }

    /// Tells whether the shard may sleep in its poll: then it calls [`Self::woken`] afterwards. If
    /// not, mail has come. Panics if something was not flushed: others would wait for it while this
    /// one sleeps.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        assert!(self.touched.is_empty(), "a shard flushes before it sleeps");
        let shared = Arc::clone(&self.shared);
        shared.bells[self.me].prepare_sleep(|| self.has_mail())
    }

    /// After the sleep.
    pub(crate) fn woken(&self) {
        self.shared.bells[self.me].woken();
    }

    fn touch(&mut self, peer: usize) {
        if !std::mem::replace(&mut self.sides[peer].is_touched, true) {
            self.touched.push(peer);
        }
    }

    /// The end of the link to a shard, which is made at the first use.
    fn outbox(&mut self, to: usize) -> &mut Requester {
        assert!(to != self.me, "a shard does its own work itself");
        let shared = &self.shared;
        self.sides[to]
            .outbox
            .get_or_insert_with(|| shared.pair(self.me, to).open(&shared.settings.link()))
    }

    /// The end of the link from a shard, if it has made one.
    fn inbox(&mut self, from: usize) -> Option<&mut Responder> {
        let inbox = &mut self.sides[from].inbox;
        if inbox.is_none() {
            *inbox = self.shared.pair(from, self.me).accept();
        }
        inbox.as_mut()
    }
}
