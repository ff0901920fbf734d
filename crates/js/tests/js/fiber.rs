//! Functions that V8 can't stop, in a runtime on a fiber: they cost it an isolate, and other calls
//! nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::common::{Bench, call, patient};
use nigh_js::{Call, Fiber, FunctionLimits, Reason, Runtime};

/// Stack of a carrier, bytes: V8's and some.
const STACK_BYTES: usize = 8 << 20;
/// Waits of `WAIT` until what is stuck must have come back.
const WAITS: usize = 8_000;
const WAIT: Duration = Duration::from_millis(50);
/// Held by tests that take gigabytes: they run one after the other.
static LARGE: Mutex<()> = Mutex::new(());

/// Spreading bytes is one step of V8, in which it looks at nothing: some seconds for so many.
const BODY: &str = "
    const long = new Uint8Array(2 << 20);
    export const fine = (db, args) => args.length === 0 ? 1 : args[0];
    export const stuck = (db) => { db.set('stuck', '1'); return Object.keys({ ...long }).length; };
    export const alike = (db) => Object.keys({ ...long }).length;
    export const third = (db) => Object.keys({ ...long }).length;
    export const get = (db, [key]) => db.text(key) ?? 'none';
    export const put = (db, [key, value]) => { db.set(key, value); return 'put'; };";

fn limits() -> FunctionLimits {
    // Time is CPU time, so load on the machine stops no call; a slow one starts libraries in it.
    FunctionLimits { call_ms: 300, load_ms: 20_000, grace_ms: 600_000, ..patient() }
}

/// The same for libraries whose start is stuck.
fn load_limits() -> FunctionLimits {
    FunctionLimits { load_ms: 300, ..limits() }
}

/// Runs `test` on a fiber; panics if it does.
fn on_fiber(limits: FunctionLimits, test: impl FnOnce(&mut Bench) + Send + 'static) {
    let run = move |fiber| {
        let runtime = Runtime::on(fiber, limits).unwrap();
        test(&mut Bench::over(runtime));
    };
    assert!(Fiber::spawn("test", STACK_BYTES, run).unwrap().join(), "the test has panicked");
}

fn with_args<'a>(function: &'a str, args: &'a [&'a [u8]]) -> Call<'a> {
    Call { function: function.as_bytes(), args, ..Call::default() }
}

/// The end of the reply to a call in which V8 gave up before.
const FOR_GOOD: &str = "is refused here until its library's source changes or the server restarts: \
                        V8 gave up in it\r\n";

/// Memory of this process, bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Calls `function` until it is not refused any more: until the one that is stuck has come back.
fn wait_for(bench: &mut Bench, function: &str) -> String {
    for _ in 0..WAITS {
        let reply = bench.call(function, &[]);
        if !reply.contains("being stopped") {
            return reply;
        }
        std::thread::sleep(WAIT);
    }
    panic!("{function} never came back");
}

#[test]
fn a_stuck_call_holds_up_nobody() {
    // Its neighbours in the batch have their results, others run at once, and it has written
    // nothing.
    on_fiber(limits(), |bench| {
        bench.add("t", BODY);
        let calls = [
            with_args("put", &[b"a", b"1"]),
            with_args("fine", &[b"before"]),
            call("stuck"),
            with_args("fine", &[b"after"]),
            with_args("get", &[b"a"]),
        ];
        let replies = bench.run(&calls);
        assert_eq!(replies[..2], ["$3\r\nput\r\n", "$6\r\nbefore\r\n"]);
        assert!(replies[2].contains("function-time-limit-ms"), "{replies:?}");
        assert_eq!(replies[3..], ["$5\r\nafter\r\n", "$1\r\n1\r\n"]);
        assert_eq!(bench.runtime.stats().isolates_lost, 1);
        // It runs on, so this isn't the same as to have waited for its end.
        let refused = "ran too long and is still being stopped; try again later\r\n";
        assert_eq!(bench.call("stuck", &[]), format!("-ERR function 'stuck' {refused}"));
        assert_eq!(bench.call("put", &["b", "2"]), "$3\r\nput\r\n");
        assert_eq!(bench.call("get", &["b"]), "$1\r\n2\r\n");
        assert_eq!(bench.call("get", &["stuck"]), "$4\r\nnone\r\n");
        // When it has come back it may be called again.
        let again = wait_for(bench, "stuck");
        assert!(again.contains("function-time-limit-ms"), "{again}");
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
        assert_eq!(bench.call("get", &["stuck"]), "$4\r\nnone\r\n");
    });
}

#[test]
fn no_more_than_eight_calls_linger() {
    // Each holds a heap. Until one of them is done no function runs, and the next one says so.
    // The first must not be done before the eighth is stuck, so the literal has more parts where
    // that was so: V8 looks at nothing between them either.
    on_fiber(limits(), |bench| {
        let mut crowded = false;
        for parts in [1, 2, 4, 8] {
            let stuck = "...long, ".repeat(parts);
            let named = |n| format!("export const f{n} = () => Object.keys({{ {stuck} }}).length;");
            let body: String = (0..8).map(named).collect();
            let shared = "const long = new Uint8Array(2 << 20); export const fine = () => 1;";
            bench.add("t", &format!("{shared} {body}"));
            for n in 0..8 {
                let reply = bench.call(&format!("f{n}"), &[]);
                assert!(reply.contains("function-time-limit-ms"), "f{n}: {reply}");
                let lingering = bench.runtime.stats().lingering;
                assert!(lingering <= 8);
                if lingering == 8 {
                    let reply = bench.call("fine", &[]);
                    crowded =
                        reply.starts_with("-ERR no function can run here: 8 calls ran too long");
                    assert!(crowded || bench.runtime.stats().lingering < 8, "{reply}");
                }
            }
            assert_eq!(wait_for(bench, "fine"), ":1\r\n");
            if crowded {
                return;
            }
            for _ in 0..WAITS {
                if bench.runtime.stats().lingering == 0 {
                    break;
                }
                std::thread::sleep(WAIT);
                bench.call("fine", &[]);
            }
        }
        panic!("they came back too soon for this test");
    });
}

#[test]
fn a_call_in_which_v8_gives_up_costs_an_isolate() {
    // An index far behind millions of elements makes a table that V8 can't have: it ended the
    // process.
    on_fiber(FunctionLimits { load_ms: 60_000, call_ms: 60_000, ..limits() }, |bench| {
        let kept = "const kept = []; for (let i = 0; i < 23e6; i++) kept.push(i);";
        let far =
            "export const far = (db) => { db.set('far', '1'); kept[2 ** 32 - 2] = 1; return 1; };";
        bench.add("t", "export const fine = () => 1;");
        bench.add("u", &format!("{kept} {far}"));
        let calls = [call("fine"), call("far")];
        let replies = bench.run(&calls);
        assert_eq!(replies[0], ":1\r\n");
        let refused = "asked for more than V8 can hold and was stopped; nothing was written\r\n";
        assert_eq!(replies[1], format!("-ERR function 'far' {refused}"));
        // It never comes back. Once, the next reply said that it ran too long and asked to try
        // again, also of a source that was mended.
        assert_eq!(bench.call("far", &[]), format!("-ERR function 'far' {FOR_GOOD}"));
        bench.add("u", "export const far = () => 'mended';");
        assert_eq!(bench.call("far", &[]), "$6\r\nmended\r\n");
        assert!(bench.runtime.remove(bench.tenant, "u"));
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
        assert_eq!(bench.world.text("far"), None);
        assert_eq!(bench.runtime.stats().lingering, 1);
    });
}

#[test]
fn a_call_whose_list_exceeds_what_v8_can_have_costs_an_isolate() {
    // A list of more than 2^27 elements ended the process, also if the call had been answered and
    // its list only grew because it was stuck. Only with a large heap can a list become so long:
    // this takes 1.4 GB. The iterator's `next` is V8's own, and answers the iterator itself.
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    let large = FunctionLimits { heap_bytes: 1600 << 20, call_ms: 60_000, ..limits() };
    on_fiber(large, |bench| {
        bench.add(
            "t",
            "const endless = { [Symbol.iterator]: () => ({ next: Object.prototype.valueOf }) };
             export const list = (db) => { db.set('list', '1'); return [...endless].length; };
             export const fine = () => 1;",
        );
        let refused = "asked for more than V8 can hold and was stopped; nothing was written\r\n";
        assert_eq!(bench.call("list", &[]), format!("-ERR function 'list' {refused}"));
        assert_eq!(bench.call("list", &[]), format!("-ERR function 'list' {FOR_GOOD}"));
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
        assert_eq!(bench.world.text("list"), None);
    });
}

#[test]
fn a_stuck_call_does_not_take_all_memory() {
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    // One step of V8 makes 3 GB of Arrays, and looks for no stop. Once, such a call was granted 1
    // GiB more each time its heap was full, until the kernel ended the server.
    on_fiber(FunctionLimits { heap_bytes: 48 << 20, ..limits() }, |bench| {
        bench.add(
            "t",
            "const list = new Array(130_000).fill(0);
             const step = Array.bind(null, ...new Array(3_000).fill(0));
             export const hoard = () => list.map(step).length;
             export const fine = () => 1;",
        );
        let before = resident_bytes();
        let reply = bench.call("hoard", &[]);
        assert!(reply.contains("was stopped; nothing was written"), "{reply}");
        for _ in 0..WAITS {
            let more = resident_bytes().saturating_sub(before);
            assert!(more < 2 << 30, "{more} bytes more");
            assert_eq!(bench.call("fine", &[]), ":1\r\n");
            let reply = bench.call("hoard", &[]);
            if reply == format!("-ERR function 'hoard' {FOR_GOOD}") {
                return;
            }
            assert!(reply.contains("being stopped"), "{reply}");
            std::thread::sleep(WAIT);
        }
        panic!("V8 never gave up");
    });
}

#[test]
fn a_native_iteration_that_never_ends_is_stopped() {
    // Neither its `next` nor its callback is JavaScript, which alone looks for a stop.
    on_fiber(limits(), |bench| {
        bench.add(
            "t",
            "const endless = { [Symbol.iterator]: () => ({ next: Array }) };
             const views = Object.getPrototypeOf(Uint8Array);
             export const arrays = () => Array.from(endless, Array.bind(null, 1));
             export const bytes = () => views.from.call(Uint8Array, endless);
             const log = [];
             const iterator = (next) => ({
               [Symbol.iterator]: () => ({
                 get next() { log.push('next'); return next; },
                 get return() { log.push('return'); return () => ({}); },
               }),
             });
             export const steps = () => {
               let n = 0;
               const made = Array.from(iterator(() => ({ done: n === 2, value: n++ })));
               for (const wrong of [undefined, () => 1]) {
                 try { Array.from(iterator(wrong)); } catch (error) { log.push(error.name); }
               }
               try { Array.from(iterator(Array), () => { throw new RangeError(); }); }
               catch (error) { log.push(error.name); }
               try { Array.from({ [Symbol.iterator]: () => 1 }); }
               catch (error) { log.push(error.name); }
               return [...made, ...log].join(' ');
             };",
        );
        for function in ["arrays", "bytes"] {
            let reply = bench.call(function, &[]);
            assert!(reply.contains("was stopped; nothing was written"), "{reply}");
        }
        // A slow machine may lose an isolate, but then the call comes back.
        let came_back = (0..WAITS).any(|_| {
            std::thread::sleep(WAIT);
            bench.runtime.stats().lingering == 0
        });
        assert!(came_back);
        let steps = "0 1 next next TypeError next TypeError next return RangeError TypeError";
        assert_eq!(bench.call("steps", &[]), format!("${}\r\n{steps}\r\n", steps.len()));
    });
}

/// V8 puts the BigInt into the message of the error, and forgets the stop that comes meanwhile.
const SWALLOWS: &str = "
    const large = (1n << 160_000n) - 1n;
    const larger = (1n << 1_600_000n) - 1n;
    const swallow = (value) => { try { Map.prototype.get.call(value); } catch {} };
    export const finite = (db, [n]) => { for (let i = 0; i < n; i++) swallow(large); return 1; };
    export const endless = () => { swallow(larger); for (;;); };
    export const fine = () => 1;";

#[test]
fn a_call_whose_stop_v8_has_forgotten_ends() {
    // V8 10.2 drops a termination that comes while it renders a BigInt for a message. The call
    // ended, waited for that termination, and its shard stood for ever. Which number of messages
    // lasts until behind the limit, but not until the call is lost, depends on the machine.
    on_fiber(FunctionLimits { call_ms: 5, ..limits() }, |bench| {
        bench.add("t", SWALLOWS);
        let mut stopped = 0;
        for n in 1..60 {
            let reply = bench.call("finite", &[&n.to_string()]);
            assert!(reply == ":1\r\n" || reply.starts_with("-ERR function 'finite'"), "{reply}");
            stopped += u64::from(reply.contains("ran longer than"));
            assert_eq!(bench.call("fine", &[]), ":1\r\n");
            if bench.runtime.stats().isolates_lost > 0 {
                break;
            }
        }
        assert!(stopped > 0, "all came to their end within the limit");
    });
}

#[test]
fn a_lost_call_whose_stop_v8_has_forgotten_comes_back() {
    // It went on for ever on its own thread: eight of them, and the next one ended the process.
    on_fiber(FunctionLimits { call_ms: 5, ..limits() }, |bench| {
        bench.add("t", SWALLOWS);
        let reply = bench.call("endless", &[]);
        assert!(reply.contains("ran longer than"), "{reply}");
        let came_back = (0..WAITS).any(|_| {
            std::thread::sleep(WAIT);
            bench.runtime.stats().lingering == 0
        });
        assert!(came_back);
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
    });
}

#[test]
fn a_lost_call_that_makes_a_text_stays_within_it() {
    // V8 read the bytes of the arena twice, to count a text's units and to write them. Three bytes
    // that were one unit had become three zeros by then: it wrote past the string's end.
    on_fiber(FunctionLimits { call_ms: 5, ..limits() }, |bench| {
        bench.add("t", "export const units = (db) => db.text('big').length;");
        bench.add("u", BODY);
        // On a machine that stands still it may be done before its bytes change: another try.
        let was_at_it = (0..4).any(|_| {
            bench.put("big", "世".repeat(5_000_000));
            let reply = bench.call("units", &[]);
            assert!(reply.contains("ran longer than"), "{reply}");
            bench.world.of(b"big").zero_run(b"big");
            let was_at_it = bench.runtime.stats().lingering == 1;
            let came_back = (0..WAITS).any(|_| {
                std::thread::sleep(WAIT);
                bench.runtime.stats().lingering == 0
            });
            assert!(came_back);
            was_at_it
        });
        assert!(was_at_it);
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
    });
}

#[test]
fn a_killed_call_that_is_stuck_says_that_it_was_killed() {
    // Other threads see the isolate that the runtime has now, also after one was lost.
    on_fiber(FunctionLimits { call_ms: 60_000, ..limits() }, |bench| {
        bench.add("t", BODY);
        for function in ["stuck", "alike"] {
            let handle = bench.runtime.running();
            let killer = std::thread::spawn(move || {
                for _ in 0..WAITS {
                    std::thread::sleep(Duration::from_millis(5));
                    if let Some(running) = handle.terminate(Reason::Kill) {
                        return running.function;
                    }
                }
                "nobody".to_owned()
            });
            let reply = bench.call(function, &[]);
            assert!(reply.contains("FUNCTION KILL"), "{reply}");
            assert_eq!(killer.join().unwrap(), function);
        }
        assert_eq!(bench.runtime.stats().kills, 2);
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
    });
}

#[test]
fn a_library_whose_start_is_stuck_is_refused() {
    // The other libraries run on, and it isn't started again while its first start lingers.
    on_fiber(load_limits(), |bench| {
        bench.add("t", "export const fine = () => 1;");
        let source = "const o = { ...new Uint8Array(2 << 20) }; export const f = () => 1;";
        let error = bench.try_add("u", source).unwrap_err().to_string();
        assert!(error.contains("took longer"), "{error}");
        assert_eq!(bench.runtime.stats().isolates_lost, 1);
        let error = bench.try_add("u", source).unwrap_err().to_string();
        assert!(error.contains("still being stopped"), "{error}");
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
    });
}

#[test]
fn a_start_that_is_stuck_in_a_batch_leaves_the_calls_behind_it_alone() {
    // The isolate is lost before these have entered: what they ask for lay in its memory.
    on_fiber(load_limits(), |bench| {
        bench.add("t", BODY);
        bench.add(
            "v",
            "export const spin = () => { for (;;); };\n\
                        export const spoil = () => { globalThis.spoilt = true; return 1; };",
        );
        bench.add(
            "u",
            "if (globalThis.spoilt) ({ ...new Uint8Array(2 << 20) }); export const fu = () => 1;",
        );
        let replies = bench.run(&[
            call("spin"),
            call("spoil"),
            call("fu"),
            with_args("fine", &[b"behind"]),
            with_args("put", &[b"a", b"1"]),
        ]);
        assert!(replies[2].contains("library 'u' does not start: "), "{replies:?}");
        assert!(replies[2].contains("took longer than 300 ms"), "{replies:?}");
        assert_eq!(replies[3..], ["$6\r\nbehind\r\n", "$3\r\nput\r\n"]);
        assert_eq!(bench.world.text("a").as_deref(), Some("1"));
        // A slow machine may lose one by `spin` too.
        assert!(bench.runtime.stats().isolates_lost >= 1);
    });
}

#[test]
fn calls_behind_a_stuck_one_know_that_owners_stand_still() {
    // A key's time is over by the batch's clock alone. Its owner stands still, so its own clock
    // counts, also for a call that runs in the new isolate. Once, that isolate wasn't told, and the
    // call was sent to the owner again.
    on_fiber(limits(), |bench| {
        bench.world.arenas[0].put(b"unsure", b"2", bench.now_ms - 10);
        bench.world.arenas[0].set_clock(bench.now_ms - 5_000);
        bench.tenant = bench.runtime.open_tenant(bench.world.arenas[0].mapping().foreign());
        bench.add("t", BODY);
        bench.still = 1;
        let replies = bench.run(&[call("alike"), with_args("get", &[b"unsure"])]);
        assert!(replies[0].contains("function-time-limit-ms"), "{replies:?}");
        assert_eq!(replies[1..], ["$1\r\n2\r\n"]);
        assert_eq!(bench.runtime.stats().isolates_lost, 1);
    });
}

#[test]
fn a_lost_call_finds_no_host() {
    // A getter of a result runs after the stuck step: its scan, log and commit reach no host.
    on_fiber(limits(), |bench| {
        bench.add(
            "t",
            "const long = new Uint8Array(2 << 20);
             export const fine = () => 1;
             export const stuck = (db) => ({ get a() { const o = { ...long }; return db.scan('').keys; },
                get b() { console.log('late'); return 1; } });",
        );
        bench.put("k", "v");
        let reply = bench.call("stuck", &[]);
        assert!(reply.contains("function-time-limit-ms"), "{reply}");
        assert_eq!(bench.call("fine", &[]), ":1\r\n");
        wait_for(bench, "stuck");
        assert!(bench.world.log.iter().all(|(_, _, _, text)| text != "late"));
    });
}

#[test]
fn a_panic_ends_the_fiber_and_is_told() {
    // The thread that joins a shard learns that the shard panicked.
    let joined = Fiber::spawn("test", STACK_BYTES, |_| panic!("as it should")).unwrap().join();
    assert!(!joined);
}
