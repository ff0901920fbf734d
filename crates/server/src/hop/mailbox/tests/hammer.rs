//! Shards that ask each other in all directions as fast as they can, sleep when there is nothing,
//! and are woken.

use super::*;

/// The bytes of a message: any length up to 300, all depend on its number.
fn body_of(n: u64) -> Vec<u8> {
    let random = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let length = if random >> 62 == 0 { random >> 32 & 255 } else { random >> 32 & 31 };
    vec![u8::try_from(n % 251).expect("below 251"); usize::try_from(length).expect("short")]
}

/// A shard that asks all others, answers, and sleeps when there is nothing to do.
struct Hammer {
    mailbox: Mailbox,
    me: usize,
    requests: u64,
    /// By shard: requests sent, and replies that came.
    sent: Vec<u64>,
    came: Vec<u64>,
    /// By shard: its requests that were received, and whether it said that it is done.
    heard: Vec<u64>,
    done: Vec<bool>,
    said_done: Vec<bool>,
    /// Shard and token of requests taken and not yet answered: each turn leaves some for the next.
    unanswered: VecDeque<(usize, u64)>,
    sleeps: u64,
}

impl Hammer {
    fn new(mailbox: Mailbox, requests: u64) -> Hammer {
        let (n, me) = (mailbox.sides.len(), mailbox.me);
        let mut done = vec![false; n];
        done[me] = true;
        let zeros = || vec![0; n];
        Hammer {
            me,
            requests,
            sent: zeros(),
            came: zeros(),
            heard: zeros(),
            said_done: done.clone(),
            done,
            mailbox,
            unanswered: VecDeque::new(),
            sleeps: 0,
        }
    }

    fn take_replies(&mut self, body: &mut Vec<u8>) {
        while let Some(reply) = self.mailbox.next_reply(body) {
            let came = &mut self.came[reply.from];
            assert_eq!(reply.token, *came, "in the order of the requests");
            assert!(*body == body_of(*came + 1), "reply {came} of {}", reply.from);
            *came += 1;
        }
    }

    fn answer(&mut self, body: &mut Vec<u8>) {
        while let Some(request) = receive(&mut self.mailbox, body) {
            let heard = &mut self.heard[request.from];
            let Some(token) = request.token else {
                assert_eq!((request.kind, *heard), (DONE, self.requests), "behind its requests");
                self.done[request.from] = true;
                continue;
            };
            assert_eq!((request.kind, token), (ECHO, *heard), "in the order that they were sent");
            assert!(*body == body_of(token));
            *heard += 1;
            self.unanswered.push_back((request.from, token));
        }
        // Every other turn leaves one for later, unless it is the last.
        let kept = usize::from(self.unanswered.len() > 1 && self.sleeps % 2 == 1);
        while self.unanswered.len() > kept {
            let (from, token) = self.unanswered.pop_front().expect("one");
            let reply = body_of(token + 1);
            let (first, rest) = reply.split_at(reply.len() / 2);
            self.mailbox.reply(from, token, &[first, rest]);
        }
    }

    /// Asks as long as there is room.
    fn ask(&mut self) {
        for to in (0..self.mailbox.sides.len()).filter(|to| *to != self.me) {
            while self.sent[to] < self.requests {
                let n = self.sent[to];
                if self.mailbox.send(to, n, ECHO, &[&body_of(n)]).is_err() {
                    assert!(self.mailbox.outstanding(to) > 0, "full, and nothing to wait for");
                    break;
                }
                self.sent[to] += 1;
                assert!(self.mailbox.outstanding(to) <= SMALL.credits);
            }
            if self.came[to] == self.requests && !self.said_done[to] {
                self.said_done[to] = true;
                self.mailbox.tell(to, DONE, &[]).expect("all have been answered");
            }
        }
    }

    fn is_over(&self) -> bool {
        self.done.iter().chain(&self.said_done).all(|done| *done)
            && self.mailbox.stats.depth == 0
            && self.unanswered.is_empty()
    }

    /// Runs until everything is answered, here and elsewhere.
    fn run(mut self, mut poll: Poll) -> (Mailbox, u64) {
        let (mut body, mut events) = (Vec::new(), Events::with_capacity(4));
        while !self.is_over() {
            self.take_replies(&mut body);
            self.answer(&mut body);
            self.ask();
            self.mailbox.flush();
            if self.is_over() || !self.unanswered.is_empty() || !self.mailbox.prepare_sleep() {
                continue;
            }
            self.sleeps += 1;
            sleep(&mut poll, &mut events);
            self.mailbox.woken();
        }
        (self.mailbox, self.sleeps)
    }
}

/// Sleeps until it is woken.
fn sleep(poll: &mut Poll, events: &mut Events) {
    let began = Instant::now();
    loop {
        match poll.poll(events, Some(TOO_LONG)) {
            Ok(()) if !events.is_empty() => return,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("{error}"),
            _ => assert!(began.elapsed() < TOO_LONG, "a wake-up was lost"),
        }
    }
}

/// So many shards, each of which asks each other so often.
fn hammer(n: usize, requests: u64) {
    let (boxes, polls) = shards(&SMALL, n);
    let threads: Vec<_> = boxes
        .into_iter()
        .zip(polls)
        .map(|(mailbox, poll)| std::thread::spawn(move || Hammer::new(mailbox, requests).run(poll)))
        .collect();
    let ends: Vec<_> = threads.into_iter().map(|t| t.join().expect("a shard")).collect();
    let (mut wakes, mut sleeps) = (0, 0);
    for (mailbox, slept) in &ends {
        let stats = mailbox.stats;
        assert!(stats.depth == 0 && stats.full > 0, "the story is too tame: {stats:?}");
        wakes += stats.wakes;
        sleeps += slept;
    }
    // A wake may come for somebody who just found mail; a sleep that ended took exactly one.
    assert!(sleeps > 0 && wakes >= sleeps, "{wakes} wakes, {sleeps} sleeps");
}

#[test]
fn two_shards_ask_each_other_and_every_request_is_answered() {
    // Small rings, random sizes, both directions at once, asleep whenever nothing is there.
    hammer(2, 20_000);
}

#[test]
fn four_shards_ask_in_all_directions_and_every_request_is_answered() {
    // More threads than cores, twelve pairs: order, content and number are right, and it ends.
    hammer(4, 3_000);
}
