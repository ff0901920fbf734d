//! Records and values that go bad in memory, and the log that has them as they were written.

use crate::durable_starts::damage;
use crate::machine::Machine;
use nigh_log::list;

/// Overwrites a key until files go. The log's thread is ahead: it has asked for all of a file
/// before the owner looks.
fn write_much(machine: &mut Machine) {
    for _ in 0..300 {
        machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
        for _ in 0..4 {
            machine.running().logs[0].thread.pass();
        }
        machine.settle();
    }
}

/// A long value that has gone bad in memory isn't appended again, and its file stays: the log still
/// has it as it was.
#[test]
fn a_file_stays_whose_value_is_bad_in_memory() {
    let mut machine = Machine::started(500, 1);
    let value = format!("{}Z", "0123456789".repeat(14_000));
    machine.bytes(&[b"SET", b"long", value.as_bytes()]);
    machine.settle();
    damage(&machine, "default.0.arena", b"89Z", 100);
    write_much(&mut machine);
    let fault = machine.running().logs[0].status.compaction_fault();
    assert!(fault.contains("is bad in memory"), "{fault:?}");
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert!(machine.run("GET long").ends_with(&value), "as it was written");
}

/// The same beside a record that the log mends: mending that doesn't let the file go.
#[test]
fn a_file_stays_for_a_bad_value_though_a_record_beside_it_is_mended() {
    for is_first in [true, false] {
        let mut machine = Machine::new(503, 1);
        machine.file_bytes = 256 << 10; // the value and the record lie in one file
        machine.start().expect("a new folder");
        let value = format!("{}Z", "0123456789".repeat(14_000));
        let spoil = |machine: &mut Machine| _ = machine.run("SET spoiled abcdefghijklY");
        if is_first {
            spoil(&mut machine);
        }
        machine.bytes(&[b"SET", b"long", value.as_bytes()]);
        machine.run("APPEND long tail"); // so that it stands on a change of the file
        if !is_first {
            spoil(&mut machine);
        }
        machine.settle();
        damage(&machine, "default.0.arena", b"89Z", 100);
        damage(&machine, "default.0.arena", b"jklY", 8);
        (0..4).for_each(|_| write_much(&mut machine));
        let fault = machine.running().logs[0].status.compaction_fault();
        assert!(fault.contains("is bad in memory"), "{fault:?}");
        machine.cut_power();
        machine.start().expect("after the power cut");
        assert!(machine.run("GET long").ends_with(&format!("{value}tail")), "as it was written");
        assert_eq!(machine.run("GET spoiled"), "$13 abcdefghijklY");
    }
}

/// The same of a record that has lost its number, or its key. It once passed for another version,
/// or for one that is gone, and its file went with the right bytes.
#[test]
fn a_record_that_has_lost_its_number_or_key_is_mended_by_the_log() {
    let lsn_before_key = 24;
    for (before, seen) in [(lsn_before_key, "$10 0123456789"), (0, "$-1")] {
        let mut machine = Machine::started(504, 1);
        machine.run("SET numbered 0123456789");
        machine.settle();
        damage(&machine, "default.0.arena", b"numbered", before);
        assert_eq!(machine.run("GET numbered"), seen, "nobody looks at its sum");
        write_much(&mut machine);
        let status = &machine.running().logs[0].status;
        assert_eq!((status.compaction_fault(), status.figures().mended), (String::new(), 1));
        assert_eq!(machine.run("GET numbered"), "$10 0123456789");
        machine.cut_power();
        machine.start().expect("after the power cut");
        assert_eq!(machine.run("GET numbered"), "$10 0123456789");
    }
}

/// A record that has gone bad in memory hinders compaction no more: the file that goes has it as it
/// was written, and mends it. Beside it are records that the first reading has appended again.
#[test]
fn a_record_that_is_bad_in_memory_is_mended_by_the_log() {
    let mut machine = Machine::started(502, 1);
    for n in 0..40 {
        machine.run(&format!("SET key{n} value{n}"));
    }
    machine.run("SET spoiled 0123456789abcdefghijZ PX 100000000");
    let expires = machine.run("PEXPIRETIME spoiled");
    for n in 40..80 {
        machine.run(&format!("SET key{n} value{n}"));
    }
    machine.settle();
    let oldest = |machine: &Machine| list(&machine.disk).expect("the folder").files[0].number;
    let first = oldest(&machine);
    damage(&machine, "default.0.arena", b"hijZ", 10);
    assert_ne!(machine.run("GET spoiled"), "$21 0123456789abcdefghijZ");
    write_much(&mut machine);
    let status = &machine.running().logs[0].status;
    assert_eq!((status.compaction_fault(), status.figures().mended), (String::new(), 1));
    assert!(oldest(&machine) > first + 1, "files went");
    for is_again in [false, true] {
        assert_eq!(machine.run("GET spoiled"), "$21 0123456789abcdefghijZ", "{is_again}");
        assert_eq!(machine.run("PEXPIRETIME spoiled"), expires);
        for n in 0..80 {
            let value = format!("value{n}");
            let reply = format!("${} {value}", value.len());
            assert_eq!(machine.run(&format!("GET key{n}")), reply, "{is_again}");
        }
        if !is_again {
            machine.cut_power();
            machine.start().expect("after the power cut");
        }
    }
}
