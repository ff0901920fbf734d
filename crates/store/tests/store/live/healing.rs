//! A log that breaks while the store is served, and heals.

use super::*;

/// A log that breaks is healed by a base while the store is served, and tried again if that fails.
#[test]
fn a_broken_log_heals_while_serving() {
    let mut live = Live::new(5, 4, 2, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..50 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.settle();
    for more_failures in 0..3u64 {
        live.run("SET b 2");
        let next = live.machine.disk.calls() + 1;
        live.machine.disk.fail(next, SimFault::Io);
        let mut refused = 0;
        for i in 0..STEPS_MOST {
            let more = live.step_all();
            refused += u32::from(live.run("SET c 3").is_none());
            if u64::from(i) == 3 + more_failures {
                let next = live.machine.disk.calls() + more_failures;
                live.machine.disk.fail(next, SimFault::Io);
            }
            if !more && i > 10 {
                break;
            }
        }
        live.machine.clock.advance_us(11_000_000);
        live.settle();
        assert!(refused > 0);
        let news = live.news();
        assert!(matches!(news.first(), Some(LogNews::BaseBegins(Some(_)))), "{news:?}");
        assert_eq!(news.last(), Some(&LogNews::Counts), "{news:?}");
        assert_eq!(live.run(&format!("SET d {more_failures}")).as_deref(), Some("+OK"));
        live.settle();
        live.cut_power();
        live.start(true).expect("after the power cut");
        assert_eq!((live.get("b"), live.get("k49")), ("$1 2".into(), "$3 v49".into()));
        assert_eq!(live.get("d"), format!("$1 {more_failures}"));
        live.machine.clock.advance_us(11_000_000);
    }
}
