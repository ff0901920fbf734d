// Array builtins that V8 cannot interrupt, written so that it can.
//
// V8 looks for a pending TerminateExecution when a JavaScript function is entered and when a JavaScript
// loop turns. A builtin that loops in machine code does neither: over `{length: 2 ** 53 - 1}`, or over a
// sparse array, it runs for ever and the call's time limit means nothing.
//
// Each method here has two ways:
//
//   fast   the receiver is an Array, no Proxy, and short: the native method does it
//   slow   anything else: the algorithm of ECMAScript 2022, step by step, in an interruptible loop
//
// Invariants
// 1. Semantics are those of the standard: order of observable steps, holes, generic receivers, species,
//    property attributes, `name` and `length`. Methods are no constructors.
// 2. Everything used after user code has run was captured at the top. No spread, no `for…of` over
//    arrays, no descriptor with a prototype.
// 3. Runs once, while the snapshot is made, after 00_primordials.js captured the native methods.

"use strict";

(() => {
  // Longest Array (elements) that goes to the native method. Measured on V8 10.2, the slowest layout
  // (sparse): scanning, moving and filling 2^17 elements take below 10 ms.
  const SHORT = 2 ** 17;
  // The same for methods that spend up to 1 µs an element on making strings.
  const SHORT_TEXT = 2 ** 13;
  const MAX_LENGTH = 2 ** 53 - 1;
  const MAX_ARRAY = 2 ** 32 - 1; // elements of an Array
  const MAX_STRING = 2 ** 29 - 24; // UTF-16 units, V8's String::kMaxLength
  // Most arguments that a call can have: more overflow any stack that Nigh allows.
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

  // --- Which objects are proxies: only these can answer `length` differently each time. ---

  function Self(o) {
    return o;
  }
  class Mark extends Self {
    #proxy;
    static isProxy(o) {
      return #proxy in o;
    }
  }
  const isProxy = Mark.isProxy;

  function MarkingProxy(target, handler) {
    if (new.target === undefined) throw new NativeTypeError("Constructor Proxy requires 'new'");
    const proxy = new NativeProxy(target, handler);
    new Mark(proxy);
    return proxy;
  }
  const nativeRevocable = NativeProxy.revocable;

  // --- Installing ---

  // Puts each own method of `methods` in the place of the native one of that name, with its attributes
  // and `length`. Returns the native ones.
  function replace(owner, methods) {
    const natives = { __proto__: null };
    const keys = ownKeys(methods);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      const method = methods[key];
      const native = getOwnPropertyDescriptor(owner, key);
      if (native === undefined) throw new NativeTypeError(`no builtin ${ToString(key)}`);
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

  // The native method may have it: an Array, no Proxy, of at most `limit` elements.
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

  // CreateDataPropertyOrThrow on an object of which nobody else knows if it is `fresh`: assigning is the
  // same and faster, unless a prototype has that index.
  function put(o, key, value, fresh) {
    if (fresh && key < MAX_ARRAY && !(key in ArrayPrototype)) o[key] = value;
    else define(o, key, value);
  }

  function arrayCreate(length) {
    if (length > MAX_ARRAY) throw new NativeRangeError("Invalid array length");
    const a = [];
    if (length > 0) a.length = length;
    return a;
  }

  // Returns undefined where the standard makes a plain Array.
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

  // --- Array.prototype: scans ---

  const scans = replace(ArrayPrototype, {
    includes(x, from) {
      if (isShort(this, SHORT)) return nativeIncludes(this, x, from);
      const o = toObject(this, "includes");
      const length = toLength(o.length);
      if (length === 0) return false;
      for (let k = relative(from, length); k < length; k++) {
        const v = o[k];
        if (v === x || (v !== v && x !== x)) return true;
      }
      return false;
    },
    indexOf(x, from) {
      if (isShort(this, SHORT)) return nativeIndexOf(this, x, from);
      const o = toObject(this, "indexOf");
      const length = toLength(o.length);
      if (length === 0) return -1;
      for (let k = relative(from, length); k < length; k++) {
        if (k in o && o[k] === x) return k;
      }
      return -1;
    },
    lastIndexOf(x, from) {
      if (isShort(this, SHORT)) {
        return arguments.length > 1 ? nativeLastIndexOf(this, x, from) : nativeLastIndexOf(this, x);
      }
      const o = toObject(this, "lastIndexOf");
      const length = toLength(o.length);
      if (length === 0) return -1;
      const n = arguments.length > 1 ? toInteger(from) : length - 1;
      for (let k = n >= 0 ? min(n, length - 1) : length + n; k >= 0; k--) {
        if (k in o && o[k] === x) return k + 0;
      }
      return -1;
    },
  });
  const nativeIncludes = uncurry(scans.includes);
  const nativeIndexOf = uncurry(scans.indexOf);
  const nativeLastIndexOf = uncurry(scans.lastIndexOf);

  // --- Array.prototype: with a callback (find and its kin are interruptible as they are) ---

  const walks = replace(ArrayPrototype, {
    forEach(f, self) {
      if (isShort(this, SHORT)) return nativeForEach(this, f, self);
      const o = toObject(this, "forEach");
      const length = toLength(o.length);
      toCallable(f);
      for (let k = 0; k < length; k++) if (k in o) apply(f, self, [o[k], k, o]);
    },
    map(f, self) {
      if (isShort(this, SHORT)) return nativeMap(this, f, self);
      const o = toObject(this, "map");
      const length = toLength(o.length);
      toCallable(f);
      const c = speciesOf(o);
      const a = speciesCreate(c, length);
      for (let k = 0; k < length; k++) {
        if (k in o) put(a, k, apply(f, self, [o[k], k, o]), c === undefined);
      }
      return a;
    },
    filter(f, self) {
      if (isShort(this, SHORT)) return nativeFilter(this, f, self);
      const o = toObject(this, "filter");
      const length = toLength(o.length);
      toCallable(f);
      const c = speciesOf(o);
      const a = speciesCreate(c, 0);
      let to = 0;
      for (let k = 0; k < length; k++) {
        if (!(k in o)) continue;
        const v = o[k];
        if (apply(f, self, [v, k, o])) put(a, to++, v, c === undefined);
      }
      return a;
    },
    some(f, self) {
      if (isShort(this, SHORT)) return nativeSome(this, f, self);
      const o = toObject(this, "some");
      const length = toLength(o.length);
      toCallable(f);
      for (let k = 0; k < length; k++) if (k in o && apply(f, self, [o[k], k, o])) return true;
      return false;
    },
    every(f, self) {
      if (isShort(this, SHORT)) return nativeEvery(this, f, self);
      const o = toObject(this, "every");
      const length = toLength(o.length);
      toCallable(f);
      for (let k = 0; k < length; k++) if (k in o && !apply(f, self, [o[k], k, o])) return false;
      return true;
    },
    reduce(f, initial) {
      const given = arguments.length > 1;
      if (isShort(this, SHORT))
        return given ? nativeReduce(this, f, initial) : nativeReduce(this, f);
      const o = toObject(this, "reduce");
      const length = toLength(o.length);
      toCallable(f);
      let k = 0;
      if (!given) while (k < length && !(k in o)) k++;
      if (!given && k >= length)
        throw new NativeTypeError("Reduce of empty array with no initial value");
      let sum = given ? initial : o[k++];
      for (; k < length; k++) if (k in o) sum = f(sum, o[k], k, o);
      return sum;
    },
    reduceRight(f, initial) {
      const given = arguments.length > 1;
      if (isShort(this, SHORT))
        return given ? nativeReduceRight(this, f, initial) : nativeReduceRight(this, f);
      const o = toObject(this, "reduceRight");
      const length = toLength(o.length);
      toCallable(f);
      let k = length - 1;
      if (!given) while (k >= 0 && !(k in o)) k--;
      if (!given && k < 0) throw new NativeTypeError("Reduce of empty array with no initial value");
      let sum = given ? initial : o[k--];
      for (; k >= 0; k--) if (k in o) sum = f(sum, o[k], k, o);
      return sum;
    },
  });
  const nativeForEach = uncurry(walks.forEach);
  const nativeMap = uncurry(walks.map);
  const nativeFilter = uncurry(walks.filter);
  const nativeSome = uncurry(walks.some);
  const nativeEvery = uncurry(walks.every);
  const nativeReduce = uncurry(walks.reduce);
  const nativeReduceRight = uncurry(walks.reduceRight);

  // --- Proxy, calls with an array-like of arguments ---

  replace(NativeProxy, {
    revocable(target, handler) {
      const pair = nativeRevocable(target, handler);
      new Mark(pair.proxy);
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

  // --- Array.prototype: moving and making ---

  const moves = replace(ArrayPrototype, {
    fill(value, from, to) {
      if (isShort(this, SHORT)) return nativeFill(this, value, from, to);
      const o = toObject(this, "fill");
      const length = toLength(o.length);
      const start = relative(from, length);
      const end = relativeEnd(to, length);
      for (let k = start; k < end; k++) o[k] = value;
      return o;
    },
    reverse() {
      if (isShort(this, SHORT)) return nativeReverse(this);
      const o = toObject(this, "reverse");
      const length = toLength(o.length);
      const middle = trunc(length / 2);
      for (let low = 0; low < middle; low++) {
        const high = length - 1 - low;
        const hasLow = low in o;
        const lowValue = hasLow ? o[low] : undefined;
        const hasHigh = high in o;
        const highValue = hasHigh ? o[high] : undefined;
        if (hasHigh) o[low] = highValue;
        else if (hasLow) delete o[low];
        if (hasLow) o[high] = lowValue;
        else if (hasHigh) delete o[high];
      }
      return o;
    },
    copyWithin(target, from, to) {
      if (isShort(this, SHORT)) return nativeCopyWithin(this, target, from, to);
      const o = toObject(this, "copyWithin");
      const length = toLength(o.length);
      const t = relative(target, length);
      const f = relative(from, length);
      const count = min(relativeEnd(to, length) - f, length - t);
      if (f < t && t < f + count) for (let k = count - 1; k >= 0; k--) move(o, f + k, t + k);
      else for (let k = 0; k < count; k++) move(o, f + k, t + k);
      return o;
    },
    shift() {
      if (isShort(this, SHORT)) return nativeShift(this);
      const o = toObject(this, "shift");
      const length = toLength(o.length);
      if (length === 0) {
        o.length = 0;
        return undefined;
      }
      const first = o[0];
      for (let k = 1; k < length; k++) move(o, k, k - 1);
      delete o[length - 1];
      o.length = length - 1;
      return first;
    },
    unshift(...items) {
      if (isShort(this, SHORT)) return apply(moves.unshift, this, items);
      const o = toObject(this, "unshift");
      const length = toLength(o.length);
      const count = items.length;
      if (count > 0) {
        if (length + count > MAX_LENGTH) throw new NativeTypeError("Invalid array length");
        for (let k = length - 1; k >= 0; k--) move(o, k, k + count);
        for (let j = 0; j < count; j++) o[j] = items[j];
      }
      o.length = length + count;
      return length + count;
    },
    slice(from, to) {
      if (isShort(this, SHORT)) return nativeSlice(this, from, to);
      const o = toObject(this, "slice");
      const length = toLength(o.length);
      const start = relative(from, length);
      const end = relativeEnd(to, length);
      const c = speciesOf(o);
      const a = speciesCreate(c, max(end - start, 0));
      let n = 0;
      for (let k = start; k < end; k++, n++) if (k in o) put(a, n, o[k], c === undefined);
      a.length = n;
      return a;
    },
    splice(from, remove, ...items) {
      if (isShort(this, SHORT)) return apply(moves.splice, this, arguments);
      const o = toObject(this, "splice");
      const length = toLength(o.length);
      const start = relative(from, length);
      const count = items.length;
      const given = arguments.length;
      const removed =
        given === 0
          ? 0
          : given === 1
            ? length - start
            : min(max(toInteger(remove), 0), length - start);
      if (length + count - removed > MAX_LENGTH) throw new NativeTypeError("Invalid array length");
      const c = speciesOf(o);
      const a = speciesCreate(c, removed);
      for (let k = 0; k < removed; k++)
        if (start + k in o) put(a, k, o[start + k], c === undefined);
      a.length = removed;
      if (count < removed) {
        for (let k = start; k < length - removed; k++) move(o, k + removed, k + count);
        for (let k = length - 1; k >= length - removed + count; k--) delete o[k];
      } else if (count > removed) {
        for (let k = length - removed - 1; k >= start; k--) move(o, k + removed, k + count);
      }
      for (let j = 0; j < count; j++) o[start + j] = items[j];
      o.length = length - removed + count;
      return a;
    },
    flat(depth) {
      const o = toObject(this, "flat");
      const length = toLength(o.length);
      let levels = depth === undefined ? 1 : toInteger(depth);
      if (levels < 0) levels = 0;
      const c = speciesOf(o);
      const a = speciesCreate(c, 0);
      flatten(a, o, length, 0, levels, c === undefined);
      return a;
    },
    flatMap(f, self) {
      const o = toObject(this, "flatMap");
      const length = toLength(o.length);
      if (typeof f !== "function")
        throw new NativeTypeError("flatMap mapper function is not callable");
      const c = speciesOf(o);
      const a = speciesCreate(c, 0);
      let n = 0;
      for (let k = 0; k < length; k++) {
        if (!(k in o)) continue;
        const v = apply(f, self, [o[k], k, o]);
        if (isArray(v)) n = flatten(a, v, toLength(v.length), n, 0, c === undefined);
        else put(a, n++, v, c === undefined);
      }
      return a;
    },
    // The native sort is interruptible when its comparison is JavaScript, and so is each comparison.
    // What it does not survive is a huge `length`: so others than Arrays are sorted as a list.
    sort(compare) {
      if (compare !== undefined && typeof compare !== "function") {
        throw new NativeTypeError("The comparison function must be either a function or undefined");
      }
      const order = compare === undefined ? compareText : (x, y) => compare(x, y);
      if (isArray(this) && !isProxy(this) && this.length <= SHORT) return nativeSort(this, order);
      const o = toObject(this, "sort");
      const length = toLength(o.length);
      if (length < 2) return o;
      const list = [];
      for (let k = 0; k < length; k++) if (k in o) put(list, list.length, o[k], true);
      nativeSort(list, order);
      const count = list.length;
      for (let k = 0; k < count; k++) o[k] = list[k];
      for (let k = count; k < length; k++) delete o[k];
      return o;
    },
  });
  const nativeFill = uncurry(moves.fill);
  const nativeReverse = uncurry(moves.reverse);
  const nativeCopyWithin = uncurry(moves.copyWithin);
  const nativeShift = uncurry(moves.shift);
  const nativeSlice = uncurry(moves.slice);
  const nativeSort = uncurry(moves.sort);

  function compareText(x, y) {
    const a = ToString(x);
    const b = ToString(y);
    return a < b ? -1 : a > b ? 1 : 0;
  }

  // FlattenIntoArray; returns the next free index of `a`.
  function flatten(a, o, length, n, depth, fresh) {
    for (let k = 0; k < length; k++) {
      if (!(k in o)) continue;
      const v = o[k];
      if (depth > 0 && isArray(v)) n = flatten(a, v, toLength(v.length), n, depth - 1, fresh);
      else put(a, n++, v, fresh);
    }
    return n;
  }

  globalThis.nighBuiltins = {
    __proto__: null,
    replace,
    uncurry,
    isShort,
    isProxy,
    put,
    define,
    ToString,
    toInteger,
    toLength,
    toCallable,
    construct,
    apply,
    SHORT,
    SHORT_TEXT,
    MAX_STRING,
  };
})();
