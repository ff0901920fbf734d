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

/// Each run costs memory, so own replies in a row are one run. A run counts its commands in 32
/// bits: replies of no bytes are bounded by nothing else, and may be more.
#[test]
fn own_replies_too_many_for_one_run_begin_another() {
    let mut runs = Runs::default();
    runs.all.push(Stretch::Own { commands: u32::MAX - 1, bytes: 7 });
    runs.add_own(1);
    assert_eq!(runs.len(), 1);
    runs.add_own(2);
    assert_eq!(runs.len(), 2);
    assert!(matches!(runs.all[0], Stretch::Own { commands: u32::MAX, bytes: 8 }));
    assert!(matches!(runs.all[1], Stretch::Own { commands: 1, bytes: 2 }));
}

/// Runs that are over stand in front of those that wait. They go when they are more than half of
/// all, and more than lie in the connection. So a long pipeline moves each run once on average.
#[test]
fn runs_that_are_over_go_when_they_are_more_than_half() {
    let after = |all: u8, over: usize| {
        let mut runs = Runs::default();
        (0..all).for_each(|shard| runs.expect(shard));
        (0..over).for_each(|_| runs.pop_front());
        (runs.all.len(), runs.over)
    };
    assert_eq!((after(40, 1), after(40, 20), after(40, 21)), ((40, 1), (40, 20), (19, 0)));
    assert_eq!(after(20, 16), (20, RUNS_INSIDE), "as many as lie in the connection");
    assert_eq!(after(20, 17), (3, 0));
}

/// Own replies that have left go in the same way: when they are more than half of what is kept.
#[test]
fn own_replies_that_have_left_go_when_they_are_more_than_half() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    for _ in 0..6 {
        later.expect(1);
        later.own(&[b'x'; 3000]);
    }
    let mut after_one_more = || {
        later.answer(1, &["y"], true, &mut out);
        (later.own.len(), later.own_left)
    };
    assert_eq!(after_one_more(), (18_000, 3000));
    assert_eq!(after_one_more(), (18_000, 6000));
    assert_eq!(after_one_more(), (18_000, 9000), "just half");
    assert_eq!(after_one_more(), (6000, 0));
    assert_eq!((after_one_more(), after_one_more()), ((6000, 3000), (0, 0)));
    assert_eq!(out, [b"y".as_slice(), &[b'x'; 3000]].concat().repeat(6));
}

/// Moving few bytes costs more than it gives back: a short pipeline's stay until all have left.
#[test]
fn own_replies_that_have_left_stay_as_long_as_they_are_few() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    for _ in 0..6 {
        later.expect(1);
        later.own(&[b'x'; 100]);
    }
    later.answer(1, &["y"; 5], true, &mut out);
    assert_eq!((later.own.len(), later.own_left), (600, 500));
}

/// What a pipeline of 16 writes over two shards leaves lies in the connection: its runs, and own
/// replies as long as OK. So it costs no piece of the heap.
#[test]
fn what_a_pipeline_of_16_leaves_lies_in_the_connection() {
    let mut later = Later::default();
    later.expect(1);
    (0..16).for_each(|_| later.own(encode::OK));
    assert_eq!((later.own.len(), later.own.spilled()), (16 * encode::OK.len(), false));
    (2..16).for_each(|number| later.expect(number % 2));
    assert_eq!((later.order.len(), later.order.all.spilled()), (16, false));
}

/// A pipeline of writes costs a byte a command, and no text, as long as each may be answered OK.
/// One more than that is for, and all have their runs.
#[test]
fn replies_that_may_be_ok_are_only_counted_as_long_as_they_are_few() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    later.expect(1);
    (1..MOST_OKS).for_each(|_| later.put_ok());
    assert_eq!((later.oks.len(), later.order.len(), later.bytes), (MOST_OKS, 0, 0));
    later.expect(2);
    let own_bytes = (MOST_OKS - 1) * encode::OK.len();
    assert_eq!((later.oks.len(), later.order.len(), later.bytes), (0, 3, own_bytes));
    later.answer(2, &["+OK\r\n"], true, &mut out);
    later.answer(1, &["+OK\r\n"], true, &mut out);
    assert_eq!(text(&mut out), "+OK\r\n".repeat(MOST_OKS + 1));
    later.assert_nothing_waits();
}

/// A connection knows of each shard how many replies it has still to give. Those that come in
/// their turn are written at once: none is kept.
#[test]
fn replies_that_a_shard_has_still_to_give_are_counted() {
    let (mut later, mut out) = (Later::default(), Vec::new());
    (0..5).for_each(|_| later.expect(1));
    later.expect(2);
    for (reply, left) in [("one ", 4), ("two ", 3), ("three ", 2)] {
        later.answer(1, &[reply], true, &mut out);
        assert_eq!((later.sent_to(1), later.sent_to(2), later.sent), (left, 1, left + 1));
    }
    later.answer(1, &["four ", "five "], true, &mut out);
    later.answer(2, &["six"], true, &mut out);
    assert_eq!((later.sent_to(1), later.sent_to(2)), (0, 0));
    assert_eq!(text(&mut out), "one two three four five six");
    assert!(later.early.is_empty(), "none came before its turn");
}
