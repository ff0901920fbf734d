//! Calls that fill the heap: behind a call's last allocation, V8 may look for its stop no more in
//! that call; and symbols that would stay for good.

use crate::common::{Bench, call, patient};
use nigh_js::FunctionLimits;

const HEAP_BYTES: usize = 64 << 20;
/// Calls after which V8 has long compiled what is around them with all its optimizations.
const CALLS_WARM: u32 = 20_000;
const RESULT: &str = "*2\r\n$1\r\na\r\n:1\r\n";
const FULL: &str = "bytes of heap and was stopped; nothing was written";

/// Each call keeps 32 MB more, which a microtask behind the last getter of its result takes.
const BODY: &str = "
    let kept;
    const keep = () => { kept = [kept, new Array(4e6)]; };
    const last = () => ({ get a() { Promise.resolve().then(keep); return 1; } });
    export const writes = (db) => { db.incr('n'); return last(); };
    export const reads = () => last();
    export const warm = () => ({ get a() { Promise.resolve().then(() => 1); return 1; } });
    export const next = () => { console.log('began'); return 1; };";

fn bench(body: &str) -> Bench {
    let limits = FunctionLimits { call_ms: 60_000, heap_bytes: HEAP_BYTES, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add("t", body);
    bench
}

/// Runs `function`, and two calls behind it; whether each was stopped for its heap. The two may be,
/// since it is full, but not before they have begun.
fn stops(bench: &mut Bench, function: &str) -> [bool; 3] {
    bench.now_ms += 1000; // another second, so that the log takes more lines
    bench.world.log.clear();
    let replies = bench.run(&[call(function), call("next"), call("next")]);
    let expected = [RESULT, ":1\r\n", ":1\r\n"];
    assert_eq!(bench.world.log.len(), 2, "a call was stopped that had not begun: {replies:?}");
    [0, 1, 2].map(|at| {
        let is_stopped = replies[at].contains(FULL);
        assert!(is_stopped || replies[at] == expected[at], "{replies:?}");
        is_stopped
    })
}

#[test]
fn a_call_that_was_stopped_for_its_heap_has_written_nothing() {
    // Once, the stop hit behind the commit: the reply said that nothing was written, but it was.
    let mut bench = bench(BODY);
    let (mut count, mut stopped) = (0, 0);
    for round in 0..20 {
        let all = stops(&mut bench, "writes");
        count += u64::from(!all[0]);
        stopped += all.map(u64::from).iter().sum::<u64>();
        let written = bench.world.text("n").map_or(0, |text| text.parse().unwrap());
        assert_eq!(written, count, "round {round}: {all:?}");
    }
    assert!(count > 0 && count < 20, "{count} of 20 ended");
    assert_eq!(bench.runtime.stats().heap_limit_hits, stopped);
}

#[test]
fn a_stop_for_the_heap_hits_no_call_that_has_not_begun() {
    // Once, it hit the next call of the batch.
    let mut bench = bench(BODY);
    let ended = (0..20).filter(|_| !stops(&mut bench, "reads")[0]).count();
    assert!(ended > 0 && ended < 20, "{ended} of 20 ended");
}

#[test]
fn a_stop_for_the_heap_hits_no_end_of_an_entry() {
    // The code around a call is compiled with all optimizations, and looks for a stop at the turn
    // of the loop behind the call. Once, that ended the shard: the stop was behind the last call.
    let mut bench = bench(BODY);
    for _ in 0..CALLS_WARM {
        assert_eq!(bench.call("warm", &[]), RESULT);
    }
    let mut ended = 0;
    for _ in 0..20 {
        let replies = [bench.call("reads", &[]), bench.call("warm", &[])];
        ended += u64::from(replies[0] == RESULT);
        // The second one may be stopped too, since the heap is full.
        let are_right = replies.iter().all(|reply| reply == RESULT || reply.contains(FULL));
        assert!(are_right, "{replies:?}");
    }
    assert!(ended > 0 && ended < 20, "{ended} of 20 ended");
}

#[test]
fn symbols_dont_fill_the_heap_for_good() {
    // V8's own table of Symbol.for belongs to all contexts of a shard, and never shrinks: once, no
    // tenant's function could run there any more.
    let mut bench = bench(
        "export const fill = () => { for (let i = 0; ; i++) Symbol.for('x'.repeat(200) + i); };
         export const ok = () => 1;",
    );
    let before = bench.runtime.stats().heap_bytes;
    for _ in 0..3 {
        let reply = bench.call("fill", &[]);
        assert!(reply.contains(FULL), "{reply}");
        assert_eq!(bench.call("ok", &[]), ":1\r\n");
        let after = bench.runtime.stats().heap_bytes;
        assert!(after < before + HEAP_BYTES / 2, "{after} bytes of heap, once {before}");
    }
}
