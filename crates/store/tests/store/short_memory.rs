//! A log's thread that finds no memory for what it reads.

use crate::machine::Machine;
use nigh_log::list;
use nigh_log::simulated::SimFault;
use nigh_store::LogHealth;

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
