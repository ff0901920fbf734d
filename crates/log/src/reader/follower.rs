//! Reads along a chain while it is written and compacted, in the process or not.
//!
//! 1. It gives only what was on disk: what lies before the end that it was told, or else before the
//!    latest watermark that it has read. So what it gave stays true behind a power cut.
//! 2. What isn't valid means *not yet*. It never judges a tail.
//! 3. It takes no lock. A file that was recycled under it has another salt, or no name:
//!    [`Followed::Gone`].
//! 4. It goes to the next file only when that file's BEGIN is on disk.
//!
//! One thread at a time.

use crate::error::LogError;
use crate::format::layout::BLOCK_BYTES;
use crate::format::meta::Meta;
use crate::format::meta_text;
use crate::format::names::META;
use crate::position::{Chain, LogPosition};
use crate::reader::commits::{CommitReceiver, give};
use crate::reader::frames::FrameWalk;
use crate::reader::headers::header_at;
use crate::reader::log_file::{ChainKey, ReadFile, numbers_of};
use crate::reader::search::ReadBegin;
use crate::reader::so_far::ReadSoFar;
use crate::storage::{Storage, StoredFile, World, read_exact_at};

/// Most bytes of `meta` that are read: some 5 million tenants.
const META_BYTES_MOST: u64 = 1 << 30;

/// Where a follower stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowPosition {
    /// The chain.
    pub chain: Chain,
    /// Where its next frame begins.
    pub at: LogPosition,
    /// The salt of that file.
    pub salt: u64,
}

/// What a follower found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// A frame; its commits were given.
    Frame,
    /// Nothing more is on disk.
    NotYet,
    /// What comes next was compacted away: it starts again, with an empty state.
    Gone {
        /// The file to start from; 0: the chain counts no more.
        oldest: u64,
    },
}

/// A file with a valid BEGIN, behind another one.
struct Successor<F> {
    file: ReadFile<F>,
    begin: ReadBegin,
}

/// A reader that follows a chain.
pub struct LogFollower<S: Storage> {
    world: World<S>,
    key: ChainKey,
    /// Where the chain is on disk up to.
    mark: LogPosition,
    /// The mark is told from outside.
    told: bool,
    /// `None`: what comes next is gone.
    walk: Option<FrameWalk<S::File>>,
    so_far: ReadSoFar,
    /// Up to where headers of this file were looked at for watermarks.
    scouted: u64,
    /// Where this file ends, if its successor is known.
    file_end: Option<LogPosition>,
    /// Files of the chain behind this one, the next one last, if any are known.
    ahead: Vec<u64>,
}

impl<S: Storage> LogFollower<S> {
    /// A follower that goes on from a position.
    ///
    /// # Errors
    /// `Io` or `NewerVersion`.
    pub fn from(world: &World<S>, meta: &Meta, from: &FollowPosition) -> Result<Self, LogError> {
        let key = ChainKey::of(meta, &from.chain);
        let file = open(&*world.storage, &key, from.at.file)?;
        let counts = meta.chains.contains(&from.chain);
        let file = file.filter(|file| counts && file.head.salt == from.salt);
        let position = from.at.position.max(BLOCK_BYTES);
        Ok(LogFollower {
            world: world.clone(),
            key,
            mark: from.at,
            told: false,
            walk: file.map(|file| FrameWalk::from(file, position, None)),
            so_far: ReadSoFar::default(),
            scouted: position,
            file_end: None,
            ahead: Vec::new(),
        })
    }

    /// A follower that begins at the oldest file that counts, with an empty state.
    ///
    /// # Errors
    /// `Body`, `Io` or `NewerVersion`.
    pub fn whole(world: &World<S>, meta: &Meta, chain: &Chain) -> Result<Self, LogError> {
        let key = ChainKey::of(meta, chain);
        let oldest = oldest_of(&*world.storage, &key)?;
        let salt = open(&*world.storage, &key, oldest)?.map_or(0, |file| file.head.salt);
        let at = LogPosition { file: oldest, position: BLOCK_BYTES };
        LogFollower::from(world, meta, &FollowPosition { chain: *chain, at, salt })
    }

    /// A follower of a chain that is on disk up to `end`, from the file on that has a stream's
    /// fresh change `lsn`, or from an earlier one. `Err`: the first fresh change of the stream that
    /// is left, since those before were compacted away.
    ///
    /// # Errors
    /// `Body`, `Io` or `NewerVersion`.
    pub fn from_change(
        world: &World<S>,
        meta: &Meta,
        (chain, end): (&Chain, LogPosition),
        (stream, lsn): (u32, u64),
    ) -> Result<Result<Self, u64>, LogError> {
        let (storage, key) = (&*world.storage, ChainKey::of(meta, chain));
        let (oldest, mut number) = (oldest_of(storage, &key)?, end.file);
        // What is left, if the file that comes next isn't: nothing of the stream, by now.
        let mut first = u64::MAX;
        while number >= oldest.max(1) {
            let Some(Successor { file, begin }) = begin_of(storage, &key, number)? else { break };
            let before = begin.lasts.iter().find(|(it, _)| *it == stream);
            first = before.map_or(0, |(_, last)| *last) + 1;
            if first <= lsn {
                let at = LogPosition { file: number, position: BLOCK_BYTES };
                let from = FollowPosition { chain: *chain, at, salt: file.head.salt };
                let mut follower = LogFollower::from(world, meta, &from)?;
                follower.set_end(end);
                return Ok(Ok(follower));
            }
            number = begin.header.watermark.file;
        }
        Ok(Err(first))
    }

    /// Says up to where the chain is on disk; from now on only this counts.
    pub fn set_end(&mut self, end: LogPosition) {
        self.mark = self.mark.max(end);
        self.told = true;
    }

    /// Where it stands: a follower may go on from there. `None` if that is gone.
    #[must_use]
    pub fn position(&self) -> Option<FollowPosition> {
        let walk = self.walk.as_ref()?;
        let (chain, salt) = (self.key.chain, walk.file().head.salt);
        Some(FollowPosition { chain, at: walk.at(), salt })
    }

    /// Reads the next frame, and gives its commits.
    ///
    /// # Errors
    /// `Refused` if `each` fails; `Gap` or `Body` if the log isn't as a server would write it;
    /// `Meta`, `NewerVersion` or `Io`. The follower is of no use then.
    pub fn advance(&mut self, each: &mut CommitReceiver<'_>) -> Result<Followed, LogError> {
        loop {
            let Some(walk) = &mut self.walk else { return self.gone() };
            let at = walk.at();
            if self.mark <= at {
                if self.told {
                    return Ok(Followed::NotYet);
                }
                if !self.learn(at)? {
                    return self.not_yet();
                }
                continue;
            }
            let limit = if self.mark.file == at.file { Some(self.mark) } else { self.file_end };
            match limit {
                Some(limit) if at < limit => {
                    walk.set_limit(limit.position);
                    let Some(header) = walk.advance()? else { return self.not_yet() };
                    let (name, body) = (walk.file().name, walk.parsed(&header)?);
                    self.so_far.take(None, &name, &header, &body)?;
                    give(None, &name, &header, &body, each)?;
                    return Ok(Followed::Frame);
                }
                Some(limit) if at > limit => self.walk = None,
                _ if !self.next_file(at)? => return self.not_yet(),
                _ => {}
            }
        }
    }

    /// Looks for later watermarks; whether there is one behind this place.
    fn learn(&mut self, at: LogPosition) -> Result<bool, LogError> {
        let Some(walk) = &self.walk else { return Ok(false) };
        let (scouted, mark) = scout(walk.file(), self.scouted.max(at.position))?;
        self.scouted = scouted;
        self.mark = self.mark.max(mark);
        if self.mark <= at {
            // A BEGIN says where its predecessor ends, and that this is on disk.
            self.ahead = self.find_ahead(at.file)?;
            let newest = self.ahead.first().map(|&newest| self.read_begin(newest)).transpose()?;
            if let Some(Successor { file, begin }) = newest.flatten() {
                let (_, mark) = scout(&file, begin.header.end().position)?;
                self.mark = self.mark.max(begin.header.watermark).max(mark);
            }
        }
        Ok(self.mark > at)
    }

    /// Finds where this file ends, or goes to the file behind it if it ends here; `false`: there is
    /// none yet, or it isn't on disk.
    fn next_file(&mut self, at: LogPosition) -> Result<bool, LogError> {
        let Some(Successor { file, begin }) = self.successor(at.file)? else {
            return Ok(false);
        };
        let end = begin.header.watermark;
        if end != at {
            self.file_end = Some(end);
            return Ok(true);
        }
        let before = self.walk.as_ref().and_then(FrameWalk::before);
        if !begin.follows(at, before) || self.mark < begin.header.end() {
            return Ok(false);
        }
        self.walk = Some(FrameWalk::begin(file, Some(begin.header.before_sum)));
        (self.scouted, self.file_end) = (begin.header.end().position, None);
        self.ahead.pop();
        Ok(true)
    }

    /// The file whose BEGIN names this one as its predecessor.
    fn successor(&mut self, number: u64) -> Result<Option<Successor<S::File>>, LogError> {
        let known = self.known_successor(number)?;
        if known.is_some() {
            return Ok(known);
        }
        self.ahead = self.find_ahead(number)?;
        self.known_successor(number)
    }

    /// The same, if the files ahead are known, and the next one is there still.
    fn known_successor(&self, number: u64) -> Result<Option<Successor<S::File>>, LogError> {
        let Some(&next) = self.ahead.last() else { return Ok(None) };
        let found = self.read_begin(next)?;
        Ok(found.filter(|found| found.begin.header.watermark.file == number))
    }

    /// The files of the chain behind this one, the next one last. They are found from the newest
    /// back, as a start does: so a file that no BEGIN names is passed over. One that a BEGIN names
    /// and that isn't there was compacted away, and so was what this follower stands at.
    fn find_ahead(&mut self, number: u64) -> Result<Vec<u64>, LogError> {
        let mut ahead = Vec::new();
        let numbers = numbers_of(&*self.world.storage, &self.key.chain)?;
        for &above in numbers.iter().rev() {
            if above <= number || !ahead.is_empty() {
                break;
            }
            let mut found = self.read_begin(above)?;
            while let Some(Successor { begin, .. }) = found {
                ahead.push(begin.header.at.file);
                match begin.header.watermark.file {
                    before if before > number && !numbers.contains(&before) => {
                        self.walk = None;
                        return Ok(Vec::new());
                    }
                    before if before > number => found = self.read_begin(before)?,
                    before if before == number => return Ok(ahead),
                    // The chain doesn't have this file.
                    _ => break,
                }
            }
        }
        Ok(Vec::new())
    }

    fn read_begin(&self, number: u64) -> Result<Option<Successor<S::File>>, LogError> {
        begin_of(&*self.world.storage, &self.key, number)
    }

    /// Nothing valid stands where it should: it isn't there yet, or no more.
    fn not_yet(&mut self) -> Result<Followed, LogError> {
        let Some(walk) = &self.walk else { return self.gone() };
        let (number, salt) = (walk.at().file, walk.file().head.salt);
        let there = match ReadFile::open(&*self.world.storage, &self.key, number) {
            // The head is being written.
            Err(LogError::Head { .. }) => true,
            opened => opened?.is_some_and(|file| file.head.salt == salt),
        };
        if there && self.counts()? {
            return Ok(Followed::NotYet);
        }
        self.walk = None;
        self.gone()
    }

    fn gone(&self) -> Result<Followed, LogError> {
        let oldest = if self.counts()? { oldest_of(&*self.world.storage, &self.key)? } else { 0 };
        Ok(Followed::Gone { oldest })
    }

    /// Whether meta still names the chain. It is read as it is, without a sync.
    fn counts(&self) -> Result<bool, LogError> {
        let io = |doing| move |error| LogError::io(META, 0, doing, error);
        let Some(file) = self.world.storage.open(META).map_err(io("opening"))? else {
            return Ok(false);
        };
        let bytes = file.len().map_err(io("asking for the length"))?;
        let mut text = vec![0; usize::try_from(bytes.min(META_BYTES_MOST)).unwrap_or(0)];
        read_exact_at(&file, 0, &mut text).map_err(io("reading"))?;
        let meta = meta_text::parse(&text)?;
        Ok(meta.id == self.key.log_id && meta.chains.contains(&self.key.chain))
    }
}

/// A file with its BEGIN, if that is valid.
fn begin_of<S: Storage>(
    storage: &S,
    key: &ChainKey,
    number: u64,
) -> Result<Option<Successor<S::File>>, LogError> {
    let Some(file) = open(storage, key, number)? else { return Ok(None) };
    let mut walk = FrameWalk::begin(file, None);
    let begin = ReadBegin::read(&mut walk)?;
    Ok(begin.map(|begin| Successor { file: walk.into_file(), begin }))
}

/// Opens a file; `None` if its name isn't there, or its head is being written.
fn open<S: Storage>(
    storage: &S,
    key: &ChainKey,
    number: u64,
) -> Result<Option<ReadFile<S::File>>, LogError> {
    match ReadFile::open(storage, key, number) {
        Err(LogError::Head { .. }) => Ok(None),
        opened => opened,
    }
}

/// Goes over valid headers; where the last frame ends, and the latest watermark.
fn scout<F: StoredFile>(
    file: &ReadFile<F>,
    mut position: u64,
) -> Result<(u64, LogPosition), LogError> {
    let mut mark = LogPosition::default();
    while let Some(header) = header_at(file, position)? {
        mark = mark.max(header.watermark);
        position += header.length;
    }
    Ok((position, mark))
}

/// The oldest file that counts, by the newest frame; 0 if no file is begun.
fn oldest_of<S: Storage>(storage: &S, key: &ChainKey) -> Result<u64, LogError> {
    for number in numbers_of(storage, &key.chain)?.into_iter().rev() {
        let Some(file) = open(storage, key, number)? else { continue };
        let mut walk = FrameWalk::begin(file, None);
        let Some(begin) = ReadBegin::read(&mut walk)? else { continue };
        let (mut oldest, mut position) = (begin.header.oldest, begin.header.end().position);
        while let Some(header) = header_at(walk.file(), position)? {
            (oldest, position) = (header.oldest, position + header.length);
        }
        return Ok(oldest);
    }
    Ok(0)
}
