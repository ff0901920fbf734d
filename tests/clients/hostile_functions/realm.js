#!js name=realm
// Ways out: to the prelude, to raw memory, to other libraries, to code from strings; and builtins overwritten.

const evil = () => {
  throw new Error("polluted");
};
const loop = () => {
  for (;;);
};

/** Constructors of functions make code of strings. */
export const code_of_strings = () => (() => {}).constructor("for (;;);")();
/** The stack's frames name functions and receivers. */
export const frames = (db) => {
  Error.prepareStackTrace = (e, all) => all;
  const frames = new Error("x").stack;
  for (const frame of frames) {
    const f = frame.getFunction?.();
    const self = frame.getThis?.();
    if (f !== undefined && !/frames/.test(f.name)) throw f;
    if (self !== undefined) throw self;
  }
  return 1;
};
/** The caller of a function. */
export const callers = () => callers.caller("for (;;);");
/** The buffer under a view that the prelude hands out. */
export const raw_buffer = (db) => {
  const u = db.get("data:7").bytes();
  const all = new Uint8Array(u.buffer);
  if (all.length > 4096) { all.fill(0); db.set("evil:1", all); }
  return all.length;
};
/** Fields of a record that are private. */
export const private_fields = (db) => {
  const r = db.get("data:7");
  for (const key of Reflect.ownKeys(r)) r[key] = 0;
  for (const key of Reflect.ownKeys(Object.getPrototypeOf(r))) {
    Object.defineProperty(Object.getPrototypeOf(r), key, { value: evil });
  }
};
/** Methods of a record on another object, and beyond its end. */
export const foreign_receiver = (db) => {
  const r = db.get("data:7");
  const out = [];
  for (const self of [{}, db, Object.create(r), new Proxy(r, {}), new Uint8Array(8)]) {
    for (const name of ["u8", "u32", "f64", "text", "bytes", "json"]) {
      try {
        out.push(r[name].call(self, 0));
      } catch {}
    }
  }
  for (const i of [-1, 2 ** 31, 2 ** 32, 2 ** 53, NaN, 0.5, 1e300]) {
    try {
      out.push(r.u32(i));
    } catch {}
  }
  if (out.length > 0) db.set("data:7", "evil");
  return out.length;
};
/** The length of a typed array isn't what it says. */
export const false_length = (db) => {
  const u = new Uint8Array(16);
  Object.defineProperty(u, "length", { value: 2 ** 30 });
  Object.defineProperty(u, "byteLength", { value: 2 ** 30 });
  db.set("evil:1", u);
  throw new Error(String(db.get("evil:1").byteLength));
};
/** A buffer that shrinks between its measuring and its copying: by valueOf of an argument. */
export const detached = (db) => {
  const key = { toString: () => "k", valueOf: () => 1, get byteLength() { return 2 ** 30; } };
  Object.setPrototypeOf(key, Uint8Array.prototype);
  return db.get(key);
};
/** What globals there are. */
export const globals = () => {
  for (const name of ["eval", "WebAssembly", "SharedArrayBuffer", "Atomics", "FinalizationRegistry", "require", "process"]) {
    if (name in globalThis) throw new Error("found " + name);
  }
  return 1;
};
/** Modules of elsewhere. */
export const imports = () => import("fs").then((fs) => fs.readFileSync("/etc/passwd", "utf8"));
/** Kept arguments of an earlier call, changed. */
let kept;
export const arguments_kept_prepare = (db, args, keys) => {
  kept = [args, keys];
  return 1;
};
export const arguments_kept = (db, args, keys) => {
  kept[0].length = kept[1].length = 2 ** 20;
  kept[0].fill("evil");
  Object.freeze(args);
  return args.length;
};
/** Array indices of the prototype are setters. */
export const pollute_indices = () => {
  for (let i = 0; i < 100; i++) Object.defineProperty(Array.prototype, i, { get: evil, set: evil, configurable: true });
  return 1;
};
/** A then of all objects: each result would be a promise. */
export const pollute_then = () => {
  Object.prototype.then = (yes) => yes(7);
  return [1];
};
/** Getters that descriptors inherit. */
export const pollute_descriptors = () => {
  for (const name of ["get", "set", "value", "writable", "enumerable", "flags", "length", "toJSON", "message", "stack"]) {
    Object.defineProperty(Object.prototype, name, { get: evil, set: evil, configurable: true });
  }
  return 1;
};
/** All methods that the prelude could call by name. */
export const pollute_methods = () => {
  for (const owner of [Object, Reflect, Array.prototype, String.prototype, Function.prototype, Map.prototype, Set.prototype,
                       Promise.prototype, RegExp.prototype, Symbol, Math, JSON, Uint8Array.prototype]) {
    for (const key of Reflect.ownKeys(owner)) {
      try {
        if (typeof owner[key] === "function" && key !== "constructor") owner[key] = evil;
      } catch {}
    }
  }
  return 1;
};
/** Iterators of arrays don't end. */
export const pollute_iterators = () => {
  Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: false, value: 1 });
  Array.prototype[Symbol.iterator] = function* () { for (;;) yield 1; };
  return [1, 2];
};
/** Symbols that conversions ask for. */
export const pollute_conversions = () => {
  Object.prototype[Symbol.toPrimitive] = loop;
  String.prototype[Symbol.toPrimitive] = loop;
  Object.prototype[Symbol.toStringTag] = "x";
  Function.prototype[Symbol.hasInstance] = loop;
  return { a: 1 };
};
/** Constructors of species. */
export const pollute_species = () => {
  Object.defineProperty(Promise, Symbol.species, { get: loop, configurable: true });
  Promise.resolve = loop;
  Promise.prototype.constructor = loop;
  return (async () => 1)();
};
/** The prepared stack of all errors. */
export const pollute_stack = () => {
  Error.prepareStackTrace = loop;
  Error.stackTraceLimit = 1e9;
  return 1;
};
/** Globals deleted. */
export const pollute_globals = () => {
  for (const name of Reflect.ownKeys(globalThis)) delete globalThis[name];
  return 1;
};
/** All that is there, frozen. */
export const pollute_frozen = () => {
  const seen = new Set();
  const freeze = (o) => {
    if ((typeof o !== "object" && typeof o !== "function") || o === null || seen.has(o)) return;
    seen.add(o);
    for (const d of Object.values(Object.getOwnPropertyDescriptors(o))) freeze(d.value ?? d.get);
    freeze(Object.getPrototypeOf(o));
    Object.freeze(o);
  };
  freeze(globalThis.Object);
  freeze(Map.prototype);
  return seen.size > 0 ? 1 : 0;
};
/** The prototype of the global object is a Proxy: each name that is missing runs code. */
export const pollute_lookup = () => {
  Object.setPrototypeOf(Object.prototype.__proto__ ?? globalThis, new Proxy({}, { get: loop, has: loop }));
  return 1;
};
