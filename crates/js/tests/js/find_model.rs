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

/// The words, the stories and the player.
const MODEL: &str = include_str!("../vectors/find_model.js");

/// The prelude's files as a module over words that count their loads.
fn source() -> String {
    // The globals stay: this runs beside the real prelude, which has removed them.
    let primordials = PRIMORDIALS.replace("\nremoveGlobals();", "");
    let primordials = primordials.replace("const Int32 = Int32Array;", "const Int32 = Watched;");
    assert!(primordials.contains("Watched"), "the model stands in for Int32Array");
    let (_, parameters) = SNAPSHOT.rsplit_once("function attach(").expect("its head");
    let (parameters, _) = parameters.split_once(')').expect("its parameters");
    let layout = LAYOUT.replace("\nremoveGlobals();", "");
    format!(
        "#!js name=model\n{MODEL}\n{primordials}\n\
         function attach(native, {{ {parameters} }}) {{\n\
         {layout}\n{HASH}\n{FIND}\n\
         return {{ find, arenas, placeOf, hashLong, KEY_AT, KEY_LENGTH, B, I, PLACE }};\n}}"
    )
}

/// Plays a story at all places of its stores; how many orders there were.
fn play(story: &str, partitions: &str) -> String {
    let limits = FunctionLimits { call_ms: 120_000, source_bytes: 1 << 20, ..patient() };
    let mut bench = Bench::with(limits);
    let full = source();
    bench.add("model", full.split_once('\n').unwrap().1);
    bench.call("play", &[story, partitions])
}

/// Each story with one arena and with several, and for each kind of key that is found by a way of
/// its own.
fn holds(story: &str) {
    for partitions in ["1", "2"] {
        let reply = play(story, partitions);
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
