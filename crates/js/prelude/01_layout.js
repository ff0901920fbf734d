// Where things lie: the arena (docs/formats/arena.md) and the io memory (src/io.rs), and the typed arrays
// over both.
//
// From here on the files are the body of attach(ioBuffer, arenaBuffer, numbersBuffer), run once per
// context, so that the typed arrays are constants to the optimizing compiler. What the hottest
// code changes stands in words of them too, else in a `var`: a variable costs a check of its type at each
// use, and a `let` one of its initialisation.
//
// A reference is an int32 here (the top bit may be set), 0 for "not found". References are found in
// windows of 4 GiB: window = ref >>> 28. Nothing crosses a window. Window 0 has its own constants.

removeGlobals();

// --- layout of the arena, in 32-bit words where not said otherwise; held to shm's by a test ---
const SEED_WORD = 12;
const SLOT_SHIFT_WORD = 3;
const EPOCH_WORD = 64;
const CURRENT_WORD = 65;
const OLD_WORD = 66;
const COMMIT_SEQUENCE_WORD = 67;
const LINE_WORDS_SHIFT = 4;
const LINE_WORDS = 16;
const MAX_PROBES = 16;
const NEAR_REFS = 0xffffffd; // references of the first window that are none of the reserved ones
const LAST_RESERVED_REF = 2; // EMPTY 0, DELETED 1, MOVED 2
const REC_VALUE_LENGTH = 1;
const REC_EXPIRY_LOW = 4;
const REC_EXPIRY_HIGH = 5;
const REC_META = 7; // key length in the low 16 bits, kind, flags in the high 8
const REC_KEY = 8;
const FLAG_RUN = 1;
const KEY_BYTES_MAX = 65535;

// --- layout of the io memory, held to src/io.rs by a test ---
const STATE = 0;
const PROMISES = 1;
const KILL = 3;
const KEY_LENGTH = 5;
const PENDING = 6; // see 04_db.js; 0 between calls
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
const IN_NOW_F64 = 14; // in 64-bit words
const OUT_DONE = 32;
const OUT_END = 33;
const OUT_WRITES = 34;
const OUT_WRITE_HIGH = 35;
const KEY_AT = 4096; // bytes from here on
const TEXT_AT = 131072;
const TEXT_ROOM = 131072;
const REQUEST_AT = 262144;
const RESPONSE_AT = REQUEST_AT + 671088640;
const RESPONSE_ROOM = 603979776;
const RESPONSE_FLUSH = 16777216;
const WRITES_AT = RESPONSE_AT + RESPONSE_ROOM;
const WRITES_TABLE = 33554432; // 2^20 entries of 32 bytes
const WRITES_ROOM = 603979776;

const WINDOW_BYTES = 4294967296;
const MAX_ATTEMPTS = 1000; // a miss is asked again while the index changes under it

const I = new Int32(ioBuffer);
const B = new Uint8(ioBuffer);
const IU16 = new Uint16(ioBuffer);
const IF32 = new Float32(ioBuffer);
const IF64 = new Float64(ioBuffer);

// The windows of the arena. `far` holds those after the first: {u8, u16, i32, f32, f64}.
const arenaBytes = ArrayBufferGetByteLength(arenaBuffer);
const firstBytes = arenaBytes < WINDOW_BYTES ? arenaBytes - (arenaBytes % 8) : WINDOW_BYTES;
const A = new Int32(arenaBuffer, 0, firstBytes / 4);
const A8 = new Uint8(arenaBuffer, 0, firstBytes);
const A16 = new Uint16(arenaBuffer, 0, firstBytes / 2);
const AF32 = new Float32(arenaBuffer, 0, firstBytes / 4);
const AF64 = new Float64(arenaBuffer, 0, firstBytes / 8);
const far = new SafeMap();

function windowOf(number) {
  if (number === -1) return ioWindow;
  let made = far.get(number);
  if (made === undefined) {
    const start = number * WINDOW_BYTES;
    const left = arenaBytes - start;
    const bytes = left < WINDOW_BYTES ? left - (left % 8) : WINDOW_BYTES;
    made = {
      __proto__: null,
      u8: new Uint8(arenaBuffer, start, bytes),
      u16: new Uint16(arenaBuffer, start, bytes / 2),
      i32: new Int32(arenaBuffer, start, bytes / 4),
      f32: new Float32(arenaBuffer, start, bytes / 4),
      f64: new Float64(arenaBuffer, start, bytes / 8),
    };
    far.set(number, made);
  }
  return made;
}
const ioWindow = { __proto__: null, u8: B, u16: IU16, i32: I, f32: IF32, f64: IF64 };
far.set(0, { __proto__: null, u8: A8, u16: A16, i32: A, f32: AF32, f64: AF64 });

const SEED = A[SEED_WORD];
const SLOT_SHIFT = A[SLOT_SHIFT_WORD];
const SLOT_WORDS_SHIFT = SLOT_SHIFT - 2;
const SLOT_WINDOW_SHIFT = 32 - SLOT_SHIFT;
// (table word - 1) >>> this is 0 if there is a table and it lies in the first window.
const NEAR_TABLE_SHIFT = 6 + SLOT_WINDOW_SHIFT;
