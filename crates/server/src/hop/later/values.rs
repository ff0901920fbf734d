//! The reply to a read of several keys, from the replies of those that have read them: each gives
//! an array of the values of its keys, in their order.
//!
//! ```text
//! keys      a    b    c        a and c are shard 1's, b is of here
//! replies   [A, C] of 1, [B] of here ──> [A, B, C]
//! ```
//!
//! What doesn't keep that format is our mistake: both ends are this process.
//!
//! Any thread.

use nigh_resp::encode;

const OUR_FORMAT: &str = "a part of a read is answered with an array of its keys' values";

/// Writes the values in the order of their keys, `order` being the giver of each; nothing if no
/// replies are wanted.
pub(super) fn write(order: &[u8], replies: &[(u8, Vec<u8>)], out: &mut Vec<u8>) {
    if replies.iter().any(|(_, reply)| reply.is_empty()) {
        return;
    }
    let mut rests: Vec<(u8, &[u8])> = Vec::with_capacity(replies.len());
    rests.extend(replies.iter().map(|(from, reply)| (*from, &reply[line_bytes(reply)..])));
    encode::array(out, order.len());
    for from in order {
        let (_, rest) = rests.iter_mut().find(|(part, _)| part == from).expect(OUR_FORMAT);
        let (value, more) = rest.split_at(value_bytes(rest));
        out.extend_from_slice(value);
        *rest = more;
    }
    debug_assert!(rests.iter().all(|(_, rest)| rest.is_empty()), "{OUR_FORMAT}");
}

/// Bytes of the first line, with its end.
fn line_bytes(reply: &[u8]) -> usize {
    reply.iter().position(|byte| *byte == b'\n').expect(OUR_FORMAT) + 1
}

/// Bytes of the first value: `$3\r\nabc\r\n`, `$-1\r\n` or `_\r\n`.
fn value_bytes(reply: &[u8]) -> usize {
    let line = line_bytes(reply);
    let digits = std::str::from_utf8(&reply[1..line - 2]).expect(OUR_FORMAT);
    match digits.parse::<usize>() {
        Ok(length) => line + length + 2,
        Err(_) => line, // there is none
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_the_order_of_their_keys() {
        let replies = [
            (7, b"*3\r\n$1\r\na\r\n$-1\r\n$2\r\n\r\n\r\n".to_vec()),
            (u8::MAX, b"*2\r\n_\r\n$0\r\n\r\n".to_vec()),
        ];
        let mut out = Vec::new();
        write(&[u8::MAX, 7, 7, u8::MAX, 7], &replies, &mut out);
        let expected = "*5\r\n_\r\n$1\r\na\r\n$-1\r\n$0\r\n\r\n$2\r\n\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        out.clear();
        write(&[7, 1], &[(7, Vec::new()), (1, Vec::new())], &mut out);
        assert!(out.is_empty(), "no reply is wanted");
    }

    /// A length has as many digits as it needs: each value is taken whole, and the next one begins
    /// behind it.
    #[test]
    fn values_of_ten_bytes_and_more_are_taken_whole() {
        let (ten, thousand) = ("a".repeat(10), "b".repeat(1000));
        let reply = format!("*3\r\n$10\r\n{ten}\r\n$1000\r\n{thousand}\r\n$1\r\nc\r\n");
        let mut out = Vec::new();
        write(&[1, 1, 1], &[(1, reply.clone().into_bytes())], &mut out);
        assert_eq!(String::from_utf8_lossy(&out), reply);
    }
}
