//! The rule by which readers see one moment of an arena (docs/design/0016, 0023), as an exhaustive
//! model: all orders of single loads and stores, with memory that is reused, with growth and
//! clearing, and with owners that are killed between any two stores.
//!
//! Sequential consistency is assumed. The models in `src/tests/models` run the shipped functions in
//! the orders that the memory model allows; here the stories are not chosen: all works of the owner
//! follow each other, and each rule is left out once. `NIGH_RULE_WORKS=3` for longer stories.

mod memory;
mod owner;
mod reader;
mod world;

use owner::{Wish, Work};
use reader::{Kind, Read, Retired};
use world::{Case, explore};

/// What the owner, the next owner or a reader does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mistake {
    None,
    /// `prev` is stored behind its entry.
    PrevLate,
    /// A stamp is stored behind its removal.
    StampLate,
    /// A change begins behind its first stores.
    BegunLate,
    /// A commit of several has its intent behind its first entry.
    IntentLate,
    /// A change is committed before its last store.
    CommittedEarly,
    /// What a change unpublishes is retired at once.
    RetiresEarly,
    /// A commit that clears fills its table when that is the index already.
    FillsLate,

    /// The next owner numbers from the committed number on.
    NumbersFromCommitted,
    /// It doesn't look at the stamps.
    ForgetsStamps,
    /// It leaves begun, committed and the intent as they are.
    EndsNothing,
    /// It ends a commit of several without doing it again.
    DropsIntent,
    /// It stores committed before it does a commit again; the incarnation hides it from nobody.
    CommitsBeforeRedo,
    /// It neither changes the incarnation nor counts what it gives back.
    AdoptsUnseen,

    /// A reader takes its moment before its pin.
    PinsBehindMoment,
    /// It doesn't wait for a change that has begun.
    NoWait,
    /// It doesn't look whether something was committed before it has loaded the clock.
    ClockBehindMoment,
    /// It doesn't look at the stamps.
    NoStamp,
    /// A reader of one key doesn't look at the intent.
    NoIntent,
    /// It judges what it has found before it loaded the clock.
    NoSecondLook,
    /// A miss counts, whatever the index is by then.
    IndexOnce,
    /// A foreign reader doesn't look at the entry again behind the generation.
    EntryOnce,
    /// It doesn't look at the generation again.
    GenerationOnce,
    /// It doesn't look at the count of reuses again.
    NoReuses,
    /// It loads the count of reuses behind its moment.
    ReusesBehindMoment,
}

use Mistake as M;
use Read::{Both, One};
use Wish::{Delete, Nothing, Put};

/// All works that change what a key says, or where it stands. Those of `b` alone are those of `a`
/// with the keys exchanged, and readers ask for both in either order.
const CHANGES: [Work; 11] = [
    Work::Put(0),
    Work::Put(1),
    Work::PutShort(0),
    Work::Delete(0),
    Work::Commit([Put, Put], false),
    Work::Commit([Put, Delete], false),
    Work::Commit([Delete, Delete], false),
    Work::Clear,
    Work::Commit([Put, Nothing], true),
    Work::Tick,
    Work::Move(0),
];

/// Works behind another one that show what that has left.
const LATER: [Work; 2] = [Work::Put(0), Work::Commit([Put, Put], false)];

/// Keys at the beginning: both, one, and one whose time is over at the next tick.
const PRESENT: [[Option<u8>; 2]; 3] = [[Some(0), Some(0)], [Some(0), None], [Some(1), Some(0)]];

/// Each work, and behind it one of some, as often as there are some.
fn stories(later: &[&[Work]]) -> Vec<Vec<Work>> {
    let mut stories: Vec<Vec<Work>> = CHANGES.iter().map(|work| vec![*work]).collect();
    for works in later {
        let longer = |story: &Vec<Work>| {
            let story = story.clone();
            works.iter().map(move |work| [&story[..], &[*work]].concat())
        };
        stories = stories.iter().flat_map(|story| longer(story).collect::<Vec<_>>()).collect();
    }
    let clears = |work: &Work| matches!(work, Work::Clear | Work::Commit(_, true));
    stories.retain(|story| story.iter().filter(|work| clears(work)).count() <= 2);
    stories
}

/// The index grows, beside two changes.
fn growing() -> Vec<Vec<Work>> {
    let (begin, end) = (Work::BeginGrowth, Work::EndGrowth);
    let (a, b) = (Work::MoveLine(0), Work::MoveLine(1));
    let works = CHANGES.iter().flat_map(|first| LATER.map(|second| (*first, second)));
    works.map(|(first, second)| vec![begin, first, a, second, b, end]).collect()
}

/// What a reader asks for, one after the other.
const READS: [&[Read]; 5] = [
    &[Both([0, 1])],
    &[One(0), Both([1, 0])],
    &[One(0), One(1)],
    &[One(1), One(0)],
    &[Both([0, 1]), One(0)],
];

/// Beside kills, which make many orders.
const PRESENT_BESIDE_KILLS: [[Option<u8>; 2]; 2] = [PRESENT[0], PRESENT[2]];
const READS_BESIDE_KILLS: [&[Read]; 3] = [READS[0], READS[1], READS[2]];

/// Tries all cases of some stories; states, and the first that is wrong.
fn try_all(
    stories: &[Vec<Work>],
    kind: Kind,
    kills: u8,
    mistake: Mistake,
) -> Result<usize, String> {
    let is_small = kills > 0;
    let all_present = if is_small { &PRESENT_BESIDE_KILLS[..] } else { &PRESENT };
    let all_reads = if is_small { &READS_BESIDE_KILLS[..] } else { &READS };
    let mut states = 0;
    for works in stories {
        for &present in all_present {
            for reads in all_reads {
                let reads = vec![reads.to_vec()];
                let case = Case { present, works: works.clone(), kind, reads, kills, mistake };
                states += explore(&case).map_err(|wrong| format!("{wrong}\n{case:?}"))?;
            }
        }
    }
    Ok(states)
}

fn holds(stories: &[Vec<Work>], kind: Kind, kills: u8) {
    let states = try_all(stories, kind, kills, Mistake::None);
    let states = states.unwrap_or_else(|wrong| panic!("the rule is wrong: {wrong}"));
    eprintln!("{} stories, {states} states", stories.len());
    assert!(states > 10_000, "{states} states");
}

fn finds(stories: &[Vec<Work>], kind: Kind, kills: u8, mistakes: &[Mistake]) {
    for mistake in mistakes {
        let wrong = try_all(stories, kind, kills, *mistake);
        eprintln!("{mistake:?}: {}", wrong.clone().err().unwrap_or_default());
        assert!(wrong.is_err(), "{mistake:?} is not found");
    }
}

const REUSED: Kind = Kind::Foreign(Retired::Reused);
const KEPT: Kind = Kind::Foreign(Retired::Kept);

/// Two works, or three if `NIGH_RULE_WORKS` is 3.
fn all_stories() -> Vec<Vec<Work>> {
    let is_long = std::env::var("NIGH_RULE_WORKS").is_ok_and(|works| works == "3");
    stories(if is_long { &[&CHANGES, &LATER] } else { &[&CHANGES] })
}

#[test]
fn model_pinned_readers_see_states_that_were() {
    holds(&all_stories(), Kind::Pinned, 0);
}

#[test]
fn model_pinned_readers_see_states_that_were_while_the_index_grows() {
    holds(&growing(), Kind::Pinned, 0);
}

#[test]
fn model_foreign_readers_see_states_that_were() {
    holds(&all_stories(), REUSED, 0);
}

#[test]
fn model_foreign_readers_see_states_that_were_while_memory_is_kept() {
    holds(&all_stories(), KEPT, 0);
}

#[test]
fn model_foreign_readers_see_states_that_were_though_the_owner_is_killed() {
    holds(&stories(&[&LATER]), REUSED, 1);
}

#[test]
fn model_an_owner_that_is_killed_while_it_takes_over_leaves_a_state_that_was() {
    holds(&stories(&[]), REUSED, 2);
}

#[test]
fn model_mistakes_of_an_owner_are_found() {
    let mistakes = [
        M::PrevLate,
        M::StampLate,
        M::BegunLate,
        M::IntentLate,
        M::CommittedEarly,
        M::RetiresEarly,
        M::FillsLate,
    ];
    finds(&stories(&[&CHANGES]), Kind::Pinned, 0, &mistakes);
}

#[test]
fn model_mistakes_of_the_next_owner_are_found() {
    let mistakes = [
        M::NumbersFromCommitted,
        M::ForgetsStamps,
        M::EndsNothing,
        M::DropsIntent,
        M::CommitsBeforeRedo,
        M::AdoptsUnseen,
    ];
    finds(&stories(&[&LATER]), REUSED, 1, &mistakes);
}

#[test]
fn model_mistakes_of_a_pinned_reader_are_found() {
    let mistakes = [
        M::PinsBehindMoment,
        M::NoWait,
        M::ClockBehindMoment,
        M::NoStamp,
        M::NoIntent,
        M::NoSecondLook,
    ];
    finds(&stories(&[&CHANGES]), Kind::Pinned, 0, &mistakes);
    finds(&growing(), Kind::Pinned, 0, &[M::IndexOnce]);
}

#[test]
fn model_mistakes_of_a_foreign_reader_are_found() {
    let mistakes = [
        M::EntryOnce,
        M::GenerationOnce,
        M::NoReuses,
        M::ReusesBehindMoment,
        M::NoIntent,
        M::NoSecondLook,
    ];
    finds(&stories(&[&CHANGES]), REUSED, 0, &mistakes);
    finds(&stories(&[&CHANGES]), KEPT, 0, &[M::NoWait, M::ClockBehindMoment, M::NoStamp]);
}
