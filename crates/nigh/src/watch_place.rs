//! Where a watch is, as a value that its user keeps.
//!
//! ```text
//! place1:5f0c…9a:12.7.30.
//!   │      │      └── for each partition the change that comes next, each number with a point behind it
//!   │      └───────── the database: its log's id, 32 hexadecimal digits
//!   └──────────────── the text's format
//! ```
//!
//! 1. A text that was cut off is no place: each number ends with its point, and the database knows
//!    how many there are.
//!
//! Any thread: plain data.

use nigh_shm::{MOST_PARTITIONS, debug_is_display};
use std::fmt;
use std::str::FromStr;

/// What the text begins with.
const FORMAT: &str = "place1:";
/// Letters of an error's text that are shown.
const SHOWN: usize = 60;

/// A place in the changes of a database: what a watch has told up to there, and what comes next.
/// [`Watch::place`](crate::Watch::place) and [`Snapshot::place`](crate::Snapshot::place) give it,
/// [`Db::watch_from`](crate::Db::watch_from) goes on from it, also after the process has ended.
///
/// It is kept as text (ASCII, some 60 bytes for one partition, 1.5 KiB at most), by `to_string` and
/// `parse`. Its contents are nobody's concern: for each partition a number, and whose they are.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
/// let place = db.watch(b"")?.place()?;
/// let kept: String = place.to_string();
/// assert_eq!(kept.parse(), Ok(place));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchPlace {
    /// The id of the database's log.
    log_id: [u8; 16],
    /// The number of the change that comes next, of each partition.
    next: Vec<u64>,
}

impl WatchPlace {
    pub(crate) fn new(log_id: [u8; 16], next: Vec<u64>) -> WatchPlace {
        WatchPlace { log_id, next }
    }

    pub(crate) fn log_id(&self) -> [u8; 16] {
        self.log_id
    }

    /// The changes that come next, one for each partition.
    pub(crate) fn next(&self) -> &[u64] {
        &self.next
    }
}

impl fmt::Display for WatchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT}{:032x}:", u128::from_be_bytes(self.log_id))?;
        self.next.iter().try_for_each(|next| write!(f, "{next}."))
    }
}

debug_is_display!(PlaceError);

/// A text is no place.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is no place of a watch ({what}): give the whole text of one that was kept")]
pub struct PlaceError {
    /// The text's beginning.
    shown: String,
    what: &'static str,
}

impl FromStr for WatchPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<WatchPlace, PlaceError> {
        parse(text).map_err(|what| PlaceError { shown: text.chars().take(SHOWN).collect(), what })
    }
}

fn parse(text: &str) -> Result<WatchPlace, &'static str> {
    let rest = text.strip_prefix(FORMAT).ok_or("it doesn't begin with place1:")?;
    let (id, numbers) = rest.split_once(':').ok_or("it has no numbers")?;
    let is_id = id.len() == 32 && id.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let id = u128::from_str_radix(id, 16).ok().filter(|_| is_id);
    let log_id = id.ok_or("it doesn't say of which database")?.to_be_bytes();
    let numbers = numbers.strip_suffix('.').ok_or("its end is missing")?;
    let next = numbers.split('.').map(number).collect::<Option<Vec<u64>>>();
    let next = next.filter(|next| next.len() <= MOST_PARTITIONS);
    Ok(WatchPlace { log_id, next: next.ok_or("its numbers can't be")? })
}

/// A change's number, as it is written.
fn number(text: &str) -> Option<u64> {
    let is_written = text.bytes().all(|it| it.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_as_the_picture_says() {
        let mut id = [0; 16];
        (id[0], id[15]) = (0x5f, 0x9a);
        let place = WatchPlace::new(id, vec![12, 7, u64::MAX]);
        let text = format!("place1:5f{}9a:12.7.18446744073709551615.", "0".repeat(28));
        assert_eq!(place.to_string(), text);
        assert_eq!(text.parse(), Ok(place));
    }

    #[test]
    fn what_is_no_place_is_refused_and_the_error_says_why() {
        let id = "5f".repeat(16);
        let wrong = [
            (String::new(), "begin with"),
            ("17".to_owned(), "begin with"),
            (format!("place2:{id}:1."), "begin with"),
            (format!("place1:{id}"), "no numbers"),
            (format!("place1:{}:1.", &id[1..]), "which database"),
            (format!("place1:+{}:1.", &id[1..]), "which database"),
            (format!("place1:{}:1.", id.to_uppercase()), "which database"),
            (format!("place1:{id}:"), "end is missing"),
            (format!("place1:{id}:12"), "end is missing"),
            (format!("place1:{id}:1. "), "end is missing"),
            (format!("place1:{id}:."), "numbers"),
            (format!("place1:{id}:0."), "numbers"),
            (format!("place1:{id}:07."), "numbers"),
            (format!("place1:{id}:+7."), "numbers"),
            (format!("place1:{id}:1..2."), "numbers"),
            (format!("place1:{id}:18446744073709551616."), "numbers"),
            (format!("place1:{id}:{}", "1.".repeat(MOST_PARTITIONS + 1)), "numbers"),
        ];
        for (text, why) in wrong {
            let error = text.parse::<WatchPlace>().expect_err(&text).to_string();
            assert!(error.contains(why) && error.contains("give the whole text"), "{error}");
        }
        let error = "é".repeat(500).parse::<WatchPlace>().expect_err("no place").to_string();
        assert!(error.len() < 300, "{error}");
    }

    proptest! {
        #[test]
        fn a_text_says_what_it_was_made_of_and_no_part_of_it_says_the_same(
            id in any::<[u8; 16]>(),
            next in proptest::collection::vec(1..u64::MAX, 1..=MOST_PARTITIONS),
        ) {
            let place = WatchPlace::new(id, next);
            let text = place.to_string();
            prop_assert!(text.len() <= 1536 && text.is_ascii());
            prop_assert_eq!(text.parse(), Ok(place.clone()));
            for end in 0..text.len() {
                let cut = text[..end].parse::<WatchPlace>();
                let is_whole = cut.is_ok_and(|cut| cut.next.len() >= place.next.len());
                prop_assert!(!is_whole, "{} of {}", end, text);
            }
        }
    }
}
