// What the prelude uses of JavaScript, taken before any user code runs. Evaluated once, into the
// startup snapshot; everything below and in the files after it shares one strict function scope.
//
// Rules for all prelude code that runs beside user code:
// 1. Call only what is captured here. A method found by name may have been replaced by the user.
// 2. No spread, no for-of, no array destructuring: they look up Symbol.iterator.
// 3. Store to arrays by index only where the index exists already: a hole asks Array.prototype.
// 4. Never hand a typed array over Nigh's memory to anything that user code can see or replace.
// 5. Hot code stays within int32: Math.imul, |0, >>>.

const uncurry = Function.prototype.bind.bind(Function.prototype.call);

const ArrayIsArray = Array.isArray;
const ArrayBufferIsView = ArrayBuffer.isView;
const ArrayBufferGetByteLength =
  uncurry(Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get);
const ErrorConstructor = Error;
const Float64 = Float64Array;
const Float32 = Float32Array;
const Int32 = Int32Array;
const Uint8 = Uint8Array;
const Uint16 = Uint16Array;
const JSONStringify = JSON.stringify;
const MapConstructor = Map;
const MapForEach = uncurry(Map.prototype.forEach);
const MapGetSize = uncurry(Object.getOwnPropertyDescriptor(Map.prototype, "size").get);
const SetForEach = uncurry(Set.prototype.forEach);
const SetGetSize = uncurry(Object.getOwnPropertyDescriptor(Set.prototype, "size").get);
const NumberIsFinite = Number.isFinite;
const NumberIsSafeInteger = Number.isSafeInteger;
const ObjectConstructor = Object;
const ObjectDefineProperty = Object.defineProperty;
const ObjectFreeze = Object.freeze;
const ObjectGetPrototypeOf = Object.getPrototypeOf;
const ObjectPrototype = Object.prototype;
const RangeErrorConstructor = RangeError;
const StringCharCodeAt = uncurry(String.prototype.charCodeAt);
const StringFromCharCode = String.fromCharCode;
const StringSlice = uncurry(String.prototype.slice);
const StringStartsWith = uncurry(String.prototype.startsWith);
const SymbolToString = uncurry(Symbol.prototype.toString);
const TypeErrorConstructor = TypeError;
const imul = Math.imul;
const floor = Math.floor;

// A Map whose methods user code cannot replace.
class SafeMap extends Map {}
for (const name of ["get", "set", "has", "delete", "clear", "forEach"]) {
  ObjectDefineProperty(SafeMap.prototype, name, { value: Map.prototype[name] });
}
Object.setPrototypeOf(SafeMap.prototype, null);
ObjectFreeze(SafeMap.prototype);
ObjectFreeze(SafeMap);

class SafeSet extends Set {}
for (const name of ["add", "has"]) {
  ObjectDefineProperty(SafeSet.prototype, name, { value: Set.prototype[name] });
}
Object.setPrototypeOf(SafeSet.prototype, null);
ObjectFreeze(SafeSet.prototype);
ObjectFreeze(SafeSet);

// Classes of 01_layout.js. They are here, in the snapshot, since setting a prototype costs a walk over all
// contexts. Nothing of them is looked up in a prototype.

// A window of memory: typed arrays over the same bytes.
class Window {
  constructor(u8, u16, i32, f32, f64) {
    this.u8 = u8;
    this.u16 = u16;
    this.i32 = i32;
    this.f32 = f32;
    this.f64 = f64;
  }
}
Object.setPrototypeOf(Window.prototype, null);

// An arena: what is known of it, and of its index as 02_find.js saw it last.
class Arena {
  constructor(words, place, slotShift, isForeign) {
    this.words = words; // of its first window
    this.place = place; // number of that
    this.slotShift = slotShift;
    this.foreign = isForeign;
    this.epoch = -1; // of the tables
    this.table = words;
    this.tableBase = 0; // first word
    this.tableMask = -1; // lines - 1; -1: none
    this.oldTable = words;
    this.oldBase = 0;
    this.oldMask = -1;
    this.reader = 0; // state of the call that has looked into it
    this.lsn = 0; // if it is foreign: the moment of that call, and the owner's clock then, Unix ms
    this.clock = 0;
  }
}
Object.setPrototypeOf(Arena.prototype, null);

// The globals that a function may use. What is not listed does not exist: no eval, no shared memory
// or waiting, no WebAssembly that would bypass the memory limit, nothing that observes the collector.
// V8 adds some globals to each context that it makes from a snapshot, so this runs there too.
const allowedGlobals = new SafeSet();
for (const name of [
  "AggregateError", "Array", "ArrayBuffer", "BigInt", "BigInt64Array", "BigUint64Array", "Boolean",
  "DataView", "Date", "Error", "EvalError", "Float32Array", "Float64Array", "Function", "Infinity",
  "Int16Array", "Int32Array", "Int8Array", "JSON", "Map", "Math", "NaN", "Number", "Object",
  "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect", "RegExp", "Set", "String", "Symbol",
  "SyntaxError", "TypeError", "URIError", "Uint16Array", "Uint32Array", "Uint8Array",
  "Uint8ClampedArray", "WeakMap", "WeakSet", "console", "decodeURI", "decodeURIComponent",
  "encodeURI", "encodeURIComponent", "globalThis", "isFinite", "isNaN", "parseFloat", "parseInt",
  "undefined",
]) allowedGlobals.add(name);
const ReflectOwnKeys = Reflect.ownKeys;

function removeGlobals() {
  const names = ReflectOwnKeys(globalThis);
  for (let i = 0; i < names.length; i++) {
    if (!allowedGlobals.has(names[i])) delete globalThis[names[i]];
  }
}
removeGlobals();
