// The tools from which the files of this folder make interruptible builtins.
//
// V8 looks for a pending TerminateExecution when it enters a JavaScript function and when a
// JavaScript loop turns. A builtin that loops in machine code does neither. Over
// `{length: 2 ** 53 - 1}` or a sparse array it runs for ever, whatever the call's time limit is.
//
// Each method here has two ways:
//
//   fast   the receiver is an Array, no Proxy, and short: the native method does it
//   slow   anything else: the algorithm of ECMAScript 2022, step by step, in an interruptible loop;
//          or the native method on pieces (strings, typed arrays); or a RangeError (lists of
//          millions of keys, attributes of millions of elements, long regular expressions on long
//          texts)
//
// This also stops a user's loop over a slow native method: V8 looks for a stop at each entry into a
// method of the prelude, which is a JavaScript function.
//
// Invariants
// 1. Semantics are those of the standard: order of observable steps, holes, generic receivers,
//    species, property attributes, `name` and `length`. Methods are no constructors. Beyond the
//    standard there is one method, `toJSON` of typed arrays, which returns them.
// 2. Code that runs beside user code uses only what was captured at the top: no spread, no `for…of`
//    over arrays, no descriptor with a prototype.
// 3. These files run once, while the snapshot is made, after 00_primordials.js has captured the
//    native methods.
//
// These steps stay native (measured on V8 10.2 with the default limits, CPU time of the thread):
// - Spread, rest and for…in over a long string, typed array or Array: 0.3 µs and 100 bytes an
//   index; over 2^24 indices until the heap limit, in 5 s and more.
// - Spread and for…in over an object with 500,000 keys: 1 s.
// - `===`, `<`, `+s` and joining the parts of a string: 1 to 50 ms for 2^24 units.
// - `a[2 ** 31] = 1` and `a.length = 2 ** 32 - 1` on an Array of millions: 0.3 s a million; V8
//   gives up beyond 22 million.
// - BigInts of 2^29 bits: 30 ms.
// - `new Uint8Array({length: 2 ** 24})`: 0.5 s and 250 MB.
// - Map and Set of a long Array: 0.2 s a million.
// - `new RegExp(text)`: 2 s and 2.5 GB for 2^27 units.
// - `RegExp.prototype.exec` of a long expression on a long text: in proportion to the product of
//   their lengths.
// - `JSON.stringify` of long strings that lie deep in a value: 40 ms for 2^24 units.
// Replacing them would make all code slower, since V8 is fast only with its own exec and
// constructors. If a call is in such a step when its time is up, its shard goes on in another
// thread (docs/design/0012-calls-that-cant-be-stopped.md).

"use strict";

(() => {
  // Longest Array (elements) for the native method. On V8 10.2, scanning, moving and filling 2^17
  // elements of the slowest layout (sparse) take below 10 ms.
  const SHORT = 2 ** 17;
  // The same for methods that spend up to 1 µs an element on making strings.
  const SHORT_TEXT = 2 ** 13;
  const MAX_LENGTH = 2 ** 53 - 1;
  const MAX_ARRAY = 2 ** 32 - 1; // elements of an Array
  const MAX_STRING = 2 ** 29 - 24; // UTF-16 units, V8's String::kMaxLength
  // Most arguments of a call: more of them overflow any stack that Nigh allows.
  const MAX_ARGUMENTS = 2 ** 17;

  const { apply, construct, defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const { isArray, prototype: ArrayPrototype } = Array;
  const { trunc, max, min } = Math;
  const NativeArray = Array;
  const NativeProxy = Proxy;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const ToObject = Object;
  const { species } = Symbol;
  const bind = Function.prototype.bind;
  const uncurry = (f) => apply(bind, Function.prototype.call, [f]);

  // --- Telling proxies: only these can answer `length` differently each time ---

  function Self(o) {
    return o;
  }
  class Mark extends Self {
    #target;
    constructor(proxy, target) {
      super(proxy);
      this.#target = target;
    }
    static isProxy(o) {
      return #target in o;
    }
    static targetOf(o) {
      while (#target in o) o = o.#target;
      return o;
    }
  }
  // `targetOf` returns an object that is no proxy itself.
  const { isProxy, targetOf } = Mark;

  function MarkingProxy(target, handler) {
    if (new.target === undefined) throw new NativeTypeError("Constructor Proxy requires 'new'");
    const proxy = new NativeProxy(target, handler);
    new Mark(proxy, target);
    return proxy;
  }
  const nativeRevocable = NativeProxy.revocable;

  // --- Installing ---

  // Replaces the native method of the same name by each own method of `methods`, which gets the
  // native one's attributes and `length`. Returns the native methods.
  function replace(owner, methods) {
    const natives = { __proto__: null };
    const keys = ownKeys(methods);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      const method = methods[key];
      const native = getOwnPropertyDescriptor(owner, key);
      if (native === undefined) throw new NativeTypeError(`no builtin ${describe(key)}`);
      natives[key] = native.value;
      defineProperty(method, "length", {
        __proto__: null,
        value: native.value.length,
        configurable: true,
      });
      native.value = method;
      native.__proto__ = null;
      defineProperty(owner, key, native);
    }
    return natives;
  }

  // --- Abstract operations of the standard ---

  const ToString = (v) => (typeof v === "string" ? v : `${v}`);
  const toInteger = (v) => {
    const n = trunc(+v);
    return n !== n ? 0 : n + 0;
  };
  const toLength = (v) => {
    const n = toInteger(v);
    return n <= 0 ? 0 : n > MAX_LENGTH ? MAX_LENGTH : n;
  };
  const clamp = (n, length) => (n < 0 ? max(length + n, 0) : min(n, length));
  const relative = (v, length) => clamp(toInteger(v), length);
  const relativeEnd = (v, length) => (v === undefined ? length : clamp(toInteger(v), length));
  const toObject = (v, name) => {
    if (v === undefined || v === null) {
      throw new NativeTypeError(`Array.prototype.${name} called on null or undefined`);
    }
    return ToObject(v);
  };
  const toCallable = (f) => {
    if (typeof f !== "function") throw new NativeTypeError(`${describe(f)} is not a function`);
    return f;
  };
  const describe = (v) => {
    if (typeof v === "object" && v !== null) return "#<Object>";
    if (typeof v === "symbol") return "Symbol()";
    return typeof v === "string" ? `"${v.length > 100 ? "…" : v}"` : `${v}`;
  };

  // Whether the native method may have it: an Array, no Proxy, of at most `limit` elements.
  const isShort = (o, limit) => isArray(o) && !isProxy(o) && o.length <= limit;

  function define(o, key, value) {
    const done = defineProperty(o, key, {
      __proto__: null,
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    });
    if (!done)
      throw new NativeTypeError(`Cannot add property ${ToString(key)}, object is not extensible`);
  }

  // CreateDataPropertyOrThrow. If the object is `fresh`, user code has never seen it: then an
  // assignment does the same and is faster, unless a prototype has that index.
  function put(o, key, value, fresh) {
    if (fresh && key < MAX_ARRAY && !(key in ArrayPrototype)) o[key] = value;
    else define(o, key, value);
  }

  // V8 allocates up to 2^25 elements at once when a length is set. So a long array gets its length
  // at the end.
  function arrayCreate(length) {
    if (length > MAX_ARRAY) throw new NativeRangeError("Invalid array length");
    const a = [];
    if (length > 0 && length <= SHORT) a.length = length;
    return a;
  }

  // The class by which the standard makes the result; undefined for a plain Array.
  function speciesOf(o) {
    if (!isArray(o)) return undefined;
    let c = o.constructor;
    if ((typeof c === "object" && c !== null) || typeof c === "function") {
      c = c[species];
      if (c === null) c = undefined;
    }
    return c === NativeArray ? undefined : c;
  }
  const speciesCreate = (c, length) =>
    c === undefined ? arrayCreate(length) : construct(toConstructor(c), [length]);
  const toConstructor = (c) => {
    if (typeof c !== "function")
      throw new NativeTypeError("object.constructor[Symbol.species] is not a constructor");
    return c;
  };

  // Moves the property `from` of `o`, or its absence, to `to`.
  function move(o, from, to) {
    if (from in o) o[to] = o[from];
    else delete o[to];
  }

  // CreateListFromArrayLike, for a call.
  function toArguments(list) {
    if ((typeof list !== "object" || list === null) && typeof list !== "function") {
      throw new NativeTypeError("CreateListFromArrayLike called on non-object");
    }
    const length = toLength(list.length);
    if (length > MAX_ARGUMENTS) throw new NativeRangeError("Maximum call stack size exceeded");
    const copy = [];
    for (let k = 0; k < length; k++) put(copy, k, list[k], true);
    return copy;
  }
  const callArguments = (list) => (isShort(list, MAX_ARGUMENTS) ? list : toArguments(list));

  // --- Proxy, calls with an array-like of arguments ---

  replace(NativeProxy, {
    revocable(target, handler) {
      const pair = nativeRevocable(target, handler);
      new Mark(pair.proxy, target);
      return pair;
    },
  });
  const BoundProxy = apply(bind, MarkingProxy, [undefined]);
  defineProperty(BoundProxy, "name", { __proto__: null, value: "Proxy", configurable: true });
  defineProperty(BoundProxy, "length", { __proto__: null, value: 2, configurable: true });
  defineProperty(BoundProxy, "revocable", getOwnPropertyDescriptor(NativeProxy, "revocable"));
  defineProperty(globalThis, "Proxy", {
    __proto__: null,
    value: BoundProxy,
    writable: true,
    enumerable: false,
    configurable: true,
  });

  replace(Function.prototype, {
    apply(self, list) {
      if (typeof this !== "function") {
        throw new NativeTypeError("Function.prototype.apply was called on what is not a function");
      }
      return apply(this, self, list === undefined || list === null ? [] : callArguments(list));
    },
  });
  replace(Reflect, {
    apply(f, self, list) {
      return apply(toCallable(f), self, callArguments(list));
    },
    construct(f, list, target) {
      if (arguments.length < 3) return construct(f, callArguments(list));
      return construct(f, callArguments(list), target);
    },
  });

  globalThis.nighBuiltins = {
    __proto__: null,
    replace,
    uncurry,
    isShort,
    isProxy,
    targetOf,
    put,
    define,
    ToString,
    toInteger,
    toLength,
    relative,
    relativeEnd,
    toObject,
    toCallable,
    speciesOf,
    speciesCreate,
    move,
    construct,
    apply,
    defineProperty,
    SHORT,
    SHORT_TEXT,
    MAX_LENGTH,
    MAX_STRING,
  };
})();
