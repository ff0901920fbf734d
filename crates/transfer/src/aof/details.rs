//! What the words of a command say beside its keys and values: databases, expiries, options.
//!
//! The survey looks at all of it before anything is changed ([`fault_of`]); applying a command
//! reads it again.

use super::Words;
use super::meaning::{Meaning, meaning_of, name_of};
use crate::rdb::restored;
use crate::source::SourceError;

/// When a key is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    ms: i64,
    is_relative: bool,
}

impl Expiry {
    /// A number of such a unit of milliseconds; it may count from now.
    pub(crate) fn read(word: &[u8], unit: i64, is_relative: bool) -> Option<Self> {
        Some(Self { ms: number(word)?.checked_mul(unit)?, is_relative })
    }

    /// In Unix ms.
    pub(crate) fn at(self, now_ms: i64) -> i64 {
        if self.is_relative { now_ms.saturating_add(self.ms) } else { self.ms }
    }
}

/// What becomes of a key's expiry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewExpiry {
    /// It stays.
    Kept,
    /// There is none any more.
    None,
    /// It is another one.
    At(Expiry),
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// The error that words can't be what the command at `offset` has.
pub(crate) fn wrong(words: &Words, offset: u64) -> SourceError {
    let what = format!("{} with words that it can't have", name_of(words).escape_debug());
    SourceError::Malformed { offset, what }
}

/// The database that a word names.
pub(crate) fn database(word: &[u8]) -> Option<u64> {
    u64::try_from(number(word)?).ok()
}

/// The expiry that an option and its number mean; `None` if it is no such option.
fn expiry_of(option: &[u8], time: &[u8]) -> Option<Expiry> {
    match option.to_ascii_uppercase().as_slice() {
        b"EX" => Expiry::read(time, 1000, true),
        b"PX" => Expiry::read(time, 1, true),
        b"EXAT" => Expiry::read(time, 1000, false),
        b"PXAT" => Expiry::read(time, 1, false),
        _ => None,
    }
}

/// SET with its options, SETNX, GETSET. `None`: they are wrong.
pub(crate) fn of_set(words: &Words) -> Option<NewExpiry> {
    let (mut expiry, mut keeps, mut at) = (NewExpiry::None, false, 3);
    if words.len() < 3 {
        return None;
    }
    while at < words.len() {
        let option = words.get(at);
        if ["NX", "XX", "GET"].into_iter().any(|name| is(option, name)) {
            at += 1; // it succeeded
        } else if is(option, "KEEPTTL") {
            (keeps, at) = (true, at + 1);
        } else {
            expiry = NewExpiry::At(expiry_of(option, words.get(at + 1))?);
            at += 2;
        }
    }
    Some(if keeps { NewExpiry::Kept } else { expiry })
}

/// GETEX. `None`: its options are wrong.
pub(crate) fn of_get_ex(words: &Words) -> Option<NewExpiry> {
    Some(match words.get(2) {
        _ if words.len() < 3 => NewExpiry::Kept,
        option if is(option, "PERSIST") => NewExpiry::None,
        option => NewExpiry::At(expiry_of(option, words.get(3))?),
    })
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] …`: the string, if it is one, and its expiry.
/// `None`: its words are wrong.
pub(crate) fn of_restore(words: &Words) -> Option<(Option<Vec<u8>>, Option<Expiry>)> {
    let is_absolute = words.iter().skip(4).any(|word| is(word, "ABSTTL"));
    let expiry = Expiry::read(words.get(2), 1, !is_absolute).filter(|_| words.len() >= 4)?;
    let value = restored(words.get(3)).ok()?;
    Some((value, Some(expiry).filter(|expiry| expiry.ms != 0)))
}

/// The error that an import of database `db` can't go on behind a SWAPDB, if it can't.
pub(crate) fn fault_of_swap(words: &Words, offset: u64, db: u64) -> Option<SourceError> {
    if (1..3).all(|at| database(words.get(at)) != Some(db)) {
        return None;
    }
    let what = "SWAPDB, which Nigh can't follow: make a new AOF with BGREWRITEAOF, or import an \
                RDB file"
        .into();
    Some(SourceError::Malformed { offset, what })
}

/// Why a command can't be applied by an import of database `db`, if it can't. `selected` is the
/// database that the file has selected.
pub(super) fn fault_of(
    words: &Words,
    offset: u64,
    selected: &mut u64,
    db: u64,
) -> Option<SourceError> {
    let is_sound = match meaning_of(words) {
        Meaning::Select => database(words.get(1)).inspect(|chosen| *selected = *chosen).is_some(),
        Meaning::SwapDb => return fault_of_swap(words, offset, db),
        _ if *selected != db => true, // it is left out
        Meaning::Set => of_set(words).is_some(),
        Meaning::SetFor(unit) => Expiry::read(words.get(2), unit, true).is_some(),
        Meaning::Expire { unit, relative } => Expiry::read(words.get(2), unit, relative).is_some(),
        Meaning::GetEx => of_get_ex(words).is_some(),
        Meaning::Restore => of_restore(words).is_some(),
        _ => true,
    };
    (!is_sound).then(|| wrong(words, offset))
}
