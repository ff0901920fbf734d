// Captures the builtins that the prelude uses, before any user code runs, and removes the globals
// that functions may not use. It is evaluated once, into the startup snapshot. This file and the
// files after it share one strict function scope.
//
// Rules for all code of the prelude that runs beside user code:
// 1. Call only functions that are captured here. The user may have replaced a method that is found
//    by its name.
// 2. No spread, no for-of, no array destructuring: they look up Symbol.iterator.
// 3. Store to arrays by index only where the index exists already: a hole asks Array.prototype.
// 4. Never pass a typed array over Nigh's memory to anything that user code can see or replace.
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
const MapForEach = uncurry(Map.prototype.forEach);
const MapGetSize = uncurry(Object.getOwnPropertyDescriptor(Map.prototype, "size").get);
const SetForEach = uncurry(Set.prototype.forEach);
const SetGetSize = uncurry(Object.getOwnPropertyDescriptor(Set.prototype, "size").get);
const NumberIsFinite = Number.isFinite;
const NumberIsSafeInteger = Number.isSafeInteger;
const ObjectConstructor = Object;
const ObjectDefineProperty = Object.defineProperty;
const ObjectFreeze = Object.freeze;
const ObjectGetOwnPropertyDescriptor = Object.getOwnPropertyDescriptor;
const ObjectGetPrototypeOf = Object.getPrototypeOf;
const ObjectHasOwnProperty = uncurry(Object.prototype.hasOwnProperty);
const ObjectPrototype = Object.prototype;
const PromiseConstructor = Promise;
const PromisePrototype = Promise.prototype;
const PromiseGetSpecies = Object.getOwnPropertyDescriptor(Promise, Symbol.species).get;
const RangeErrorConstructor = RangeError;
const StringCharCodeAt = uncurry(String.prototype.charCodeAt);
const StringFromCharCode = String.fromCharCode;
const StringIndexOf = uncurry(String.prototype.indexOf);
const StringSlice = uncurry(String.prototype.slice);
const StringStartsWith = uncurry(String.prototype.startsWith);
const SymbolSpecies = Symbol.species;
const SymbolToString = uncurry(Symbol.prototype.toString);
const TypeErrorConstructor = TypeError;
const imul = Math.imul;
const floor = Math.floor;

// Map and Set with methods that user code cannot replace.
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

// Two classes for 01_layout.js. They are made here, in the snapshot: to set a prototype later, V8
// would walk over all contexts. The prelude looks up nothing in their prototypes.

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

// An arena, and its index as 02_find.js saw it last.
class Arena {
  constructor(words, place, slotShift, isForeign) {
    this.words = words; // words of its first window
    this.place = place; // number of that window
    this.slotShift = slotShift;
    this.foreign = isForeign;
    this.epoch = -1; // epoch of the tables below
    this.table = words;
    this.tableBase = 0; // first word of the table
    this.tableMask = -1; // lines - 1; -1: no table
    this.oldTable = words;
    this.oldBase = 0;
    this.oldMask = -1;
    this.reader = 0; // I[STATE] of the call that looked into it last
    this.lsn = 0; // of a foreign arena: the moment at which that call reads
    this.clock = 0; // and the owner's clock at that moment, Unix ms
  }
}
Object.setPrototypeOf(Arena.prototype, null);

// The globals that a function may use. All others are deleted: eval, shared memory, waiting,
// WebAssembly (its memory would escape the limit), and all that observes the garbage collector. V8
// adds some globals to each context that it makes from a snapshot, so this runs there again.
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
