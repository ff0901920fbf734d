//! Room on the disk for a base that a start writes: what an earlier one has left takes none of it.

use nigh_log::simulated::SimFault;

use crate::machine::Machine;

/// More than any of these needs.
const AMPLE_BYTES: u64 = 4 << 20;

/// The least bytes of a disk, to a block or less, with which a start succeeds.
fn least(mut starts: impl FnMut(u64) -> bool) -> u64 {
    let (mut few, mut enough) = (0, AMPLE_BYTES);
    assert!(starts(enough), "a disk of {enough} bytes");
    while enough - few > 512 {
        let middle = few.midpoint(enough);
        if starts(middle) {
            enough = middle;
        } else {
            few = middle;
        }
    }
    enough
}

/// Two shards' first start, yet to come.
fn two_shards() -> Machine {
    let mut machine = Machine::new(1, 2);
    machine.shards = 2;
    machine
}

/// One shard's log broke: the next start writes a base in its place. The memory is there.
fn one_that_broke() -> Machine {
    let mut machine = Machine::started(2, 1);
    for i in 0..300 {
        machine.run(&format!("SET k{i} {}", "v".repeat(1000)));
    }
    machine.settle();
    machine.run("SET last 1");
    machine.disk.fail(machine.disk.calls() + 1, SimFault::Io);
    machine.settle();
    machine.kill();
    machine
}

/// A first base finds room for one of two chains. That chain's files stayed, and all later starts
/// were refused for want of room, though there would have been enough; and each left more.
#[test]
fn a_first_base_without_room_leaves_nothing() {
    let enough = least(|bytes| {
        let machine = &mut two_shards();
        machine.disk.set_capacity(bytes);
        machine.start().is_ok()
    });
    let mut machine = two_shards();
    machine.disk.set_capacity(enough - (8 << 10));
    for attempt in 0..3 {
        assert!(machine.start().is_err(), "no room for both");
        let left = machine.disk.used_bytes();
        assert!(left < 4 << 10, "attempt {attempt} leaves {left} bytes, and meta has few of them");
        machine.kill();
    }
    machine.disk.set_capacity(enough);
    machine.start().expect("room for both");
    assert_eq!(machine.run("SET a 1"), "+OK");
}

/// Starts are killed while they write a base in place of a log that broke. What they had written
/// stayed until a base was whole, beside that one.
#[test]
fn bases_that_were_cut_off_take_no_room_of_a_later_one() {
    let enough = least(|bytes| {
        let mut machine = one_that_broke();
        machine.disk.set_capacity(bytes);
        machine.start().is_ok()
    });
    let calls = {
        let mut machine = one_that_broke();
        let before = machine.disk.calls();
        machine.start().expect("a sound disk");
        machine.disk.calls() - before
    };
    for part in 1..8 {
        let mut machine = one_that_broke();
        let before = machine.disk.used_bytes();
        machine.disk.set_capacity(enough);
        let mut most = 0;
        for _ in 0..3 {
            machine.disk.stop_at(machine.disk.calls() + calls * part / 8);
            let stopped = machine.start().is_err();
            machine.kill();
            most = most.max(machine.disk.used_bytes());
            if !stopped {
                break;
            }
        }
        machine.start().unwrap_or_else(|error| panic!("{part}, {before} to {most}: {error}"));
        assert_eq!(machine.run("DBSIZE"), ":301", "{part}");
    }
}
