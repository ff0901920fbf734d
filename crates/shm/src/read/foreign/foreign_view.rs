//! Several keys of one moment, read from another process.
//!
//! ```text
//! entry ─ newest ─ prev ─ older ─ prev ─ the first with LSN ≤ S      by one S and one clock
//! ```
//!
//! 1. A record on the way back that doesn't keep the format was reused or damaged: the attempt is
//!    over.
//! 2. An attempt that is over stays over, whatever its caller makes of the error.
//! 3. A view holds nothing back, so it may rest between two reads, without a borrow of its reader.

use super::copier::{Copier, ForeignVersion, LOOKS_MAX, Look, Wanted};
use super::read_check::ReadCheck;
use super::room::Room;
use crate::format::head::Head;
use crate::format::layout::is_over;
use crate::format::words::{MappedWords, SharedWords};
use crate::index::moment::{self, MomentSample, TooNew, VERSIONS_MAX};

/// Keys whose memory is asked for together: what a core keeps under way, and some more.
pub(super) const KEYS_AHEAD: usize = 32;

/// What a caller learns of a version.
pub(super) fn version_of(head: &Head) -> ForeignVersion {
    ForeignVersion { lsn: head.lsn, expiry_ms: head.expiry_ms }
}

/// The keys of an arena at one moment, for one attempt to read them.
#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
pub struct View<'r, W: SharedWords = MappedWords> {
    copier: &'r Copier<W>,
    seed: u32,
    watch: ReadCheck,
    moment: MomentSample,
    is_over: bool,
    /// Bytes for which the system gave no memory.
    denied: Option<usize>,
}

/// A view between two of its reads. The reader that began it resumes it:
/// [`super::ForeignReader::resume_view`].
#[derive(Debug, Clone, Copy)]
pub struct RestingView {
    watch: ReadCheck,
    moment: MomentSample,
    is_over: bool,
    /// Bytes for which the system gave no memory.
    denied: Option<usize>,
}

impl RestingView {
    /// The moment: as [`View::lsn`].
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.moment.lsn
    }
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<'r, W: SharedWords> View<'r, W> {
    /// Takes a moment; `None` if a commit is under way for too long.
    pub(super) fn begin(copier: &'r Copier<W>, seed: u32, watch: ReadCheck) -> Option<View<'r, W>> {
        let moment = moment::sample(&copier.words)?;
        Some(View { copier, seed, watch, moment, is_over: false, denied: None })
    }

    /// Goes on with an attempt.
    pub(super) fn resume(copier: &'r Copier<W>, seed: u32, resting: RestingView) -> View<'r, W> {
        let RestingView { watch, moment, is_over, denied } = resting;
        View { copier, seed, watch, moment, is_over, denied }
    }

    /// The attempt without its reader.
    #[must_use]
    pub fn rest(self) -> RestingView {
        let View { watch, moment, is_over, denied, .. } = self;
        RestingView { watch, moment, is_over, denied }
    }

    /// Whether too much has changed: what was read counts no more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The bytes for which the system gave no memory, if that is why the attempt is over: another
    /// one is over too.
    #[must_use]
    pub fn denied(&self) -> Option<usize> {
        self.denied
    }

    /// The attempt is over, since there is no memory for so many bytes.
    pub(super) fn deny(&mut self, bytes: usize) -> TooNew {
        (self.is_over, self.denied) = (true, Some(bytes));
        TooNew
    }

    /// The moment: what is numbered up to here is seen.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.moment.lsn
    }

    /// The time by which keys are judged, Unix ms.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.moment.clock_ms
    }

    /// Copies the value that a key had at the moment to `out`, whose content is replaced. Returns
    /// its expiry (Unix milliseconds, 0: none), or `None` if there was no such key or its time was
    /// over by the arena's clock. A caller that finds it over by a clock of its own only asks the
    /// owner.
    ///
    /// # Errors
    /// [`TooNew`]: too much has changed since. The attempt is over: return the error to
    /// [`super::ForeignReader::view`].
    pub fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u64>, TooNew> {
        let found = self.find(self.hash(key), key, true, out);
        if !matches!(found, Ok(Some(_))) {
            out.clear();
        }
        Ok(found?.map(|it| it.expiry_ms))
    }

    /// Asks for the memory of keys that are read next: up to some 30 at once go faster so.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        let mut hashes = [0; KEYS_AHEAD];
        for keys in keys.chunks(KEYS_AHEAD) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash(key);
            }
            self.prefetch_hashes(&hashes[..keys.len()]);
        }
    }

    /// The same of keys with these hashes.
    pub(super) fn prefetch_hashes(&self, hashes: &[u32]) {
        self.copier.prefetch(hashes);
    }

    /// The hash of a key.
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        crate::format::hash::hash(self.seed, key)
    }

    /// [`Self::get`] without the value: the expiry that a key had at the moment, or `None` if there
    /// was no such key.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn expiry(&mut self, key: &[u8]) -> Result<Option<u64>, TooNew> {
        Ok(self.find(self.hash(key), key, false, &mut Vec::new())?.map(|it| it.expiry_ms))
    }

    /// The version of a key with this hash.
    pub(super) fn find(
        &mut self,
        hash: u32,
        key: &[u8],
        with_value: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<ForeignVersion>, TooNew> {
        if self.is_over {
            return Err(TooNew);
        }
        let mut room = Room::of(out);
        let found = self.find_version(hash, key, with_value, &mut room);
        if found.is_err() {
            (self.is_over, self.denied) = (true, room.denied());
        }
        found
    }

    fn find_version(
        &self,
        hash: u32,
        key: &[u8],
        with_value: bool,
        out: &mut Room<'_>,
    ) -> Result<Option<ForeignVersion>, TooNew> {
        let MomentSample { lsn, clock_ms } = self.moment;
        let wanted = Wanted { hash, key, lsn, clock_ms, with_value };
        let newest = self.newest(&wanted, out)?;
        let found = match newest {
            Some(head) => self.go_back(head, &wanted, out)?,
            None => None,
        };
        if found.is_none() {
            moment::absent(&self.copier.words, &self.moment, hash)?;
        }
        if !self.watch.holds(&self.copier.words) {
            return Err(TooNew);
        }
        Ok(found.filter(|head| !is_over(head.expiry_ms, clock_ms)).as_ref().map(version_of))
    }

    /// The version that the index names.
    fn newest(&self, wanted: &Wanted<'_>, out: &mut Room<'_>) -> Result<Option<Head>, TooNew> {
        for _ in 0..LOOKS_MAX.min(W::TRIES_MAX) {
            match self.copier.look(wanted, out) {
                Look::Hit(head, _) => return Ok(Some(head)),
                Look::Miss => return Ok(None),
                Look::Again if self.watch.holds(&self.copier.words) => std::hint::spin_loop(),
                Look::Again => break,
            }
        }
        Err(TooNew)
    }

    /// The first version up to the moment; `None` if the key was set behind it.
    fn go_back(
        &self,
        newest: Head,
        wanted: &Wanted<'_>,
        out: &mut Room<'_>,
    ) -> Result<Option<Head>, TooNew> {
        let mut head = newest;
        for _ in 0..VERSIONS_MAX {
            if head.lsn <= self.moment.lsn {
                return Ok(Some(head));
            }
            if head.prev == 0 {
                return Ok(None);
            }
            head = self.copier.older(&head, wanted, out).ok_or(TooNew)?;
        }
        Err(TooNew)
    }
}
