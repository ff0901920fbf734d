//! docs/functions.md and README.md against the runtime. Each fenced library is loaded and called as
//! the text around it says, and a function finds exactly the names in the tables.

use std::collections::BTreeSet;

use crate::common::{Bench, patient};
use nigh_js::{Call, FunctionLimits};

const FUNCTIONS: &str = include_str!("../../../../docs/functions.md");
const README: &str = include_str!("../../../../README.md");

/// The fenced JavaScript of a document, with the name that its first line gives it.
fn libraries(document: &str) -> Vec<(&str, &str)> {
    document
        .split("```js\n")
        .skip(1)
        .map(|rest| {
            let source = rest.split_once("```").expect("the fence is closed").0;
            let name = source.lines().next().and_then(|line| line.strip_prefix("#!js name="));
            (name.expect("an example is a whole library"), source)
        })
        .collect()
}

/// A runtime with the document's only library, which has this name. A second library would need a
/// story of its own.
fn only_library(document: &str, name: &str) -> Bench {
    let libraries = libraries(document);
    let names: Vec<&str> = libraries.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [name], "each example has its story here");
    let (mut bench, source) = (Bench::new(), libraries[0].1.as_bytes());
    let library = bench.runtime.load(bench.tenant, source).unwrap();
    bench.runtime.install(bench.tenant, &library, source).unwrap();
    bench
}

fn fcall(bench: &mut Bench, function: &str, keys: &[&str], args: &[&str]) -> String {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    let call = Call { function: function.as_bytes(), keys: &keys, args: &args, ..Call::default() };
    bench.run(&[call]).remove(0)
}

/// The rows of the table whose head begins with `head`: their cells.
fn table<'a>(document: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let from = document.find(head).unwrap_or_else(|| panic!("no table {head}"));
    let rows = document[from..].lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The same without parameters: names.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    quoted(cell).map(|name| name.split('(').next().unwrap_or(name))
}

/// The strings of a reply.
fn strings(reply: &str) -> BTreeSet<&str> {
    reply.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$'])).collect()
}

#[test]
fn the_shop_of_the_reference_takes_from_stock() {
    // Five apples: two are taken and three left; four more are refused, and "the incr never
    // happened".
    let mut bench = only_library(FUNCTIONS, "shop");
    bench.put("apple", "5");
    assert_eq!(fcall(&mut bench, "take", &["apple"], &["2"]), ":3\r\n");
    let refused = fcall(&mut bench, "take", &["apple"], &["4"]);
    assert!(refused.starts_with("-SOLDOUT not enough of it (function take, line "), "{refused}");
    assert_eq!(bench.world.arenas[0].text("apple").unwrap(), "3");
}

#[test]
fn the_graph_of_the_readme_counts_friends() {
    // The graph that its session builds: 107 has two friends, one of which has one, 107 again.
    let mut bench = only_library(README, "graph");
    let ids = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    bench.put("107", ids(&[108, 109]));
    bench.put("108", ids(&[107]));
    assert_eq!(fcall(&mut bench, "countFriends", &[], &["107", "3"]), ":5\r\n");
}

#[test]
fn db_and_records_have_the_members_that_the_reference_names() {
    // None that the tables forget, none that they invent.
    let mut bench = Bench::of(
        "const members = (o) => Object.getOwnPropertyNames(Object.getPrototypeOf(o)).filter((n) => n !== 'constructor');\n\
         export const db = (db) => members(db);\n\
         export const record = (db) => members(db.get('k'));",
    );
    bench.put("k", "value");
    for (function, head) in [("db", "| method |"), ("record", "| member |")] {
        let rows = table(FUNCTIONS, head);
        let documented: BTreeSet<&str> = rows.iter().flat_map(|row| names(row[0])).collect();
        assert_eq!(strings(&bench.call(function, &[])), documented);
    }
}

#[test]
fn the_world_of_a_function_is_as_the_reference_says() {
    // The names under "there is" exist, those under "there is not" don't; `new Function` throws.
    let mut bench = Bench::of(
        "export const missing = (db, names) => names.filter((n) => !(n in globalThis));\n\
         export function make() { try { return new Function('1'); } catch (e) { return 'thrown'; } }",
    );
    let rows = table(FUNCTIONS, "| | |");
    let there_is: Vec<&str> = names(rows[0][1]).collect();
    assert!(there_is.contains(&"Proxy"), "{there_is:?}");
    assert_eq!(bench.call("missing", &there_is), "*0\r\n");
    let there_is_not: Vec<&str> =
        names(rows[1][1]).filter(|name| !name.starts_with("new ")).collect();
    assert!(there_is_not.contains(&"Atomics"), "{there_is_not:?}");
    let reply = bench.call("missing", &there_is_not);
    assert_eq!(strings(&reply), there_is_not.into_iter().collect());
    assert_eq!(bench.call("make", &[]), "$6\r\nthrown\r\n");
}

#[test]
fn the_limits_have_the_defaults_that_the_reference_gives() {
    // Each row of the table against the limits of a runtime that was told nothing.
    let limits = FunctionLimits::default();
    let defaults = [
        ("function-time-limit-ms", limits.call_ms.to_string()),
        ("function-load-limit-ms", limits.load_ms.to_string()),
        ("function-heap-limit-bytes", format!("{} MiB", limits.heap_bytes >> 20)),
        ("function-array-buffer-limit-bytes", format!("{} MiB", limits.array_buffer_bytes >> 20)),
        ("function-stack-bytes", format!("{} KiB", limits.stack_bytes >> 10)),
        ("function-result-limit-bytes", format!("{} MiB", limits.result_bytes >> 20)),
        ("function-result-depth", limits.result_depth.to_string()),
        ("function-arguments-limit", limits.arguments.to_string()),
        ("function-arguments-limit-bytes", format!("{} MiB", limits.argument_bytes >> 20)),
        ("function-write-set-limit-bytes", format!("{} MiB", limits.write_set_bytes >> 20)),
        ("function-write-set-limit-keys", limits.write_set_keys.to_string()),
        ("function-source-limit-bytes", format!("{} MiB", limits.source_bytes >> 20)),
        ("function-contexts", limits.contexts.to_string()),
        ("function-kill-grace-ms", limits.grace_ms.to_string()),
    ];
    let documented: Vec<(&str, String)> = table(FUNCTIONS, "| setting |")
        .iter()
        .map(|row| (row[0].trim_matches('`'), row[1].replace(',', "")))
        .collect();
    assert_eq!(documented, defaults);
}

/// Beginnings of replies in the table of errors that other code makes: the commands, the store, and
/// runtimes on a fiber (fiber.rs has this text).
const OF_OTHERS: [&str; 20] = [
    "ERR function 'f' is refused here until its library's source changes or the server restarts: V8 gave up in it",
    "ERR function 'f' asked for more than V8 can hold and was stopped; nothing was written",
    "ERR no function can run here: … calls ran too long and are still being stopped; try again later",
    "ERR function 'f' ran too long and is still being stopped; try again later",
    "ERR Bad number of keys provided",
    "ERR Number of keys can't be …",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "ERR keys and arguments of a function are longer than … bytes together",
    "ERR function 'f' has the flag durable, and this server keeps no log: …",
    "MISCONF Nigh can't write its log: …",
    "ERR the commit is too large for the journal, of which it may take a fourth: …",
    "ERR the call has … keys and arguments, more than …",
    "ERR Script killed by user with FUNCTION KILL.",
    "ERR the server is shutting down: …",
    "ERR internal error in function 'f'",
    "CROSSSLOT …",
    "TRYAGAIN …",
    "OOM …",
    "IOERR …",
    "EXECABORT …",
];

#[test]
fn errors_begin_as_the_reference_says() {
    // Provokes each kind of failure; the table's other rows must be of other code.
    let limits = FunctionLimits { heap_bytes: 48 << 20, ..patient() };
    let mut bench = Bench::with(limits.clone());
    bench.add("a", "globalThis.spoilt = true; export const fa = () => 1;");
    bench.add("l", "if (globalThis.spoilt) throw new Error('spoilt'); export const fl = () => 1;");
    bench.add(
        "t",
        "export const f = (db, [what]) => { for (const a = [];;) if (what === 'heap') a.push(new Array(9).fill(a)); };\n\
         export const incr = (db, [by]) => db.incr('k', Number(by));",
    );
    let read_only = Call { function: b"f", read_only: true, ..Call::default() };
    let mut replies = vec![
        bench.call("fl", &[]), // before a stopped call: the next context isn't spoilt
        bench.call("nobody", &[]),
        bench.run(&[read_only]).remove(0),
    ];
    bench.runtime.set_limits(FunctionLimits::default());
    replies.push(bench.call("f", &[]));
    bench.runtime.set_limits(limits);
    replies.push(bench.call("incr", &["1e99"]));
    bench.put("k", (1u64 << 53).to_string());
    replies.push(bench.call("incr", &["1"]));
    bench.put("k", ((1u64 << 53) - 1).to_string());
    replies.push(bench.call("incr", &["1"]));
    replies.push(bench.call("f", &["heap"]));
    for beginning in table(FUNCTIONS, "| reply begins with |").iter().flat_map(|row| quoted(row[0]))
    {
        let parts: Vec<&str> = beginning.split('…').collect();
        let is_begun = |reply: &String| {
            reply.starts_with(&format!("-{}", parts[0]))
                && parts[1..].iter().all(|part| reply.contains(part))
        };
        let provoked = replies.iter().any(is_begun);
        assert_ne!(provoked, OF_OTHERS.contains(&beginning), "{beginning}: {replies:?}");
    }
}

#[test]
fn built_ins_are_shared_until_the_context_goes() {
    // As the reference says of the world of a function: to delete the library that changed a
    // built-in doesn't bring that back, to remove all libraries does.
    let mut bench = Bench::new();
    let good = "export const good = () => [1].map(() => 'own')[0] + typeof globalThis.left;";
    bench.add("good", good);
    bench.add(
        "bad",
        "export const bad = () => { Array.prototype.map = () => ['no']; globalThis.left = 1; };",
    );
    assert_eq!(bench.call("good", &[]), "$12\r\nownundefined\r\n");
    bench.call("bad", &[]);
    assert_eq!(bench.call("good", &[]), "$8\r\nnonumber\r\n");
    assert!(bench.runtime.remove(bench.tenant, "bad"));
    bench.add("good", good);
    assert_eq!(bench.call("good", &[]), "$8\r\nnonumber\r\n");
    bench.runtime.remove_all(bench.tenant);
    bench.add("good", good);
    assert_eq!(bench.call("good", &[]), "$12\r\nownundefined\r\n");
}

#[test]
fn the_v8_that_runs_is_the_one_that_is_pinned() {
    // Headers are compared when the shim is built; this is the library that the loader found.
    let pinned = include_str!("../../v8-version").trim();
    let (branch, _) = pinned.rsplit_once('.').unwrap();
    let (language, _) = branch.rsplit_once('.').unwrap();
    assert!(FUNCTIONS.contains(&format!("ECMAScript of V8 {language}:")), "{language}");
    let version = nigh_js::Runtime::v8_version();
    let is_any = std::env::var_os("NIGH_V8_ANY").is_some_and(|any| any == "1");
    assert!(is_any || version.starts_with(&format!("{branch}.")), "{version} runs, not {pinned}");
}
