//! Client commands in a message, found and hashed already.
//!
//! ```text
//! message   tenant u32 | 0 u32 | command, command ...          each at a whole word of the message
//! command   arguments u32 | hash u32 | row u16 | partition u16 | text bytes u32
//!           for each argument: start in the text u32 | length u32
//!           text
//! ```
//!
//! 1. The text is what lay in the sender's input buffer, with what stands between the arguments.
//!    The receiver doesn't decode it again.
//!
//! Little-endian. Any thread.

use super::{LEAD_BYTES, OUR_FORMAT, lead, numbers, word};
use crate::commands::Row;
use crate::tenant::TenantId;
use nigh_resp::decode::{Args, Batch};

/// Words of a command before the places of its arguments.
const HEAD_WORDS: usize = 2;
/// The partition that isn't known.
const NO_PARTITION: u16 = u16::MAX;
/// Words in front of a text that are made without an allocation: those of `SET k v NX EX 9`.
const FEW_WORDS: usize = 1 + HEAD_WORDS + 6;

/// What the sender knows of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) row: Row,
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

/// A message of one command, in two parts: what belongs in front of its text, and the text, which
/// isn't copied if it lies in the input. Behind another command of the message it stands without
/// the first [`LEAD_BYTES`].
#[inline]
pub(crate) fn parts_of<'a>(
    scratch: &'a mut Scratch,
    tenant: TenantId,
    known: Known,
    args: Args<'a>,
    input: &'a [u8],
) -> [&'a [u8]; 2] {
    let Scratch { few, many, whole } = scratch;
    if let Some(text) = args.text(input) {
        let words = 1 + HEAD_WORDS + args.len();
        let head = few.get_mut(..words).unwrap_or_else(|| {
            many.resize(words, [0; 8]);
            many
        });
        head[0] = lead(tenant, 0);
        fill(&mut head[1..], known, args.places(), text.len());
        return [head.as_flattened(), text];
    }
    *whole = message(tenant, known, args.iter(input));
    [whole, &[]]
}

/// A message of one command.
pub(crate) fn message<'a>(
    tenant: TenantId,
    known: Known,
    args: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> Vec<u8> {
    let mut out = lead(tenant, 0).to_vec();
    out.resize(LEAD_BYTES + 8 * (HEAD_WORDS + args.len()), 0);
    let bytes = args.clone().map(<[u8]>::len).sum();
    let head = out[LEAD_BYTES..].as_chunks_mut().0;
    fill(head, known, successive(args.clone()), bytes);
    args.for_each(|arg| out.extend_from_slice(arg));
    out
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
    let (hash, partition) = known.key.unwrap_or((0, NO_PARTITION));
    *first = word(narrow(places.len()), hash);
    *second = word(u32::from(known.row) | u32::from(partition) << 16, narrow(text_bytes));
    for (to, (start, length)) in rest.iter_mut().zip(places) {
        *to = word(start, length);
    }
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("input is bounded by 2^31 bytes")
}

/// Adds the commands of a message to a batch whose input begins at the start of `input` and in
/// which the message begins at `start`; `each` is told what is known of it.
pub(crate) fn read(input: &[u8], start: usize, batch: &mut Batch, mut each: impl FnMut(Known)) {
    let mut at = start + LEAD_BYTES;
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
        let key = (partition != NO_PARTITION).then_some((hash, partition));
        each(Known { row, key });
        at = start + (end - start).next_multiple_of(8);
    }
}

#[cfg(test)]
mod tests {
    use super::super::led_by;
    use super::*;
    use nigh_resp::decode::Requests;
    use nigh_resp::encode;
    use nigh_resp::limits::Limits;

    #[test]
    fn commands_arrive_as_they_were_sent() {
        // A client's command where it lies, one that had to be unescaped, one of more words than
        // most have, and one that a shard has made, in one request behind other input.
        let (mut client, mut batch) = (b"PING\r\n".to_vec(), Batch::new());
        encode::request(&mut client, ["SET", "k", "v v"]);
        client.extend_from_slice(b"get \"a\\x41\"\r\n");
        let many: Vec<String> = (0..FEW_WORDS).map(|n| n.to_string()).collect();
        encode::request(&mut client, &many);
        Requests::new(Limits::requests()).decode(&client, &mut batch, 9).expect("commands");
        let known = [
            Known { row: 7, key: Some((0xDEAD_BEEF, 63)) },
            Known { row: 8, key: None },
            Known { row: 9, key: Some((1, 0)) },
            Known { row: 10, key: None },
        ];
        let start = b"in front".len();
        let mut request = b"in front".to_vec();
        let tenant = TenantId(70_000);
        for (index, known) in known.iter().take(3).enumerate() {
            request.resize(request.len().next_multiple_of(8), 0);
            let mut scratch = Scratch::default();
            let parts = parts_of(&mut scratch, tenant, *known, batch.args(index + 1), &client);
            let lead = if index == 0 { 0 } else { LEAD_BYTES };
            request.extend_from_slice(&parts.concat()[lead..]);
        }
        request.resize(request.len().next_multiple_of(8), 0);
        let args: [&[u8]; 3] = [b"MGET", b"", b"x"];
        request.extend_from_slice(&message(tenant, known[3], args.into_iter())[LEAD_BYTES..]);
        assert_eq!(led_by(&request[start..]), (tenant, 0));
        let (mut came, mut told) = (Batch::new(), Vec::new());
        read(&request, start, &mut came, |known| told.push(known));
        assert_eq!(told, known);
        let words = |at: usize| came.args(at).iter(&request).collect::<Vec<_>>();
        assert_eq!(words(0), [b"SET".as_slice(), b"k", b"v v"]);
        assert_eq!(words(1), [b"get".as_slice(), b"aA"]);
        assert!(words(2).into_iter().eq(many.iter().map(String::as_bytes)));
        assert_eq!(words(3), [b"MGET".as_slice(), b"", b"x"]);
        assert_eq!(came.len(), 4);
    }
}
