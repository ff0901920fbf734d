//! SCAN, KEYS and RANDOMKEY.
//!
//! Thread: the shard that owns the store, or the view.

use nigh_shm::Record;
use nigh_shm::layout::is_over;

use crate::call::{Call, CommandResult, Refusal};
use crate::error::{NOT_AN_INTEGER, SYNTAX};
use crate::partition::store::Store;
use crate::partition::walking::{LINES_PER_KEY, LINES_PER_STEP};
use crate::reply_sink::ReplySink;
use crate::split_mix::SplitMix;
use crate::text::arguments::{cursor, integer, is_option};
use crate::text::glob::Glob;
use crate::turn::Turn;
use crate::types::string;

const INVALID_CURSOR: &str = "ERR invalid cursor";
/// Keys that SCAN aims at unless told.
const DEFAULT_COUNT: u64 = 10;
/// Random picks that may hit dead or deleted keys before a live one is searched for.
const RANDOM_TRIES: u32 = 100;
/// Steps of each of the two walks of that search: some milliseconds together.
const SEARCH_STEPS: u32 = 16;

/// The options of SCAN.
struct ScanOptions {
    count: u64,
    pattern: Option<Glob>,
    strings: bool,
}

impl ScanOptions {
    fn parse(args: &[&[u8]]) -> Result<ScanOptions, Refusal> {
        let mut options = ScanOptions { count: DEFAULT_COUNT, pattern: None, strings: true };
        // Reading one takes long. Only the last counts, so it alone is read.
        let mut pattern = None;
        let (pairs, rest) = args.as_chunks::<2>();
        for [name, value] in pairs {
            if is_option(name, "COUNT") {
                let count = integer(value).ok_or(NOT_AN_INTEGER)?;
                options.count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
            } else if is_option(name, "MATCH") {
                pattern = Some(value);
            } else if is_option(name, "TYPE") {
                // An unknown type is a type without keys.
                options.strings = is_option(value, string::NAME);
            } else {
                return Err(SYNTAX.into());
            }
        }
        if !rest.is_empty() {
            return Err(SYNTAX.into());
        }
        if let Some(pattern) = pattern {
            options.pattern = Glob::of_keys(pattern)?;
        }
        Ok(options)
    }
}

pub(crate) fn scan<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let cursor = cursor(call.arg(1)).ok_or(INVALID_CURSOR)?;
    let mut cursor = store.number.inward(cursor);
    let options = ScanOptions::parse(&call.args[2..])?;
    let (mut met, mut dead) = (Vec::new(), Vec::new());
    let mut lines = options.count.saturating_mul(LINES_PER_KEY);
    loop {
        cursor = store.walk(cursor, 1, call.turn, &mut |record| met.push(record));
        lines -= 1;
        if cursor == 0 || lines == 0 || met.len() as u64 >= options.count {
            break;
        }
    }
    met.retain(|record| {
        let wanted = options.strings
            && options.pattern.as_ref().is_none_or(|pattern| pattern.matches(record.key()));
        let over = is_over(record.expiry_ms(), call.turn.now_ms);
        if wanted && over {
            dead.push(*record);
        }
        wanted && !over
    });
    for record in dead {
        store.find(record.hash(), record.key(), call.turn);
    }
    out.array(2);
    out.bulk(itoa::Buffer::new().format(store.number.outward(cursor)).as_bytes());
    out.array(met.len());
    for record in met {
        out.bulk(record.key());
    }
    Ok(())
}

pub(crate) fn keys_matching<R: ReplySink>(
    store: &Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let mut keys = Vec::new();
    store.collect_keys(Glob::of_keys(call.arg(1))?.as_ref(), call.turn, &mut keys);
    out.array(keys.len());
    for key in keys {
        out.bulk(key);
    }
    Ok(())
}

pub(crate) fn random_key<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    match pick(store, call.turn) {
        Some(record) => out.bulk(record.key()),
        None => out.null(),
    }
    Ok(())
}

fn pick<'p>(store: &mut Store, turn: &Turn<'p>) -> Option<Record<'p>> {
    let mut random = SplitMix(turn.random);
    for _ in 0..RANDOM_TRIES {
        let record = match pick_staged(store, &mut random, turn) {
            Some(record) => record,
            None => store.reader.random(turn.pin, &mut || random.next())?,
        };
        // Removes it if its time is over, and leaves out what the transaction has deleted.
        if let Some(record) = store.find(record.hash(), record.key(), turn) {
            return Some(record);
        }
    }
    search(store, random.next(), turn)
}

/// A live key, if one stands at the first lines of the index, which are all of a small one, or at
/// some from a random line on. Nearly all keys are dead then, and more than a turn can look at.
fn search<'p>(store: &Store, random: u64, turn: &Turn<'p>) -> Option<Record<'p>> {
    let mut found = None;
    for start in [0, random] {
        let mut cursor = start;
        for _ in 0..SEARCH_STEPS {
            cursor = store.walk(cursor, LINES_PER_STEP, turn, &mut |record| {
                if !is_over(record.expiry_ms(), turn.now_ms) {
                    found.get_or_insert(record);
                }
            });
            if found.is_some() || cursor == 0 {
                break;
            }
        }
        if found.is_some() || start == 0 && cursor == 0 {
            break;
        }
    }
    found
}

/// Inside a transaction: a staged record, as often as the share of the keys that only it has.
fn pick_staged<'p>(store: &Store, random: &mut SplitMix, turn: &Turn<'p>) -> Option<Record<'p>> {
    let overlay = store.overlay.as_ref()?;
    let count = overlay.only_staged().count();
    let pick = random.below(store.keys().max(1));
    let nth = usize::try_from(pick).ok().filter(|nth| *nth < count)?;
    store.reader.record(turn.pin, overlay.only_staged().nth(nth)?)
}
