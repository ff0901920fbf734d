//! Shards that stand still while another one reads their partitions.
//!
//! ```text
//! asker   ask ──> its turns go on ────────> granted: it runs what asked ──> release
//! owner   a turn ends ──> notes the time, stands ............................ its turns go on
//! ```
//!
//! For calls of functions that read several partitions: each is read at a moment, and too much may
//! have changed since. With one partition its owner runs such a call, and no other write happens
//! meanwhile; here the owners of those partitions that couldn't be told let it happen so. That
//! costs them as long as the call takes, and no more.
//!
//! 1. A shard stands between two of its turns: no commit of its partitions is under way, none
//!    begins, and it has stored its time since it was asked, with the tenant that it was asked for.
//!    So whatever the asker reads of that tenant there can be told.
//! 2. One shard asks at a time, for one tenant, and is not asked itself. A shard that is asked
//!    comes to the end of its turn without anybody's help (a function's limits bound that). So no
//!    cycle of waiting can form.
//! 3. The asker releases in the turn in which it is granted, or in which nothing of it asks any
//!    more.
//! 4. Those that find another one asking are the next, in their order: the asker can ask again
//!    behind them.
//! 5. A shard that was released has a turn before it stands again. None stands while the server
//!    stops.
//!
//! A backup's thread asks too, as [`OUTSIDE`]: all shards stand for it while it orders marks.
//!
//! Any thread.

use crate::sync::lock;
use crate::tenant::TenantId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The number of an asker that is no shard: it isn't woken, and asks again until it is granted.
pub(crate) const OUTSIDE: usize = 64;
/// How often a shard that stands looks whether the server stops.
const LOOK: Duration = Duration::from_millis(10);

/// The shard that asks, and the shards that it has asked: a bit for each, since shards that own
/// partitions have the first 64 numbers.
#[derive(Debug, Default)]
struct StillRound {
    asker: Option<usize>,
    tenant: TenantId,
    shards: u64,
    standing: u64,
    /// Those that want to ask too, each once.
    next: VecDeque<usize>,
    /// Counts releases.
    round: u64,
}

/// What the shards of a server know of each other's standing.
#[derive(Debug, Default)]
pub(crate) struct Still {
    /// As `StillRound::shards`: looked at in each turn.
    wanted: AtomicU64,
    asked: Mutex<StillRound>,
    released: Condvar,
}

impl Still {
    /// A shard asks others to stand, or those as well; true if all do. Those that it has asked for
    /// another tenant go on first. `wake` wakes a shard.
    pub(crate) fn ask(
        &self,
        asker: usize,
        tenant: TenantId,
        shards: u64,
        wake: impl Fn(usize),
    ) -> bool {
        debug_assert!(shards != 0 && !has(shards, asker), "others are asked");
        let mut asked = lock(&self.asked);
        if asked.asker.is_some_and(|other| other != asker) {
            if !asked.next.contains(&asker) {
                asked.next.push_back(asker);
            }
            return false;
        }
        if asked.tenant != tenant {
            (asked.tenant, asked.shards, asked.standing) = (tenant, 0, 0);
            asked.round += 1;
            self.released.notify_all();
        }
        let more = shards & !asked.shards;
        asked.asker = Some(asker);
        asked.shards |= more;
        if more != 0 {
            self.wanted.store(asked.shards, Ordering::Release);
            (0..64).filter(|shard| has(more, *shard)).for_each(wake);
        }
        asked.standing == asked.shards
    }

    /// Whether those that it has asked come to stand, or do already.
    pub(crate) fn is_asker(&self, asker: usize) -> bool {
        lock(&self.asked).asker == Some(asker)
    }

    /// A shard doesn't ask any more: all that stand go on, and the next one may ask.
    pub(crate) fn release(&self, asker: usize, wake: impl Fn(usize)) {
        let mut asked = lock(&self.asked);
        asked.next.retain(|next| *next != asker);
        if asked.asker != Some(asker) {
            return;
        }
        let next = asked.next.pop_front();
        let rest = std::mem::take(&mut asked.next);
        *asked =
            StillRound { asker: next, next: rest, round: asked.round + 1, ..StillRound::default() };
        self.wanted.store(0, Ordering::Release);
        drop(asked);
        self.released.notify_all();
        next.into_iter().for_each(wake);
    }

    /// Whether a shard is to stand.
    #[inline]
    pub(crate) fn wants(&self, shard: usize) -> bool {
        let wanted = self.wanted.load(Ordering::Acquire);
        wanted != 0 && has(wanted, shard)
    }

    /// Whose partitions the shards are asked for.
    pub(crate) fn tenant(&self) -> TenantId {
        lock(&self.asked).tenant
    }

    /// A shard that has stored its time with a tenant stands, until it is released or the server
    /// stops; unless it is asked for another tenant by now.
    pub(crate) fn stand(
        &self,
        shard: usize,
        tenant: TenantId,
        wake: impl Fn(usize),
        stops: impl Fn() -> bool,
    ) {
        let mut asked = lock(&self.asked);
        let round = asked.round;
        let lasts = |asked: &StillRound| asked.round == round && has(asked.shards, shard);
        if !lasts(&asked) || asked.tenant != tenant {
            return;
        }
        asked.standing |= bit(shard);
        if asked.standing == asked.shards {
            asked.asker.into_iter().for_each(wake);
        }
        while lasts(&asked) && !stops() {
            let waited = self.released.wait_timeout(asked, LOOK);
            asked = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        if lasts(&asked) {
            asked.standing &= !bit(shard);
        }
    }
}

fn has(shards: u64, shard: usize) -> bool {
    shard < 64 && shards & bit(shard) != 0
}

fn bit(shard: usize) -> u64 {
    1 << shard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::time::Instant;

    const A: TenantId = TenantId(0);
    const B: TenantId = TenantId(1);

    #[test]
    fn one_asks_at_a_time_and_the_others_are_next_in_their_order() {
        let still = Still::default();
        let woken = Mutex::new(Vec::new());
        let wake = |shard| lock(&woken).push(shard);
        assert!(!still.ask(0, A, 0b110, wake), "nobody stands yet");
        assert_eq!(std::mem::take(&mut *lock(&woken)), [1, 2]);
        assert!(still.wants(1) && still.wants(2) && !still.wants(0));
        assert!(
            !still.ask(100, A, 1, wake) && !still.ask(2, A, 1, wake) && !still.ask(100, A, 1, wake)
        );
        assert!(lock(&woken).is_empty());
        still.release(0, wake);
        assert!(!still.wants(1) && !still.wants(2));
        assert_eq!(std::mem::take(&mut *lock(&woken)), [100], "it came first");
        assert!(!still.ask(0, A, 0b10, wake), "it asks behind the others");
        still.release(2, wake); // its client has gone
        still.release(100, wake);
        assert_eq!(std::mem::take(&mut *lock(&woken)), [0]);
    }

    #[test]
    fn who_is_granted_reads_what_nobody_writes() {
        // Four shards write two words each of their own, in turns, and ask each other all the time.
        // A shard that is granted finds the words of each that it has asked equal, and they stay so
        // until it releases. All get through.
        const SHARDS: usize = 4;
        const GRANTS: u32 = 300;
        let still = Still::default();
        let words: Vec<[AtomicU32; 2]> = (0..SHARDS).map(|_| Default::default()).collect();
        let left = AtomicU32::new(u32::try_from(SHARDS).unwrap());
        let grants = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for me in 0..SHARDS {
                let (still, words, left, grants) = (&still, &words, &left, &grants);
                scope.spawn(move || {
                    let (mut granted, mut turn) = (0, 0u32);
                    // On a busy machine, all grants take more than a minute.
                    let (mut seen, mut since) = (0, Instant::now());
                    while left.load(Ordering::Relaxed) > 0 {
                        let all = grants.load(Ordering::Relaxed);
                        if all != seen {
                            (seen, since) = (all, Instant::now());
                        }
                        let waited = since.elapsed();
                        assert!(waited < Duration::from_secs(60), "somebody waits for ever");
                        turn += 1;
                        for word in &words[me] {
                            word.store(turn, Ordering::Relaxed);
                        }
                        let others = 0b1111 & !bit(me);
                        let asked =
                            if turn.is_multiple_of(3) { others } else { bit((me + 1) % SHARDS) };
                        if granted < GRANTS && still.ask(me, A, asked, |_| ()) {
                            let read = || {
                                let asked = (0..SHARDS).filter(|shard| has(asked, *shard));
                                let pairs = asked.map(|shard| {
                                    words[shard].each_ref().map(|word| word.load(Ordering::Relaxed))
                                });
                                pairs.collect::<Vec<_>>()
                            };
                            let first = read();
                            assert!(first.iter().all(|[a, b]| a == b), "{first:?}");
                            std::thread::yield_now();
                            assert_eq!(first, read());
                            granted += 1;
                            grants.fetch_add(1, Ordering::Relaxed);
                            if granted == GRANTS {
                                left.fetch_sub(1, Ordering::Relaxed);
                            }
                            still.release(me, |_| ());
                        }
                        if still.wants(me) {
                            still.stand(me, A, |_| (), || false);
                        }
                    }
                    still.release(me, |_| ());
                });
            }
        });
    }

    #[test]
    fn shards_that_are_asked_for_another_tenant_are_asked_anew() {
        // A shard stands for a client of one tenant, whose client is gone then. The next client in
        // line is another tenant's, with which the shard has not stored its time.
        let still = Still::default();
        assert!(!still.ask(0, A, 0b10, |_| ()));
        std::thread::scope(|scope| {
            let stands = scope.spawn(|| still.stand(1, A, |_| (), || false));
            while !still.ask(0, A, 0b10, |_| ()) {
                std::thread::yield_now();
            }
            assert!(!still.ask(0, B, 0b10, |_| ()), "it has to come again");
            stands.join().expect("it goes on");
        });
        assert_eq!(still.tenant(), B);
        still.stand(1, A, |_| (), || panic!("it is asked for another tenant, and doesn't wait"));
    }

    #[test]
    fn nobody_stands_while_the_server_stops() {
        let (still, stops) = (Still::default(), AtomicBool::new(false));
        assert!(!still.ask(0, A, 0b10, |_| ()));
        std::thread::scope(|scope| {
            let stands =
                scope.spawn(|| still.stand(1, A, |_| (), || stops.load(Ordering::Relaxed)));
            while !still.ask(0, A, 0b10, |_| ()) {
                std::thread::yield_now();
            }
            stops.store(true, Ordering::Relaxed);
            stands.join().expect("it goes on");
        });
        assert!(!still.ask(0, A, 0b10, |_| ()));
    }
}
