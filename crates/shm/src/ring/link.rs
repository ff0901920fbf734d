//! Requests one way, replies the other: two rings with credits, so that a reply always fits.
//!
//! ```text
//! Requester: send ... publish { release replies, then store the requests' tail }
//! Responder: receive, reply ... publish { release requests, then store the replies' tail }
//! ```
//!
//! 1. Credits: at every store that publishes requests, requests so far <= replies released so far +
//!    credits. The release comes first and that store is a Release, so a reader of request number n
//!    sees the room of the first n - credits replies given back. A reply takes at most
//!    [`LinkSpec::reply_bytes`], the ring of replies has room for `credits` of them: it is never
//!    full when a reply is put in.
//! 2. Replies come in the order of the requests. The token that travels along is checked by the
//!    responder.
//! 3. A reader of the reply to a request sees the request's room given back: the release comes
//!    first, again. So a requester that found the ring of requests full may wait for a reply, and
//!    needs no other signal.
//! 4. Neither side ever waits here. A requester without credits or room is told
//!    [`PushError::Full`].
//! 5. A peer that breaks this is found out: too many requests, replies that nobody asked for,
//!    room not given back. Each is [`Broken`], none is a panic.
//!
//! Each end belongs to one thread at a time.

use super::bytes::{BIGGEST_PART, Broken, HEADER_BYTES, LEAST_BYTES, MOST_BYTES, Ring, heap_words};
use super::consumer::Consumer;
use super::ends;
use super::producer::{Producer, PushError};
use crate::format::words::{HeapWords, SharedWords};
use std::collections::VecDeque;

/// Room of a reply, bytes: two cache lines, of which 112 bytes are payload. The replies to most
/// writes have less than 16; longer ones go by reference.
pub const REPLY_BYTES: u32 = 128;
/// Bytes of a token.
const TOKEN_BYTES: u64 = 8;
/// Most requests without a reply: their tokens are remembered.
const MOST_CREDITS: u32 = 1 << 16;

const _: () = {
    assert!(REPLY_BYTES as u64 >= HEADER_BYTES + TOKEN_BYTES && REPLY_BYTES.is_multiple_of(8));
    assert!(MOST_CREDITS as u64 * REPLY_BYTES as u64 <= MOST_BYTES as u64);
};

/// The sizes of a link. Both sides know them; neither reads them from the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bytes of the ring of requests, a power of two.
    pub request_bytes: u32,
    /// Requests that may be without a reply at a time.
    pub credits: u32,
    /// Bytes of the biggest reply with its header and token, a multiple of 8.
    pub reply_bytes: u32,
}

impl LinkSpec {
    /// Bytes of the ring of replies.
    #[must_use]
    pub fn reply_ring_bytes(&self) -> u64 {
        (u64::from(self.credits) * u64::from(self.reply_bytes)).next_power_of_two()
    }

    fn check(&self) {
        let requests = LEAST_BYTES..=MOST_BYTES;
        assert!(requests.contains(&self.request_bytes), "{self:?}: bytes of requests");
        assert!((1..=MOST_CREDITS).contains(&self.credits), "{self:?}: credits");
        let least = HEADER_BYTES + TOKEN_BYTES;
        let fits = u64::from(self.reply_bytes) >= least && self.reply_bytes.is_multiple_of(8);
        assert!(fits, "{self:?}: bytes of a reply");
        assert!(self.reply_ring_bytes() <= u64::from(MOST_BYTES), "{self:?}: bytes of replies");
    }
}

/// Two rings on the heap: the requester's end and the responder's.
///
/// # Panics
/// If the sizes are out of range.
#[must_use]
pub fn link(spec: &LinkSpec) -> (Requester, Responder) {
    let requests = heap_words(u64::from(spec.request_bytes));
    link_over(spec, requests, heap_words(spec.reply_ring_bytes()))
}

/// The same over any words.
pub(crate) fn link_over<W: SharedWords>(
    spec: &LinkSpec,
    requests: W,
    replies: W,
) -> (Requester<W>, Responder<W>) {
    spec.check();
    let capacity = u64::from(spec.request_bytes);
    let (ask, asked) = ends(Ring::new(requests, capacity, capacity / BIGGEST_PART));
    let replies = Ring::new(replies, spec.reply_ring_bytes(), u64::from(spec.reply_bytes));
    let (answer, answered) = ends(replies);
    let credits = spec.credits;
    let requester =
        Requester { requests: ask, replies: answered, credits, outstanding: 0, open: None };
    let unanswered = VecDeque::new();
    (requester, Responder { requests: asked, replies: answer, credits, unanswered })
}

/// The end that asks.
pub struct Requester<W = HeapWords> {
    requests: Producer<W>,
    replies: Consumer<W>,
    credits: u32,
    /// Requests staged or published whose reply was not taken.
    outstanding: u32,
    /// Token and kind of the request that was staged last, unless it is published.
    open: Option<(u64, u16)>,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> Requester<W> {
    /// Bytes of the longest payload of a request.
    #[must_use]
    pub fn most_payload(&self) -> u64 {
        self.requests.most_payload() - TOKEN_BYTES
    }

    /// Requests without a reply.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Whether a request with such a payload is taken now.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn can_send(&mut self, payload_bytes: u64) -> Result<bool, Broken> {
        Ok(self.outstanding < self.credits
            && self.requests.room()? >= payload_bytes.saturating_add(TOKEN_BYTES))
    }

    /// Stages a request. The token comes back with the reply.
    ///
    /// # Errors
    /// [`PushError`]; nothing has changed then. After `Full`, a reply is outstanding: try again
    /// when it came.
    #[inline]
    pub fn send(
        &mut self,
        token: u64,
        kind: u16,
        flags: u16,
        parts: &[&[u8]],
    ) -> Result<(), PushError> {
        if self.outstanding == self.credits {
            return Err(PushError::Full);
        }
        self.requests.push(kind, flags, Some(token), parts)?;
        self.outstanding += 1;
        self.open = Some((token, kind));
        Ok(())
    }

    /// Adds to the payload of the request that was staged last, from its next whole word on (what
    /// is between is 0). False, and nothing has changed, if that one has another token or kind, is
    /// published, or there is no room.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn extend(&mut self, token: u64, kind: u16, parts: &[&[u8]]) -> Result<bool, Broken> {
        if self.open != Some((token, kind)) {
            return Ok(false);
        }
        match self.requests.extend(parts) {
            Ok(()) => Ok(true),
            Err(PushError::Broken(broken)) => Err(broken),
            Err(PushError::Full | PushError::TooLong { .. }) => Ok(false),
        }
    }

    /// Bytes that requests may take now, their headers and tokens included.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    pub fn free_bytes(&mut self) -> Result<u64, Broken> {
        self.requests.free_bytes()
    }

    /// Makes the staged requests visible; tells whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        self.open = None;
        // First: invariant 1.
        self.replies.release();
        self.requests.publish()
    }

    /// Takes the next reply: its payload, token and flags.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn reply(&mut self, payload: &mut Vec<u8>) -> Result<Option<(u64, u16)>, Broken> {
        payload.clear();
        let Some((header, token)) = self.replies.pop_led(payload)? else { return Ok(None) };
        self.outstanding = self.outstanding.checked_sub(1).ok_or(Broken::UnaskedReply)?;
        Ok(Some((token, header.flags)))
    }

    /// Whether a reply is there.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn has_reply(&mut self) -> Result<bool, Broken> {
        // Without a question, the line of the other side is left alone.
        Ok(self.outstanding > 0 && self.replies.has_message()?)
    }
}

/// A request that was taken; its payload is at the end of the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRequest {
    /// To be given to [`Responder::reply`].
    pub token: u64,
    /// As given by the requester.
    pub kind: u16,
    /// As given by the requester.
    pub flags: u16,
}

/// The end that answers.
pub struct Responder<W = HeapWords> {
    requests: Consumer<W>,
    replies: Producer<W>,
    credits: u32,
    /// Tokens of the requests that were taken and not answered, oldest first.
    unanswered: VecDeque<u64>,
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> Responder<W> {
    /// Bytes of the longest payload of a reply.
    #[must_use]
    pub fn most_payload(&self) -> u64 {
        self.replies.most_payload() - TOKEN_BYTES
    }

    /// Takes the next request, and adds its payload to what `payload` holds.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<LinkRequest>, Broken> {
        let Some((header, token)) = self.requests.pop_led(payload)? else { return Ok(None) };
        if self.unanswered.len() as u64 >= u64::from(self.credits) {
            return Err(Broken::TooManyRequests { credits: self.credits });
        }
        self.unanswered.push_back(token);
        Ok(Some(LinkRequest { token, kind: header.kind, flags: header.flags }))
    }

    /// Whether a request is there.
    ///
    /// # Errors
    /// [`Broken`] if the other side doesn't keep the rules.
    #[inline]
    pub fn has_request(&mut self) -> Result<bool, Broken> {
        self.requests.has_message()
    }

    /// Requests that were taken and not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// The token of the oldest request that was taken and not answered.
    #[must_use]
    #[inline]
    pub fn oldest_unanswered(&self) -> Option<u64> {
        self.unanswered.front().copied()
    }

    /// Stages the reply to the oldest request that has none.
    ///
    /// # Errors
    /// [`Broken`] if the requester has not given back the room that this reply was promised.
    ///
    /// # Panics
    /// If `token` is not that request's, or the reply is longer than [`Self::most_payload`].
    #[inline]
    pub fn reply(&mut self, token: u64, flags: u16, parts: &[&[u8]]) -> Result<(), Broken> {
        assert_eq!(
            self.oldest_unanswered(),
            Some(token),
            "replies go in the order of the requests"
        );
        match self.replies.push(0, flags, Some(token), parts) {
            Ok(()) => {
                self.unanswered.pop_front();
                Ok(())
            }
            Err(PushError::Full) => Err(Broken::NoReplyRoom),
            Err(PushError::Broken(broken)) => Err(broken),
            Err(error @ PushError::TooLong { .. }) => panic!("a reply that can't fit: {error}"),
        }
    }

    /// Gives back the room of the requests that were taken and makes the staged replies visible;
    /// tells whether there were any replies.
    #[inline]
    pub fn publish(&mut self) -> bool {
        // First: invariant 3.
        self.requests.release();
        self.replies.publish()
    }
}
