//! A log's thread that finds no memory for what it reads.

use crate::bad_memory::{mended, met_bad};
use crate::machine::Machine;
use nigh_log::list;
use nigh_log::simulated::SimFault;
use nigh_store::LogHealth;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::process::Command;

/// Says that this process is the child.
const CHILD: &str = "NIGH_STORE_LITTLE_MEMORY";
/// Of a value that is mended.
const LONG_BYTES: usize = 6 << 20;
/// MiB that the child may take beside what it has: up to more than a frame and a copy of it.
const MORE_MIB: std::ops::Range<u64> = 1..24;

/// Once, compaction that found no memory for a frame broke the log, which took writes again only
/// when a base was written. It waits now, and reads on from where it was.
#[test]
fn compaction_that_finds_no_memory_goes_on_later() {
    let mut amid_frames = 0;
    for round in 0..16 {
        let mut machine = Machine::started(520 + round, 1);
        for n in 0..40 {
            machine.run(&format!("SET key{n} value{n}"));
        }
        machine.settle();
        let first = list(&machine.disk).expect("the folder").files[0].number;
        machine.disk.fail(machine.disk.calls() + 1 + 10 * round, SimFault::NoMemory);
        for _ in 0..300 {
            machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
            machine.settle();
            let status = &machine.running().logs[0].status;
            assert_eq!(status.health(), LogHealth::Well, "{}", status.cause());
            let fault = status.compaction_fault();
            if fault.contains("Cannot allocate memory") {
                amid_frames += u64::from(!fault.contains("offset 0:"));
                machine.clock.advance_us(1_000_001);
            }
        }
        assert_eq!(machine.running().logs[0].status.compaction_fault(), "");
        assert!(list(&machine.disk).expect("the folder").files[0].number > first + 1, "files went");
        machine.cut_power();
        machine.start().expect("after the power cut");
        for n in 0..40 {
            assert!(machine.run(&format!("GET key{n}")).ends_with(&format!(" value{n}")));
        }
    }
    assert!(amid_frames > 0, "no read of a frame has failed");
}

/// The right bytes of a long value were copied for the owner by an allocation that may not fail: a
/// lack of memory ended the process.
#[test]
fn a_long_value_whose_copy_finds_no_memory_is_mended_later() {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    // Else the allocator has addresses in reserve, and keeps what is freed.
    command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "1048576");
    command.env("RUST_BACKTRACE", "0").env(CHILD, "1");
    command.args(["--exact", "short_memory::child_with_little_memory", "--nocapture"]);
    let output = command.output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all was told"), "{}: {said}", output.status);
}

/// Lets this process take so many bytes more than it has, or any number again.
fn limit(more_bytes: Option<u64>) {
    let has_pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this process");
        statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
    };
    let current = more_bytes.map(|bytes| has_pages() * 4096 + bytes);
    setrlimit(Resource::As, Rlimit { current, maximum: None }).expect("it is ours");
}

#[test]
fn child_with_little_memory() {
    // The test above runs this.
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let value = "v".repeat(LONG_BYTES);
    let mut machine = met_bad(540, &value);
    let mut faults = Vec::new();
    for more in MORE_MIB {
        limit(Some(more << 20));
        for _ in 0..4 {
            machine.running().logs[0].thread.pass();
        }
        limit(None);
        faults.push(machine.running().logs[0].status.compaction_fault());
        machine.clock.advance_us(11_000_000);
    }
    assert!(
        faults.iter().any(|it| it.contains("Cannot allocate") || it.contains("out of mem")),
        "{faults:?}"
    );
    assert!(faults.iter().any(|it| it.contains("no memory for its")), "{faults:?}");
    machine.settle();
    assert_eq!(mended(&mut machine), 1);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert!(machine.run("GET spoiled").ends_with(&value), "as it was written");
    eprintln!("all was told");
}
