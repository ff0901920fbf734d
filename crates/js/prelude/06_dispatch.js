// The dispatcher: it takes the calls of a batch from the request, runs them one after the other,
// and writes their replies into the response.
//
//   STATE := k ── user's function ── encode the result, ── microtasks ── STATE := 0 ── commit
//                                    or describe the error that are left
//        └─────────── the watchdog may stop call k ───────────────────────┘
//
// 1. All user code of call k runs while STATE is k: getters that a look at the result or the error
//    runs, and the microtasks that they leave, too.
// 2. A termination never hits a commit or another call. If KILL is k once STATE is 0, the call
//    waits until the watchdog has decided. If HEAP_HIT is k, it waits for the termination that V8
//    has (src/stop/agreement.rs).

// --- request: for each call, in words (src/io/call_writer.rs writes it) ---
const C_FUNCTION = 0;
const C_FLAGS = 1;
const C_KEYS = 2;
const C_ARGS = 3;
const C_OVERLAY = 4;
const C_NEXT = 5; // word of the next call
const C_PLACE = 6; // first window of its partition's arena
// Pairs (offset, kind << 30 | length) of the keys, then of the args; then triples of the overlay
// (offset, length, reference).
const C_LISTS = 8;
const CALL_RESP3 = 1;
const CALL_NO_WRITES = 2;
const CALL_OVERLAY = 4;
const CALL_CLEARED = 8;
const CALL_STABLE = 16;
const CALL_CROSS_SLOT = 32;
const CALL_CONTINUES = 64; // the overlay's entries add to those of the last call
const ARG_BYTES = 2; // kind: not UTF-8
const ARG_LENGTH = 0x3fffffff;

// --- errors: Rust makes the reply from the message and the stack ---

function describe(thrown) {
  if (typeof thrown === "symbol") return SymbolToString(thrown);
  if ((typeof thrown !== "object" && typeof thrown !== "function") || thrown === null) {
    return `${thrown}`;
  }
  const message = thrown.message;
  return typeof message === "string" ? message : "the function threw " + nameOf(thrown);
}

function stackOf(thrown) {
  if (typeof thrown !== "object" || thrown === null) return "";
  const stack = thrown.stack;
  return typeof stack === "string" ? stack : "";
}

// V8 begins a stack with the error's class and message. This cuts the message there, too, so that a
// long one leaves room for the frames.
const CLASS_NAME_MAX = 128; // characters in front of the message
const MESSAGE_HEAD_MAX = 64; // enough to find it: a search for all of it could take seconds
function cutInStack(stack, message, cut) {
  const begin = StringSlice(stack, 0, CLASS_NAME_MAX + MESSAGE_HEAD_MAX);
  const at = StringIndexOf(begin, StringSlice(message, 0, MESSAGE_HEAD_MAX));
  if (at < 0 || !StringStartsWith(stack, message, at)) return stack;
  const frames = at + message.length;
  return StringSlice(stack, 0, at) + cut + StringSlice(stack, frames, frames + STACK_TEXT_MAX);
}

// Notes that the response may have been written up to an offset.
function noteTouched(end) {
  if (end > I[OUT_END]) I[OUT_END] = end;
}

function writeError(start, thrown) {
  let message = "the function threw something that cannot be described";
  let stack = "";
  try {
    message = describe(thrown);
    stack = stackOf(thrown);
  } catch {
    // Looking at the thrown value threw again.
  }
  if (Q[WAITING] !== 0) native.settle(undefined); // last: the look may have left microtasks
  if (outEnd > start + R_HEAD) noteTouched(outLimit); // by a result that was not to be finished
  const cut = StringSlice(message, 0, ERROR_TEXT_MAX);
  stack = StringSlice(cutInStack(stack, message, cut), 0, STACK_TEXT_MAX);
  const body = start + R_HEAD;
  const length = native.utf8(cut, body, ERROR_TEXT_MAX * 3);
  const stackLength = native.utf8(stack, body + length, STACK_TEXT_MAX * 3);
  I[(start >> 2) + R_KIND] = KIND_ERROR;
  I[(start >> 2) + R_LENGTH] = length;
  I[(start >> 2) + R_STACK] = stackLength;
  outEnd = body + length + stackLength;
}

// --- the call ---

function argument(word) {
  const packed = I[word + 1];
  const length = packed & ARG_LENGTH;
  const eighths = I[word] >>> 3;
  return packed >>> 30 === ARG_BYTES
    ? bytesOf(-1, eighths, length) : native.text(-1, eighths, length);
}

// Clients send the same short arguments again and again: strings of up to 4 bytes are kept.
const SHORT_TEXTS_MAX = 4096;
const shortTexts = new SafeMap(); // bytes as a word -> string
var shortCount = 0;

function text(word) {
  const packed = I[word + 1];
  if (packed >>> 0 > 4 || packed === 0) return argument(word);
  const bytes = I[I[word] >>> 2]; // zero-padded
  if (bytes >>> ((packed - 1) << 3) === 0) return argument(word); // ends with NUL: not unique
  let known = shortTexts.get(bytes);
  if (known === undefined) {
    known = argument(word);
    if (++shortCount > SHORT_TEXTS_MAX) {
      shortTexts.clear();
      shortCount = 1;
    }
    shortTexts.set(bytes, known);
  }
  return known;
}

function list(word, count) {
  switch (count) {
    case 0: return [];
    case 1: return [text(word)];
    case 2: return [text(word), text(word + 2)];
    case 3: return [text(word), text(word + 2), text(word + 4)];
    default: return longList(word, count);
  }
}

function longList(word, count) {
  const made = native.list(word, count);
  if (made !== undefined) return made;
  const slowly = []; // the allocator had no room for an argument of bytes
  for (let i = 0; i < count; i++) append(slowly, argument(word + 2 * i));
  return slowly;
}

// Long lists of arguments are made before the call begins, so that the call's time is its own.
// Limits on their number and their bytes bound that work (src/runtime/admission.rs).
const LONG_COUNT = 256; // some 20 µs
const LONG_WORDS = 65536; // 256 KiB of arguments, as long as LONG_COUNT of them take
var madeArgs;
var madeKeys;
var aheadFailed; // error of makeAhead(): the call throws it, since a look at it may run user code

function makeAhead(at) {
  madeArgs = madeKeys = aheadFailed = undefined; // an unstable call leaves those that it didn't take
  const keyCount = I[at + C_KEYS];
  const argCount = I[at + C_ARGS];
  if (keyCount + argCount < LONG_COUNT && I[at + C_NEXT] - at < LONG_WORDS) return;
  const lists = at + C_LISTS;
  try {
    madeKeys = list(lists, keyCount);
    madeArgs = list(lists + 2 * keyCount, argCount);
    if (I[HEAP_HIT] !== 0) {
      throw new RangeErrorConstructor(
        "the arguments leave no room in the JavaScript heap (setting: function-heap-limit-bytes)");
    }
  } catch (thrown) {
    aheadFailed = thrown;
  }
}

// Calls a function with the lists of makeAhead(), which serve one attempt: a function may change
// its own arguments.
function callAhead(fn) {
  const failed = aheadFailed;
  const args = madeArgs;
  const keys = madeKeys;
  aheadFailed = madeArgs = madeKeys = undefined;
  if (failed !== undefined) throw failed;
  return fn(new Db(I[STATE]), args, keys);
}

// Takes over the overlay of a transaction, before the call begins as well. It stays for the
// transaction's next call, which brings only new entries. The first call without one clears it.
function takeOverlay(at) {
  const flags = I[at + C_FLAGS];
  if ((flags & CALL_CONTINUES) === 0 && overlaid) {
    overlaid = false;
    overlay.clear();
  }
  if ((flags & CALL_OVERLAY) === 0) return;
  overlaid = true;
  const count = I[at + C_OVERLAY];
  let word = at + C_LISTS + 2 * (I[at + C_KEYS] + I[at + C_ARGS]);
  for (let i = 0; i < count; i++) {
    overlay.set(binaryString(I[word], I[word + 1]), I[word + 2]);
    word += 3;
  }
  if (I[HEAP_HIT] !== 0 && aheadFailed === undefined) {
    aheadFailed = new RangeErrorConstructor(
      "the transaction's writes leave no room in the JavaScript heap (setting: function-heap-limit-bytes)");
  }
}

function closeCall() {
  if (writeCount !== 0) {
    writes.clear();
    writeCount = 0;
    if (writeEnd > I[OUT_WRITE_HIGH]) I[OUT_WRITE_HIGH] = writeEnd;
    writeEnd = WRITE_BYTES_AT;
  }
  I[PENDING] = 0;
}

function callOne(at, start) {
  const flags = I[at + C_FLAGS];
  resp3 = (flags & CALL_RESP3) !== 0;
  writable = (flags & CALL_NO_WRITES) === 0;
  if (SEVERAL) {
    crossSlot = (flags & CALL_CROSS_SLOT) !== 0;
    I[CALL_PLACE] = I[at + C_PLACE];
  }
  const keyCount = I[at + C_KEYS];
  const argCount = I[at + C_ARGS];
  const lists = at + C_LISTS;
  if ((flags & CALL_OVERLAY) !== 0) {
    I[PENDING] |= PENDING_OVERLAY | (flags & CALL_CLEARED ? PENDING_CLEARED : 0);
  }
  outEnd = start + R_HEAD;
  outLimit = start + R_HEAD + I[IN_RESULT_BYTES];
  const fn = functions[I[at + C_FUNCTION]];
  let result = madeArgs !== undefined || aheadFailed !== undefined ? callAhead(fn)
    : fn(new Db(I[STATE]), list(lists + 2 * keyCount, argCount), list(lists, keyCount));
  if (Q[WAITING] !== 0) result = native.settle(result);
  encode(result, I[IN_RESULT_DEPTH]);
  if (Q[WAITING] !== 0) native.settle(undefined);
  I[(start >> 2) + R_KIND] = KIND_REPLY;
  I[(start >> 2) + R_LENGTH] = outEnd - start - R_HEAD;
}

const STABLE_ATTEMPTS = 8; // attempts of one call before its owner is asked, while there is time

// The call's first look into an arena. Of a foreign arena, it chooses the moment.
function beginReading(arena) {
  arena.reader = I[STATE];
  if (arena.foreign) takeMoment(arena);
}

function beginAttempt() {
  untold = false;
  if (!SEVERAL) return beginReading(onlyArena);
  for (let i = 0; i < PARTITIONS; i++) arenas[i].reader = 0;
}

// Runs a call that reads foreign arenas, each at one moment. If a find couldn't tell something, the
// call runs again, at a later moment; its result or error is dropped. Returns false, and the kind
// KIND_UNSTABLE, if no attempt could tell all.
function callStable(at, start) {
  untoldLow = untoldHigh = 0;
  const first = I[IN_FIRST_STATE];
  for (let attempt = 0; attempt < STABLE_ATTEMPTS && (attempt === 0 || I[OVERTIME] !== first); attempt++) {
    beginAttempt();
    if (untold) continue;
    let failed = false;
    let thrown;
    try {
      callOne(at, start);
    } catch (caught) {
      failed = true;
      thrown = caught;
    }
    if (!untold) {
      if (failed) throw thrown;
      return true;
    }
    if (Q[WAITING] !== 0) native.settle(undefined);
    if (I[PENDING] !== 0) closeCall();
    if (outEnd > start + R_HEAD) noteTouched(outLimit);
  }
  outEnd = start + R_HEAD;
  I[(start >> 2) + R_KIND] = KIND_UNSTABLE;
  I[(start >> 2) + R_LENGTH] = 0;
  I[(start >> 2) + R_UNTOLD] = untoldLow;
  I[(start >> 2) + R_UNTOLD + 1] = untoldHigh;
  return false;
}

function dispatch() {
  const count = I[IN_COUNT];
  I[PENDING] = 0; // a stopped call may have left it
  beginMoment();
  nowLow = I[IN_NOW_LOW];
  nowHigh = I[IN_NOW_HIGH];
  const first = I[IN_FIRST_STATE];
  let state = first;
  let at = I[IN_FIRST_HEAD];
  let start = RESPONSE_AT;
  let done = 0;
  let told = true; // an unstable call ends the entry: later calls wait until it has run
  while (done < count && told) {
    callIndex = I[IN_FIRST_INDEX] + done;
    makeAhead(at);
    takeOverlay(at);
    I[STATE] = state; // SYNC(call-state)
    try {
      if ((I[at + C_FLAGS] & CALL_STABLE) === 0) callOne(at, start);
      else told = callStable(at, start);
    } catch (thrown) {
      writeError(start, thrown);
    }
    I[STATE] = 0; // SYNC(call-state): this store, then the load of KILL; see src/stop/agreement.rs
    if ((I[HEAP_HIT] === state || I[KILL] === state) && !native.late(state)) for (;;);
    if (I[PENDING] !== 0) {
      if (writeCount !== 0 && I[(start >> 2) + R_KIND] === KIND_REPLY) {
        I[OUT_WRITES] = writeCount;
        I[OUT_DONE] = done;
        native.commit();
        beginMoment();
      }
      closeCall();
    }
    at = I[at + C_NEXT];
    start = (outEnd + 7) & ~7;
    done++;
    state++;
    I[OUT_DONE] = done;
    if (start > RESPONSE_AT + I[IN_FLUSH_BYTES] || I[OVERTIME] === first) break;
  }
  noteTouched(start);
}

// --- Math.random and console ---

// Math.random: Marsaglia's xorshift128, seeded for each call from the batch's 64 bits. Functions
// make ids from it, which must differ between batches. So all bits of the seed reach the first
// number.
var randomCall = 0;
var randomX = 0;
var randomY = 0;
var randomZ = 0;
var randomW = 1;
function random() {
  if (randomCall !== I[STATE]) {
    randomCall = I[STATE];
    randomX = mixed(I[IN_SEED_LOW] ^ imul(callIndex + 1, P1));
    randomY = mixed(I[IN_SEED_HIGH] ^ imul(callIndex + 1, P4));
    randomZ = mixed(randomX ^ P5);
    randomW = mixed(randomY ^ P3) | 1; // not all four may be 0
    for (let i = 0; i < 8; i++) step();
  }
  const high = step() >>> 5; // 27 bits
  const low = step() >>> 6; // 26 bits
  return (high * 67108864 + low) / 9007199254740992;
}
function step() {
  const t = randomX ^ (randomX << 11);
  randomX = randomY;
  randomY = randomZ;
  randomZ = randomW;
  return randomW ^= (randomW >>> 19) ^ t ^ (t >>> 8);
}
function mixed(word) {
  word = imul(word ^ (word >>> 15), P2);
  word = imul(word ^ (word >>> 13), P3);
  return word ^ (word >>> 16);
}
ObjectDefineProperty(Math, "random", {
  __proto__: null, value: { random() { return random(); } }.random,
  writable: true, enumerable: false, configurable: true,
});

const LOG_TEXT_MAX = 8192; // characters of a line
const LOG_LINES_MAX = 100; // of a call
var logCall = 0;
var logLines = 0;

function logText(value) {
  if (typeof value === "string") return value;
  if (typeof value === "function") return "[function]";
  if (typeof value !== "object" || value === null) return describe(value);
  if (recordIs(value)) return "[Record]";
  try {
    const stack = stackOf(value);
    if (stack !== "") return stack;
    const text = JSONStringify(value);
    return typeof text === "string" ? text : "[object]";
  } catch {
    return "[object]";
  }
}

function log(level, values) {
  if (I[STATE] !== logCall) {
    logCall = I[STATE];
    logLines = 0;
  }
  if (++logLines > LOG_LINES_MAX) return;
  let text = "";
  if (logLines === LOG_LINES_MAX) text = "(further lines of this call are dropped)";
  else {
    for (let i = 0; i < values.length && text.length < LOG_TEXT_MAX; i++) {
      text += (i === 0 ? "" : " ") + logText(values[i]);
    }
  }
  const length = native.utf8(StringSlice(text, 0, LOG_TEXT_MAX), TEXT_AT, TEXT_ROOM);
  native.log(level, TEXT_AT, length);
}

ObjectDefineProperty(globalThis, "console", {
  __proto__: null,
  value: {
    debug(...values) { log(0, values); },
    log(...values) { log(1, values); },
    info(...values) { log(1, values); },
    warn(...values) { log(2, values); },
    error(...values) { log(3, values); },
  },
  writable: true, enumerable: false, configurable: true,
});

// --- libraries ---

function badFlags(name, why) {
  return new TypeErrorConstructor(`flags of function '${name}': ${why}`);
}

function flagsOf(name, fn) {
  const flags = fn.flags;
  if (flags === undefined) return 0;
  if (!ArrayIsArray(flags)) throw badFlags(name, "an array of strings is wanted");
  let bits = 0;
  const count = flags.length;
  for (let i = 0; i < count; i++) {
    const flag = flags[i];
    if (flag === "no-writes") bits |= 1;
    else if (flag === "allow-cross-slot-keys") bits |= 2;
    else if (flag === "durable") bits |= 4;
    else if (typeof flag === "string") {
      throw badFlags(name, `unknown flag '${StringSlice(flag, 0, 64)}' (known: no-writes, allow-cross-slot-keys, durable)`);
    }
    else throw badFlags(name, "an array of strings is wanted");
  }
  return bits;
}

// Throws if a promise of V8's own would lead V8 to user code. Where a module with a top-level
// `await` begins, V8 looks up the promise's constructor and that one's species, and ends the
// process if this throws or has to be stopped.
function checkAwait() {
  const isStill = (object, name, field, value) => {
    const found = ObjectGetOwnPropertyDescriptor(object, name);
    return found !== undefined && ObjectHasOwnProperty(found, field) && found[field] === value;
  };
  if (!isStill(PromisePrototype, "constructor", "value", PromiseConstructor) ||
      !isStill(PromiseConstructor, SymbolSpecies, "get", PromiseGetSpecies)) {
    throw new TypeErrorConstructor("top-level await needs V8's own Promise, and a library has " +
      "changed Promise.prototype.constructor or Promise[Symbol.species]");
  }
}

// Registers the exported functions of a module from id `first` on. Writes their number into the
// response, then for each function: flags, length of the name, name padded to 8.
function install(namespace, first) {
  const names = ObjectKeys(namespace); // sorted
  const found = [];
  let out = RESPONSE_AT + 8;
  for (let i = 0; i < names.length; i++) {
    const fn = namespace[names[i]];
    if (typeof fn !== "function") continue;
    const flags = flagsOf(names[i], fn);
    const length = native.utf8(names[i], out + 8, KEY_BYTES_MAX);
    if (length < 0) throw new RangeErrorConstructor("name of a function is too long");
    I[out >> 2] = flags;
    I[(out >> 2) + 1] = length;
    out += 8 + ((length + 7) & ~7);
    append(found, fn);
    if (found.length > 1000) throw new RangeErrorConstructor("more than 1000 functions");
  }
  for (let i = 0; i < found.length; i++) place(first + i, found[i]);
  I[RESPONSE_AT >> 2] = found.length;
}

function place(id, fn) {
  while (functions.length < id) append(functions, undefined);
  if (id === functions.length) append(functions, fn);
  else functions[id] = fn;
}

function uninstall(first, count) {
  for (let i = 0; i < count; i++) if (first + i < functions.length) functions[first + i] = undefined;
}

return { dispatch, install, remove: uninstall, checkAwait };
