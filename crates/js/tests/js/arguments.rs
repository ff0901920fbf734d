//! Arguments of a call have limits of their own, apart from its time.

use crate::common::{Bench, patient};
use nigh_js::{Call, FunctionLimits, UNSTABLE};

fn bench(limits: FunctionLimits) -> Bench {
    let mut bench = Bench::with(FunctionLimits { grace_ms: 20_000, ..limits });
    bench.add(
        "t",
        "export const count = (db, args, keys) => [args.length, keys.length, args[args.length - 1]];
         export const kinds = (db, args) => args.map((arg) => typeof arg).filter((kind) => kind === 'object').length;
         export const spin = (db, args) => { for (;;); };",
    );
    bench
}

fn call<'a>(function: &'a str, args: &'a [&'a [u8]], keys: &'a [&'a [u8]]) -> Call<'a> {
    Call { function: function.as_bytes(), args, keys, ..Call::default() }
}

#[test]
fn many_arguments_take_none_of_a_calls_time() {
    // Making strings of 200,000 takes some 20 ms; the call has 5, and needs less for what it does
    // by itself, unless the machine stands still.
    let mut bench = bench(FunctionLimits { call_ms: 5, ..patient() });
    let texts: Vec<String> = (0..200_000).map(|n| format!("argument {n}")).collect();
    let args: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let expected = "*3\r\n:200000\r\n:0\r\n$15\r\nargument 199999\r\n";
    let is_answered = |bench: &mut Bench, call: Call<'_>, expected: &str| {
        (0..50).any(|_| {
            let is_answered = bench.run(&[call]) == [expected];
            if !is_answered {
                std::thread::sleep(std::time::Duration::from_millis(100)); // a start may rest
            }
            is_answered
        })
    };
    assert!(is_answered(&mut bench, call("count", &args, &[]), expected));
    let expected = "*3\r\n:1\r\n:199999\r\n$10\r\nargument 0\r\n";
    assert!(is_answered(&mut bench, call("count", &args[..1], &args[1..]), expected));
    bench.runtime.set_limits(FunctionLimits { call_ms: 500, ..patient() });
    // The time of what it does counts as ever, and the next call has its own arguments.
    let few: &[&[u8]] = &[b"a", b"b"];
    let replies = bench.run(&[call("spin", &args, &[]), call("count", few, &[])]);
    assert!(replies[0].contains("function-time-limit-ms"), "{}", replies[0]);
    assert_eq!(replies[1], "*3\r\n:2\r\n:0\r\n$1\r\nb\r\n");
}

#[test]
fn more_arguments_than_the_limits_are_refused_by_their_name() {
    // One by one and together; calls beside it run.
    let limits = FunctionLimits { arguments: 300, argument_bytes: 10_000, ..patient() };
    let mut bench = bench(limits);
    let (many, long) = (vec![b"a".as_slice(); 301], vec![b'x'; 10_001]);
    let (too_long, fits) = ([long.as_slice()], [&long[1..]]);
    let calls = [
        call("count", &many, &[]),
        call("count", &many[1..], &[]),
        call("count", &many[150..], &many[150..300]),
        call("count", &[], &too_long),
        call("count", &fits, &[]),
    ];
    let replies = bench.run(&calls);
    let setting = "301 keys and arguments, more than 300 (setting: function-arguments-limit)";
    assert!(replies[0].contains(setting), "{}", replies[0]);
    assert_eq!(replies[1], "*3\r\n:300\r\n:0\r\n$1\r\na\r\n");
    assert!(replies[2].contains(setting), "{}", replies[2]);
    let setting = "more than 10000 (setting: function-arguments-limit-bytes)";
    assert!(replies[3].contains(setting), "{}", replies[3]);
    assert!(replies[4].starts_with("*3\r\n:1\r\n:0\r\n$10000\r\nx"));
}

#[test]
fn many_arguments_that_are_no_text_wait_for_no_garbage() {
    // 300 of 8 KiB each, of 4 MiB that there are for bytes: only what earlier calls had is in the
    // way.
    let mut bench = bench(FunctionLimits { array_buffer_bytes: 4 << 20, ..patient() });
    let bytes = vec![0xff; 8 << 10];
    let args: Vec<&[u8]> = vec![&bytes; 300];
    for round in 0..6 {
        assert_eq!(bench.run(&[call("kinds", &args, &[])]), [":300\r\n"], "round {round}");
    }
}

#[test]
fn arguments_of_a_call_that_did_not_run_reach_no_other_call() {
    // The owner of the arena stands between the first and the last store of a change, so no attempt
    // finds a moment: the function never runs. Its many arguments were made before that. Once, the
    // context's next call got them, which was another client's.
    let mut bench = Bench::new();
    bench.tenant = bench.runtime.open_tenant(bench.world.arenas[0].mapping().foreign());
    bench.add("t", "export const echo = (db, args, keys) => [...keys, ...args];");
    bench.world.arenas[0].begin_change();
    let theirs = [b"theirs".as_slice(); 300];
    let calls = [Call { function: b"echo", keys: &theirs, args: &theirs, ..Call::default() }];
    assert_eq!(bench.run(&calls), [String::from_utf8_lossy(UNSTABLE)]);
    bench.world.arenas[0].end_commit();
    assert_eq!(bench.call("echo", &["mine"]), "*1\r\n$4\r\nmine\r\n");
}
