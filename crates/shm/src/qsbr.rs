//! Reclaiming memory inside one process: quiescent-state-based reclamation (QSBR).
//!
//! ```text
//! writer:       unpublish ── turn += 1 ──> stamp ......... all seen >= stamp? ── reuse
//! participant:  ... reads under a pin ... quiescent(): seen := turn ... reads ...
//! ```
//!
//! 1. A participant uses nothing after its announcement that it saw before: pins borrow from
//!    the participant, and announcing takes it mutably.
//! 2. Memory that was unpublished before the turn went up to `stamp` may be reused when every
//!    participant has announced a turn of at least `stamp` or is offline.
//! 3. A participant that is offline has no pin, and fences when it comes back (SeqCst), so that
//!    either the writer sees it online or it sees what the writer unpublished.
//!
//! Source: Hart, McKenney, Brown, Walpole, "Performance of memory reclamation for lockless
//! synchronization", JPDC 2007. A participant belongs to one thread; the rest is for any thread.

use crate::format::words::{HeapWords, SharedWords};
use crate::memory::file_mapping::FileMapping;
use crate::memory::provision::Provisioner;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The turn of a participant that is offline: it has seen everything.
const OFFLINE: u64 = u64::MAX;
/// Distance of two participants' words, bytes: a cache line each.
const STRIDE: u64 = 64;
/// The same as an index.
const STRIDE_BYTES: usize = 64;

/// The protocol over shared words: the turn at 0, then one word per participant.
#[derive(Clone)]
pub(crate) struct Qsbr<W> {
    words: W,
    participants: u64,
}

impl<W: SharedWords> Qsbr<W> {
    /// Bytes of words that so many participants need.
    pub(crate) const fn bytes(participants: usize) -> usize {
        (participants + 1) * STRIDE_BYTES
    }

    pub(crate) fn new(words: W, participants: u64) -> Qsbr<W> {
        for i in 0..participants {
            words.store64(Self::at(i), OFFLINE, Ordering::Relaxed);
        }
        words.store64(0, 1, Ordering::Relaxed);
        Qsbr { words, participants }
    }

    const fn at(participant: u64) -> u64 {
        (participant + 1) * STRIDE
    }

    /// Writer: what was unpublished before this call may be reused when [`Self::passed`] its
    /// result.
    pub(crate) fn stamp(&self) -> u64 {
        // SYNC(qsbr-turn): a participant that announces this turn has seen what was unpublished
        // before it.
        self.words.add64(0, 1, Ordering::AcqRel)
    }

    /// Writer: whether everybody has announced this stamp or is offline.
    pub(crate) fn passed(&self, stamp: u64) -> bool {
        // SYNC(qsbr-online): with the fence in `online`.
        self.words.fence(Ordering::SeqCst);
        // SYNC(qsbr-seen): reads before an announcement happen before what follows here.
        (0..self.participants).all(|i| self.words.load64(Self::at(i), Ordering::Acquire) >= stamp)
    }

    /// Participant: no read of mine is under way.
    #[inline]
    pub(crate) fn announce(&self, participant: u64) {
        // SYNC(qsbr-turn)
        let turn = self.words.load64(0, Ordering::Acquire);
        // SYNC(qsbr-seen)
        self.words.store64(Self::at(participant), turn, Ordering::Release);
    }

    /// Participant: I don't read until I am online again.
    pub(crate) fn offline(&self, participant: u64) {
        // SYNC(qsbr-seen)
        self.words.store64(Self::at(participant), OFFLINE, Ordering::Release);
        self.words.fence(Ordering::SeqCst);
    }

    /// Participant: I read again from now on.
    pub(crate) fn online(&self, participant: u64) {
        let turn = self.words.load64(0, Ordering::Acquire);
        self.words.store64(Self::at(participant), turn, Ordering::Relaxed);
        // SYNC(qsbr-online): either the writer sees this word, or we see what it unpublished.
        self.words.fence(Ordering::SeqCst);
    }
}

/// The participants of one process and what waits for them. Arenas belong to one domain.
pub struct Domain {
    qsbr: Qsbr<HeapWords>,
    taken: Mutex<Vec<bool>>,
    /// Mappings of dropped regions, with the stamp that must pass before they are unmapped.
    graves: Mutex<Vec<(u64, FileMapping)>>,
    any_graves: AtomicBool,
    provisioner: Provisioner,
}

/// Numbers participants of the whole process, so that no two turns are equal.
static PARTICIPANTS: AtomicU64 = AtomicU64::new(1);
/// Bits of a participant's own turns: at one per microsecond they last for 8 years.
const TURN_BITS: u32 = 48;

impl Domain {
    /// A domain for at most so many participants at a time.
    #[must_use]
    pub fn new(max_participants: usize) -> Arc<Domain> {
        let words = HeapWords::new(Qsbr::<HeapWords>::bytes(max_participants));
        Arc::new(Domain {
            qsbr: Qsbr::new(words, max_participants as u64),
            taken: Mutex::new(vec![false; max_participants]),
            graves: Mutex::new(Vec::new()),
            any_graves: AtomicBool::new(false),
            provisioner: Provisioner::new(),
        })
    }

    /// Takes part, online. One participant per thread that reads.
    ///
    /// # Panics
    /// If the domain is full: its size is the number of threads that the server starts.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> Participant {
        self.try_join().expect("more participants than the domain was made for")
    }

    /// The same; `None` if the domain is full.
    #[must_use]
    pub fn try_join(self: &Arc<Self>) -> Option<Participant> {
        self.try_join_in(0..usize::MAX)
    }

    /// The same, in one of these seats, which are numbered from 0; `None` if all of them are taken.
    #[must_use]
    pub fn try_join_in(self: &Arc<Self>, seats: Range<usize>) -> Option<Participant> {
        let mut taken = lock(&self.taken);
        let free = |(seat, taken): (usize, &bool)| seats.contains(&seat) && !taken;
        let slot = taken.iter().enumerate().position(free)?;
        taken[slot] = true;
        drop(taken);
        let number = PARTICIPANTS.fetch_add(1, Ordering::Relaxed);
        self.qsbr.online(slot as u64);
        Some(Participant {
            domain: Arc::clone(self),
            slot: slot as u64,
            turn: number << TURN_BITS,
            online: true,
            not_sync: PhantomData,
        })
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.qsbr.stamp()
    }

    pub(crate) fn passed(&self, stamp: u64) -> bool {
        self.qsbr.passed(stamp)
    }

    pub(crate) fn provisioner(&self) -> &Provisioner {
        &self.provisioner
    }

    /// Unmaps a region's memory when nobody can read it any more.
    pub(crate) fn bury(&self, mapping: FileMapping) {
        let stamp = self.stamp();
        lock(&self.graves).push((stamp, mapping));
        self.any_graves.store(true, Ordering::Release);
        self.sweep();
    }

    /// Unmaps what nobody can read any more.
    pub(crate) fn sweep(&self) {
        let mut graves = lock(&self.graves);
        graves.retain(|(stamp, _)| !self.passed(*stamp));
        self.any_graves.store(!graves.is_empty(), Ordering::Release);
    }
}

/// The lock's content; a panic elsewhere leaves these simple collections whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One thread's part in a [`Domain`]. Dropping it leaves the domain.
pub struct Participant {
    domain: Arc<Domain>,
    slot: u64,
    turn: u64,
    online: bool,
    not_sync: PhantomData<Cell<()>>,
}

impl Participant {
    /// From now on, what is found stays readable until the pin is gone. Costs nothing.
    ///
    /// # Panics
    /// If the participant is offline.
    #[must_use]
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        assert!(self.online, "a pin of a participant that is offline");
        Pin { participant: self }
    }

    /// Announces that no pin of this participant is alive (the borrow checker proves it): what was
    /// retired before may be reused. To be called once per loop turn.
    #[inline]
    pub fn quiescent(&mut self) {
        self.turn += 1;
        if self.online {
            self.domain.qsbr.announce(self.slot);
        }
        if self.domain.any_graves.load(Ordering::Relaxed) {
            self.domain.sweep();
        }
    }

    /// Before sleeping: nobody waits for this participant until it is [`Self::online`] again.
    pub fn offline(&mut self) {
        self.turn += 1;
        self.online = false;
        self.domain.qsbr.offline(self.slot);
    }

    /// After sleeping.
    pub fn online(&mut self) {
        self.turn += 1;
        self.domain.qsbr.online(self.slot);
        self.online = true;
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        self.domain.qsbr.offline(self.slot);
        let slot = usize::try_from(self.slot).expect("an index of a vector");
        lock(&self.domain.taken)[slot] = false;
        self.domain.sweep();
    }
}

/// Proof that the thread's participant does not announce meanwhile: records borrow from it.
#[derive(Clone, Copy)]
pub struct Pin<'p> {
    participant: &'p Participant,
}

impl Pin<'_> {
    /// The turn: changes with each announcement and differs between participants.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.participant.turn
    }

    #[inline]
    pub(crate) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.participant.domain, domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_passes_when_everybody_announced_or_left() {
        // Two participants; retired memory waits for both, but not for a sleeper.
        let domain = Domain::new(2);
        let (mut a, mut b) = (domain.join(), domain.join());
        let stamp = domain.stamp();
        assert!(!domain.passed(stamp));
        a.quiescent();
        assert!(!domain.passed(stamp));
        b.offline();
        assert!(domain.passed(stamp));
        b.online();
        let later = domain.stamp();
        a.quiescent();
        assert!(!domain.passed(later));
        drop(b);
        assert!(domain.passed(later));
    }

    #[test]
    fn seats_are_given_out_by_their_numbers() {
        // Seat 0 is the writer's; 1 and 2 are for readers, and 3 for something else.
        let domain = Domain::new(4);
        let _writer = domain.join();
        let (first, second) = (domain.try_join_in(1..3), domain.try_join_in(1..3));
        assert!(first.is_some() && second.is_some() && domain.try_join_in(1..3).is_none());
        let other = domain.try_join_in(3..4).expect("it is free");
        assert!(domain.try_join().is_none() && domain.try_join_in(4..9).is_none());
        drop(second);
        assert!(domain.try_join_in(3..4).is_none(), "a reader has left, not that one");
        let stamp = domain.stamp();
        drop(other);
        assert!(!domain.passed(stamp), "the writer and the first reader haven't announced");
        assert!(domain.try_join_in(1..3).is_some());
    }

    #[test]
    fn no_turn_comes_twice() {
        // A value noted in one turn is never taken for one of another, of this thread's or of
        // another's.
        let domain = Domain::new(2);
        let (mut a, b) = (domain.join(), domain.join());
        let mut turns = vec![b.pin().turn(), a.pin().turn()];
        for announce in [Participant::quiescent, Participant::offline, Participant::online] {
            announce(&mut a);
            turns.push(a.turn);
        }
        assert!(turns[1..].is_sorted_by(|x, y| x < y), "{turns:?}");
        assert!(!turns[1..].contains(&turns[0]), "{turns:?}");
        drop(a);
        turns.push(domain.join().turn);
        assert!(turns[1..].is_sorted_by(|x, y| x < y), "{turns:?}");
    }

    #[test]
    fn a_dropped_arena_is_unmapped_when_everybody_announced() {
        let dir = crate::tests::directory();
        let a = crate::tests::Arena::create(&crate::tests::spec(dir.path().join("a"), 4 << 20));
        let crate::tests::Arena { writer, reader, mut me, domain, .. } = a;
        let mut other = domain.join();
        drop((writer, reader));
        let state = || (lock(&domain.graves).len(), domain.any_graves.load(Ordering::Relaxed));
        assert_eq!(state(), (1, true));
        me.quiescent();
        assert_eq!(state(), (1, true));
        other.quiescent();
        assert_eq!(state(), (0, false));
    }

    #[test]
    fn a_pin_is_of_its_own_domain() {
        let (ours, theirs) = (Domain::new(1), Domain::new(1));
        let me = ours.join();
        assert!(me.pin().is_of(&ours) && !me.pin().is_of(&theirs));
    }

    #[test]
    #[should_panic(expected = "more participants")]
    fn a_full_domain_says_so() {
        // A third thread joins a domain of two: when one has left, there is a place.
        let domain = Domain::new(2);
        let (_first, second) = (domain.join(), domain.join());
        assert!(domain.try_join().is_none());
        drop(second);
        let _second = domain.try_join().expect("one has left");
        let _third = domain.join();
    }
}
