//! Stories about mailboxes: what one pair does step by step.

mod hammer;

use super::settings::{LEAST_REQUEST_BYTES, TOTAL_BYTES};
use super::{
    DEFAULT_REQUEST_BYTES, Full, MOST_FROM_ONE, MOST_IN_TURN, MOST_MAILBOXES, MailReply,
    MailSettings, MailStats, Mailbox, Request, mailboxes,
};
use mio::{Events, Poll, Token, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any sleep that ends by mail.
const TOO_LONG: Duration = Duration::from_secs(30);
/// Kinds of the hammering shards.
const ECHO: u16 = 1;
const DONE: u16 = 2;

/// Small enough that everything fills up: the longest request inside the ring has 48 bytes.
const SMALL: MailSettings = MailSettings { request_bytes: 256, credits: 4, body_bytes: 500 };

/// So many mailboxes with the polls that their shards sleep in.
fn shards(settings: &MailSettings, n: usize) -> (Vec<Mailbox>, Vec<Poll>) {
    let polls: Vec<Poll> = (0..n).map(|_| Poll::new().expect("a poll")).collect();
    let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let mailboxes = mailboxes(settings, polls.iter().map(waker).collect());
    (mailboxes, polls)
}

/// Two shards and their polls.
fn two(settings: &MailSettings) -> (Mailbox, Mailbox, Vec<Poll>) {
    let (mut boxes, polls) = shards(settings, 2);
    let b = boxes.pop().expect("two");
    (boxes.pop().expect("two"), b, polls)
}

/// Takes the next request, if there is one, with its body.
fn receive(mailbox: &mut Mailbox, body: &mut Vec<u8>) -> Option<Request> {
    body.clear();
    let from = mailbox.next_sender()?;
    Some(mailbox.receive(from, body))
}

#[test]
fn a_request_and_its_reply_travel_at_the_flush() {
    // A asks B; B sees nothing before A flushes, A nothing before B does. Long bodies go the same
    // way.
    let (mut a, mut b, _polls) = two(&SMALL);
    let (mut body, long) = (Vec::new(), vec![7u8; 400]);
    a.send(1, 70, 5, &[b"SET", b" k v"]).expect("room");
    a.send(1, 71, 6, &[&long[..300], &long[300..]]).expect("room");
    assert_eq!((b.has_mail(), b.next_sender()), (false, None));
    assert_eq!(a.outstanding(1), 2);
    a.flush();
    assert!(b.has_mail());
    assert_eq!(receive(&mut b, &mut body), Some(Request { from: 0, token: Some(70), kind: 5 }));
    assert_eq!(body, b"SET k v");
    assert_eq!(receive(&mut b, &mut body), Some(Request { from: 0, token: Some(71), kind: 6 }));
    assert_eq!(body, long);
    assert_eq!(b.next_sender(), None);
    b.reply(0, 70, &[b"+OK", b"\r\n"]);
    b.reply(0, 71, &[&long]);
    assert_eq!((a.has_mail(), a.next_reply(&mut body)), (false, None));
    b.flush();
    assert!(a.has_mail());
    assert_eq!(a.next_reply(&mut body), Some(MailReply { from: 1, token: 70 }));
    assert_eq!(body, b"+OK\r\n");
    assert_eq!(a.next_reply(&mut body), Some(MailReply { from: 1, token: 71 }));
    assert_eq!(body, long);
    assert_eq!((a.next_reply(&mut body), a.outstanding(1), a.has_mail()), (None, 0, false));
    assert_eq!((a.stats, b.stats), (MailStats::default(), MailStats::default()));
}

#[test]
fn a_request_grows_until_it_leaves() {
    // What is for the same asker joins the request that waits for the flush, up to so many parts;
    // nothing joins a body.
    let settings = MailSettings { request_bytes: 1024, credits: 8, body_bytes: 1024 };
    let (mut a, mut b, _polls) = two(&settings);
    let mut body = Vec::new();
    assert!(!a.join(1, 70, 0, 9, &[b"first"]), "there is nothing to join");
    a.send(1, 70, 0, &[b"one"]).expect("room");
    assert!(!a.join(1, 71, 0, 3, &[b"other"]) && !a.join(1, 70, 1, 3, &[b"other"]));
    assert!(a.join(1, 70, 0, 3, &[b"tw", b"o"]) && a.join(1, 70, 0, 3, &[b"three"]));
    assert!(!a.join(1, 70, 0, 3, &[b"four"]), "as many parts as it may have");
    a.send(1, 70, 0, &[&[7; 400]]).expect("room");
    assert!(!a.join(1, 70, 0, 9, &[b"five"]), "a body has left the ring");
    a.send(1, 70, 0, &[b"six"]).expect("room");
    assert_eq!(a.outstanding(1), 3);
    a.flush();
    assert!(!a.join(1, 70, 0, 9, &[b"late"]));
    for expected in [b"one\0\0\0\0\0two\0\0\0\0\0three".as_slice(), &[7; 400], b"six"] {
        assert_eq!(receive(&mut b, &mut body), Some(Request { from: 0, token: Some(70), kind: 0 }));
        assert_eq!(body, expected);
    }
}

/// Fills A's way to B with such requests, and tells how many it took.
fn fill(a: &mut Mailbox, bytes: usize) -> u64 {
    let mut sent = 0;
    while a.can_send(1, bytes) {
        a.send(1, sent, 0, &[&vec![1; bytes]]).expect("it said that it can");
        sent += 1;
        assert!(sent < 1000, "it never fills");
    }
    assert_eq!(a.send(1, sent, 0, &[&vec![1; bytes]]), Err(Full));
    a.flush();
    sent
}

#[test]
fn a_full_mailbox_says_so_until_a_reply_came() {
    // Credits, ring and queue of bodies fill up, each by its own kind of request; one reply makes
    // room.
    let many = MailSettings { credits: 64, ..SMALL };
    for (settings, bytes, most) in [(SMALL, 0, 4), (many, 40, 4), (many, 200, 2), (many, 5000, 1)] {
        let (mut a, mut b, _polls) = two(&settings);
        let mut body = Vec::new();
        assert_eq!(fill(&mut a, bytes), most, "{bytes} bytes");
        let first = receive(&mut b, &mut body).expect("a request");
        b.reply(0, first.token.expect("a request"), &[]);
        b.flush();
        assert_eq!(a.next_reply(&mut body), Some(MailReply { from: 1, token: 0 }));
        assert!(a.can_send(1, bytes), "{bytes} bytes after a reply");
        a.send(1, 99, 0, &[&vec![1; bytes]]).expect("room after a reply");
        assert_eq!(a.stats.full, 1);
    }
}

#[test]
fn the_room_at_a_shard_is_what_credits_and_ring_let() {
    // Those that wait for room are told how much there is, in bytes: as many as the ring has free,
    // and no more than the credits that are left stand for.
    let settings = MailSettings { request_bytes: 1024, credits: 8, body_bytes: 1024 };
    let (mut a, mut b, _polls) = two(&settings);
    let each = 1024 / 8;
    assert_eq!((a.share(1), a.share(200), a.share(10_000)), (each, 200, 256), "a fourth at most");
    assert_eq!(a.room(1), 1024);
    for left in (4..8).rev() {
        a.send(1, 0, 0, &[&[]]).expect("room");
        assert_eq!(a.room(1), each * left, "by credits");
    }
    a.send(1, 5, 0, &[&[1; 200]]).expect("room");
    a.send(1, 6, 0, &[&[1; 200]]).expect("room");
    assert!(a.room(1) <= 2 * each, "{} bytes are free", a.room(1));
    a.flush();
    let mut body = Vec::new();
    while let Some(request) = receive(&mut b, &mut body) {
        b.reply(0, request.token.expect("a request"), &[]);
    }
    b.flush();
    while a.next_reply(&mut body).is_some() {}
    assert_eq!(a.room(1), 1024);
}

#[test]
fn a_notice_is_bounded_and_comes_in_order_without_an_answer() {
    // Notices stand between requests. The receiver has them in their order, answers the requests
    // alone, and the sender's credits come back: those of notices behind a request when that is
    // answered.
    let (mut a, mut b, _polls) = two(&SMALL);
    let mut body = Vec::new();
    for round in 0..50 {
        a.tell(1, 7, &[b"first"]).expect("room");
        a.send(1, 70, 0, &[b"ask"]).expect("room");
        a.tell(1, 7, &[&[9; 200]]).expect("room, beside the ring");
        a.tell(1, 7, &[b"last"]).expect("room");
        assert_eq!(a.tell(1, 7, &[b"one too many"]), Err(Full), "round {round}");
        a.flush();
        let mut came = Vec::new();
        while let Some(request) = receive(&mut b, &mut body) {
            came.push((request.token, request.kind, body.len()));
        }
        assert_eq!(came, [(None, 7, 5), (Some(70), 0, 3), (None, 7, 200), (None, 7, 4)]);
        b.flush();
        assert_eq!((a.next_reply(&mut body), a.outstanding(1)), (None, 3), "one has come back");
        b.reply(0, 70, &[b"done"]);
        b.flush();
        assert_eq!(a.next_reply(&mut body), Some(MailReply { from: 1, token: 70 }));
        assert_eq!((a.next_reply(&mut body), a.outstanding(1)), (None, 0));
        assert_eq!(a.stats.depth, 0);
    }
}

#[test]
fn who_is_held_back_is_not_heard_and_keeps_nobody_awake() {
    // Two shards have asked C. While it does A's last commands, A's next ones are no mail, but B's
    // are.
    let (mut boxes, _polls) = shards(&SMALL, 3);
    let mut body = Vec::new();
    for asker in &mut boxes[..2] {
        asker.send(2, 1, 0, &[]).expect("room");
        asker.flush();
    }
    let c = &mut boxes[2];
    c.hold_back(0, true);
    assert!(c.has_mail());
    assert_eq!(receive(c, &mut body).map(|request| request.from), Some(1));
    assert_eq!((receive(c, &mut body), c.has_mail()), (None, false));
    c.hold_back(0, false);
    assert!(c.has_mail());
    assert_eq!(receive(c, &mut body).map(|request| request.from), Some(0));
}

#[test]
fn who_has_much_to_take_is_behind_until_it_took_some() {
    // Replies can't be refused, so the receiver stops before they are many bytes: here after the
    // second of 400.
    let (mut a, mut b, _polls) = two(&SMALL);
    let mut body = Vec::new();
    for token in 0..3 {
        a.send(1, token, 0, &[]).expect("room");
    }
    a.flush();
    for (token, is_behind) in [(0, false), (1, true)] {
        receive(&mut b, &mut body).expect("a request");
        b.reply(0, token, &[&[7; 400]]);
        assert_eq!(b.is_behind(0), is_behind);
    }
    b.flush();
    assert!(b.is_behind(0), "it isn't taken yet");
    a.next_reply(&mut body).expect("a reply");
    assert!(!b.is_behind(0));
}

/// Bodies at their bound are not over it. When all are taken, nobody looks for more: a look takes
/// the lock of their queue.
#[test]
fn who_has_taken_all_bodies_has_none_to_be_looked_for() {
    let (mut a, mut b, _polls) = two(&SMALL);
    let mut body = Vec::new();
    for token in 0..2 {
        a.send(1, token, 0, &[]).expect("room");
    }
    a.flush();
    for (token, bytes, is_behind) in [(0, SMALL.body_bytes, false), (1, 400, true)] {
        receive(&mut b, &mut body).expect("a request");
        b.reply(0, token, &[&vec![7; bytes]]);
        assert_eq!((b.is_behind(0), b.sides[0].has_bodies), (is_behind, true));
    }
    b.flush();
    while a.next_reply(&mut body).is_some() {}
    assert_eq!((b.is_behind(0), b.sides[0].has_bodies), (false, false));
}

#[test]
fn a_reply_gives_back_one_credit_however_long_it_is() {
    // Requests and replies of both kinds in all mixes: what is outstanding, deep and free is what
    // the test counts.
    let (mut a, mut b, _polls) = two(&SMALL);
    let (mut body, mut asked, mut answered) = (Vec::new(), VecDeque::new(), VecDeque::new());
    for step in 0..2_000_u64 {
        if step % 3 != 2 && asked.len() + answered.len() < SMALL.credits as usize {
            let parts = vec![1; if step % 5 == 0 { 300 } else { 8 }];
            if a.send(1, step, 1, &[&parts]).is_ok() {
                asked.push_back(step);
                a.flush();
            }
        } else if let Some(request) = receive(&mut b, &mut body) {
            assert_eq!(asked.pop_front(), request.token);
            let token = request.token.expect("a request");
            b.reply(0, token, &[&vec![2; if step % 4 == 0 { 600 } else { 5 }]]);
            b.flush();
            answered.push_back(token);
        } else if let Some(reply) = a.next_reply(&mut body) {
            assert_eq!(answered.pop_front(), Some(reply.token));
            a.flush();
        }
        let under_way = asked.len() + answered.len();
        assert_eq!(a.outstanding(1) as usize, under_way, "step {step}");
        assert_eq!(a.stats.depth, under_way as u64, "step {step}");
    }
    while let Some(reply) = a.next_reply(&mut body) {
        assert_eq!(answered.pop_front(), Some(reply.token));
    }
    assert!(!b.is_behind(0) && answered.is_empty());
    assert_eq!(a.shared.pair(0, 1).replies.bytes() + a.shared.pair(0, 1).requests.bytes(), 0);
}

#[test]
fn a_turn_receives_a_bounded_number_and_everybody_has_a_chance() {
    // Two shards have sent more than one turn takes: they take turns in being heard, the rest
    // waits.
    let settings = MailSettings { request_bytes: 64 << 10, credits: 2048, body_bytes: 0 };
    let (mut boxes, _polls) = shards(&settings, 3);
    let mut c = boxes.pop().expect("three");
    let each = MOST_IN_TURN as u64 * 3 / 4;
    for a in &mut boxes {
        for token in 0..each {
            a.send(2, token, 0, &[]).expect("room");
        }
        a.flush();
    }
    let (mut body, mut from) = (Vec::new(), Vec::new());
    while let Some(request) = receive(&mut c, &mut body) {
        from.push(request.from);
        c.reply(request.from, request.token.expect("a request"), &[]);
    }
    assert_eq!(from.len(), MOST_IN_TURN);
    let longest = from.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
    assert_eq!(longest, Some(MOST_FROM_ONE));
    assert!(c.has_mail(), "it must not sleep");
    c.flush();
    assert!(!c.prepare_sleep());
    let rest = std::iter::from_fn(|| receive(&mut c, &mut body)).count();
    assert_eq!(rest as u64, 2 * each - MOST_IN_TURN as u64);
}

#[test]
fn a_sleeper_is_woken_once() {
    // B sleeps: the first flush with mail wakes it, the second finds it woken; mail keeps it from
    // sleeping.
    let (mut a, mut b, mut polls) = two(&SMALL);
    let mut events = Events::with_capacity(4);
    assert!(b.prepare_sleep());
    a.flush();
    assert_eq!(a.stats.wakes, 0, "nothing was sent");
    for token in 0..2 {
        a.send(1, token, 0, &[]).expect("room");
        a.flush();
    }
    assert_eq!(a.stats.wakes, 1);
    polls[1].poll(&mut events, Some(TOO_LONG)).expect("a poll");
    assert!(!events.is_empty());
    b.woken();
    assert!(!b.prepare_sleep(), "it has mail");
    a.send(1, 2, 0, &[]).expect("room");
    a.flush();
    assert_eq!(a.stats.wakes, 1, "it is awake");
}

/// A shard that a socket has woken says so. Mail that comes behind that rings no bell: its sender
/// is spared a system call.
#[test]
fn a_shard_that_woke_by_itself_is_not_woken() {
    let (mut a, mut b, _polls) = two(&SMALL);
    assert!(b.prepare_sleep());
    b.woken();
    a.send(1, 0, 0, &[]).expect("room");
    a.flush();
    assert_eq!(a.stats.wakes, 0);
    assert!(b.has_mail());
}

#[test]
#[should_panic(expected = "flushes before it sleeps")]
fn sleeping_on_unsent_mail_is_our_mistake() {
    // A stages a request and goes to sleep: B would never hear of it.
    let (mut a, _b, _polls) = two(&SMALL);
    a.send(1, 0, 0, &[]).expect("room");
    a.prepare_sleep();
}

#[test]
fn rings_are_made_when_a_pair_first_talks() {
    // Of three shards, one asks another: one of six links is made.
    let (mut boxes, _polls) = shards(&SMALL, 3);
    boxes[0].send(2, 0, 0, &[]).expect("room");
    assert!(!boxes[1].has_mail());
    let open = boxes[0].shared.pairs.iter().filter(|pair| pair.is_open()).count();
    assert_eq!(open, 1);
}

#[test]
fn memory_is_bounded_for_any_number_of_shards() {
    // The sizes that the default gives, as the head of `settings` tells them.
    let total =
        |shards| MailSettings::for_shards(shards, DEFAULT_REQUEST_BYTES).total_bytes(shards);
    assert_eq!((total(2) >> 10, total(16) >> 20, total(64) >> 20), (2560, 60, 63));
    for shards in 1..=MOST_MAILBOXES {
        let settings = MailSettings::for_shards(shards, DEFAULT_REQUEST_BYTES);
        assert!(total(shards) <= TOTAL_BYTES as u64, "{shards}: {settings:?}");
        assert!(settings.credits >= LEAST_REQUEST_BYTES / 128, "{shards}: {settings:?}");
    }
    assert_eq!(MailSettings::for_shards(2, 5000).request_bytes, 4096);
}
