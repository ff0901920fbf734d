//! The logs of all shards, as one shard sees them: what its own lets writes do in a turn.
//!
//! | the own log | writes |
//! |---|---|
//! | is well | run |
//! | is late (`everysec`, and the oldest change that isn't on disk is 2 s old) | wait; after `journal-wait-ms` they are refused |
//! | is full | are refused, but for removals |
//! | is broken, or a base in its place doesn't count yet | are refused |
//! | is the first, and its base doesn't count yet | run: nothing is promised |
//!
//! 1. It is looked at when a turn begins, and again behind the mail of other shards, which may have
//!    seen later news of it. What holds then holds up to the next look.
//! 2. A refusal changes nothing, and names the cause. Reads go on in any case.
//!
//! Belongs to the shard's thread; a [`LogStatus`] is shared with the thread of its log.

use crate::observe::log_totals::one_line;
use crate::state::seat::NewSide;
use crate::tenant::TenantId;
use nigh_shm::JournalWriter;
use nigh_store::{
    AttachedShard, Keyspace, LogHealth, LogStatus, LogStatuses, ShardCompaction, SyncMode, Turn,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tenant whose streams the logs have.
pub(crate) const LOGGED: TenantId = TenantId::DEFAULT;
/// Age of the oldest change that isn't on disk from which on writes wait: twice what `everysec`
/// promises.
const LATE: Duration = Duration::from_secs(2);

/// What a log lets writes do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    Late,
    TooLate,
    Full,
    Broken,
}

/// The logs, by shard; none without `appendonly`.
#[derive(Default)]
pub(crate) struct Logs {
    all: Option<LogStatuses>,
    number: usize,
    /// The shard's own, and its tail at the end of the last turn.
    journal: Option<JournalWriter>,
    compaction: Option<ShardCompaction>,
    tail: u64,
    gate: Gate,
    refusal: String,
    /// What the own log tells of its oldest change that isn't on disk, and when that was seen
    /// first.
    oldest: Option<(u64, Instant)>,
    late_since: Option<Instant>,
    /// Times that writes had to wait for it.
    pub(crate) delays: u64,
    /// Why the own log isn't compacted, as it was told last.
    compaction_fault: String,
}

impl Logs {
    /// The logs of all shards, for shard `number`, with its journal and its part of compaction.
    pub(crate) fn of(
        all: Option<LogStatuses>,
        number: usize,
        own: Option<(JournalWriter, ShardCompaction)>,
    ) -> Self {
        let (journal, compaction) = own.unzip();
        Self { all, number, journal, compaction, ..Self::default() }
    }

    /// A log begins, or one that broke begins anew: has all records of the shard appended to it.
    /// `None`: there is no journal, a mistake of the keeper.
    pub(crate) fn attach(
        &mut self,
        keyspace: &mut Keyspace,
        side: NewSide,
    ) -> Option<AttachedShard> {
        let NewSide { berth, journal, statuses, mut compaction, .. } = side;
        self.journal = journal.or_else(|| self.journal.take());
        let attached = keyspace.begin_base(self.journal.as_ref()?, &mut compaction, &berth);
        self.compaction = Some(compaction);
        (self.all, self.tail) = (Some(statuses), 0);
        (self.oldest, self.late_since) = (None, None);
        self.tell_live(keyspace.live_bytes());
        Some(attached)
    }

    /// There is no log any more.
    pub(crate) fn detach(&mut self) {
        let (number, delays) = (self.number, self.delays);
        *self = Self { number, delays, ..Self::default() };
    }

    /// Whether what is said to be on disk is safe: not while the first base is written.
    pub(crate) fn promise(&self) -> bool {
        self.exist() && self.all().iter().all(|log| log.counts() || log.heals())
    }

    /// A step of the compaction of the own log. Whether there is more to do.
    #[inline]
    pub(crate) fn compact(&mut self, keyspace: &mut Keyspace, turn: &Turn<'_>) -> bool {
        let (Some(journal), Some(compaction)) = (&self.journal, &mut self.compaction) else {
            return false;
        };
        let more = keyspace.compact(compaction, journal.tail(), turn);
        // Its thread takes the orders, and sends more to look at.
        if more && let Some(own) = self.own() {
            own.wake();
        }
        more
    }

    /// Tells the own log how many bytes of records there are.
    pub(crate) fn tell_live(&self, bytes: u64) {
        if let Some(own) = self.own() {
            own.tell_live(bytes);
        }
    }

    /// User code runs next, or goes on. If V8 doesn't leave it, the shard comes back from it in
    /// another thread, which takes the journal then.
    #[inline]
    pub(crate) fn hand_over_journal(&self) {
        if let Some(journal) = &self.journal {
            journal.hand_over();
        }
    }

    /// A turn ends: the journal gives back what was written, and the log's thread learns that there
    /// is more. Whether something was given back, or no write waits for a journal.
    #[inline]
    pub(crate) fn end_turn(&mut self) -> bool {
        let Some(journal) = &self.journal else { return true };
        let has_left = journal.leave();
        let tail = journal.tail();
        if tail != self.tail {
            self.tail = tail;
            if let Some(own) = self.own() {
                own.wake();
            }
        }
        has_left
    }

    /// The shard is about to stand still.
    pub(crate) fn tell_stand(&self) {
        if let (Some(journal), Some(own)) = (&self.journal, self.own()) {
            own.tell_stand(journal.tail());
        }
    }

    /// All of them; none without a log.
    pub(crate) fn all(&self) -> &[Arc<LogStatus>] {
        self.all.as_deref().unwrap_or_default()
    }

    /// Whether there are any.
    pub(crate) fn exist(&self) -> bool {
        self.all.is_some()
    }

    fn own(&self) -> Option<&LogStatus> {
        self.all().get(self.number).map(|log| &**log)
    }

    /// Has the own log synced by another mode.
    pub(crate) fn set_mode(&self, mode: SyncMode) {
        if let Some(own) = self.own().filter(|own| own.mode() != mode) {
            own.set_mode(mode);
        }
    }

    /// How the log of a shard is.
    pub(crate) fn health(&self, shard: usize) -> LogHealth {
        self.all().get(shard).map_or(LogHealth::Well, |log| log.health_for_writes())
    }

    /// Whether the log of a shard is one that takes changes. Of the own log that is so for what ran
    /// since the last look, though it may have broken meanwhile.
    pub(crate) fn takes_changes(&self, shard: usize) -> bool {
        match shard == self.number {
            true => self.gate != Gate::Broken,
            false => self.health(shard) != LogHealth::Broken,
        }
    }

    /// Asks the logs of these shards, a bit for each, for a sync.
    pub(crate) fn want_syncs(&self, shards: u64) {
        let logs = self.all().iter().enumerate();
        logs.filter(|(shard, _)| shards >> shard & 1 == 1).for_each(|(_, log)| log.want_sync());
    }

    /// A turn begins: looks how the own log is. Writes wait for it for `most` at a time.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, most: Duration) {
        if self.exist() {
            self.look_at_own(now, most);
        }
    }

    fn look_at_own(&mut self, now: Instant, most: Duration) {
        let Some(own) = self.own() else { return };
        let (health, mode, since) = (own.health_for_writes(), own.mode(), own.unsynced_since_us());
        self.oldest = since.map(|since| match self.oldest {
            Some((seen, first)) if seen == since => (since, first),
            _ => (since, now),
        });
        let is_late = mode == SyncMode::EverySecond && self.age(now) >= LATE;
        let late_since = is_late.then(|| *self.late_since.get_or_insert(now));
        self.late_since = late_since;
        let gate = match (health, late_since) {
            (LogHealth::Broken, _) => Gate::Broken,
            (LogHealth::Full, _) => Gate::Full,
            (LogHealth::Well, None) => Gate::Open,
            (LogHealth::Well, Some(since)) if now.duration_since(since) < most => Gate::Late,
            (LogHealth::Well, Some(_)) => Gate::TooLate,
        };
        if gate != self.gate {
            self.turn_to(gate);
        }
    }

    #[cold]
    fn turn_to(&mut self, gate: Gate) {
        let told = self.own().map(LogStatus::cause).unwrap_or_default();
        let cause = match gate {
            Gate::Open | Gate::Late => String::new(),
            Gate::TooLate => format!(
                "the disk hasn't taken the oldest change for more than {} seconds",
                LATE.as_secs()
            ),
            Gate::Full | Gate::Broken => one_sentence(&told),
        };
        self.refusal = refusal_text(&cause, gate == Gate::Broken);
        self.delays += u64::from(gate == Gate::Late);
        match gate {
            Gate::Open => tracing::info!(shard = self.number, "the log takes writes again"),
            Gate::Late => {
                tracing::warn!(shard = self.number, "the log is late: writes wait for the disk");
            }
            _ => tracing::error!(shard = self.number, cause, "the log can't be written"),
        }
        self.gate = gate;
    }

    /// Says in the server's log if the own log isn't compacted, and if it is again. Now and then.
    pub(crate) fn warn_of_compaction(&mut self) {
        let Some(fault) = self.own().map(LogStatus::compaction_fault) else { return };
        if fault == self.compaction_fault {
            return;
        }
        match fault.is_empty() {
            true => tracing::info!(shard = self.number, "the log is compacted again"),
            false => tracing::warn!(shard = self.number, fault, "the log isn't compacted"),
        }
        self.compaction_fault = fault;
    }

    /// How old the oldest change is that isn't on disk.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.oldest.map_or(Duration::ZERO, |(_, first)| now.saturating_duration_since(first))
    }

    /// Whether each write runs.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.gate == Gate::Open
    }

    /// Whether writes wait.
    pub(crate) fn is_late(&self) -> bool {
        self.gate == Gate::Late
    }

    /// The error that refuses what needs all logs, if one of them isn't well.
    pub(crate) fn refusal_of_any(&self) -> Option<String> {
        if let Some(text) = self.refusal(false) {
            return Some(text.to_owned());
        }
        let ill = self.all().iter().find(|log| log.health_for_writes() != LogHealth::Well)?;
        let is_broken = ill.health_for_writes() == LogHealth::Broken;
        Some(refusal_text(&one_sentence(&ill.cause()), is_broken))
    }

    /// The error that refuses a write, if it is to be refused.
    pub(crate) fn refusal(&self, only_removes: bool) -> Option<&str> {
        let refuses = match self.gate {
            Gate::Open | Gate::Late => false,
            Gate::Full => !only_removes,
            Gate::TooLate | Gate::Broken => true,
        };
        refuses.then_some(self.refusal.as_str())
    }
}

/// The error that refuses a write.
fn refusal_text(cause: &str, is_broken: bool) -> String {
    let further = match is_broken {
        true => "Reads go on, and a new log is written from memory (BGREWRITEAOF tries it at once)",
        false => "Reads go on",
    };
    format!("MISCONF Nigh can't write its log: {cause}. {further}; see INFO persistence.")
}

/// A cause as a part of a sentence.
pub(crate) fn one_sentence(cause: &str) -> String {
    one_line(cause).trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);

    fn logs(mode: SyncMode) -> (Logs, Arc<LogStatus>) {
        let own = Arc::new(LogStatus::new(mode));
        let other = Arc::new(LogStatus::new(mode));
        (Logs::of(Some(Arc::new([other, Arc::clone(&own)])), 1, None), own)
    }

    #[test]
    fn a_full_log_takes_removals_and_a_broken_one_nothing() {
        let (mut logs, own) = logs(SyncMode::Always);
        let now = Instant::now();
        logs.look(now, WAIT);
        assert!(logs.is_open() && logs.refusal(false).is_none());
        own.tell_health(LogHealth::Full, "no space\r\nleft.".to_owned());
        assert!(logs.is_open(), "it holds for the whole turn");
        logs.look(now, WAIT);
        assert!(!logs.is_open() && logs.refusal(true).is_none());
        let text = "MISCONF Nigh can't write its log: no space  left. Reads go on; see INFO \
                    persistence.";
        assert_eq!(logs.refusal(false), Some(text));
        own.tell_health(LogHealth::Broken, "I/O error".to_owned());
        logs.look(now, WAIT);
        assert!(
            logs.refusal(true)
                .is_some_and(|text| text.contains(": I/O error. Reads go on, and a new"))
        );
        own.tell_health(LogHealth::Well, String::new());
        logs.look(now, WAIT);
        assert!(logs.is_open());
        assert!(!Logs::default().exist() && Logs::default().is_open(), "nothing without a log");
    }

    #[test]
    fn writes_wait_for_a_late_disk_and_are_refused_in_the_end() {
        let (mut logs, own) = logs(SyncMode::EverySecond);
        let begin = Instant::now();
        let look = |logs: &mut Logs, ms| logs.look(begin + Duration::from_millis(ms), WAIT);
        own.tell_unsynced_since(Some(77));
        look(&mut logs, 0);
        look(&mut logs, 1_999);
        assert!(logs.is_open());
        look(&mut logs, 2_000);
        assert!(logs.is_late() && logs.refusal(false).is_none());
        look(&mut logs, 2_999);
        assert!(logs.is_late());
        look(&mut logs, 3_000);
        assert!(!logs.is_late() && logs.refusal(true).is_some_and(|text| text.contains("2 sec")));
        // Some of it is on disk: what is the oldest now has waited for less.
        own.tell_unsynced_since(Some(78));
        look(&mut logs, 3_100);
        assert!(logs.is_open());
        look(&mut logs, 5_100);
        assert!(logs.is_late(), "they may wait anew");
        assert_eq!(logs.delays, 2);
        own.set_mode(SyncMode::No);
        look(&mut logs, 5_200);
        assert!(logs.is_open(), "nobody has promised anything");
        own.tell_unsynced_since(None);
        look(&mut logs, 5_300);
        assert_eq!(logs.age(begin + Duration::from_millis(9_000)), Duration::ZERO);
    }
}
