//! Commands as shards send them to each other, found and hashed already, and the replies to them.
//!
//! ```text
//! request   command, command ...          of one connection, each at a whole word of the request
//! command   arguments u32 | hash u32 | row u16 | partition u16 | text bytes u32
//!           for each argument: start in the text u32 | length u32
//!           text
//! reply     commands u8 | for each: varint of (length × 2 + 1 if it is in the slow log) | the replies
//!           or commands + 128 u8, if all of them are OK and none is in the slow log
//! ```
//!
//! 1. The text is what lay in the sender's input buffer, with what stands between the arguments; it isn't decoded again.
//! 2. Who receives has not sent it, but is of the same process: what doesn't keep the format is our mistake.
//!
//! Little-endian. Any thread.

use crate::commands::Row;
use crate::hop::oks;
use nigh_resp::decode::{Args, Batch};
use nigh_resp::encode;

/// Commands in a request, at most: the replies of writes are short enough to fit a ring's reply together.
pub(crate) const MOST_COMMANDS: usize = 16;
/// Name of a write set, which isn't a command: only shards send it.
pub(crate) const WRITES: &[u8] = b"\0writes";
/// Words of a command before the places of its arguments.
const HEAD_WORDS: usize = 2;
/// The row of what is no command, and the partition that isn't known.
const NONE: u16 = u16::MAX;
/// Words of a head that are made without an allocation: those of `SET k v NX EX 9`.
const FEW_WORDS: usize = HEAD_WORDS + 6;
/// Bit of the number of replies: they are OK.
const OKS: u8 = 0x80;
/// The lengths of as many OKs as a request may have.
const OK_LENGTHS: [u8; MOST_COMMANDS] = [10; MOST_COMMANDS];
const _: () = assert!(OK_LENGTHS[0] as usize == 2 * encode::OK.len());
const OUR_FORMAT: &str = "a message between shards has the format that shards write";

/// What the sender knows of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The command's row, unless it is none.
    pub(crate) row: Option<Row>,
    /// Hash and partition of the first key, if the command was looked up.
    pub(crate) key: Option<(u32, u16)>,
}

/// Memory for what belongs in front of a command's text, or for a whole command.
#[derive(Default)]
pub(crate) struct Scratch {
    few: [[u8; 8]; FEW_WORDS],
    many: Vec<[u8; 8]>,
    whole: Vec<u8>,
}

/// A client's command in two parts: what belongs in front of its text, and the text, which isn't copied if it lies in
/// the input.
#[inline]
pub(crate) fn parts_of<'a>(
    scratch: &'a mut Scratch,
    known: Known,
    args: Args<'a>,
    input: &'a [u8],
) -> [&'a [u8]; 2] {
    let Scratch { few, many, whole } = scratch;
    if let Some(text) = args.text(input) {
        let words = HEAD_WORDS + args.len();
        let head = few.get_mut(..words).unwrap_or_else(|| {
            many.resize(words, [0; 8]);
            many
        });
        fill(head, known, args.places(), text.len());
        return [head.as_flattened(), text];
    }
    write(whole, known, args.iter(input));
    [whole, &[]]
}

/// Writes a whole command.
pub(crate) fn write<'a>(
    out: &mut Vec<u8>,
    known: Known,
    args: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) {
    let before = out.len();
    out.resize(before + 8 * (HEAD_WORDS + args.len()), 0);
    let bytes = args.clone().map(<[u8]>::len).sum();
    let head = out[before..].as_chunks_mut().0;
    fill(head, known, successive(args.clone()), bytes);
    args.for_each(|arg| out.extend_from_slice(arg));
}

/// Places of arguments that follow each other.
fn successive<'a>(
    args: impl ExactSizeIterator<Item = &'a [u8]>,
) -> impl ExactSizeIterator<Item = (u32, u32)> {
    let mut end = 0;
    args.map(move |arg| {
        let length = narrow(arg.len());
        end += length;
        (end - length, length)
    })
}

/// Fills a head.
#[inline]
fn fill(
    head: &mut [[u8; 8]],
    known: Known,
    places: impl ExactSizeIterator<Item = (u32, u32)>,
    text_bytes: usize,
) {
    let [first, second, rest @ ..] = head else { unreachable!("a head has two words") };
    let (hash, partition) = known.key.unwrap_or((0, NONE));
    let row = u32::from(known.row.unwrap_or(NONE));
    *first = word(narrow(places.len()), hash);
    *second = word(row | u32::from(partition) << 16, narrow(text_bytes));
    for (to, (start, length)) in rest.iter_mut().zip(places) {
        *to = word(start, length);
    }
}

/// Two numbers as a word.
#[inline]
fn word(low: u32, high: u32) -> [u8; 8] {
    (u64::from(low) | u64::from(high) << 32).to_le_bytes()
}

/// The two numbers of a word.
#[inline]
fn numbers(word: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, high @ ..] = word;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(high))
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("input is bounded by 2^31 bytes")
}

/// Adds the commands of a request to a batch whose input begins at the start of `input` and in which the request
/// begins at `start`; `each` is told what is known of it.
pub(crate) fn read(input: &[u8], start: usize, batch: &mut Batch, mut each: impl FnMut(Known)) {
    let mut at = start;
    while at < input.len() {
        let (words, _) = input[at..].as_chunks::<8>();
        let [first, second, rest @ ..] = words else { panic!("{OUR_FORMAT}") };
        let ((args, hash), (what, text_bytes)) = (numbers(*first), numbers(*second));
        let places = rest.get(..args as usize).expect(OUR_FORMAT);
        let text = at + 8 * HEAD_WORDS + size_of_val(places);
        let end = text + text_bytes as usize;
        assert!(end <= input.len(), "{OUR_FORMAT}");
        batch.push_places(text, places.iter().map(|place| numbers(*place)));
        let [r0, r1, p0, p1] = what.to_le_bytes();
        let (row, partition) = (u16::from_le_bytes([r0, r1]), u16::from_le_bytes([p0, p1]));
        let key = (partition != NONE).then_some((hash, partition));
        each(Known { row: (row != NONE).then_some(row), key });
        at = start + (end - start).next_multiple_of(8);
    }
}

/// The reply to a request in two parts: what belongs in front of the `text` of its replies, of which the length is given
/// and whether it is in the slow log, and that text.
pub(crate) fn reply_of<'a>(
    head: &'a mut Vec<u8>,
    lengths: impl ExactSizeIterator<Item = (usize, bool)>,
    text: &'a [u8],
) -> [&'a [u8]; 2] {
    let count = u8::try_from(lengths.len()).expect("a request has few commands");
    head.clear();
    head.push(count);
    let mut is_logged = false;
    for (length, logged) in lengths {
        is_logged |= logged;
        let mut rest = length << 1 | usize::from(logged);
        while rest >= 0x80 {
            head.push(0x80 | rest.to_le_bytes()[0]);
            rest >>= 7;
        }
        head.push(rest.to_le_bytes()[0]);
    }
    if !is_logged && text == oks::text(count.into()) {
        head.clear();
        head.push(count | OKS);
        return [head, &[]];
    }
    [head, text]
}

/// The replies to a request, and whether each is in the slow log.
pub(crate) struct Replies<'a> {
    lengths: &'a [u8],
    replies: &'a [u8],
    left: usize,
    /// All of them are OK.
    are_ok: bool,
}

impl<'a> Replies<'a> {
    /// The replies of a message.
    pub(crate) fn of(message: &'a [u8]) -> Self {
        let (count, rest) = message.split_first().expect(OUR_FORMAT);
        let left = usize::from(count & !OKS);
        if count & OKS != 0 {
            let (lengths, replies) = (&OK_LENGTHS[..left], oks::text(left));
            return Self { lengths, replies, left, are_ok: true };
        }
        // A length ends with the first byte that has no top bit.
        let ends = rest.iter().enumerate().filter(|(_, byte)| **byte < 0x80).map(|(at, _)| at + 1);
        let middle = ends.take(left).last().unwrap_or(0);
        let (lengths, replies) = rest.split_at(middle);
        Self { lengths, replies, left, are_ok: false }
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
        let (mut word, mut shift) = (0usize, 0);
        loop {
            let (byte, rest) = self.lengths.split_first().expect(OUR_FORMAT);
            self.lengths = rest;
            word |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if *byte < 0x80 {
                break;
            }
        }
        let (reply, rest) = self.replies.split_at(word >> 1);
        self.replies = rest;
        Some((reply, word & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_resp::decode::Requests;
    use nigh_resp::encode;
    use nigh_resp::limits::Limits;

    #[test]
    fn commands_arrive_as_they_were_sent() {
        // A client's command where it lies, one that had to be unescaped, and one that a shard has made, in one request
        // behind other input.
        let (mut client, mut batch) = (b"PING\r\n".to_vec(), Batch::new());
        encode::request(&mut client, ["SET", "k", "v v"]);
        client.extend_from_slice(b"get \"a\\x41\"\r\n");
        Requests::new(Limits::requests()).decode(&client, &mut batch, 9).expect("commands");
        let known = [
            Known { row: Some(7), key: Some((0xDEAD_BEEF, 63)) },
            Known { row: Some(8), key: None },
            Known::default(),
        ];
        let start = b"in front".len();
        let mut request = b"in front".to_vec();
        for (index, known) in known.iter().take(2).enumerate() {
            request.resize(request.len().next_multiple_of(8), 0);
            let mut scratch = Scratch::default();
            let parts = parts_of(&mut scratch, *known, batch.args(index + 1), &client);
            parts.iter().for_each(|part| request.extend_from_slice(part));
        }
        request.resize(request.len().next_multiple_of(8), 0);
        let args: [&[u8]; 3] = [b"\0writes", b"", b"x"];
        write(&mut request, known[2], args.into_iter());
        let (mut came, mut told) = (Batch::new(), Vec::new());
        read(&request, start, &mut came, |known| told.push(known));
        assert_eq!(told, known);
        let words = |at: usize| came.args(at).iter(&request).collect::<Vec<_>>();
        assert_eq!(words(0), [b"SET".as_slice(), b"k", b"v v"]);
        assert_eq!(words(1), [b"get".as_slice(), b"aA"]);
        assert_eq!(words(2), [b"\0writes".as_slice(), b"", b"x"]);
        assert_eq!(came.len(), 3);
    }

    #[test]
    fn replies_of_any_length_are_told_apart() {
        // Around the lengths at which a number takes one byte more, and none at all.
        for lengths in [&[0][..], &[5, 0, 63], &[64, 8191, 8192, 1], &[2_000_000, 5]] {
            let replies: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length]).collect();
            let logged = |at: usize| at % 2 == 1;
            let each = replies.iter().enumerate().map(|(at, reply)| (reply.len(), logged(at)));
            let (mut head, text) = (Vec::new(), replies.concat());
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
        assert_eq!(of(&["+OK\r\n"; MOST_COMMANDS], false), (1, Some(16)));
        assert_eq!(of(&["+OK\r\n"], true).1, None);
        assert_eq!(of(&["+OK\r\n", ":1\r\n"], false).1, None);
    }

    #[test]
    fn as_many_replies_to_writes_as_a_request_may_have_fit_a_ring() {
        // As long as OK, but told with their lengths.
        let length = encode::OK.len();
        let (mut head, text) = (Vec::new(), vec![b'x'; MOST_COMMANDS * length]);
        let each = [(length, false); MOST_COMMANDS].into_iter();
        let message = reply_of(&mut head, each, &text).concat();
        let header_and_token = 16;
        let bytes = message.len() + header_and_token;
        assert!(bytes <= nigh_shm::ring::REPLY_BYTES as usize, "{bytes} bytes");
    }
}
