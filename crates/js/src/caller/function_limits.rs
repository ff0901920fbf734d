//! The limits of functions. The server has a setting for each, which error replies name.
//! Plain data; any thread.

/// Below this V8 itself doesn't start a context.
const HEAP_BYTES_MIN: usize = 16 << 20;
/// Below this nothing useful runs.
const STACK_BYTES_MIN: usize = 64 << 10;
/// Deeper results overflow the encoder's stack.
const RESULT_DEPTH_MAX: u32 = 128;
/// The largest value of a key, and so of a result and a write set, bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 512 << 20;
/// Most keys of a write set: its table in the io memory has no room for more.
pub(crate) const WRITE_KEYS_MAX: u32 = 1 << 20;

/// FunctionLimits of one [`Runtime`](crate::Runtime); all can change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLimits {
    /// CPU time of one call, ms. Setting `function-time-limit-ms`.
    pub call_ms: u64,
    /// CPU time in which a library is compiled and its top level runs, ms: at `FUNCTION LOAD`, and
    /// again before its first call in each later context. Setting `function-load-limit-ms`.
    pub load_ms: u64,
    /// JavaScript heap of the isolate, bytes. Setting `function-heap-limit-bytes`.
    pub heap_bytes: usize,
    /// All ArrayBuffers of functions together, bytes. Setting `function-array-buffer-limit-bytes`.
    pub array_buffer_bytes: usize,
    /// Stack that JavaScript may use, bytes. Setting `function-stack-bytes`.
    pub stack_bytes: usize,
    /// Keys and arguments of one call, their number. Setting `function-arguments-limit`.
    pub arguments: u32,
    /// Keys and arguments of one call, bytes together. Setting `function-arguments-limit-bytes`.
    pub argument_bytes: usize,
    /// Reply of one call, bytes of RESP. Setting `function-result-limit-bytes`.
    pub result_bytes: usize,
    /// Nesting of one reply. Setting `function-result-depth`.
    pub result_depth: u32,
    /// Keys and values that one call may write, bytes. Setting `function-write-set-limit-bytes`.
    pub write_set_bytes: usize,
    /// Keys that one call may write. Setting `function-write-set-limit-keys`.
    pub write_set_keys: u32,
    /// Source of one library, bytes. Setting `function-source-limit-bytes`.
    pub source_bytes: usize,
    /// Contexts kept alive, one per tenant in use. Setting `function-contexts`.
    pub contexts: usize,
    /// How long a call may go on after it was told to stop, ms of CPU time, before the process is
    /// aborted (the arenas survive). Setting `function-kill-grace-ms`.
    pub grace_ms: u64,
}

impl Default for FunctionLimits {
    fn default() -> Self {
        FunctionLimits {
            call_ms: 50,
            load_ms: 2_000, // ten times what 4 MB of plain source take
            heap_bytes: 256 << 20,
            array_buffer_bytes: 256 << 20,
            stack_bytes: 960 << 10, // a thread has 2 MiB by default in Rust; V8's own default
            // 0.1 µs each to make strings of them, before the call's time begins
            arguments: 250_000,
            argument_bytes: 64 << 20,
            result_bytes: 32 << 20,
            result_depth: 32,
            write_set_bytes: 64 << 20,
            write_set_keys: 100_000,
            source_bytes: 4 << 20,
            // 165 KB of heap each, and each costs time in every young-generation collection
            contexts: 500,
            grace_ms: 5_000,
        }
    }
}

impl FunctionLimits {
    /// The limits that hold: none exceeds what memory and format allow, none stops every call.
    pub(crate) fn clamped(mut self) -> FunctionLimits {
        self.call_ms = self.call_ms.max(1);
        self.load_ms = self.load_ms.max(1);
        self.heap_bytes = self.heap_bytes.max(HEAP_BYTES_MIN);
        self.stack_bytes = self.stack_bytes.max(STACK_BYTES_MIN);
        self.result_bytes = self.result_bytes.min(VALUE_BYTES_MAX);
        self.result_depth = self.result_depth.min(RESULT_DEPTH_MAX);
        self.write_set_bytes = self.write_set_bytes.min(VALUE_BYTES_MAX);
        self.write_set_keys = self.write_set_keys.min(WRITE_KEYS_MAX);
        self.contexts = self.contexts.max(1);
        self
    }
}
