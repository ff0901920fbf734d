//! Starts V8 once per process and makes the startup snapshot, which has the prelude. Any thread may
//! call first.
//!
//! The snapshot is made at first use, not at build time. That costs a process some tens of
//! milliseconds once. In exchange it always fits the libnode.so that is loaded at run time, which
//! the distribution may update under a built binary. From the snapshot an isolate takes 2 to 3 ms.
//!
//! The files of `prelude/` become one script:
//!
//! ```text
//! (function (native) { "use strict"; 00  { builtins/* }  return function attach(…) { 01 to 06 }; })
//! ```
//!
//! 00 captures builtins and removes globals; `builtins` replaces methods that V8 cannot interrupt,
//! or whose memory all contexts share; 01 to 06 run once per context, over its own arenas.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use crate::ffi;

const PRIMORDIALS: &str = include_str!("../../prelude/00_primordials.js");
/// Each uses those before it. operations.js says how they are made.
const BUILTINS: [&str; 10] = [
    include_str!("../../prelude/builtins/operations.js"),
    include_str!("../../prelude/builtins/arrays.js"),
    include_str!("../../prelude/builtins/join.js"),
    include_str!("../../prelude/builtins/search.js"),
    include_str!("../../prelude/builtins/text.js"),
    include_str!("../../prelude/builtins/keys.js"),
    include_str!("../../prelude/builtins/symbols.js"),
    include_str!("../../prelude/builtins/json.js"),
    include_str!("../../prelude/builtins/iterables.js"),
    include_str!("../../prelude/builtins/views.js"),
];
const ATTACHED: [&str; 7] = [
    include_str!("../../prelude/01_layout.js"),
    include_str!("../../prelude/01_xxhash.js"),
    include_str!("../../prelude/02_find.js"),
    include_str!("../../prelude/03_record.js"),
    include_str!("../../prelude/04_db.js"),
    include_str!("../../prelude/05_encode.js"),
    include_str!("../../prelude/06_dispatch.js"),
];

/// Most threads that V8 uses for compiling and collecting, for all isolates together.
const WORKER_THREADS_MAX: usize = 4;

/// - No SharedArrayBuffer, Atomics and WebAssembly: V8 would install them in each context, and
///   removing them there costs a walk over all contexts.
/// - Larger inlining budgets, so that V8 inlines the prelude's find into the user's loop.
/// - Code that isn't optimized yet looks for a stop each 2,112 bytes of bytecode, not each 132 KiB.
///   The ticks that lead to optimizing are scaled, so that V8 optimizes as early as before
///   (docs/design/0013-how-often-a-loop-looks.md).
const FLAGS: &CStr =
    c"--no-harmony-sharedarraybuffer --no-harmony-atomics --no-expose-wasm --no-validate-asm \
    --max-inlined-bytecode-size=1500 --max-inlined-bytecode-size-cumulative=4000 \
    --interrupt-budget=2112 --ticks-before-optimization=192 --bytecode-size-allowance-per-tick=2";

struct StartupSnapshot(*const c_void);

// SAFETY: immutable after it was made, and never freed.
unsafe impl Send for StartupSnapshot {}
// SAFETY: as above.
unsafe impl Sync for StartupSnapshot {}

static SNAPSHOT: OnceLock<Result<StartupSnapshot, String>> = OnceLock::new();

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

fn make() -> Result<StartupSnapshot, String> {
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
        return Ok(StartupSnapshot(made));
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
