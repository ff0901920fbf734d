//! A log that went on without memory of the same boot: the database was opened with another folder
//! for memory in between, or in a container with a `/dev/shm` of its own.

use nigh_log::Storage;
use nigh_log::simulated::SimFault;
use nigh_store::{BaseCause, StoreError};
use tempfile::TempDir;

use crate::durable_starts::retire;
use crate::machine::{Machine, seeds};

/// Another folder for memory.
fn other() -> TempDir {
    tempfile::Builder::new().prefix("nigh-store-").tempdir_in("/dev/shm").expect("a directory")
}

/// The process is killed, and the next start has the memory of the other folder.
fn swap(machine: &mut Machine, memory: &mut TempDir) {
    machine.kill();
    std::mem::swap(&mut machine.dir, memory);
}

fn sets(machine: &mut Machine, name: &str, count: usize) {
    (0..count).for_each(|i| drop(machine.run(&format!("SET {name}{i} 1"))));
}

/// Both have acknowledged writes with the same numbers. A start that put those of memory behind
/// those of the log made a history that never was; or it served memory without what the log has.
#[test]
fn memory_with_changes_of_its_own_is_refused_when_the_log_went_on() {
    for (own, others, has_arenas) in [(5, 3, true), (5, 3, false), (3, 3, true), (3, 5, false)] {
        let (mut machine, mut memory) = (Machine::started(1, 1), other());
        machine.run("SET both 1");
        machine.settle();
        sets(&mut machine, "own", own);
        if !has_arenas {
            machine.kill();
            machine.lose_arenas();
        }
        swap(&mut machine, &mut memory);
        machine.start().expect("without the first memory");
        sets(&mut machine, "other", others);
        machine.settle();
        swap(&mut machine, &mut memory);
        for _ in 0..2 {
            let error = machine.start().expect_err("two histories");
            assert!(matches!(error, StoreError::LogWentOn { .. }), "{own} {others}: {error}");
        }
        swap(&mut machine, &mut memory);
        machine.start().expect("with the second memory");
        assert_eq!(machine.run("MGET both own0 other2"), "*3 $1 1 $-1 $1 1");
    }
}

/// Memory without changes of its own takes nothing from anybody: what the log has counts, however
/// far it went on.
#[test]
fn memory_without_changes_of_its_own_gives_way_when_the_log_went_on() {
    for (rounds, has_arenas) in [(1, true), (150, true), (150, false)] {
        let (mut machine, mut memory) = (Machine::started(2, 2), other());
        for turn in 0..4 {
            for i in 0..rounds {
                machine.run(&format!("SET a {turn}.{i:03}"));
                machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
                machine.settle();
            }
            if !has_arenas {
                machine.kill();
                machine.lose_arenas();
            }
            swap(&mut machine, &mut memory);
            machine.start().unwrap_or_else(|error| panic!("turn {turn} of {rounds}: {error}"));
            assert_eq!(machine.run("GET a"), format!("$5 {turn}.{:03}", rounds - 1));
        }
    }
}

/// How far a log was when it went on isn't known any more if the files of that time are gone. Then
/// nothing of memory is taken, though the last number of the log is that of memory.
#[test]
fn memory_that_the_logs_files_know_nothing_of_is_not_served() {
    let (mut machine, mut memory) = (Machine::started(5, 2), other());
    let keys = (0..).map(|i| format!("k{i}"));
    let partition = |it: &Machine, key: &String| {
        it.running.as_ref().expect("it runs").keyspace.partition_of(key.as_bytes())
    };
    let hot = keys.clone().find(|key| partition(&machine, key) == 1).expect("one of them");
    let key = keys.clone().find(|key| partition(&machine, key) == 0).expect("one of them");
    machine.run(&format!("SET {key} 0"));
    machine.settle();
    (0..3).for_each(|_| drop(machine.run(&format!("SET {key} own"))));
    swap(&mut machine, &mut memory);
    machine.start().expect("without the first memory");
    (0..3).for_each(|_| drop(machine.run(&format!("SET {key} other"))));
    for _ in 0..150 {
        machine.bytes(&[b"SET", hot.as_bytes(), "x".repeat(2000).as_bytes()]);
        machine.settle();
    }
    swap(&mut machine, &mut memory);
    assert_eq!(machine.start().expect("by the log").rebuilt, 3);
    assert_eq!(machine.run(&format!("GET {key}")), "$5 other");
}

/// A base of another memory begins a chain of which the journal doesn't know, so nothing tells that
/// the log went on. But a commit of which the log has a part isn't the log's. It was a panic.
#[test]
fn a_commit_of_which_the_log_has_a_part_is_refused() {
    for has_arenas in [true, false] {
        let (mut machine, mut memory) = (Machine::started(3, 1), other());
        machine.run("SET a 0");
        machine.settle();
        machine.run("MSET a 1 b 1 c 1 d 1 e 1");
        if !has_arenas {
            machine.kill();
            machine.lose_arenas();
        }
        swap(&mut machine, &mut memory);
        machine.start().expect("without the first memory");
        machine.run("SET a 2");
        machine.run("SET a 3");
        machine.disk.fail(machine.disk.calls() + 1, SimFault::Io);
        machine.settle();
        machine.kill();
        assert_eq!(machine.start().expect("a base").base, Some(BaseCause::Broken));
        swap(&mut machine, &mut memory);
        let error = machine.start().expect_err("two histories");
        assert!(matches!(error, StoreError::LogWentOn { .. }), "{error}");
        swap(&mut machine, &mut memory);
        machine.start().expect("with the second memory");
        assert_eq!(machine.run("MGET a b"), "*2 $1 3 $-1");
    }
}

/// A start without a log retired it beside whole arenas, though it had gone on with other memory:
/// what that had written was nowhere any more. Now it stays, unless the arenas have each change of
/// it, and are of this boot. A log that is damaged is given up for memory of this boot only.
#[test]
fn a_log_that_went_on_without_the_arenas_is_not_retired() {
    for (own, partitions) in [(0, 1), (3, 1), (0, 2)] {
        let (mut machine, mut memory) = (Machine::started(6, partitions), other());
        machine.run("SET x 1");
        machine.settle();
        sets(&mut machine, "own", own);
        swap(&mut machine, &mut memory);
        machine.start().expect("without the first memory");
        machine.run("SET y 2");
        machine.settle();
        swap(&mut machine, &mut memory);
        let error = retire(&machine).expect_err("the log has more");
        match own {
            0 => assert!(matches!(error, StoreError::RetireNeeded { .. }), "{error}"),
            _ => assert!(matches!(error, StoreError::LogWentOn { .. }), "{error}"),
        }
        swap(&mut machine, &mut memory);
        machine.start().expect("with the second memory");
        assert_eq!(machine.run("MGET x y"), "*2 $1 1 $1 2");
        machine.kill();
        retire(&machine).expect("it has all");
    }
    for (is_damaged, is_of_boot) in [(false, false), (true, false), (true, true)] {
        let mut machine = Machine::started(7, 1);
        machine.run("SET x 1");
        machine.settle();
        machine.kill();
        if is_damaged {
            let names = machine.disk.names().expect("names").into_iter();
            for name in names.filter(|it| it.ends_with(".log")) {
                let mut bytes = machine.disk.contents(&name).expect("a file");
                bytes[16] ^= 1;
                machine.disk.set_contents(&name, bytes);
            }
        }
        if !is_of_boot {
            machine.boot += 1;
        }
        let retired = retire(&machine);
        match is_of_boot {
            true => retired.expect("memory has all"),
            false => {
                let error = retired.expect_err("it may be torn");
                assert!(matches!(error, StoreError::RetireNeeded { .. }), "{error}");
                let started = machine.start();
                assert_eq!(started.is_err_and(|error| error.is_log_damage()), is_damaged);
            }
        }
    }
}

/// Changes of several files' bytes that the log doesn't have yet; the process runs, or was killed.
fn with_much_to_write(runs: bool) -> Machine {
    let mut machine = Machine::started(4, 1);
    machine.run("SET a 1");
    machine.settle();
    for i in 0..60 {
        machine.bytes(&[b"SET", format!("k{i}").as_bytes(), "x".repeat(2000).as_bytes()]);
    }
    if !runs {
        machine.kill();
    }
    machine
}

/// Writes what the log doesn't have.
fn write_much(machine: &mut Machine) {
    if machine.running.is_some() {
        machine.settle();
    } else {
        let _ = machine.start();
    }
}

/// Files that a memory's own process has begun are told from others', wherever it is cut off: a
/// start that writes what the journal has, and a log that is being written.
#[test]
fn files_of_its_own_process_are_known_wherever_that_ends() {
    for runs in [false, true] {
        let mut machine = with_much_to_write(runs);
        let before = machine.disk.calls();
        write_much(&mut machine);
        let calls = machine.disk.calls() - before;
        let step = if seeds().is_some() { 1 } else { 3 };
        for call in (1..=calls).step_by(step) {
            let mut machine = with_much_to_write(runs);
            machine.disk.stop_at(machine.disk.calls() + call);
            write_much(&mut machine);
            for cut in [call / 2, call + 7] {
                // Once more cut off.
                machine.kill();
                machine.disk.stop_at(machine.disk.calls() + cut);
                let _ = machine.start();
            }
            machine.kill();
            let at = format!("runs {runs}, call {call} of {calls}");
            machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(machine.run("GET a"), "$1 1", "{at}");
            assert!(machine.run("GET k59").ends_with("xxx"), "{at}");
        }
    }
}
