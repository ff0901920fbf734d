//! KEYS, SCAN, RANDOMKEY, and the walk by prefix that functions have.
//!
//! A walk goes line by line over the index. Inside a transaction it sees the overlay: a key of the
//! arena is shown as staged or left out if deleted; keys that the arena doesn't have are shown
//! at the beginning, so that whoever walks from 0 on meets them.
//!
//! Thread: the shard that owns the store.

use nigh_shm::Record;

use crate::call::{Call, Outcome, Refusal};
use crate::error::{NOT_AN_INTEGER, SYNTAX};
use crate::partition::store::Store;
use crate::reply_sink::Reply;
use crate::split_mix::Random;
use crate::text::arguments::{cursor, integer, is_option};
use crate::text::glob;
use crate::turn::Turn;
use nigh_shm::layout::is_over;

const INVALID_CURSOR: &str = "ERR invalid cursor";
/// Keys that SCAN aims at unless told.
const DEFAULT_COUNT: u64 = 10;
/// Lines that SCAN visits at most for each key it aims at, so that it ends soon in an empty index
/// (Redis: `maxiterations`).
const LINES_PER_KEY: u64 = 10;
/// Lines per step of a walk over everything.
const LINES_PER_STEP: u32 = 64;
/// Random picks that may hit dead or deleted keys before the first live one is taken instead.
const RANDOM_TRIES: u32 = 100;

/// What SCAN was asked for.
struct Options<'a> {
    count: u64,
    pattern: Option<&'a [u8]>,
    strings: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a [u8]]) -> Result<Options<'a>, Refusal> {
        let mut options = Options { count: DEFAULT_COUNT, pattern: None, strings: true };
        let (pairs, rest) = args.as_chunks::<2>();
        for [name, value] in pairs {
            if is_option(name, "COUNT") {
                let count = integer(value).ok_or(NOT_AN_INTEGER)?;
                options.count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
            } else if is_option(name, "MATCH") {
                options.pattern = (*value != b"*").then_some(*value);
            } else if is_option(name, "TYPE") {
                // Names of types that aren't there are names of types without keys.
                options.strings = is_option(value, "STRING");
            } else {
                return Err(SYNTAX.into());
            }
        }
        if rest.is_empty() { Ok(options) } else { Err(SYNTAX.into()) }
    }
}

impl Store {
    pub(crate) fn scan<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let cursor = cursor(call.arg(1)).ok_or(INVALID_CURSOR)?;
        let mut cursor = self.place.inward(cursor);
        let options = Options::parse(&call.args[2..])?;
        let (mut met, mut dead) = (Vec::new(), Vec::new());
        let mut lines = options.count.saturating_mul(LINES_PER_KEY);
        loop {
            cursor = self.walk(cursor, 1, call.turn, &mut |record| met.push(record));
            lines -= 1;
            if cursor == 0 || lines == 0 || met.len() as u64 >= options.count {
                break;
            }
        }
        met.retain(|record| {
            let wanted = options.strings
                && options.pattern.is_none_or(|pattern| glob::matches(pattern, record.key()));
            let over = is_over(record.expiry_ms(), call.turn.now_ms);
            if wanted && over {
                dead.push(*record);
            }
            wanted && !over
        });
        for record in dead {
            self.find(record.hash(), record.key(), call.turn);
        }
        out.array(2);
        out.bulk(itoa::Buffer::new().format(self.place.outward(cursor)).as_bytes());
        out.array(met.len());
        for record in met {
            out.bulk(record.key());
        }
        Ok(())
    }

    pub(crate) fn keys_matching<R: Reply>(
        &mut self,
        call: Call<'_, '_, '_>,
        out: &mut R,
    ) -> Outcome {
        let mut keys = Vec::new();
        self.collect_keys(call.arg(1), call.turn, &mut keys);
        out.array(keys.len());
        for key in keys {
            out.bulk(key);
        }
        Ok(())
    }

    /// Adds the live keys that match a pattern, each once.
    pub(crate) fn collect_keys<'p>(
        &self,
        pattern: &[u8],
        turn: &Turn<'p>,
        keys: &mut Vec<&'p [u8]>,
    ) {
        let (all, before, epoch) = (pattern == b"*", keys.len(), self.reader.index_epoch());
        self.walk_all(turn, &mut |record| {
            if all || glob::matches(pattern, record.key()) {
                keys.push(record.key());
            }
        });
        // While a view walks, its owner may move a key to the other table: it is met in both.
        let stands = epoch.is_multiple_of(2) && self.reader.index_epoch() == epoch;
        if !self.is_owner() && !stands {
            let mut found = keys.split_off(before);
            found.sort_unstable();
            found.dedup();
            keys.append(&mut found);
        }
    }

    pub(crate) fn random_key<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        match self.pick(call.turn) {
            Some(record) => out.bulk(record.key()),
            None => out.null(),
        }
        Ok(())
    }

    fn pick<'p>(&mut self, turn: &Turn<'p>) -> Option<Record<'p>> {
        let mut random = Random(turn.random);
        for _ in 0..RANDOM_TRIES {
            let record = match self.pick_staged(&mut random, turn) {
                Some(record) => record,
                None => self.reader.random(turn.pin, &mut || random.next())?,
            };
            // Removes it if its time is over, and knows what the transaction has deleted.
            if let Some(record) = self.find(record.hash(), record.key(), turn) {
                return Some(record);
            }
        }
        let mut first = None;
        self.walk_all(turn, &mut |record| {
            first.get_or_insert(record);
        });
        first
    }

    /// Inside a transaction: a staged record, as often as the share of the keys that only it has.
    fn pick_staged<'p>(&self, random: &mut Random, turn: &Turn<'p>) -> Option<Record<'p>> {
        let transaction = self.transaction.as_ref()?;
        let only_staged = || transaction.records().filter(|(_, _, in_arena)| !in_arena);
        let count = only_staged().count();
        let pick = random.below(self.keys().max(1));
        let nth = usize::try_from(pick).ok().filter(|nth| *nth < count)?;
        let (_, reference, _) = only_staged().nth(nth)?;
        self.reader.record(turn.pin, reference)
    }

    /// Keys with a prefix, about `count` per step, for the `db.scan` of functions: starts at 0,
    /// returns where to go on, 0 at the end. SCAN's guarantee holds.
    pub fn scan_keys(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        turn: &Turn<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        let mut cursor = self.place.inward(cursor);
        let mut met = 0;
        let mut lines = u64::from(count.max(1)) * LINES_PER_KEY;
        loop {
            cursor = self.walk(cursor, 1, turn, &mut |record| {
                met += 1;
                if !is_over(record.expiry_ms(), turn.now_ms) && record.key().starts_with(prefix) {
                    found(record.key());
                }
            });
            lines -= 1;
            if cursor == 0 || lines == 0 || met >= count {
                return self.place.outward(cursor);
            }
        }
    }

    /// All live keys, each once; some twice on a view while keys move between tables.
    fn walk_all<'p>(&self, turn: &Turn<'p>, found: &mut dyn FnMut(Record<'p>)) {
        let mut cursor = 0;
        loop {
            cursor = self.walk(cursor, LINES_PER_STEP, turn, &mut |record| {
                if !is_over(record.expiry_ms(), turn.now_ms) {
                    found(record);
                }
            });
            if cursor == 0 {
                return;
            }
        }
    }

    /// One step of a walk: the keys of some home lines, dead ones too.
    fn walk<'p>(
        &self,
        cursor: u64,
        lines: u32,
        turn: &Turn<'p>,
        found: &mut dyn FnMut(Record<'p>),
    ) -> u64 {
        let Some(transaction) = &self.transaction else {
            return self.reader.scan(turn.pin, cursor, lines, found);
        };
        let staged = |reference| self.reader.record(turn.pin, reference);
        if cursor == 0 {
            let only_staged = transaction.records().filter(|(_, _, in_arena)| !in_arena);
            only_staged.filter_map(|(_, reference, _)| staged(reference)).for_each(&mut *found);
        }
        if transaction.is_cleared() {
            return 0;
        }
        self.reader.scan(turn.pin, cursor, lines, &mut |record| match transaction.get(record.key())
        {
            None => found(record),
            Some(reference) => {
                if let Some(record) = reference.and_then(staged) {
                    found(record);
                }
            }
        })
    }
}
