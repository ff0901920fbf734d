//! The driver: it gives events to workers, kills some of these, and knows what was acknowledged.
//!
//! ```text
//! idle ─ the next event of a session ─> its worker ─ answer ─> ledger, and idle again
//!                      ^ again, to another worker ─ no answer: the worker's end was seen
//! ```
//!
//! 1. A session has one event on the way at most. So it may change its worker whenever it is idle.
//! 2. An event without an answer is sent again, with the same number.
//! 3. The ledger has a session as its acknowledged events make it. At the end nothing is on the
//!    way, and what the store has must be equal.
//! 4. A worker is dead when its socket has ended. Nothing else tells the driver that it killed it.

use crate::peer::Peer;
use crate::report::Report;
use crate::session::{Event, Session, Step, key, owner};
use crate::wire::Answer;
use anyhow::{Context, Result, bail, ensure};
use nigh_client::{Address, Client, ForeignValues};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longest wait for answers at the end, and for workers at the start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The driver looks at the clock so often at least.
const LOOK: Duration = Duration::from_millis(5);
/// Keys of one request.
const TOGETHER: usize = 256;

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) server: Address,
    pub(crate) must_be_local: bool,
    pub(crate) sessions: u32,
    pub(crate) workers: u32,
    /// Workers that are killed, one after the other, and replaced.
    pub(crate) kills: u32,
    pub(crate) length: Duration,
    /// Most events that are on the way.
    pub(crate) window: usize,
}

/// An event on the way.
#[derive(Clone, Copy)]
struct Flight {
    worker: u32,
    event: Event,
    /// When it was sent first.
    sent: Instant,
    is_again: bool,
}

struct Driver<'a> {
    plan: &'a Plan,
    peers: Vec<Peer>,
    /// Number of the next worker.
    next_worker: u32,
    ledger: Vec<Session>,
    flights: Vec<Option<Flight>>,
    under_way: usize,
    idle: VecDeque<u32>,
    /// Sessions whose worker was killed then, and that have had no answer since.
    moved: Vec<Option<Instant>>,
    /// How many those are.
    waiting: usize,
    report: Report,
}

/// Drives the workers as the plan says, and compares what is there then.
pub(crate) fn run(plan: &Plan) -> Result<Report> {
    let mut client = Client::connect_with(&plan.server, Default::default())?;
    forget(&mut client, plan.sessions)?;
    let count = plan.sessions as usize;
    let mut driver = Driver {
        plan,
        peers: Vec::new(),
        next_worker: 0,
        ledger: vec![Session::default(); count],
        flights: vec![None; count],
        under_way: 0,
        idle: (0..plan.sessions).collect(),
        moved: vec![None; count],
        waiting: 0,
        report: Report::new()?,
    };
    for _ in 0..plan.workers {
        driver.add_worker()?;
    }
    let begin = Instant::now();
    while !driver.peers.iter().all(|peer| peer.is_ready) {
        ensure!(begin.elapsed() < PATIENCE, "the workers aren't ready");
        driver.take_answers()?;
    }
    driver.drive()?;
    drop(std::mem::take(&mut driver.peers));
    driver.compare(&mut client)?;
    forget(&mut client, plan.sessions)?;
    Ok(driver.report)
}

impl Driver<'_> {
    fn add_worker(&mut self) -> Result<()> {
        let Plan { server, must_be_local, .. } = self.plan;
        self.peers.push(Peer::start(self.next_worker, server, *must_be_local)?);
        self.next_worker += 1;
        Ok(())
    }

    /// Events and kills, until the time is over and all answers are there.
    fn drive(&mut self) -> Result<()> {
        let begin = Instant::now();
        self.report.begin = begin;
        let step = self.plan.length / (self.plan.kills + 1);
        let mut killed = 0;
        loop {
            let passed = begin.elapsed();
            if killed < self.plan.kills && passed >= step * (killed + 1) && self.kill()? {
                killed += 1;
            }
            // Each death is noticed, and each session of the dead is served again, before the end.
            let is_quiet =
                self.waiting == 0 && self.peers.iter().all(|peer| peer.killed_at.is_none());
            let is_over = passed >= self.plan.length && killed == self.plan.kills && is_quiet;
            if is_over && self.under_way == 0 {
                self.report.length = passed;
                return Ok(());
            }
            ensure!(passed < self.plan.length + PATIENCE, "{} events unanswered", self.under_way);
            while !is_over && self.under_way < self.plan.window {
                let Some(session) = self.idle.pop_front() else { break };
                let seq = self.ledger[session as usize].seq + 1;
                self.send(Event::number(session, seq), None)?;
            }
            self.peers.iter_mut().try_for_each(Peer::send)?;
            self.take_answers()?;
        }
    }

    /// Kills the worker that lives longest, if there is another one to take over.
    fn kill(&mut self) -> Result<bool> {
        let alive = || self.peers.iter().filter(|it| it.is_ready && it.killed_at.is_none());
        if alive().count() < 2 || self.peers.iter().any(|it| it.killed_at.is_some()) {
            return Ok(false);
        }
        let oldest = self.peers.iter_mut().find(|it| it.is_ready).context("counted above")?;
        oldest.kill()?;
        Ok(true)
    }

    /// Gives an event to the worker of its session; `first` is when it was sent before.
    fn send(&mut self, event: Event, first: Option<Instant>) -> Result<()> {
        let worker = self.owner(event.session).context("no worker is left")?;
        let peer = self.peers.iter_mut().find(|it| it.number == worker).context("it is one")?;
        peer.push(&event.to_frame());
        let (sent, is_again) = (first.unwrap_or_else(Instant::now), first.is_some());
        let flight = Flight { worker, event, sent, is_again };
        let before = self.flights[event.session as usize].replace(flight);
        self.under_way += usize::from(before.is_none());
        Ok(())
    }

    fn owner(&self, session: u32) -> Option<u32> {
        owner(session, self.peers.iter().filter(|it| it.is_ready).map(|it| it.number))
    }

    /// Waits for answers, and takes them.
    fn take_answers(&mut self) -> Result<()> {
        let timeout = Timespec::try_from(LOOK)?;
        let mut fds: Vec<PollFd<'_>> =
            self.peers.iter().map(|it| PollFd::new(&it.socket, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("can't wait for workers"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (mut answers, mut ended) = (Vec::new(), Vec::new());
        for (peer, _) in self.peers.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            let from = answers.len();
            if !peer.receive(&mut answers)? {
                ended.push(peer.number);
            }
            peer.is_ready |= answers[from..].contains(&Answer::Ready);
        }
        answers.into_iter().try_for_each(|answer| self.take_answer(answer))?;
        ended.into_iter().try_for_each(|worker| self.hand_over(worker))
    }

    fn take_answer(&mut self, answer: Answer) -> Result<()> {
        let Answer::Of { session, seq, step, took_ns } = answer else { return Ok(()) };
        let at = session as usize;
        let flight = self.flights.get_mut(at).and_then(Option::take);
        let flight = flight.context("a worker answered what it wasn't asked")?;
        ensure!(flight.event.seq == seq, "a worker answered another event");
        self.under_way -= 1;
        if step == Step::Impossible {
            // The session stands still from now on.
            self.report.impossible += 1;
            self.waiting -= usize::from(self.moved[at].take().is_some());
            return Ok(());
        }
        let booked = self.ledger[at].apply(&flight.event);
        ensure!(booked == Step::Done, "the driver sends events in order");
        let took_ns = (step == Step::Done).then_some(took_ns);
        self.report.acknowledged(flight.sent.elapsed(), took_ns)?;
        if flight.is_again {
            self.report.sent_again += 1;
            self.report.found_done += u64::from(step == Step::Before);
        }
        if let Some(killed_at) = self.moved[at].take() {
            self.waiting -= 1;
            self.report.handed_over(killed_at.elapsed())?;
        }
        self.idle.push_back(session);
        Ok(())
    }

    /// Gives the sessions of a worker that has ended to the others, and starts another worker.
    fn hand_over(&mut self, worker: u32) -> Result<()> {
        let at = self.peers.iter().position(|it| it.number == worker).context("it is one")?;
        let Some(killed_at) = self.peers[at].killed_at else {
            bail!("worker {worker} has ended by itself");
        };
        self.report.noticed(killed_at)?;
        for session in 0..self.plan.sessions {
            if self.owner(session) == Some(worker) {
                let before = self.moved[session as usize].replace(killed_at);
                self.waiting += usize::from(before.is_none());
            }
        }
        // Their events have waited longest.
        let (first, rest): (Vec<u32>, Vec<u32>) =
            self.idle.drain(..).partition(|session| self.moved[*session as usize].is_some());
        self.idle.extend(first.into_iter().chain(rest));
        drop(self.peers.remove(at));
        for at in 0..self.flights.len() {
            if let Some(flight) = self.flights[at].filter(|it| it.worker == worker) {
                self.send(flight.event, Some(flight.sent))?;
            }
        }
        self.add_worker()
    }

    /// Compares what is in the store with the ledger.
    fn compare(&mut self, client: &mut Client) -> Result<()> {
        let mut values = ForeignValues::new();
        for (part, ledger) in (0u32..).zip(self.ledger.chunks(TOGETHER)) {
            let from = part * u32::try_from(TOGETHER)?;
            let keys: Vec<String> = (from..).take(ledger.len()).map(key).collect();
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            client.multi_get_into(&keys, &mut values)?;
            for (at, known) in ledger.iter().enumerate() {
                let found = values.get(at).map(Session::read).transpose()?.unwrap_or_default();
                let (lost, doubled) = known.compare(&found);
                self.report.lost += lost;
                self.report.doubled += doubled;
            }
        }
        Ok(())
    }
}

/// Removes the sessions.
fn forget(client: &mut Client, sessions: u32) -> Result<()> {
    let keys: Vec<String> = (0..sessions).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    for keys in keys.chunks(TOGETHER) {
        client.del(keys)?;
    }
    Ok(())
}
