//! A model of the prelude's moments: the shipped files read two keys at one moment, over words, as
//! in [`crate::find_model`].
//!
//! JavaScript loads a word of 64 bits as two halves. In each story the numbers of changes, the
//! stamps and the clock pass 2^32, and the writer stores before any of the loads, in up to two
//! bursts. What a reader is told is a state that there was, and not from before its beginning.
//!
//! Of a word, `wordAt` compares the halves for all readers alike. For the stamps and the clock the
//! models need that. `begun` and `committed` would do without: a moment is looked at twice, and
//! what `begun` says too low has been committed before the look at `committed`.

use crate::find_model::{Mistake, play, source};

const MOMENTS: &str = include_str!("../vectors/moment_model.js");

fn reply(story: &str, partitions: &str, mistake: Option<Mistake>) -> String {
    play(&source(MOMENTS, mistake), "moments", &[story, partitions])
}

/// A story holds with so many arenas, and most of its reads are told something.
fn holds(story: &str, partitions: &str) {
    let reply = reply(story, partitions, None);
    let sums = reply.strip_prefix("*2\r\n:").and_then(|text| text.trim_end().split_once("\r\n:"));
    let (orders, told) = sums.unwrap_or_else(|| panic!("{story}: {reply}"));
    let [orders, told] = [orders, told].map(|sum| sum.parse::<u64>().unwrap());
    assert!(orders > 10_000 && told > orders / 2, "{story}: {told} of {orders}");
}

/// A story finds each of these mistakes.
fn finds(story: &str, mistakes: &[Mistake]) {
    for mistake in mistakes {
        let reply = reply(story, "1", Some(*mistake));
        assert!(reply.contains("is no state behind"), "{story} with {}: {reply}", mistake.1);
    }
}

/// The halves of a word are taken as they come.
const NOT_COMPARED: Mistake = (
    "return words[at + 1] === high ? high * 4294967296 + (low >>> 0) : Infinity;",
    "return high * 4294967296 + (low >>> 0);",
);
/// The low half comes first, so that no look frames it.
const LOW_FIRST: Mistake = (
    "const high = words[at + 1];\n  const low = words[at];",
    "const low = words[at];\n  const high = words[at + 1];",
);

#[test]
fn two_keys_beside_writes_are_of_one_moment() {
    holds("single", "1");
}

#[test]
fn a_change_that_is_not_waited_for_is_read_and_then_missed() {
    let wait = "(intent === 0 && lsn < begun)";
    finds("single", &[(wait, "false")]);
}

#[test]
fn two_keys_beside_a_commit_are_of_one_moment() {
    holds("commit", "1");
    holds("commit", "2");
}

#[test]
fn a_moment_that_is_not_kept_to_is_found() {
    // The newest version of each key is taken.
    finds("commit", &[("(words[at + REC_LSN_LOW] >>> 0) <= arena.lsn", "0 <= Infinity")]);
}

#[test]
fn two_keys_beside_a_removal_are_of_one_moment() {
    holds("removed", "1");
}

#[test]
fn a_stamp_of_two_halves_that_are_not_compared_is_found() {
    let left_out = ("wordAt(words, at) > arena.lsn || ", "");
    finds("removed", &[NOT_COMPARED, left_out]);
}

#[test]
fn two_keys_beside_a_clearing_are_of_one_moment() {
    holds("cleared", "1");
}

#[test]
fn a_stamp_of_clearing_of_two_halves_that_are_not_compared_is_found() {
    let left_out = (" || wordAt(words, CLEAR_STAMP_WORD) > arena.lsn", "");
    finds("cleared", &[NOT_COMPARED, left_out]);
}

#[test]
fn a_key_whose_time_is_over_stays_so_while_the_clock_goes_on() {
    holds("over", "1");
}

#[test]
fn a_key_with_more_time_is_never_missed() {
    holds("renewed", "1");
}

#[test]
fn a_clock_of_two_halves_that_are_not_compared_is_found() {
    finds("over", &[NOT_COMPARED]);
    // A clock that rises meanwhile; and one from behind the moment.
    let rises = ("arena.clock !== Infinity && ", "");
    let later = (" && wordAt(words, COMMITTED_WORD) === lsn", "");
    finds("renewed", &[LOW_FIRST, rises, later]);
}
