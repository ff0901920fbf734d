//! What clients want of the log as a whole, and what its keeper answers.
//!
//! ```text
//! CONFIG SET appendonly ── request ──> keeper ── outcome, a note at all seats ──> the command runs
//! BGREWRITEAOF ── rewrite ──> keeper
//! ```
//!
//! 1. A command that waits stands in no list here: its connection asks again when its shard has a
//!    note. So it may go at any time; its request is served all the same.
//! 2. Requests are served in their order, one at a time. An outcome is taken once, by the client
//!    that asked.
//!
//! Any thread.

use crate::config::Config;
use crate::observe::rewrites::{RewriteNews, Rewrites};
use crate::sync::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

/// Outcomes that are kept: clients that have gone take none.
const OUTCOMES_MOST: usize = 64;
/// Requests that may wait.
const REQUESTS_MOST: usize = 64;

const NOBODY: &str = "this server has nobody who begins a log";

/// What a client wants.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// A log, by these settings.
    On(Box<Config>),
    /// None.
    Off,
}

/// How a request ended.
pub(crate) type DeskOutcome = Result<(), String>;

#[derive(Default)]
struct DeskState {
    requests: VecDeque<(u64, Wanted)>,
    /// The client whose request is being served.
    served: Option<u64>,
    outcomes: BTreeMap<u64, DeskOutcome>,
    rewrite: bool,
    rewrites: Rewrites,
    ends: bool,
}

/// See the header of this file.
#[derive(Default)]
pub(crate) struct LogDesk {
    desk: Mutex<DeskState>,
    keeper: OnceLock<Thread>,
}

impl LogDesk {
    /// Whether the request of a client has an outcome; `None`: it made none.
    pub(crate) fn is_done(&self, client: u64) -> Option<bool> {
        let desk = lock(&self.desk);
        let is_asked =
            desk.served == Some(client) || desk.requests.iter().any(|(asker, _)| *asker == client);
        match desk.outcomes.contains_key(&client) {
            true => Some(true),
            false => is_asked.then_some(false),
        }
    }

    /// Makes a request of a client that has none. What refuses it is its outcome.
    pub(crate) fn ask(&self, client: u64, wanted: Wanted) {
        let mut desk = lock(&self.desk);
        let refusal = match self.keeper.get() {
            None => NOBODY,
            Some(_) if desk.requests.len() >= REQUESTS_MOST => "too many ask at once: try again",
            Some(keeper) => {
                desk.requests.push_back((client, wanted));
                return keeper.unpark();
            }
        };
        desk.outcomes.insert(client, Err(refusal.to_owned()));
    }

    /// The outcome of a client's request; `None`: it made none.
    pub(crate) fn take(&self, client: u64) -> Option<DeskOutcome> {
        lock(&self.desk).outcomes.remove(&client)
    }

    /// Has the keeper write a base now, or compact a log that is well. An error is the reason why
    /// not.
    pub(crate) fn rewrite(&self) -> Result<(), &'static str> {
        let mut desk = lock(&self.desk);
        let Some(keeper) = self.keeper.get() else { return Err(NOBODY) };
        if desk.rewrite || desk.rewrites.began.is_some() {
            return Err("Background append only file rewriting already in progress");
        }
        desk.rewrite = true;
        keeper.unpark();
        Ok(())
    }

    /// What became of rewrites.
    pub(crate) fn rewrites(&self) -> Rewrites {
        lock(&self.desk).rewrites.clone()
    }

    /// The keeper's: something has happened to one.
    pub(crate) fn tell_rewrite(&self, news: RewriteNews) {
        lock(&self.desk).rewrites.hear(news);
    }

    /// The server ends: the shards have ended.
    pub(crate) fn end(&self) {
        lock(&self.desk).ends = true;
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }

    /// The keeper's thread is this one.
    pub(crate) fn keep(&self) {
        self.keeper.get_or_init(std::thread::current);
    }

    /// The keeper takes the next request.
    pub(crate) fn next(&self) -> Option<(u64, Wanted)> {
        let mut desk = lock(&self.desk);
        let next = desk.requests.pop_front();
        desk.served = next.as_ref().map(|(client, _)| *client);
        next
    }

    pub(crate) fn has_requests(&self) -> bool {
        !lock(&self.desk).requests.is_empty()
    }

    /// It has served it.
    pub(crate) fn serve(&self, client: u64, outcome: DeskOutcome) {
        let mut desk = lock(&self.desk);
        desk.served = None;
        while desk.outcomes.len() >= OUTCOMES_MOST {
            desk.outcomes.pop_first();
        }
        desk.outcomes.insert(client, outcome);
    }

    /// Whether a rewrite is wanted; forgets it.
    pub(crate) fn take_rewrite(&self) -> bool {
        std::mem::take(&mut lock(&self.desk).rewrite)
    }

    pub(crate) fn ends(&self) -> bool {
        lock(&self.desk).ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rewrite_is_under_way_at_a_time() {
        let desk = LogDesk::default();
        assert!(desk.rewrite().is_err(), "nobody would do it");
        desk.keep();
        assert_eq!(desk.rewrite(), Ok(()));
        assert!(desk.rewrite().is_err_and(|why| why.ends_with("already in progress")));
        assert!(desk.take_rewrite() && !desk.take_rewrite());
        desk.tell_rewrite(RewriteNews::Begins);
        assert!(desk.rewrite().is_err() && desk.rewrites().count == 1);
        desk.tell_rewrite(RewriteNews::Fails("no".to_owned()));
        let Rewrites { began, last, failures, failure, .. } = desk.rewrites();
        assert!(began.is_none() && last.is_some() && failures == 1 && failure == "no");
        desk.tell_rewrite(RewriteNews::Begins);
        desk.tell_rewrite(RewriteNews::Ends);
        let Rewrites { began, count, failures, failure, .. } = desk.rewrites();
        assert!(began.is_none() && count == 2 && failures == 0 && failure.is_empty());
        assert_eq!(desk.rewrite(), Ok(()));
    }

    #[test]
    fn a_request_is_served_once_and_its_outcome_taken_once() {
        let desk = LogDesk::default();
        desk.ask(1, Wanted::Off);
        assert_eq!(desk.is_done(1), Some(true), "nobody keeps a log: that is the outcome");
        assert!(desk.take(1).is_some_and(|it| it.is_err()) && desk.take(1).is_none());
        desk.keep();
        assert_eq!(desk.is_done(1), None);
        [1, 2].into_iter().for_each(|client| desk.ask(client, Wanted::Off));
        assert_eq!(desk.is_done(1), Some(false));
        assert!(desk.next().is_some_and(|(client, _)| client == 1) && desk.has_requests());
        assert_eq!(desk.is_done(1), Some(false), "it is being served");
        desk.serve(1, Ok(()));
        assert_eq!((desk.is_done(1), desk.is_done(2)), (Some(true), Some(false)));
        assert_eq!((desk.take(1), desk.is_done(1)), (Some(Ok(())), None));
        // Clients that have gone take nothing with them, and nothing grows.
        (100..300).for_each(|client| desk.serve(client, Ok(())));
        assert_eq!((100..300).filter(|client| desk.take(*client).is_some()).count(), OUTCOMES_MOST);
        (300..500).for_each(|client| desk.ask(client, Wanted::Off));
        let told = (300..500).filter(|client| desk.is_done(*client) == Some(true)).count();
        assert!(told > 0, "a client that finds no room is told");
    }
}
