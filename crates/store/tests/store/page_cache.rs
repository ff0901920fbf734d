//! Starts behind a sync that failed: what only the system's cache has isn't on disk.

use nigh_log::simulated::SimFault;

use crate::machine::Machine;

/// Where no journal tells that a sync has failed, a start takes nothing from the cache that isn't
/// on disk. It went on behind a file that it had begun there, which the next power cut took.
#[test]
fn a_start_without_a_journal_believes_the_disk() {
    let mut failures = 0;
    for call in 1.. {
        let mut machine = Machine::started(800, 1);
        machine.run("SET a 1");
        machine.settle();
        machine.cut_power();
        machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
        let failed = machine.start().is_err();
        let Some(what) = machine.disk.failed_call() else { break };
        if !failed {
            continue;
        }
        failures += 1;
        machine.kill();
        believes_the_disk(machine, &format!("call {call}, {what}"));
    }
    assert!(failures > 5, "{failures}");
}

/// The same behind a server whose log broke, if its memory has gone and the machine hasn't: so it
/// is for a container that is made anew.
#[test]
fn a_start_without_memory_believes_the_disk() {
    for call in 1.. {
        let mut machine = Machine::started(801, 1);
        machine.run("SET a 1");
        machine.settle();
        machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
        machine.run("SET lost 1");
        machine.settle();
        let Some(what) = machine.disk.failed_call() else { break };
        machine.kill();
        machine.lose_memory();
        machine.boot += 1;
        believes_the_disk(machine, &format!("call {call}, {what}"));
    }
}

/// Whatever a start says is durable is there behind a power cut.
fn believes_the_disk(mut machine: Machine, at: &str) {
    machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
    machine.run("SET b 2");
    machine.settle();
    machine.cut_power();
    machine.start().unwrap_or_else(|error| panic!("{at}, power: {error}"));
    assert_eq!(
        (machine.run("GET a"), machine.run("GET b")),
        ("$1 1".into(), "$1 2".into()),
        "{at}"
    );
}
