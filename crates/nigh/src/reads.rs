//! Reading: without a lock, by any thread.
//!
//! ```text
//! get        one look ── expired by this clock only? ── ask the owner
//! multi_get  lines, then records asked for ahead ── one moment ── all keys at it
//! ```
//!
//! 1. Only the owner judges that a key's time is over: its clock is the one that counts. A reader
//!    whose own clock is ahead becomes the owner for a moment, which sets that clock.
//! 2. Several keys of a partition are read as they were at one moment: a batch is seen whole or not
//!    at all.
//! 3. A read that finds no moment, since writers are quicker, has the locks for one try.
//!
//! Any thread.

use crate::copies::add_copy;
use crate::error::DbError;
use crate::options::unix_ms;
use crate::participants::Hold;
use crate::shared_db::{DbPartition, SharedDb};
use crate::value::LentValue;
use nigh_shm::PartitionNumber;
use nigh_shm::layout::is_over;
use nigh_shm::{Moment, Pin, Reader, Record, TooNew, ValueRef};
use std::time::SystemTime;

/// Tries without the lock.
const TRIES: u32 = 8;
/// Keys whose memory is asked for together: what a core keeps under way, and some more.
const KEYS_AHEAD: usize = 32;
/// Lines of the index that a step of a scan visits at most for each key it aims at.
const LINES_PER_KEY: u64 = 10;

/// What a look at several keys found: their values, as they were then, and their partitions.
type FoundValues = Vec<(Option<ValueRef>, usize)>;

/// Why a look at several keys found nothing that counts.
#[derive(Debug)]
enum Unread {
    /// Writers were quicker.
    TooNew,
    /// A key's time seems to be over, which the owner hasn't judged.
    Clock,
}

impl SharedDb {
    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<LentValue<'_>>, DbError> {
        let hold = self.participants.hold()?;
        let (number, hash) = self.place(key);
        let partition = &self.partitions[number];
        let value = partition.find(&hold.pin(), hash, key)?.map(|record| record.value_ref());
        Ok(value.map(|value| LentValue::new(hold, &partition.reader, value)))
    }

    /// The same, copied behind what `into` has. Whether there is one.
    #[inline]
    pub(crate) fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, DbError> {
        let hold = self.participants.hold()?;
        let pin = hold.pin();
        let (number, hash) = self.place(key);
        let record = self.partitions[number].find(&pin, hash, key)?;
        record.map_or(Ok(()), |record| add_copy(into, record.value()))?;
        Ok(record.is_some())
    }

    /// When a key's time is over, Unix ms; 0 if never, `None` if it isn't there.
    pub(crate) fn expiry_ms(&self, key: &[u8]) -> Result<Option<u64>, DbError> {
        let hold = self.participants.hold()?;
        let pin = hold.pin();
        let (number, hash) = self.place(key);
        let record = self.partitions[number].find(&pin, hash, key)?;
        Ok(record.map(|record| record.expiry_ms()))
    }

    /// The values of several keys; those of a partition at one moment.
    pub(crate) fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<LentValue<'_>>>, DbError> {
        let hold = self.participants.hold()?;
        let found = self.find_all(&hold, keys)?;
        let lend = |(value, number): (Option<ValueRef>, usize)| {
            value.map(|value| LentValue::new(hold.again(), &self.partitions[number].reader, value))
        };
        Ok(found.into_iter().map(lend).collect())
    }

    fn find_all(&self, hold: &Hold, keys: &[&[u8]]) -> Result<FoundValues, DbError> {
        let pin = hold.pin();
        let now_ms = unix_ms(SystemTime::now());
        for _ in 0..TRIES {
            match self.find_at_moment(&pin, keys, now_ms) {
                Ok(found) => return Ok(found),
                Err(Unread::TooNew) => {}
                Err(Unread::Clock) => break,
            }
        }
        // Nobody writes meanwhile, and the owners' clocks are the only ones.
        let mut owning = self.own_all()?;
        owning.iter_mut().for_each(|it| it.owner().turn(|_, _| ()));
        let found = self.find_at_moment(&pin, keys, 0);
        Ok(found.expect("all that was begun is committed while the owners do nothing"))
    }

    fn find_at_moment(
        &self,
        pin: &Pin<'_>,
        keys: &[&[u8]],
        now_ms: u64,
    ) -> Result<FoundValues, Unread> {
        // Of the partitions that have some of the keys: a write in another one hinders nothing.
        let mut moments: Vec<Option<Moment>> = vec![None; self.partitions.len()];
        let mut found = Vec::with_capacity(keys.len());
        let mut places = [(0, 0); KEYS_AHEAD];
        for keys in keys.chunks(KEYS_AHEAD) {
            for (place, key) in places.iter_mut().zip(keys) {
                *place = self.place(key);
            }
            let looks = places.iter().take(keys.len());
            Reader::prefetch(looks.map(|(number, hash)| (&self.partitions[*number].reader, *hash)));
            for ((number, hash), key) in places.iter().zip(keys) {
                let reader = &self.partitions[*number].reader;
                let moment = moments[*number].or_else(|| reader.moment(pin));
                let moment = moment.ok_or(Unread::TooNew)?;
                moments[*number] = Some(moment);
                let record = reader.get_at(pin, &moment, *hash, key);
                let record = record.map_err(|TooNew| Unread::TooNew)?;
                let expiry_ms = record.map_or(0, |record| record.expiry_ms());
                let is_live = !is_over(expiry_ms, moment.clock_ms());
                if is_live && is_over(expiry_ms, now_ms) {
                    return Err(Unread::Clock);
                }
                let value = record.filter(|_| is_live).map(|record| record.value_ref());
                found.push((value, *number));
            }
        }
        Ok(found)
    }

    /// A step of a scan: passes about `count` keys that begin with `prefix`, with their values, to
    /// `found`. Returns where the next step begins; 0: nowhere.
    pub(crate) fn scan_step(
        &self,
        prefix: &[u8],
        mut cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, DbError> {
        let hold = self.participants.hold()?;
        let pin = hold.pin();
        let count = u64::from(count.max(1));
        let (mut met, mut lines) = (0, count * LINES_PER_KEY);
        loop {
            let number = PartitionNumber::of_cursor(cursor, self.partitions.len() as u64);
            let at = usize::try_from(number.partition).unwrap_or_default();
            let reader = &self.partitions[at].reader;
            let now_ms = reader.clock_ms().max(unix_ms(SystemTime::now()));
            let next = reader.scan(&pin, number.inward(cursor), 1, &mut |record| {
                let is_meant = record.key().starts_with(prefix);
                if is_meant && !is_over(record.expiry_ms(), now_ms) {
                    met += 1;
                    found(record.key(), record.value());
                }
            });
            cursor = number.outward(next);
            lines -= 1;
            if cursor == 0 || lines == 0 || met >= count {
                return Ok(cursor);
            }
        }
    }
}

impl DbPartition {
    /// The record of a key that has one.
    #[inline]
    fn find<'p>(
        &self,
        pin: &'p Pin<'_>,
        hash: u32,
        key: &[u8],
    ) -> Result<Option<Record<'p>>, DbError> {
        for _ in 0..TRIES {
            let Ok((found, clock_ms)) = self.reader.get_alone(pin, hash, key) else { continue };
            let Some(record) = found else { return Ok(None) };
            return match record.expiry_ms() {
                0 => Ok(Some(record)),
                expiry_ms if is_over(expiry_ms, clock_ms) => Ok(None),
                expiry_ms if is_over(expiry_ms, unix_ms(SystemTime::now())) => {
                    self.find_owned(pin, hash, key)
                }
                _ => Ok(Some(record)),
            };
        }
        self.find_owned(pin, hash, key)
    }

    /// The same as the owner sees it.
    #[cold]
    fn find_owned<'p>(
        &self,
        pin: &'p Pin<'_>,
        hash: u32,
        key: &[u8],
    ) -> Result<Option<Record<'p>>, DbError> {
        let mut owning = self.owner.take()?;
        let now_ms = owning.owner().turn(|_, turn| turn.now_ms);
        let record = self.reader.get(pin, hash, key);
        Ok(record.filter(|record| !is_over(record.expiry_ms(), now_ms)))
    }
}
