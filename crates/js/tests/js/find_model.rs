//! A model of the prelude's find: the shipped files, over words. Before each load the writer may
//! store.
//!
//! ```text
//! reader:  load load load load load ... load ──> reference or 0
//! writer:      ^ s1 s2       ^ s3 s4                     in up to two bursts, at all loads
//! ```
//!
//! A story is a list of the writer's stores, in the order of docs/formats/arena.md and design 5:
//! growth, clearing, overwriting. The model tries all places of all bursts. A key that is there all
//! the time is found, with a record of its own; a key that never was there isn't found.
//!
//! Sequential consistency is assumed, as of all of the prelude (x86; loads are not reordered).

use crate::common::{Bench, patient};
use nigh_js::FunctionLimits;

const PRIMORDIALS: &str = include_str!("../../prelude/00_primordials.js");
const LAYOUT: &str = include_str!("../../prelude/01_layout.js");
const HASH: &str = include_str!("../../prelude/01_xxhash.js");
const FIND: &str = include_str!("../../prelude/02_find.js");
/// Has the head of `attach`.
const SNAPSHOT: &str = include_str!("../../src/isolate/startup.rs");

/// A writer that stands still ends no change, however often one looks.
const LOOKS: Mistake = ("const LOOKS_MAX = 10000;", "const LOOKS_MAX = 3;");

/// The words, the stories and the player.
const MODEL: &str = include_str!("../vectors/find_model.js");

/// A line of the prelude, and a wrong one in its place.
pub(crate) type Mistake = (&'static str, &'static str);

/// The prelude's files as a module over words that count their loads, with `stories` behind the
/// model's world.
pub(crate) fn source(stories: &str, mistake: Option<Mistake>) -> String {
    // The globals stay: this runs beside the real prelude, which has removed them.
    let primordials = PRIMORDIALS.replace("\nremoveGlobals();", "");
    let primordials = primordials.replace("const Int32 = Int32Array;", "const Int32 = Watched;");
    assert!(primordials.contains("Watched"), "the model stands in for Int32Array");
    let (_, parameters) = SNAPSHOT.rsplit_once("function attach(").expect("its head");
    let (parameters, _) = parameters.split_once(')').expect("its parameters");
    let layout = LAYOUT.replace("\nremoveGlobals();", "");
    let find = exchange(FIND, LOOKS);
    let find = mistake.map_or(find.clone(), |mistake| exchange(&find, mistake));
    format!(
        "#!js name=model\n{MODEL}\n{stories}\n{primordials}\n\
         function attach(native, {{ {parameters} }}) {{\n\
         {layout}\n{HASH}\n{find}\n\
         return {{ find, takeMoment, begin: () => untold = false, isUntold: () => untold, arenas, \
         placeOf, hashLong, KEY_AT, KEY_LENGTH, B, I, PLACE }};\n}}"
    )
}

/// A text with one line of it exchanged.
fn exchange(text: &str, (from, to): Mistake) -> String {
    assert_eq!(text.matches(from).count(), 1, "the prelude has this once: {from}");
    text.replace(from, to)
}

/// Plays a story at all places of its stores; the reply says how many orders there were.
pub(crate) fn play(full: &str, function: &str, arguments: &[&str]) -> String {
    let limits = FunctionLimits { call_ms: 120_000, source_bytes: 1 << 20, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add("model", full.split_once('\n').unwrap().1);
    bench.call(function, arguments)
}

/// Each story with one arena and with several, and for each kind of key that is found by a way of
/// its own.
fn holds(story: &str) {
    for partitions in ["1", "2"] {
        let reply = play(&source("", None), "play", &[story, partitions]);
        let orders = reply.strip_prefix(':').and_then(|text| text.trim_end().parse::<u64>().ok());
        assert!(orders.is_some_and(|orders| orders > 1000), "{story}, {partitions}: {reply}");
    }
}

#[test]
fn a_key_is_found_while_the_index_grows() {
    // Tables change, keys move. Without a second look after a miss, a key that was there is
    // missing.
    holds("growth");
}

#[test]
fn a_key_is_found_when_growth_ends_and_begins_again() {
    holds("twice");
}

#[test]
fn a_key_that_is_overwritten_is_found() {
    holds("overwrite");
}

#[test]
fn a_clearing_shows_what_was_before_or_nothing() {
    holds("clear");
}

/// A story finds each of these mistakes.
fn finds(story: &str, mistakes: &[Mistake]) {
    for mistake in mistakes {
        let reply = play(&source("", Some(*mistake)), "play", &[story, "1"]);
        assert!(reply.contains("not one of"), "{story} with {}: {reply}", mistake.1);
    }
}

#[test]
fn a_miss_without_a_second_look_at_the_epoch_is_found() {
    let near = (" && words[EPOCH_WORD] === seen ? 0 : -1", " ? 0 : -1");
    let far = ("if (words[EPOCH_WORD] === seen) return told", "return told");
    finds("growth", &[near]);
    finds("twice", &[far]);
}

#[test]
fn an_entry_that_another_key_takes_is_not_the_keys() {
    holds("taken");
}

#[test]
fn a_half_of_a_key_that_is_not_compared_is_found() {
    let low = ("words[at + REC_KEY] === low &&", "");
    let high = (" &&\n      words[at + REC_KEY + 1] === high", "");
    let long = (" && sameWords(words, at + REC_KEY, (length + 3) >> 2)", "");
    finds("taken", &[low, high, long]);
}
