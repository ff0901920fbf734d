//! Starts V8 once per process and makes the startup snapshot that holds the prelude.
//!
//! The snapshot is made at first use rather than at build time: that costs a process some tens of
//! milliseconds once, and in exchange it always fits the libnode.so that is loaded at run time,
//! which the distribution may update under a built binary. Isolates made from it take 2 to 3 ms.
//!
//! The files of `prelude/` become one script:
//!
//! ```text
//! (function (native) { "use strict"; 00  { builtins/* }  return function attach(…) { 01 to 06 }; })
//! ```
//!
//! 00 captures what the prelude needs of JavaScript and removes globals; `builtins` replaces what
//! cannot be interrupted; 01 to 06 run once per context, over its own arenas.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use crate::ffi;

const PRIMORDIALS: &str = include_str!("../../prelude/00_primordials.js");
/// Each takes what it needs of those before it; the first says how they are made.
const BUILTINS: [&str; 9] = [
    include_str!("../../prelude/builtins/operations.js"),
    include_str!("../../prelude/builtins/arrays.js"),
    include_str!("../../prelude/builtins/join.js"),
    include_str!("../../prelude/builtins/search.js"),
    include_str!("../../prelude/builtins/text.js"),
    include_str!("../../prelude/builtins/keys.js"),
    include_str!("../../prelude/builtins/json.js"),
    include_str!("../../prelude/builtins/iterables.js"),
    include_str!("../../prelude/builtins/views.js"),
];
const ATTACHED: [&str; 6] = [
    include_str!("../../prelude/01_layout.js"),
    include_str!("../../prelude/02_find.js"),
    include_str!("../../prelude/03_record.js"),
    include_str!("../../prelude/04_db.js"),
    include_str!("../../prelude/05_encode.js"),
    include_str!("../../prelude/06_dispatch.js"),
];

/// Threads for compiling and collecting beside the shards; V8 shares them among all isolates.
const WORKER_THREADS_MAX: usize = 4;

/// - No SharedArrayBuffer, Atomics and WebAssembly: V8 would install them in each context, and
///   removing them there costs a walk over all contexts.
/// - Larger inlining budgets, since the prelude's find is to melt into the user's loop.
/// - Code that isn't optimized yet looks for a stop each 2,112 bytes of bytecode, not each 132 KiB;
///   the ticks that lead to optimizing are scaled, so that it happens when it did
///   (docs/design/0013-how-often-a-loop-looks.md).
const FLAGS: &CStr = c"--no-harmony-sharedarraybuffer --no-harmony-atomics --no-expose-wasm \
    --max-inlined-bytecode-size=1500 --max-inlined-bytecode-size-cumulative=4000 \
    --interrupt-budget=2112 --ticks-before-optimization=192 --bytecode-size-allowance-per-tick=2";

struct Snapshot(*const c_void);

// SAFETY: immutable after it was made, and never freed.
unsafe impl Send for Snapshot {}
// SAFETY: as above.
unsafe impl Sync for Snapshot {}

static SNAPSHOT: OnceLock<Result<Snapshot, String>> = OnceLock::new();

/// The process's snapshot; the first call starts V8.
pub(crate) fn snapshot() -> Result<*const c_void, String> {
    match SNAPSHOT.get_or_init(make) {
        Ok(snapshot) => Ok(snapshot.0),
        Err(reason) => Err(reason.clone()),
    }
}

/// The prelude as one script.
pub(crate) fn prelude() -> String {
    let builtins: String = BUILTINS.iter().map(|file| format!("{{\n{file}\n}}\n")).collect();
    let attached = ATTACHED.concat();
    // Before the end of attach(): a read by callback for the bench.
    #[cfg(feature = "bench-callback")]
    let attached = attached.replace(
        "return { dispatch,",
        "globalThis.benchGet = native.benchGet; globalThis.benchU32 = native.benchU32; return { dispatch,",
    );
    format!(
        "(function (native) {{ \"use strict\";\n{PRIMORDIALS}\n{builtins}\
         return function attach(ioBuffer, arenaBuffers, foreign, numbersBuffer, queueBuffer) {{\n{attached}\n}}; }})"
    )
}

fn make() -> Result<Snapshot, String> {
    let mut sizes = [0usize; 5];
    // SAFETY: room for the numbers that it writes.
    unsafe { ffi::nigh_sizes(sizes.as_mut_ptr()) };
    assert_eq!(sizes, ffi::SIZES, "shim.h and ffi.rs differ");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = i32::try_from(cores.clamp(1, WORKER_THREADS_MAX)).unwrap_or(1);
    // SAFETY: called once per process (OnceLock), before any isolate; the flags end with NUL.
    unsafe { ffi::nigh_start(workers, FLAGS.as_ptr()) };
    let prelude = prelude();
    let mut fault = ffi::Fault::new();
    // SAFETY: V8 has been started; the slice lives during the call.
    let made =
        unsafe { ffi::nigh_snapshot_make(ffi::Slice::of(prelude.as_bytes()), &raw mut fault) };
    if !made.is_null() {
        return Ok(Snapshot(made));
    }
    // SAFETY: the shim keeps the text of a failed start.
    let message = unsafe { fault.message.text() };
    Err(format!("prelude, line {}, column {}: {message}", fault.line, fault.column))
}

/// V8's version, for logs.
pub(crate) fn v8_version() -> &'static str {
    // SAFETY: no preconditions.
    let version = unsafe { ffi::nigh_v8_version() };
    // SAFETY: V8 returns a static string that ends with NUL.
    let version = unsafe { CStr::from_ptr(version) };
    version.to_str().unwrap_or("unknown")
}

#[cfg(test)]
#[expect(clippy::cast_possible_wrap, reason = "small constants")]
mod tests {
    use nigh_shm::layout;

    use super::*;
    use crate::io::{self, call_writer};

    /// The number in `const NAME = …;` of the prelude (or `constexpr … NAME = …;` of the shim).
    fn constant(source: &str, name: &str) -> i64 {
        let line = source.lines().find(|line| line.contains(&format!(" {name} = ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not a constant"));
        let value = line.split(" = ").nth(1).unwrap().split(';').next().unwrap();
        value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}"))
    }

    #[test]
    fn the_prelude_knows_the_arena_as_shm_does() {
        // Two languages, one layout: each constant of the prelude against the crate that writes the
        // bytes.
        let layout_file = ATTACHED[0];
        let check = |name: &str, bytes: u64| {
            assert_eq!(constant(layout_file, name), bytes as i64, "{name}");
        };
        check("SEED_WORD", layout::header::SEED / 4);
        check("SLOT_SHIFT_WORD", layout::header::SLOT_SHIFT / 4);
        check("EPOCH_WORD", layout::header::EPOCH / 4);
        check("CURRENT_WORD", layout::header::CURRENT / 4);
        check("OLD_WORD", layout::header::OLD / 4);
        check("INTENT_WORD", layout::header::INTENT / 4);
        check("BEGUN_WORD", layout::header::BEGUN_LSN / 4);
        check("COMMITTED_WORD", layout::header::COMMITTED_LSN / 4);
        check("CLOCK_WORD", layout::header::CLOCK / 4);
        check("CLEAR_STAMP_WORD", layout::header::CLEAR_STAMP / 4);
        check("STAMPS_WORD", layout::stamp_offset(0) / 4);
        check("STAMPS_MASK", layout::STAMPS - 1);
        check("REC_LSN_LOW", layout::record::LSN / 4);
        check("REC_LSN_HIGH", layout::record::LSN / 4 + 1);
        check("REC_PREV", layout::record::PREV / 4);
        check("LINE_WORDS", layout::LINE_BYTES / 4);
        check("LINE_WORDS_SHIFT", u64::from((layout::LINE_BYTES / 4).trailing_zeros()));
        check("MAX_PROBES", layout::PROBE_LINES);
        check("LAST_RESERVED_REF", u64::from(layout::REF_MOVED));
        check("REC_VALUE_LENGTH", layout::record::VALUE_LEN / 4);
        check("REC_EXPIRY_LOW", layout::record::EXPIRY / 4);
        check("REC_EXPIRY_HIGH", layout::record::EXPIRY / 4 + 1);
        check("REC_META", layout::record::KEY_LEN / 4);
        check("REC_KEY", layout::record::KEY / 4);
        check("FLAG_RUN", u64::from(layout::record::FLAG_RUN));
        check("KEY_BYTES_MAX", layout::KEY_BYTES_MAX as u64);
        check("WINDOW_BYTES", layout::WINDOW_BYTES);
        check("WINDOWS_SHIFT", u64::from((layout::CAPACITY_MAX / layout::WINDOW_BYTES).ilog2()));
        assert_eq!(layout::record::UNIT, 16, "references count in units of 16 bytes");
        assert_eq!(
            layout::record::FLAGS,
            layout::record::KEY_LEN + 3,
            "flags are the meta's top byte"
        );
        let shim = include_str!("../../shim/internal.h");
        assert_eq!(constant(shim, "kSeedWord"), (layout::header::SEED / 4) as i64);
        assert_eq!(constant(shim, "kKeyBytesMax"), layout::KEY_BYTES_MAX as i64);
    }

    #[test]
    fn the_prelude_and_the_shim_know_the_io_memory_as_rust_does() {
        // Three languages, one layout of the io memory.
        let layout_file = ATTACHED[0];
        let check = |name: &str, value: usize| {
            assert_eq!(constant(layout_file, name), value as i64, "{name}");
        };
        check("STATE", io::STATE);
        check("HEAP_HIT", io::HEAP_HIT);
        check("KILL", io::KILL);
        check("OVERTIME", io::OVERTIME);
        check("IN_STILL_LOW", io::IN_STILL_LOW);
        check("IN_STILL_HIGH", io::IN_STILL_HIGH);
        check("IN_NOW_LOW", io::IN_NOW_LOW);
        check("IN_NOW_HIGH", io::IN_NOW_HIGH);
        check("IN_SEED_LOW", io::IN_SEED_LOW);
        check("IN_SEED_HIGH", io::IN_SEED_HIGH);
        check("IN_RESULT_BYTES", io::IN_RESULT_BYTES);
        check("IN_RESULT_DEPTH", io::IN_RESULT_DEPTH);
        check("IN_WRITE_BYTES", io::IN_WRITE_BYTES);
        check("IN_WRITE_KEYS", io::IN_WRITE_KEYS);
        check("IN_FIRST_STATE", io::IN_FIRST_STATE);
        check("IN_FIRST_INDEX", io::IN_FIRST_INDEX);
        check("IN_FIRST_HEAD", io::IN_FIRST_HEAD);
        check("IN_COUNT", io::IN_COUNT);
        check("IN_NOW_F64", io::IN_NOW_F64);
        check("OUT_DONE", io::OUT_DONE);
        check("OUT_END", io::OUT_END);
        check("OUT_WRITES", io::OUT_WRITES);
        check("OUT_WRITE_HIGH", io::OUT_WRITE_HIGH);
        check("REQUEST_AT", io::REQUEST_AT);
        check("RESPONSE_ROOM", io::RESPONSE_ROOM);
        check("WINDOWS_SHIFT", call_writer::WINDOWS_SHIFT as usize);
        check("IN_FLUSH_BYTES", io::IN_FLUSH_BYTES);
        check("WRITES_ROOM", io::WRITES_ROOM);
        check("WRITES_TABLE", io::WRITES_TABLE);
        let response = format!("const RESPONSE_AT = REQUEST_AT + {};", io::REQUEST_ROOM);
        assert!(layout_file.contains(&response));
        assert!(layout_file.contains("const WRITES_AT = RESPONSE_AT + RESPONSE_ROOM;"));
        assert!(layout_file.contains("const SCAN_AT = WRITES_AT + WRITES_ROOM;"));
        let shim = include_str!("../../shim/internal.h");
        for (name, prelude) in [
            ("kKeyLengthWord", "KEY_LENGTH"),
            ("kKeyAt", "KEY_AT"),
            ("kPlaceWord", "PLACE"),
            ("kWindowsShift", "WINDOWS_SHIFT"),
        ] {
            assert_eq!(constant(shim, name), constant(layout_file, prelude), "{name}");
        }
        for (name, value) in [("kStateWord", io::STATE), ("kHeapHitWord", io::HEAP_HIT)] {
            assert_eq!(constant(shim, name), value as i64, "{name}");
        }
    }
}
