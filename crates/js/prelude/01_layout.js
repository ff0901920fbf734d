// The layout of the arenas (docs/formats/arena.md) and of the io memory (src/io/mod.rs), and the
// typed arrays over both.
//
// From here on, the files are the body of
// attach(ioBuffer, arenaBuffers, foreign, numbersBuffer, queueBuffer), which runs once per context.
// So the typed arrays are constants to the optimizing compiler. State that the hottest code changes
// stands in words of these arrays, other state in a `var`: V8 checks the type of a variable at each
// use, and of a `let` also that it is initialised.
//
// A tenant has one arena, or one for each of its partitions. The constant SEVERAL says which of the
// two. The compiler drops code that depends on it, so a tenant with one arena pays nothing for it.
//
// A reference is an int32 here (the top bit may be set); 0 means "not found". It names a window of
// 4 GiB and a record in it. The window's number is ref >>> 28 within the arena, and I[PLACE] + (ref
// >>> 28) among the windows of all arenas. Nothing crosses a window. Window 0 of the first arena
// has constants of its own.

removeGlobals();

// --- layout of the arena, in 32-bit words unless noted; a test compares it with the crate shm ---
const SEED_WORD = 12;
const SLOT_SHIFT_WORD = 3;
const EPOCH_WORD = 64;
const CURRENT_WORD = 65;
const OLD_WORD = 66;
const INTENT_WORD = 67;
const BEGUN_WORD = 80; // this and the next three have two words each, the low one first
const COMMITTED_WORD = 82;
const CLOCK_WORD = 84;
const CLEAR_STAMP_WORD = 86;
const STAMPS_WORD = 1024;
const STAMPS_MASK = 1023;
const LINE_WORDS_SHIFT = 4;
const LINE_WORDS = 16;
const MAX_PROBES = 16;
const NEAR_REFS = 0xffffffd; // references of the first window without the reserved ones
const LAST_RESERVED_REF = 2; // EMPTY 0, DELETED 1, MOVED 2
const REC_VALUE_LENGTH = 0;
const REC_LSN_LOW = 2;
const REC_LSN_HIGH = 3;
const REC_EXPIRY_LOW = 4;
const REC_EXPIRY_HIGH = 5;
const REC_PREV = 6;
const REC_META = 7; // key length in the low 16 bits, kind, flags in the high 8
const REC_KEY = 8;
const FLAG_RUN = 1;
const KEY_BYTES_MAX = 65535;

// --- layout of the io memory; a test compares it with src/io/mod.rs ---
const STATE = 0;
const HEAP_HIT = 2; // the call in which the heap came near its limit; -1: none; 0: it didn't
const KILL = 3;
const KEY_LENGTH = 5;
const PENDING = 6; // see 04_db.js; 0 between calls
const PLACE = 7; // first window of the arena of the last key that was looked for; 0 if not SEVERAL
const CALL_PLACE = 8; // first window of the arena of the call's own partition
const OVERTIME = 9;
const IN_NOW_LOW = 16;
const IN_NOW_HIGH = 17;
const IN_SEED_LOW = 18;
const IN_SEED_HIGH = 19;
const IN_RESULT_BYTES = 20;
const IN_RESULT_DEPTH = 21;
const IN_WRITE_BYTES = 22;
const IN_WRITE_KEYS = 23;
const IN_FIRST_STATE = 24;
const IN_FIRST_INDEX = 25;
const IN_FIRST_HEAD = 26;
const IN_COUNT = 27;
const IN_FLUSH_BYTES = 30;
const IN_STILL_LOW = 12; // partitions whose owners stand still, a bit for each
const IN_STILL_HIGH = 13;
const IN_NOW_F64 = 14; // in 64-bit words
const OUT_DONE = 32;
const OUT_END = 33; // the farthest end of results since the last trim
const OUT_WRITES = 34;
const OUT_WRITE_HIGH = 35;
const KEY_AT = 4096; // this and the following are offsets and lengths in bytes
const TEXT_AT = 131072;
const TEXT_ROOM = 131072;
const REQUEST_AT = 262144;
const RESPONSE_AT = REQUEST_AT + 671088640;
const RESPONSE_ROOM = 603979776;
const WRITES_AT = RESPONSE_AT + RESPONSE_ROOM;
const WRITES_TABLE = 33554432; // 2^20 entries of 32 bytes
const WRITES_ROOM = 603979776;
const SCAN_AT = WRITES_AT + WRITES_ROOM; // keys that the last scan has found

const WINDOW_BYTES = 4294967296;
const MAX_ATTEMPTS = 1000; // looks for one key while the index changes meanwhile

const I = new Int32(ioBuffer);
const B = new Uint8(ioBuffer);
const IU16 = new Uint16(ioBuffer);
const IF32 = new Float32(ioBuffer);
const IF64 = new Float64(ioBuffer);

// The number of microtasks that wait: a word of V8's, which the prelude only reads.
const Q = new Int32(queueBuffer);
const WAITING = 0;

const arenaBuffer = arenaBuffers[0];
const PARTITIONS = arenaBuffers.length;
const SEVERAL = PARTITIONS > 1;
const WINDOWS_SHIFT = 4; // log2 of the windows of an arena: a reference has 32 bits

// The first window of the first arena.
const arenaBytes = ArrayBufferGetByteLength(arenaBuffer);
const firstBytes = windowBytes(arenaBytes, 0);
const A = new Int32(arenaBuffer, 0, firstBytes / 4);
const A8 = new Uint8(arenaBuffer, 0, firstBytes);
const A16 = new Uint16(arenaBuffer, 0, firstBytes / 2);
const AF32 = new Float32(arenaBuffer, 0, firstBytes / 4);
const AF64 = new Float64(arenaBuffer, 0, firstBytes / 8);

function windowBytes(bytes, start) {
  const left = bytes - start;
  return left < WINDOW_BYTES ? left - (left % 8) : WINDOW_BYTES;
}

const ioWindow = new Window(B, IU16, I, IF32, IF64);
const windows = []; // by number + 1, made at first use; number -1 is the io memory
for (let i = 0; i <= PARTITIONS << WINDOWS_SHIFT; i++) windows[i] = undefined;
windows[0] = ioWindow;
windows[1] = new Window(A8, A16, A, AF32, AF64);

function windowOf(number) {
  const made = windows[number + 1];
  return made !== undefined ? made : openWindow(number);
}

function openWindow(number) {
  const buffer = arenaBuffers[number >> WINDOWS_SHIFT];
  const start = (number & (1 << WINDOWS_SHIFT) - 1) * WINDOW_BYTES;
  const bytes = windowBytes(ArrayBufferGetByteLength(buffer), start);
  return windows[number + 1] = new Window(
    new Uint8(buffer, start, bytes), new Uint16(buffer, start, bytes / 2),
    new Int32(buffer, start, bytes / 4), new Float32(buffer, start, bytes / 4),
    new Float64(buffer, start, bytes / 8));
}

const SEED = A[SEED_WORD]; // the same in all arenas of a tenant
const SLOT_SHIFT = A[SLOT_SHIFT_WORD];

const arenas = []; // by partition
for (let i = 0; i < PARTITIONS; i++) {
  const words = windowOf(i << WINDOWS_SHIFT).i32;
  arenas[i] = new Arena(words, i << WINDOWS_SHIFT, words[SLOT_SHIFT_WORD], foreign[i]);
}
const onlyArena = arenas[0]; // if not SEVERAL

// The arena of the last key that was looked for.
function placedArena() {
  return SEVERAL ? arenas[I[PLACE] >> WINDOWS_SHIFT] : onlyArena;
}
