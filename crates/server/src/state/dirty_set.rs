//! Which tenants a turn looks after, since nearly all of thousands rest.
//!
//! ```text
//!       touched in a turn, or its time has come           work is left
//! rests ────────────────────────────────────────> looked after ────────> left ──> looked after ...
//!   ^                                                   │ none is left
//!   └───────────────────────────────────────────────────┘
//! ```
//!
//! 1. A tenant is touched before anything of it is read or written in a turn. At the first touch it
//!    is told of the turn.
//! 2. What was touched is looked after when the turn ends, once.
//! 3. A tenant with work left stands in `left`, once, until a look finds no more. Of those at most
//!    [`MOST_LEFT`] are looked after in a turn beside those that were touched, in their order.
//! 4. At each tick the next [`LOOKS_PER_TICK`] of all tenants are looked after, in turn. So what
//!    only time brings, such as the expiry of keys that nobody asks for, is seen to within as many
//!    ticks as it takes to come round.
//!
//! So the upkeep of a turn costs by what changed. Belongs to the shard's thread.

use crate::tenant::TenantId;
use nigh_store::Maintenance;
use std::collections::VecDeque;

/// Tenants with work left that are looked after in a turn: a step of each takes 100 µs at most.
const MOST_LEFT: usize = 64;
/// Tenants that are looked after in a tick though they rest: most have nothing to do, and take less
/// than a microsecond.
pub(crate) const LOOKS_PER_TICK: usize = 256;

/// What is known of one tenant.
#[derive(Debug, Clone, Copy, Default)]
struct DirtyMark {
    /// The turn in which it was touched last.
    turn: u64,
    /// It stands in `left`.
    is_left: bool,
    /// Its work can go on at once.
    has_more: bool,
}

/// The tenants that are to be looked after.
#[derive(Debug)]
pub(crate) struct DirtySet {
    /// This turn: they count from 1.
    turn: u64,
    /// By tenant.
    places: Vec<DirtyMark>,
    touched: Vec<TenantId>,
    left: VecDeque<TenantId>,
    /// Tenants whose work can go on at once.
    with_more: usize,
    /// The first of those whose time came at the last tick.
    first: usize,
}

impl DirtySet {
    /// For so many tenants, which rest.
    pub(crate) fn new(tenants: usize) -> Self {
        let places = vec![DirtyMark::default(); tenants];
        let (touched, left) = (Vec::new(), VecDeque::new());
        Self { turn: 1, places, touched, left, with_more: 0, first: 0 }
    }

    /// A tenant is touched; whether it is for the first time in this turn.
    #[inline]
    pub(crate) fn touch(&mut self, tenant: TenantId) -> bool {
        let place = &mut self.places[tenant.index()];
        if place.turn == self.turn {
            return false;
        }
        place.turn = self.turn;
        self.touched.push(tenant);
        true
    }

    pub(crate) fn is_touched(&self, tenant: TenantId) -> bool {
        self.places[tenant.index()].turn == self.turn
    }

    /// Ends the turn: `look` looks after each tenant that it is given, which is to be told of the
    /// turn first if it is given `true`. What it says together, of all tenants.
    pub(crate) fn end_turn(
        &mut self,
        is_tick: bool,
        mut look: impl FnMut(TenantId, bool) -> Maintenance,
    ) -> Maintenance {
        let told = self.touched.len();
        for _ in 0..self.left.len().min(MOST_LEFT) {
            let Some(tenant) = self.left.pop_front() else { break };
            self.places[tenant.index()].is_left = false;
            self.touch(tenant);
        }
        if is_tick {
            self.first = (self.first + self.share().len()) % self.places.len();
            self.share().for_each(|tenant| _ = self.touch(tenant));
        }
        let mut touched = std::mem::take(&mut self.touched);
        let mut expired = 0;
        for (at, tenant) in touched.drain(..).enumerate() {
            let done = look(tenant, at >= told);
            expired += done.expired;
            let place = &mut self.places[tenant.index()];
            self.with_more += usize::from(done.more);
            self.with_more -= usize::from(std::mem::replace(&mut place.has_more, done.more));
            if (done.more || done.waiting) && !std::mem::replace(&mut place.is_left, true) {
                self.left.push_back(tenant);
            }
            assert!(place.is_left || !place.has_more, "whose work goes on is looked after again");
        }
        self.touched = touched;
        self.turn += 1;
        Maintenance { more: self.with_more > 0, waiting: !self.left.is_empty(), expired }
    }

    /// The tenants whose time came at the last tick.
    pub(crate) fn share(&self) -> impl ExactSizeIterator<Item = TenantId> + use<> {
        let (first, all) = (self.first, self.places.len());
        let tenant = move |at| TenantId(u32::try_from((first + at) % all).expect("few tenants"));
        (0..all.min(LOOKS_PER_TICK)).map(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANTS: u32 = 10_000;

    /// A tenant without data: steps of work, and keys that expire.
    #[derive(Debug, Clone, Copy, Default)]
    struct Stub {
        /// Steps that are left.
        steps: u32,
        /// It waits so many times before the first of them.
        waits: u32,
        /// Time at which a key is over.
        expiry: Option<u32>,
        /// The turn that it was told of.
        told: u32,
    }

    /// A shard with stubs, and its time: a tick in each turn that has one.
    struct Shard {
        upkeep: DirtySet,
        stubs: Vec<Stub>,
        turn: u32,
        ticks: u32,
    }

    impl Shard {
        fn new() -> Shard {
            let stubs = vec![Stub::default(); TENANTS as usize];
            Shard { upkeep: DirtySet::new(stubs.len()), stubs, turn: 1, ticks: 0 }
        }

        fn touch(&mut self, tenant: u32) -> &mut Stub {
            let stub = &mut self.stubs[tenant as usize];
            if self.upkeep.touch(TenantId(tenant)) {
                stub.told = self.turn;
            }
            assert_eq!(stub.told, self.turn, "it is told of the turn before it is used");
            stub
        }

        /// Ends a turn; the tenants that were looked after, and what there is still to do.
        fn end(&mut self, is_tick: bool) -> (Vec<u32>, Maintenance) {
            self.ticks += u32::from(is_tick);
            let (mut looked, stubs) = (Vec::new(), &mut self.stubs);
            let (turn, ticks) = (self.turn, self.ticks);
            let sum = self.upkeep.end_turn(is_tick, |tenant, tells| {
                let stub = &mut stubs[tenant.index()];
                assert_eq!(tells, stub.told != turn, "each is told of the turn once");
                stub.told = turn;
                looked.push(tenant.0);
                let expired = u32::from(stub.expiry.take_if(|at| *at <= ticks).is_some());
                if stub.waits > 0 {
                    stub.waits -= 1;
                    return Maintenance { more: false, waiting: true, expired };
                }
                stub.steps = stub.steps.saturating_sub(1);
                Maintenance { more: stub.steps > 0, waiting: false, expired }
            });
            self.turn += 1;
            let mut once = looked.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), looked.len(), "none is looked after twice in a turn");
            (looked, sum)
        }
    }

    #[test]
    fn a_turn_looks_after_what_was_touched_and_nothing_else() {
        // Of ten thousand tenants the clients of three send something, some of them twice.
        let mut shard = Shard::new();
        for tenant in [7, 9_999, 7, 0, 9_999] {
            shard.touch(tenant);
        }
        assert_eq!(shard.end(false), (vec![7, 9_999, 0], Maintenance::default()));
        assert_eq!(shard.end(false), (vec![], Maintenance::default()), "they rest");
    }

    #[test]
    fn work_that_is_left_is_done_in_turns_that_nobody_touches_it() {
        // One tenant has three steps to do, and one waits twice before its only one.
        let mut shard = Shard::new();
        shard.touch(3).steps = 3;
        (shard.touch(5).steps, shard.touch(5).waits) = (1, 2);
        let says = |more, waiting| Maintenance { more, waiting, expired: 0 };
        assert_eq!(shard.end(false), (vec![3, 5], says(true, true)));
        shard.touch(5);
        assert_eq!(shard.end(false), (vec![5, 3], says(true, true)));
        assert_eq!(shard.end(false), (vec![5, 3], says(false, false)));
        assert_eq!(shard.end(false), (vec![], says(false, false)));
    }

    #[test]
    fn tenants_that_wait_do_not_keep_the_shard_awake() {
        let mut shard = Shard::new();
        shard.touch(5).waits = 3;
        let waits = Maintenance { waiting: true, ..Maintenance::default() };
        (0..3).for_each(|_| assert_eq!(shard.end(false), (vec![5], waits)));
        assert_eq!(shard.end(false), (vec![5], Maintenance::default()));
    }

    #[test]
    fn when_all_have_work_left_each_has_its_turn() {
        // All ten thousand are touched in one turn, and leave two steps each. No turn after it
        // looks after more than its share, and none comes again before all others.
        let mut shard = Shard::new();
        (0..TENANTS).for_each(|tenant| shard.touch(tenant).steps = 3);
        assert_eq!(shard.end(false).0.len(), TENANTS as usize);
        let mut looked = Vec::new();
        while shard.upkeep.with_more > 0 {
            let (some, sum) = shard.end(false);
            assert!(some.len() <= MOST_LEFT);
            looked.extend(some);
            assert_eq!(sum.more, looked.len() < 2 * TENANTS as usize);
        }
        assert!(looked.into_iter().eq((0..TENANTS).chain(0..TENANTS)));
        assert_eq!(shard.end(false), (vec![], Maintenance::default()));
    }

    #[test]
    fn keys_that_nobody_asks_for_expire_within_a_round_of_ticks() {
        // Each tenant has a key that is over at some tick. A few are busy meanwhile.
        let mut shard = Shard::new();
        for (tenant, stub) in (0..).zip(&mut shard.stubs) {
            stub.expiry = Some(tenant % 100);
        }
        let round = TENANTS.div_ceil(u32::try_from(LOOKS_PER_TICK).expect("few"));
        let mut expired = 0;
        for tick in 1..=100 + round {
            shard.touch(tick % 3).steps = 2;
            shard.end(false);
            let (looked, sum) = shard.end(true);
            assert!(looked.len() <= LOOKS_PER_TICK + MOST_LEFT);
            expired += sum.expired;
            let overdue = |stub: &&Stub| stub.expiry.is_some_and(|at| at + round <= tick);
            assert_eq!(shard.stubs.iter().find(overdue).map(|stub| stub.expiry), None);
        }
        assert!(expired >= TENANTS - 3 && shard.stubs.iter().all(|stub| stub.expiry.is_none()));
    }

    #[test]
    fn no_tenant_is_forgotten_whatever_happens() {
        // Tenants are touched at random and have work at random. Then all is quiet: what was left
        // is done in as many turns as it takes, and no tenant is looked after any more.
        let mut shard = Shard::new();
        let mut random = 1u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for turn in 0..2_000 {
            for _ in 0..next(50) {
                let tenant = next(if turn % 2 == 0 { TENANTS } else { 80 });
                let (steps, waits) = (next(5), next(3));
                let stub = shard.touch(tenant);
                (stub.steps, stub.waits) = (stub.steps.max(steps), stub.waits.max(waits));
            }
            let (_, sum) = shard.end(next(10) == 0);
            let has_work = |stub: &Stub| stub.steps > 0 || stub.waits > 0;
            let (left, places) = (&shard.upkeep.left, &shard.upkeep.places);
            for (at, stub) in shard.stubs.iter().enumerate().filter(|(_, stub)| has_work(stub)) {
                assert!(places[at].is_left, "{at} is forgotten in turn {turn}: {stub:?}");
            }
            assert_eq!(left.len(), places.iter().filter(|place| place.is_left).count());
            assert_eq!(sum.waiting, !left.is_empty());
        }
        let turns = (0..2_000).take_while(|_| !shard.end(false).0.is_empty()).count();
        assert!(turns < 2_000 && shard.stubs.iter().all(|stub| stub.steps + stub.waits == 0));
        assert!(shard.upkeep.with_more == 0 && shard.upkeep.left.is_empty());
    }
}
