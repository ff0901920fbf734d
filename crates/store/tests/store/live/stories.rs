//! A log that begins and ends while the store is served, step by step.

use super::*;

/// A log that was begun while serving has what was there before and what came meanwhile, long
/// values that stand on others too; a retired one never returns.
#[test]
fn a_log_begins_and_ends_while_serving() {
    let mut live = Live::new(1, 2, 2, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..200 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.set_on().expect("a log");
    for i in 0..STEPS_MOST {
        if i < 200 {
            live.run(&format!("SET k{} new{i}", i % 100));
            live.bytes(&[b"APPEND", b"long", b"x"]);
        }
        if !live.step_all() {
            break;
        }
    }
    assert_eq!(live.news(), [LogNews::BaseBegins(None), LogNews::Counts]);
    let keys: Vec<String> = (0..200).map(|i| format!("k{i}")).chain(["long".into()]).collect();
    live.run("SET k0 last");
    live.settle();
    let before = live.state(&keys);
    assert_eq!(before.len(), 201);
    live.cut_power();
    live.start(true).expect("after the power cut");
    assert_eq!(live.state(&keys), before);
    live.set_off().expect("no log");
    live.run("DEL k0");
    live.settle();
    assert_eq!(live.news(), [LogNews::Off(None)]);
    assert_eq!(live.get("k1"), before["k1"].rsplit_once(' ').expect("its expiry").0);
    let names = std::fs::read_dir(live.machine.dir.path().join("arenas")).expect("the folder");
    let journals = names.filter(|name| {
        name.as_ref().is_ok_and(|name| name.file_name().to_string_lossy().starts_with("journal"))
    });
    assert_eq!(journals.count(), 0);
    // Once more, over what the first one left.
    live.set_on().expect("a log");
    live.settle();
    live.set_off().expect("no log");
    live.settle();
    live.cut_power();
    live.start(true).expect("a new store");
    assert_eq!(live.get("k1"), "$-1", "it doesn't return");
}

/// Records that wait for room in the log thread's orders are looked at again when there is some:
/// what was changed meanwhile doesn't come back from the log as it was.
#[test]
fn what_waits_for_room_is_looked_at_again() {
    const LONG: usize = 80;
    let mut live = Live::new(9, 1, 1, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..5_000 {
        live.run(&format!("SET k{i} v"));
    }
    let long = "L".repeat(140_000);
    for i in 0..LONG {
        live.bytes(&[b"SET", format!("long{i}").as_bytes(), long.as_bytes()]);
    }
    live.set_on().expect("a log");
    while live.served().hands.threads.is_empty() {
        live.take_ask(0);
        let on = live.served();
        on.keeper.step(&mut on.hands);
    }
    // The log's thread takes nothing.
    for _ in 0..100 {
        live.end_turn(0);
    }
    for i in 0..5_000 {
        live.run(&format!("DEL k{i}"));
    }
    for i in 0..LONG {
        live.run(&format!("APPEND long{i} x"));
    }
    live.settle();
    assert_eq!(live.news().last(), Some(&LogNews::Counts));
    live.cut_power();
    live.start(true).expect("after the power cut");
    for i in 0..5_000 {
        assert_eq!(live.get(&format!("k{i}")), "$-1", "k{i}");
    }
    for i in 0..LONG {
        assert_eq!(live.run(&format!("STRLEN long{i}")).as_deref(), Some(":140001"), "long{i}");
    }
}

/// More keys than a small table has room for are put in from the log in whatever order they lie.
#[test]
fn a_log_of_many_keys_is_read_back() {
    let mut live = Live::new(10, 1, 1, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..30_000 {
        live.run(&format!("SET k{i} v"));
    }
    live.set_on().expect("a log");
    live.settle();
    live.cut_power();
    live.start(true).expect("after the power cut");
    let there = (0..30_000).filter(|i| live.get(&format!("k{i}")) == "$1 v").count();
    assert_eq!(there, 30_000);
}

/// A log that is over says nothing about arenas of a later time, which may be divided otherwise.
#[test]
fn a_retired_log_hinders_no_later_one() {
    let mut live = Live::new(8, 2, 2, SyncMode::Always);
    live.start(true).expect("a log");
    live.run("SET a 1");
    live.settle();
    live.set_off().expect("no log");
    live.settle();
    for logged in [false, true] {
        live.cut_power();
        live.machine.partitions += 1;
        live.start(logged).expect("a new store, whose keys lie elsewhere");
        assert_eq!(live.get("a"), "$-1");
        live.run("SET b 2");
        if !logged {
            live.set_on().expect("a log");
        }
        live.settle();
        live.cut_power();
        live.start(true).expect("after the power cut");
        assert_eq!(live.get("b"), "$1 2");
        live.set_off().expect("no log");
        live.settle();
    }
}

/// What a start refuses is refused while serving, and nothing changes.
#[test]
fn what_a_start_refuses_is_refused() {
    let mut other = Live::new(2, 1, 1, SyncMode::Always);
    other.start(true).expect("a log");
    other.run("SET theirs 1");
    other.settle();
    other.on = None;
    let mut live = Live::new(3, 1, 1, SyncMode::Always);
    live.start(false).expect("a start");
    live.run("SET a 1");
    live.machine.disk = other.machine.disk.kill();
    let refused = live.set_on().expect_err("there is another log");
    let (options, ..) = live.options();
    assert_eq!(refused, StoreError::Unlogged { dir: options.dir.clone() }.to_string());
    assert!(live.served().keeper.is_off() && log_of(&options.dir).expect("ids").is_none());
    live.run("SET a 2");
    live.on = None;
    assert_eq!(live.start(true).expect_err("the same").to_string(), refused);
}

/// A base whose disk fails ends the log, and a later try makes another.
#[test]
fn a_base_that_fails_leaves_the_store_as_it_was() {
    let mut calls = 1;
    let mut failures = 0;
    loop {
        let mut live = Live::new(4, 2, 2, SyncMode::EverySecond);
        live.start(false).expect("a start without a log");
        live.run("SET a 1");
        live.machine.disk.fail(live.machine.disk.calls() + calls, SimFault::Io);
        let refused = live.set_on().is_err();
        live.settle();
        let news = live.news();
        let failed = news.iter().any(|it| matches!(it, LogNews::Off(Some(_))));
        // One in doubt is made good at once.
        let healed = news.last() == Some(&LogNews::Counts);
        let what = live.machine.disk.failed_call();
        if what.is_none() {
            break;
        }
        failures += u32::from(failed);
        assert!(live.run("SET a 2").is_some(), "{what:?} {news:?}");
        let is_left = matches!(news.last(), Some(LogNews::Left(_)));
        assert!(refused || failed || healed || is_left, "{what:?} {news:?}");
        if refused || failed {
            assert!(live.served().keeper.is_off());
            live.set_on().unwrap_or_else(|error| panic!("{what:?}: {error}"));
            live.settle();
        }
        live.machine.clock.advance_us(11_000_000);
        live.settle();
        assert_eq!(live.run("SET b 3").as_deref(), Some("+OK"), "{what:?} {news:?}");
        live.settle();
        live.machine.clock.advance_us(2_000_000);
        live.settle();
        live.cut_power();
        live.start(true).unwrap_or_else(|error| panic!("{what:?}: {error}"));
        assert_eq!(live.get("b"), "$1 3", "{what:?} {news:?}");
        calls += 1;
    }
    assert!(failures > 5, "{failures} of {calls}");
}

/// Long values move, while a base is written, to keys that its walk has passed already: they stand
/// on records that the walk meets no more.
#[test]
fn long_values_that_move_behind_the_walk_are_in_the_base() {
    // Which keys the walk has passed is up to their hashes. Of values that move when it is half
    // over, a quarter moves from a key that it hasn't met to one that it has: some of so many do.
    const LONG: usize = 60;
    const SHORT: usize = 12_000;
    let mut live = Live::new(11, 1, 1, SyncMode::Always);
    live.start(false).expect("a start without a log");
    for i in 0..SHORT {
        live.run(&format!("SET k{i} v"));
    }
    for i in 0..LONG {
        live.bytes(&[b"SET", format!("from{i}").as_bytes(), "L".repeat(140_000 + i).as_bytes()]);
    }
    live.set_on().expect("a log");
    while live.served().hands.threads.is_empty() {
        live.take_ask(0);
        let on = live.served();
        on.keeper.step(&mut on.hands);
    }
    // A turn looks at some 250 keys.
    for _ in 0..SHORT / 2 / 250 {
        live.end_turn(0);
        live.served().hands.pass(0);
    }
    for i in 0..LONG {
        assert_eq!(live.run(&format!("RENAME from{i} to{i}")).as_deref(), Some("+OK"));
    }
    // Behind that, compaction may append them again.
    let counts = (0..STEPS_MOST).any(|_| {
        live.step_all();
        live.news().last() == Some(&LogNews::Counts)
    });
    assert!(counts);
    live.cut_power();
    live.start(true).expect("after the power cut");
    for i in 0..LONG {
        let length = live.run(&format!("STRLEN to{i}"));
        assert_eq!(length, Some(format!(":{}", 140_000 + i)), "to{i}");
        assert_eq!(live.get(&format!("from{i}")), "$-1");
    }
}

/// A server ends while its log has no room, and its arenas are to go: they stay, and so does the
/// journal, which has what was answered, and names the arenas for long values. It went, so the next
/// start knew nothing of these changes. Of a log that has all, arenas and journal go.
#[test]
fn journals_stay_that_have_what_the_log_lacks() {
    for is_full in [true, false] {
        let mut live = Live::new(11, 1, 1, SyncMode::EverySecond);
        live.start(true).expect("a log");
        live.run("SET a 1");
        live.settle();
        if is_full {
            live.machine.disk.set_capacity(live.machine.disk.used_bytes());
        }
        live.bytes(&[b"SET", b"long", "L".repeat(3_000_000).as_bytes()]);
        assert_eq!(live.run("DEL a").as_deref(), Some(":1"));
        let hands = &mut live.served().hands;
        hands.end_threads(false);
        while !hands.threads_ended() {
            hands.pass(0);
        }
        let keeper = &mut live.served().keeper;
        assert_eq!(keeper.lacks_changes(), is_full);
        assert_eq!(keeper.remove_journals().expect("the folder is there"), !is_full);
        let journal = live.machine.dir.path().join("arenas/journal.0");
        assert_eq!(journal.exists(), is_full);
        live.machine.disk.set_capacity(u64::MAX);
        let closed = live.on.take().map_or_else(Vec::new, |on| on.keyspace.close());
        if !is_full {
            closed.into_iter().for_each(ClosedArenas::remove);
            assert!(!live.machine.dir.path().join("arenas").exists());
        }
        live.kill();
        live.start(true).expect("from the arenas");
        assert_eq!([live.get("a"), live.get("long")].map(|it| it.len()), [3, 3_000_009]);
    }
}
