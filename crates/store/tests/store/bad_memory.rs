//! Records and values that go bad in memory, and the log that has them as they were written.

use crate::durable_starts::{damage, damage_to};
use crate::machine::Machine;
use nigh_log::list;
use nigh_log::simulated::SimFault;
use nigh_store::LogHealth;

/// Steps that a story takes at most.
const STEPS_MOST: u32 = 10_000;
/// Seconds behind which what couldn't be mended is tried again.
const AGAIN_S: u64 = 10;
/// Tries to mend that a story waits for at most.
const TRIES_MOST: u32 = 10;
/// Bytes from a record's LSN to its key.
const LSN_BEFORE_KEY: usize = 24;
/// Changes of [`write_garbage`].
const GARBAGE: u64 = 100;

fn oldest(machine: &Machine) -> u64 {
    list(&machine.disk).expect("the folder").files[0].number
}

/// The file that is being written: one more is ready.
fn newest(machine: &Machine) -> u64 {
    list(&machine.disk).expect("the folder").files.iter().rev().nth(1).expect("two files").number
}

fn fault(machine: &mut Machine) -> String {
    machine.running().logs[0].status.compaction_fault()
}

pub(crate) fn mended(machine: &mut Machine) -> u64 {
    machine.running().logs[0].status.figures().mended
}

/// Writes what is garbage at once, and fills some files. The log's thread isn't told what is alive,
/// so it compacts nothing.
fn write_garbage(machine: &mut Machine) {
    let set = format!("SET hot {}", "x".repeat(2000));
    for _ in 0..GARBAGE {
        run_untold(machine, &set);
        machine.settle_untold();
    }
}

/// Runs a command while the log's thread isn't told what is alive.
fn run_untold(machine: &mut Machine, command: &str) -> String {
    for _ in 0..STEPS_MOST {
        if let Some(reply) = machine.try_run(command) {
            return reply;
        }
        machine.settle_untold();
    }
    panic!("memory never comes back");
}

fn health(machine: &mut Machine) -> LogHealth {
    machine.running().logs[0].status.health()
}

/// Tells what is alive: compaction begins.
fn tell_live(machine: &mut Machine) {
    let live = machine.running().keyspace.live_bytes();
    machine.running().logs[0].status.tell_live(live);
}

/// Waits for the end of a round that was asked for. Returns the bytes of the files that count.
fn round_ends(machine: &mut Machine) -> u64 {
    step_until(machine, |machine| {
        machine.clock.advance_us(1_000);
        !machine.running().logs[0].status.is_in_round()
    });
    machine.running().logs[0].status.figures().bytes
}

fn step_until(machine: &mut Machine, is_there: impl Fn(&mut Machine) -> bool) {
    for _ in 0..STEPS_MOST {
        if is_there(machine) {
            return;
        }
        machine.step();
    }
    let (fault, files) = (fault(machine), oldest(machine)..=newest(machine));
    panic!("it never comes: {:?}, {fault:?}, {files:?}", health(machine));
}

/// The owner has met a bad record, and the log's thread doesn't know it yet.
fn is_met(machine: &mut Machine) -> bool {
    let stats = machine.running().keyspace.part_mut(0).stats();
    stats.data.cleaner.bad_records > 0
}

/// A machine whose oldest file has the right bytes of a record that was just met, and is bad.
pub(crate) fn met_bad(seed: u64, value: &str) -> Machine {
    let mut machine = Machine::started(seed, 1);
    run_untold(&mut machine, "SET before 1");
    run_untold(&mut machine, &format!("SET spoiled {value}"));
    run_untold(&mut machine, "SET behind 2");
    write_garbage(&mut machine);
    damage(&machine, "default.0.arena", b"spoiled", LSN_BEFORE_KEY);
    machine.running().logs[0].status.want_round();
    tell_live(&mut machine);
    step_until(&mut machine, is_met);
    machine
}

/// Lets time pass in which all is tried again that waits for it.
fn wait(machine: &mut Machine) {
    machine.clock.advance_us((AGAIN_S + 1) * 1_000_000);
    machine.settle();
}

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
    for (before, seen) in [(LSN_BEFORE_KEY, "$10 0123456789"), (0, "$-1")] {
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

/// Each bad record once had the whole of its file read and appended again: five of them cost five
/// files.
#[test]
fn many_bad_records_of_a_file_are_mended_and_nothing_is_appended_twice() {
    for capacity in [u64::MAX, 5 << 20] {
        let mut machine = Machine::new(505, 1);
        machine.file_bytes = 512 << 10;
        machine.disk.set_capacity(capacity);
        machine.start().expect("a new folder");
        let value = |n: u32| format!("value{n:05}{}", "v".repeat(100));
        for n in 0..1000 {
            assert_eq!(run_untold(&mut machine, &format!("SET key{n} {}", value(n))), "+OK");
            if n % 100 == 99 {
                machine.settle_untold(); // a frame ends
            }
        }
        let is_small = capacity < u64::MAX;
        assert_eq!(newest(&machine), oldest(&machine), "all of them lie in one file");
        for _ in 0..if is_small { 1000 } else { 200 } {
            if health(&mut machine) == LogHealth::Full {
                break;
            }
            run_untold(&mut machine, &format!("SET hot {}", "x".repeat(2000)));
            machine.settle_untold();
        }
        assert_eq!(health(&mut machine) == LogHealth::Full, is_small);
        for n in (0..1000).step_by(200) {
            damage(&machine, "default.0.arena", format!("value{n:05}").as_bytes(), 0);
        }
        machine.running().logs[0].status.want_round();
        tell_live(&mut machine);
        round_ends(&mut machine);
        assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 5));
        let files = list(&machine.disk).expect("the folder").files;
        let all = files.iter().filter_map(|file| machine.disk.contents(&file.to_string()));
        let copies: usize =
            all.map(|bytes| bytes.windows(5).filter(|it| it == b"value").count()).sum();
        // The file that went is kept, to be used again.
        assert!(copies <= 2_005, "{copies} copies of 1,000 values");
        machine.settle();
        machine.cut_power();
        machine.start().expect("after the power cut");
        for n in 0..1000 {
            assert_eq!(machine.run(&format!("GET key{n}")), format!("$110 {}", value(n)));
        }
    }
}

/// What was added to a long value stands before the whole value, which compaction appended again
/// to the same file. The first of them alone ended compaction until the next start.
#[test]
fn a_long_value_is_mended_by_a_whole_version_further_on_in_the_file() {
    let mut machine = Machine::new(510, 1);
    machine.file_bytes = 512 << 10;
    machine.start().expect("a new folder");
    let value = format!("{}Z", "0123456789".repeat(14_000));
    assert_eq!(run_untold(&mut machine, &format!("SET long {value}")), "+OK");
    fills_a_file(&mut machine);
    run_untold(&mut machine, "APPEND long tail");
    machine.settle_untold();
    let both = newest(&machine);
    machine.running().logs[0].status.want_round();
    tell_live(&mut machine);
    round_ends(&mut machine);
    let files = list(&machine.disk).expect("the folder").files;
    let file = files.iter().find(|file| file.number == both).expect("the file");
    let bytes = machine.disk.contents(&file.to_string()).expect("its bytes");
    assert_eq!(bytes.windows(4).filter(|it| it == b"long").count(), 2, "both lie in one file");
    machine.running().logs[0].status.tell_live(1 << 40); // no garbage
    fills_a_file(&mut machine);
    damage(&machine, "default.0.arena", b"long", LSN_BEFORE_KEY);
    machine.running().logs[0].status.want_round();
    round_ends(&mut machine);
    assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 1));
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert!(machine.run("GET long").ends_with(&format!("{value}tail")), "as it was written");
}

/// Writes what is garbage at once, and more than a file of 512 KiB.
fn fills_a_file(machine: &mut Machine) {
    (0..3).for_each(|_| write_garbage(machine));
}

/// A machine whose arena is full, and that meets a record whose LSN is this much beyond the newest.
fn met_bad_without_room(seed: u64, value: &str, beyond: u64) -> Machine {
    let mut machine = Machine::started(seed, 1);
    run_untold(&mut machine, &format!("SET spoiled {value}"));
    write_garbage(&mut machine);
    let mut count = 0;
    while run_untold(&mut machine, &format!("SET fill{count} {value}")) == "+OK" {
        count += 1;
    }
    let newest = 1 + GARBAGE + count;
    let place: (&[u8], _) = (b"spoiled", LSN_BEFORE_KEY);
    damage_to(&machine, "default.0.arena", place, (newest + beyond).to_le_bytes());
    machine.running().logs[0].status.want_round();
    machine
}

/// Nothing is mended, since the arena is full, and the file stays.
fn waits_for_room(machine: &mut Machine, first: u64) {
    wait(machine);
    assert!(fault(machine).contains("the arena is full"), "{:?}", fault(machine));
    assert_eq!((mended(machine), oldest(machine)), (0, first));
}

/// Gives the arena room: the record is as it was written, also behind a power cut.
fn is_mended_by_room(mut machine: Machine, value: &str) {
    for n in 0..4 {
        machine.run(&format!("DEL fill{n}"));
    }
    // A first try may meet memory that is still being given back.
    for _ in 0..TRIES_MOST {
        wait(&mut machine);
        if mended(&mut machine) > 0 {
            break;
        }
    }
    assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 1));
    write_much(&mut machine);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert!(machine.run("GET spoiled").ends_with(value), "as it was written");
}

/// An arena without room for the right bytes once ended compaction until the next start. A rewrite
/// that is asked for meanwhile fails, and says why: nobody knows when there is room.
#[test]
fn what_finds_no_room_in_memory_is_mended_when_there_is_some() {
    let value = "0123456789".repeat(14_000);
    let mut machine = met_bad_without_room(506, &value, 1 << 50);
    let first = oldest(&machine);
    for _ in 0..3 {
        waits_for_room(&mut machine, first);
        assert!(!machine.running().logs[0].status.is_in_round());
        machine.running().logs[0].status.want_round();
    }
    is_mended_by_room(machine, &value);
}

/// While a record waited to be mended, others wrote until its lost number was one that its key can
/// have. It passed for a newer version then, and its file went with the right bytes.
#[test]
fn a_lost_number_that_becomes_possible_meanwhile_is_still_lost() {
    let value = "0123456789".repeat(14_000);
    let mut machine = met_bad_without_room(511, &value, 20);
    wait(&mut machine);
    machine.run("SET hot 0");
    machine.settle(); // a file before it goes
    let first = oldest(&machine);
    waits_for_room(&mut machine, first);
    for n in 0..40 {
        assert_eq!(machine.run(&format!("SET hot {n}")), "+OK");
    }
    waits_for_room(&mut machine, first);
    is_mended_by_room(machine, &value);
}

/// A rewrite that is asked for while the log's thread waits for the owner.
#[test]
fn a_round_that_is_asked_for_while_a_record_is_mended_comes_behind_it() {
    let mut machine = met_bad(507, "abcdefghijklY");
    machine.running().logs[0].status.want_round();
    let bytes = round_ends(&mut machine);
    assert!(bytes <= 4 * machine.file_bytes, "{bytes} bytes: all that was there went");
    assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 1));
}

/// It once counted as mended.
#[test]
fn a_record_that_is_replaced_before_it_is_mended_stays_as_it_is_now() {
    let stories = [("SET spoiled new", "$3 new"), ("DEL spoiled", "$-1"), ("FLUSHALL", "$-1")];
    for (command, seen) in stories {
        let mut machine = met_bad(508, "abcdefghijklY");
        machine.try_run(command).expect("there is room");
        machine.settle();
        assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 0), "{command}");
        for is_again in [false, true] {
            assert_eq!(machine.run("GET spoiled"), seen, "{command} {is_again}");
            if !is_again {
                machine.cut_power();
                machine.start().expect("after the power cut");
            }
        }
    }
}

/// The log's thread can't open the file again, or not read it, or finds no memory: it tries again.
/// It once didn't.
#[test]
fn what_cannot_be_read_for_mending_is_read_later() {
    let mut hit = std::collections::BTreeSet::new();
    for fault_of_disk in [SimFault::Io, SimFault::NoMemory] {
        for call in 1..16 {
            let mut machine = met_bad(510, "abcdefghijklY");
            machine.disk.fail(machine.disk.calls() + call, fault_of_disk);
            step_until(&mut machine, |machine| machine.disk.failed_call().is_some());
            let what = machine.disk.failed_call().expect("it has failed");
            let (health, said) = (health(&mut machine), fault(&mut machine));
            if !said.contains("is bad in memory") {
                continue; // it wasn't for mending
            }
            assert!(health == LogHealth::Well && said.contains("is mended later"), "{said}");
            hit.insert(what.split(' ').next().expect("a word").to_owned());
            machine.settle();
            assert_eq!(mended(&mut machine), 0, "not yet");
            wait(&mut machine);
            assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 1));
            machine.cut_power();
            machine.start().expect("after the power cut");
            assert_eq!(machine.run("GET spoiled"), "$13 abcdefghijklY");
        }
    }
    assert!(hit.contains("open") && hit.contains("read_at"), "{hit:?}");
}

/// A key whose record had lost its key was written anew, and deleted: the old version came back.
#[test]
fn a_version_that_was_replaced_does_not_come_back_by_mending() {
    let mut machine = Machine::started(511, 1);
    machine.run("SET numbered 0123456789");
    write_garbage(&mut machine);
    damage(&machine, "default.0.arena", b"numbered", 0);
    assert_eq!(run_untold(&mut machine, "SET numbered new"), "+OK");
    assert_eq!(run_untold(&mut machine, "DEL numbered"), ":1");
    machine.running().logs[0].status.want_round();
    wait(&mut machine);
    assert!(fault(&mut machine).contains("may have been removed"), "{:?}", fault(&mut machine));
    assert_eq!(machine.run("GET numbered"), "$-1");
    // Whoever sets it ends the doubt.
    machine.run("SET numbered anew");
    wait(&mut machine);
    assert_eq!((fault(&mut machine), mended(&mut machine)), (String::new(), 0));
    for is_again in [false, true] {
        assert_eq!(machine.run("GET numbered"), "$4 anew", "{is_again}");
        if !is_again {
            machine.cut_power();
            machine.start().expect("after the power cut");
        }
    }
}
