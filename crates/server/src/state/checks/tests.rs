//! What waits for its check, and in which order.

use super::*;

/// Two clients of another shard load one source. The first load took the outcome of its check,
/// and the second one had the owner's shard wait for another check.
#[test]
fn an_outcome_stays_for_all_who_were_told_of_it() {
    let checks = Arc::new(Checks::new(Some("/bin/false".into()), Box::new(|| {})));
    let limits = FunctionLimits::default();
    let entry = Entry::new(b"s", &limits, false);
    lock(&checks.entries).push_back(Entry { outcome: Some(Ok(())), ..entry });
    assert!((0..2).all(|_| checks.is_done(b"s", &limits)));
    for left in [1, 0] {
        assert_eq!(checks.take(b"s", &limits), Ok(()));
        assert_eq!(lock(&checks.entries).len(), left);
    }
}

/// EXEC waited behind all sources that others had sent, and its shard served nobody meanwhile.
#[test]
fn a_source_for_which_a_shard_waits_is_the_next() {
    let checks = Arc::new(Checks::new(None, Box::new(|| {})));
    let limits = FunctionLimits::default();
    for (source, holds_shard) in [(b"a", false), (b"b", false), (b"c", true), (b"d", false)] {
        lock(&checks.entries).push_back(Entry::new(source, &limits, holds_shard));
    }
    // It was ordered before the shard came to wait for it.
    assert!(!checks.look(b"d", &limits, 0, true));
    let order: Vec<u8> = std::iter::from_fn(|| Some(checks.next()?.source[0])).collect();
    assert_eq!(order, b"cdab");
}

/// Outcomes that nobody takes, since their clients have gone, take no memory of those that wait.
#[test]
fn outcomes_and_sources_that_wait_have_bounds_of_their_own() {
    let checks = Arc::new(Checks::new(None, Box::new(|| {})));
    let limits = FunctionLimits::default();
    let waits = |number: usize| number.is_multiple_of(2) && number < 2 * WAITING_MAX;
    for number in 0..100 {
        let source = number.to_string();
        checks.look(source.as_bytes(), &limits, 0, false);
        if !waits(number) {
            checks.note((source.as_bytes(), &limits), Ok(()));
        }
    }
    let entries = lock(&checks.entries);
    let known = entries.iter().filter(|entry| entry.outcome.is_some()).count();
    assert_eq!((known, entries.len() - known), (OUTCOMES_MAX, WAITING_MAX));
}
