//! Replies in the order of their commands, whichever shard answers first.

use super::*;
use crate::hop::message::MOST_IN_MESSAGE;
use crate::hop::message::replies::reply_of;

fn text(out: &mut Vec<u8>) -> String {
    String::from_utf8(std::mem::take(out)).expect("text")
}

impl Later {
    /// A shard answers with such replies.
    fn answer(&mut self, shard: usize, replies: &[&str], wanted: bool, out: &mut Vec<u8>) {
        let lengths = replies.iter().map(|it| (it.len(), *it == "slow"));
        let (mut head, text) = (Vec::new(), replies.concat());
        let reply = reply_of(&mut head, lengths, text.as_bytes()).concat();
        let some_logged = self.came(shard, Replies::of(&reply), wanted, out);
        assert_eq!(some_logged, replies.contains(&"slow"));
    }

    fn own(&mut self, reply: &[u8]) {
        self.put(|own| own.extend_from_slice(reply));
    }

    fn assert_nothing_waits(&self) {
        assert!(self.is_empty() && self.sent == 0 && self.bytes == 0 && self.commands == 0);
    }
}

#[test]
fn replies_leave_in_the_order_of_commands() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    later.expect(1);
    later.expect(1);
    later.expect(2);
    later.own(b"own ");
    later.own(b"too ");
    later.expect(1);
    let sent = [later.sent, later.sent_to(1), later.sent_to(2), later.sent_to(9)];
    assert_eq!((sent, later.span()), ([4, 3, 1, 0], (0, 6)));
    later.answer(2, &["slow"], true, &mut out);
    assert_eq!(text(&mut out), "");
    later.answer(1, &["one "], true, &mut out);
    assert_eq!((text(&mut out).as_str(), later.span()), ("one ", (1, 6)));
    later.answer(1, &["again ", "last"], true, &mut out);
    assert_eq!(text(&mut out), "again slowown too last");
    assert_eq!(later.span(), (6, 6));
    later.assert_nothing_waits();
}

#[test]
fn whatever_comes_first_each_reply_leaves_when_those_before_it_have() {
    // Commands of three shards and this one, nearly all answered OK; what has left is compared with
    // what should have after each step. Rounds differ in how often a reply is another, down to
    // never.
    let mut random = 1u64;
    let mut below = |most: usize| {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (random >> 33) as usize % most
    };
    for round in 0..300 {
        let (mut later, mut out) = (Later::default(), Vec::new());
        // In the order of commands: the shard, or 0, the reply, and whether it was given.
        let mut commands: Vec<(usize, String, bool)> = Vec::new();
        let (mut left, mut told) = (0, String::new());
        for number in 0..200 {
            let is_ok = round % 3 == 0 || below(20) > 0;
            let reply = if is_ok { "+OK\r\n".to_owned() } else { format!(":{number}\r\n") };
            match below(4) {
                0 if later.is_empty() => {}
                0 => {
                    if is_ok {
                        later.put_ok()
                    } else {
                        later.own(reply.as_bytes())
                    }
                    commands.push((0, reply, true));
                }
                shard => {
                    later.expect(shard);
                    commands.push((shard, reply, false));
                }
            }
            if below(3 + round % 30) == 0 {
                let (shard, most) = (1 + below(3), 1 + below(MOST_IN_MESSAGE));
                let given = commands.iter_mut().filter(|it| it.0 == shard && !it.2).take(most);
                let replies: Vec<&str> = given
                    .map(|(_, reply, given)| {
                        *given = true;
                        reply.as_str()
                    })
                    .collect();
                if !replies.is_empty() {
                    later.answer(shard, &replies, true, &mut out);
                }
            }
            let leaving = commands[left..].iter().take_while(|it| it.2);
            let leaving: Vec<&str> = leaving.map(|it| it.1.as_str()).collect();
            left += leaving.len();
            told.push_str(&leaving.concat());
            assert_eq!(std::str::from_utf8(&out), Ok(told.as_str()), "round {round}");
            assert_eq!(later.span(), (left as u64, commands.len() as u64));
        }
    }
}

#[test]
fn parts_are_joined() {
    // The second command wants two parts of shard 1; its reply, and that of the third, come before
    // the first's.
    let (mut later, mut out) = (Later::default(), Vec::new());
    later.expect_parts(Join::Sum, vec![b":2\r\n".to_vec()], &[3, 1]);
    later.expect_parts(Join::Ok, vec![], &[1, 3, 1]);
    later.expect_parts(Join::Sum, vec![b":1\r\n".to_vec()], &[2]);
    later.answer(1, &[":40\r\n"], true, &mut out);
    later.answer(2, &["-OOM full\r\n"], true, &mut out);
    later.answer(1, &["+OK\r\n", "+OK\r\n"], true, &mut out);
    assert!(out.is_empty());
    later.answer(3, &[":0\r\n"], true, &mut out);
    assert_eq!(text(&mut out), ":42\r\n");
    later.answer(3, &["+OK\r\n"], true, &mut out);
    assert_eq!(text(&mut out), "+OK\r\n-OOM full\r\n");
    later.assert_nothing_waits();
}

#[test]
fn what_is_not_wanted_is_nothing() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    later.expect_parts(Join::Sum, vec![Vec::new()], &[1]);
    later.expect(1);
    later.answer(1, &[":1\r\n", "+OK\r\n"], false, &mut out);
    assert!(out.is_empty());
    later.assert_nothing_waits();
}

#[test]
fn what_waits_is_bounded() {
    let mut later = Later::default();
    later.expect(1);
    later.own(&[0; 100]);
    assert!(later.is_full(99) && !later.is_full(100));
    (0..MOST_RUNS).for_each(|_| later.own(b""));
    (0..MOST_RUNS).for_each(|_| later.expect(1));
    assert!(!later.is_full(usize::MAX), "replies in a row stand together");
    (0..MOST_RUNS).for_each(|shard| later.expect(1 + shard % 2));
    assert!(later.is_full(usize::MAX));
}

#[test]
fn a_pipeline_without_end_holds_no_more_than_what_waits() {
    // There is always a reply to come, and own ones behind it: those that have left give their
    // memory back.
    let (mut later, mut out) = (Later::default(), Vec::new());
    later.expect(1);
    for _ in 0..10_000 {
        later.own(&[b'x'; 100]);
        later.expect(1);
        later.answer(1, &["y"], true, &mut out);
        assert_eq!(text(&mut out).len(), 101);
    }
    assert!(later.own.capacity() < 64 << 10, "{} bytes are held", later.own.capacity());
    later.answer(1, &["y"], true, &mut out);
    later.assert_nothing_waits();
    let is_inside = !later.own.spilled() && !later.order.all.spilled();
    assert!(is_inside, "nothing of what was long is kept");
}
