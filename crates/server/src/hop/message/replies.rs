//! The answer to a message: the replies to its commands.
//!
//! ```text
//! form u8: 1 | commands u8                                            each reply is OK
//! form u8: 0 | commands u8 | logged u16 | length, length ... | replies
//! ```
//!
//! A length is a varint: seven bits a byte, the lowest first, the top bit set in all but the last.
//! `logged` has a bit for each command, the first one's lowest: the receiver has put it into the
//! slow log, and the sender names the client there. Little-endian. Any thread.

use super::{MOST_IN_MESSAGE, OUR_FORMAT};
use nigh_resp::encode;

const SOME: u8 = 0;
const OKS: u8 = 1;
/// Where `logged` stands.
const LOGGED_AT: usize = 2;
/// The lengths of as many OKs as a message may have.
const OK_LENGTHS: [u8; MOST_IN_MESSAGE] = [5; MOST_IN_MESSAGE];
const _: () = assert!(OK_LENGTHS[0] as usize == encode::OK.len());
const _: () = assert!(MOST_IN_MESSAGE <= u16::BITS as usize, "a bit for each");
/// Replies that are all OK and are written together, at most: as many as wait in
/// [`crate::hop::later`] for each other.
pub(crate) const MOST_OKS: usize = 64;
const _: () = assert!(MOST_IN_MESSAGE <= MOST_OKS);
/// As many OKs.
static OKS_TEXT: [[u8; OK_LENGTHS[0] as usize]; MOST_OKS] =
    [*encode::OK.first_chunk().expect("its length is asserted"); MOST_OKS];

/// The reply to a request in two parts: what belongs in front of the `text` of its replies, of
/// which the length is given and whether it is in the slow log, and that text.
pub(crate) fn reply_of<'a>(
    head: &'a mut Vec<u8>,
    lengths: impl ExactSizeIterator<Item = (usize, bool)>,
    text: &'a [u8],
) -> [&'a [u8]; 2] {
    let count = u8::try_from(lengths.len()).expect("a message has few commands");
    head.clear();
    head.extend([SOME, count, 0, 0]);
    let mut logged = 0;
    for (at, (length, is_logged)) in lengths.enumerate() {
        logged |= u16::from(is_logged) << at;
        let mut rest = length;
        while rest >= 0x80 {
            head.push(0x80 | rest.to_le_bytes()[0]);
            rest >>= 7;
        }
        head.push(rest.to_le_bytes()[0]);
    }
    if logged == 0 && text == oks(count.into()) {
        head.clear();
        head.extend([OKS, count]);
        return [head, &[]];
    }
    head[LOGGED_AT..][..2].copy_from_slice(&logged.to_le_bytes());
    [head, text]
}

/// The text of so many OKs: [`MOST_OKS`] at most.
pub(crate) fn oks(count: usize) -> &'static [u8] {
    OKS_TEXT[..count].as_flattened()
}

/// The replies to a request, and whether each is in the slow log.
pub(crate) struct Replies<'a> {
    lengths: &'a [u8],
    replies: &'a [u8],
    left: usize,
    /// Those in the slow log, a bit for each, the next one's lowest.
    logged: u16,
    /// All of them are OK.
    are_ok: bool,
}

impl<'a> Replies<'a> {
    /// The replies of a message.
    pub(crate) fn of(message: &'a [u8]) -> Self {
        let (rest, left, logged) = match *message {
            [OKS, count] => {
                let left = usize::from(count);
                let (lengths, replies) = (&OK_LENGTHS[..left], oks(left));
                return Self { lengths, replies, left, logged: 0, are_ok: true };
            }
            [SOME, count, l0, l1, ref rest @ ..] => {
                (rest, usize::from(count), u16::from_le_bytes([l0, l1]))
            }
            _ => panic!("{OUR_FORMAT}"),
        };
        // A length ends with the first byte that has no top bit.
        let ends = rest.iter().enumerate().filter(|(_, byte)| **byte < 0x80).map(|(at, _)| at + 1);
        let middle = ends.take(left).last().unwrap_or(0);
        let (lengths, replies) = rest.split_at(middle);
        Self { lengths, replies, left, logged, are_ok: false }
    }

    /// How many there are, if all of them are OK.
    pub(crate) fn oks(&self) -> Option<u8> {
        let count = u8::try_from(self.left).expect(OUR_FORMAT);
        self.are_ok.then_some(count)
    }

    /// How many there are still.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Bytes of them all.
    pub(crate) fn bytes(&self) -> usize {
        self.replies.len()
    }
}

impl<'a> Iterator for Replies<'a> {
    type Item = (&'a [u8], bool);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let (byte, rest) = self.lengths.split_first().expect(OUR_FORMAT);
            self.lengths = rest;
            length |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if *byte < 0x80 {
                break;
            }
        }
        let (reply, rest) = self.replies.split_at(length);
        self.replies = rest;
        let is_logged = self.logged & 1 == 1;
        self.logged >>= 1;
        Some((reply, is_logged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_any_length_are_told_apart() {
        // Around the lengths at which a number takes one byte more, and none at all. Each head
        // takes the place of the last one.
        let mut head = Vec::new();
        for lengths in [&[0][..], &[5, 0, 127], &[128, 16383, 16384, 1], &[2_000_000, 5]] {
            let replies: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length]).collect();
            let logged = |at: usize| at % 2 == 1;
            let each = replies.iter().enumerate().map(|(at, reply)| (reply.len(), logged(at)));
            let text = replies.concat();
            let message = reply_of(&mut head, each, &text).concat();
            let came = Replies::of(&message);
            assert_eq!((came.len(), came.bytes()), (lengths.len(), lengths.iter().sum()));
            let expected = replies.iter().enumerate().map(|(at, reply)| (&reply[..], logged(at)));
            assert!(came.eq(expected));
        }
    }

    #[test]
    fn replies_that_are_ok_are_only_counted() {
        let of = |texts: &[&str], logged: bool| {
            let lengths = texts.iter().map(|text| (text.len(), logged));
            let (mut head, text) = (Vec::new(), texts.concat());
            let message = reply_of(&mut head, lengths, text.as_bytes()).concat();
            let came = Replies::of(&message);
            let oks = came.oks();
            let expected = texts.iter().map(|text| (text.as_bytes(), logged));
            assert!(came.eq(expected), "{texts:?}");
            (message.len(), oks)
        };
        assert_eq!(of(&["+OK\r\n"; MOST_IN_MESSAGE], false), (2, Some(16)));
        assert_eq!(of(&["+OK\r\n"], true).1, None);
        assert_eq!(of(&["+OK\r\n", ":1\r\n"], false).1, None);
    }

    #[test]
    fn as_many_replies_to_writes_as_a_request_may_have_fit_a_ring() {
        // As long as OK, but told with their lengths.
        let length = encode::OK.len();
        let (mut head, text) = (Vec::new(), vec![b'x'; MOST_IN_MESSAGE * length]);
        let each = [(length, false); MOST_IN_MESSAGE].into_iter();
        let message = reply_of(&mut head, each, &text).concat();
        let header_and_token = 16;
        let bytes = message.len() + header_and_token;
        assert!(bytes <= nigh_shm::ring::REPLY_BYTES as usize, "{bytes} bytes");
    }
}
