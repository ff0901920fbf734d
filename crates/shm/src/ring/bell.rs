//! Sleep and wake: a thread that waits for messages sleeps in the kernel, and is woken by the first
//! that comes.
//!
//! ```text
//! sleeper: claims to 0 ── fence ── look at all rings ── nothing? sleep ── claims + 1
//! others:  publish ────── fence ── no claims? claims + 1 ── now they are 1? wake it
//! ```
//!
//! 1. Of the two looks after the fences (both SeqCst), at least one sees the other's store: either
//!    the sleeper finds the message and doesn't sleep, or the publisher finds it asleep.
//! 2. There are no claims while the owner is about to sleep or sleeps, and nobody has woken it.
//!    Only the claim that is the first wakes, so a sleep costs its wakers one system call, however
//!    many they are.
//! 3. Every change of the word is a read-modify-write: none is overwritten unseen.
//! 4. A wake that comes late finds somebody awake or sleeping anew; it must not be lost in either
//!    case (an eventfd's isn't), and does no harm: the sleeper looks, and sleeps again.
//!
//! [`Bell::prepare_sleep`] and [`Bell::woken`] are for the thread that it belongs to, the rest for
//! any other.

use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;

/// The word: sleeps so far, times this, plus claims. Claims are fewer: a waker makes one for a
/// look.
const SLEEP: u64 = 1 << 16;
/// The word of an owner that has not slept yet; any number of claims but 0 means awake.
const AWAKE: u64 = 1;
/// Tries to fall asleep: each that fails takes a waker that came late to the last sleep. A
/// shard that doesn't manage stays awake for another turn.
const TRIES: usize = 128;
/// Bytes of a bell on the heap, and where its word is: alone on its cache line, however it is
/// aligned.
const BELL_BYTES: usize = 192;
const WORD: u64 = 64;

#[inline]
const fn claims(word: u64) -> u64 {
    word % SLEEP
}

/// A fence stands behind what this thread has published: only [`Bell::fence`] makes one, so no bell
/// is rung without.
#[must_use = "a fence alone wakes nobody: ring the bells"]
pub struct Fenced(());

/// The word by which a thread says that it sleeps.
#[derive(Clone)]
pub struct Bell<W = HeapWords> {
    words: W,
    at: u64,
}

impl Bell {
    /// A bell on the heap; its owner is awake.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a bell without an owner is no default")]
    pub fn new() -> Bell {
        Bell::over(HeapWords::new(BELL_BYTES), WORD)
    }
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> Bell<W> {
    /// A bell whose word is at `at`; its owner is awake.
    pub(crate) fn over(words: W, at: u64) -> Bell<W> {
        words.store64(at, AWAKE, Ordering::Relaxed);
        Bell { words, at }
    }

    /// A bell whose word another process has set.
    pub(crate) fn of_peer(words: W, at: u64) -> Bell<W> {
        Bell { words, at }
    }

    /// The memory that its word lies in.
    pub(crate) fn words(&self) -> &W {
        &self.words
    }

    /// Owner: tells whether it may sleep now. If so it must call [`Self::woken`] afterwards; if
    /// not, because `has_mail` found something, it stays awake.
    pub fn prepare_sleep(&self, has_mail: impl FnOnce() -> bool) -> bool {
        let mut word = self.words.load64(self.at, Ordering::Relaxed);
        for _ in 0..TRIES {
            word = self.words.add64(self.at, SLEEP - claims(word), Ordering::AcqRel);
            if claims(word) == 0 {
                break;
            }
        }
        if claims(word) != 0 {
            return false;
        }
        // SYNC(bell): with `fence`. Either we see the message, or its publisher sees us asleep.
        self.words.fence(Ordering::SeqCst);
        let sleeps = !has_mail();
        if !sleeps {
            self.woken();
        }
        sleeps
    }

    /// Owner: nobody has to wake it from now on. It looks at all rings before it sleeps again.
    pub fn woken(&self) {
        self.words.add64(self.at, 1, Ordering::AcqRel);
    }

    /// Others: once after the last message is published. One fence does for many bells.
    #[inline]
    pub fn fence(&self) -> Fenced {
        // SYNC(bell): with `prepare_sleep`.
        self.words.fence(Ordering::SeqCst);
        Fenced(())
    }

    /// Others: calls `wake` if the owner sleeps and nobody else has woken it; tells whether it did.
    #[inline]
    pub fn ring(&self, _fenced: &Fenced, wake: impl FnOnce()) -> bool {
        let is_first = claims(self.words.load64(self.at, Ordering::Relaxed)) == 0
            && claims(self.words.add64(self.at, 1, Ordering::AcqRel)) == 1;
        if is_first {
            wake();
        }
        is_first
    }
}
