// Builtins on JSON, typed arrays, iterables and keys that V8 cannot interrupt; see arrays.js for the
// two ways of each method, and the invariants.

"use strict";

(() => {
  const {
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
    toLocales,
    join,
    joinLocale,
    slice,
    unitAt,
    isTyped,
    viewLength,
    SHORT,
    SHORT_TEXT,
  } = globalThis.nighBuiltins;
  delete globalThis.nighBuiltins;

  // Longest JSON text (UTF-16 units) that goes to the native parser: below 50 ms at the slowest, which is
  // deep nesting.
  const SHORT_JSON = 2 ** 17;
  // A part of a long text goes to the native parser if it ends within so many units.
  const JSON_PART = 2 ** 14;
  // Most indices of a string or typed array whose keys are listed: V8 needs 0.1 µs for each, and aborts the
  // process where an array of them would be too long.
  const MAX_KEYS = 2 ** 18;
  // Most elements of a typed array that one native sort gets: below 20 ms.
  const SORT_RUN = 2 ** 17;

  const { getOwnPropertyDescriptor, getPrototypeOf, defineProperty, deleteProperty } = Reflect;
  const { isArray } = Array;
  const { keys: objectKeys, prototype: ObjectPrototype } = Object;
  const { min } = Math;
  const { is } = Object;
  const NativeArray = Array;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const NativeSyntaxError = SyntaxError;
  const { iterator: iteratorSymbol } = Symbol;
  const ToObject = Object;
  const TypedArray = getPrototypeOf(Uint8Array);
  const TypedArrayPrototype = TypedArray.prototype;

  // --- JSON.parse ---

  const nativeParse = JSON.parse;
  const nativeStringify = JSON.stringify;

  const bad = (s, at) =>
    at >= s.length
      ? new NativeSyntaxError("Unexpected end of JSON input")
      : new NativeSyntaxError(`Unexpected token ${s[at]} in JSON at position ${at}`);
  const isSpace = (u) => u === 0x20 || u === 0x0a || u === 0x0d || u === 0x09;
  function skipSpace(s, at) {
    while (at < s.length && isSpace(unitAt(s, at))) at++;
    return at;
  }
  // The place after the string that begins at `at`.
  function endOfString(s, at) {
    for (let k = at + 1; k < s.length; k++) {
      const u = unitAt(s, k);
      if (u === 0x5c) k++;
      else if (u === 0x22) return k + 1;
    }
    throw bad(s, s.length);
  }
  // The place after the array or object that begins at `at`, or -1 if that is not near.
  function endOfPart(s, at) {
    const limit = min(s.length, at + JSON_PART);
    let depth = 0;
    for (let k = at; k < limit; k++) {
      const u = unitAt(s, k);
      if (u === 0x22) {
        for (k++; k < limit && unitAt(s, k) !== 0x22; k++) if (unitAt(s, k) === 0x5c) k++;
      } else if (u === 0x5b || u === 0x7b) depth++;
      else if ((u === 0x5d || u === 0x7d) && --depth === 0) return k + 1;
    }
    return -1;
  }
  function leaf(s, at, end) {
    try {
      return nativeParse(slice(s, at, end));
    } catch (error) {
      throw new NativeSyntaxError(`Unexpected token in JSON between position ${at} and ${end}`);
    }
  }
  // A long string is decoded in pieces, cut between escapes.
  function parseString(s, at, end) {
    if (end - at <= SHORT_JSON) return leaf(s, at, end);
    let text = "";
    let from = at + 1;
    for (let k = from; k < end; k++) {
      if (k - from >= SHORT_JSON || k === end - 1) {
        text += nativeParse(`"${slice(s, from, k)}"`);
        from = k;
      }
      if (unitAt(s, k) === 0x5c) k += unitAt(s, k + 1) === 0x75 ? 5 : 1;
    }
    return text;
  }
  function endOfScalar(s, at) {
    let k = at;
    for (; k < s.length; k++) {
      const u = unitAt(s, k);
      if (u === 0x2c || u === 0x5d || u === 0x7d || isSpace(u)) break;
    }
    return k;
  }
  function addMember(o, key, value) {
    if (key in ObjectPrototype) define(o, key, value);
    else o[key] = value;
  }
  // Iterative, as the native one: depth costs heap, not stack.
  function parseLong(s) {
    let container; // innermost open array or object
    let parents; // linked list of {container, key, parents}
    let key; // of the member that comes next, if the container is an object
    let at = skipSpace(s, 0);
    for (;;) {
      // A value begins here.
      const u = unitAt(s, at);
      let value;
      if (u === 0x5b || u === 0x7b) {
        const end = endOfPart(s, at);
        if (end < 0) {
          parents = { __proto__: null, container, key, parents };
          container = u === 0x5b ? [] : {};
          at = skipSpace(s, at + 1);
          const close = unitAt(s, at);
          if (!(u === 0x5b ? close === 0x5d : close === 0x7d)) {
            if (u === 0x7b) {
              const member = memberKey(s, at);
              key = member.key;
              at = member.at;
            }
            continue;
          }
          value = container;
          ({ container, key, parents } = parents);
          at++;
        } else {
          value = leaf(s, at, end);
          at = end;
        }
      } else {
        const end = u === 0x22 ? endOfString(s, at) : endOfScalar(s, at);
        if (end === at) throw bad(s, at);
        value = u === 0x22 ? parseString(s, at, end) : leaf(s, at, end);
        at = end;
      }
      // It ends here: so may the containers around it.
      for (;;) {
        at = skipSpace(s, at);
        if (container === undefined) {
          if (at < s.length) throw bad(s, at);
          return value;
        }
        const array = isArray(container);
        if (array) put(container, container.length, value, true);
        else addMember(container, key, value);
        const next = unitAt(s, at);
        if (next === 0x2c) {
          at = skipSpace(s, at + 1);
          if (!array) {
            const member = memberKey(s, at);
            key = member.key;
            at = member.at;
          }
          break;
        }
        if (next !== (array ? 0x5d : 0x7d)) throw bad(s, at);
        value = container;
        ({ container, key, parents } = parents);
        at++;
      }
    }
  }
  function memberKey(s, at) {
    if (unitAt(s, at) !== 0x22) throw bad(s, at);
    const end = endOfString(s, at);
    const colon = skipSpace(s, end);
    if (unitAt(s, colon) !== 0x3a) throw bad(s, colon);
    return { __proto__: null, key: parseString(s, at, end), at: skipSpace(s, colon + 1) };
  }

  // InternalizeJSONProperty
  function revive(holder, name, reviver) {
    const v = holder[name];
    if (typeof v === "object" && v !== null) {
      if (isArray(v)) {
        const length = toLength(v.length);
        for (let k = 0; k < length; k++) reviveMember(v, ToString(k), reviver);
      } else {
        const names = objectKeys(v);
        for (let k = 0; k < names.length; k++) reviveMember(v, names[k], reviver);
      }
    }
    return apply(reviver, holder, [name, v]);
  }
  function reviveMember(o, name, reviver) {
    const v = revive(o, name, reviver);
    if (v === undefined) deleteProperty(o, name);
    else {
      defineProperty(o, name, {
        __proto__: null,
        value: v,
        writable: true,
        enumerable: true,
        configurable: true,
      });
    }
  }

  replace(JSON, {
    parse(text, reviver) {
      const s = ToString(text);
      if (s.length <= SHORT_JSON) return nativeParse(s, reviver);
      const v = parseLong(s);
      return typeof reviver === "function" ? revive({ "": v }, "", reviver) : v;
    },
    // The native one is interruptible but for a long list of names.
    stringify(value, replacer, space) {
      if (typeof value === "object") checkKeys(value, "JSON.stringify");
      if (!isArray(replacer) || isShort(replacer, SHORT))
        return nativeStringify(value, replacer, space);
      const length = toLength(replacer.length);
      const list = [];
      for (let k = 0; k < length; k++) {
        const v = replacer[k];
        if (v !== undefined && v !== null) put(list, list.length, v, true);
      }
      return nativeStringify(value, list, space);
    },
  });

  // --- Keys of what has millions of indices ---

  const hasOwn = uncurry(ObjectPrototype.hasOwnProperty);
  const stringOf = uncurry(String.prototype.valueOf);
  // Indices of a string, String object or typed array.
  function indicesOf(o) {
    if (typeof o === "string") return o.length;
    if (typeof o !== "object" || o === null || isArray(o) || isProxy(o)) return 0;
    if (isTyped(o)) return viewLength(o);
    if (!hasOwn(o, "length")) return 0;
    try {
      return stringOf(o).length;
    } catch {
      return 0;
    }
  }
  function checkKeys(o, name) {
    if (indicesOf(o) > MAX_KEYS)
      throw new NativeRangeError(`${name}: more than ${MAX_KEYS} indices`);
  }
  function guardKeys(owner, names, label) {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const native = owner[name];
      const text = `${label}.${name}`;
      replace(owner, {
        [name](o) {
          checkKeys(o, text);
          return native(o);
        },
      });
    }
  }
  guardKeys(
    Object,
    ["keys", "values", "entries", "getOwnPropertyNames", "getOwnPropertyDescriptors"],
    "Object",
  );
  guardKeys(Reflect, ["ownKeys"], "Reflect");
  const nativeAssign = Object.assign;
  replace(Object, {
    assign(target, ...sources) {
      for (let i = 0; i < sources.length; i++) checkKeys(sources[i], "Object.assign");
      return apply(nativeAssign, undefined, arguments);
    },
  });

  // --- Iterables ---

  // Native consumers are interruptible while they iterate; this only asks for the method once.
  const iterableBy = (iterable, method) => ({
    __proto__: null,
    [iteratorSymbol]: () => apply(method, iterable, []),
  });
  const iterableOf = (iterable) => iterableBy(iterable, iteratorMethod(iterable));
  const iteratorMethod = (iterable) => {
    const method = iterable[iteratorSymbol];
    if (typeof method !== "function") throw new NativeTypeError("object is not iterable");
    return method;
  };

  const isConstructor = (c) => {
    if (typeof c !== "function") return false;
    try {
      construct(NativeObject, [], c);
      return true;
    } catch {
      return false;
    }
  };
  const NativeObject = function () {};

  const arrays = replace(Array, {
    from(items, map, self) {
      if (this === NativeArray && isShort(items, SHORT_TEXT)) {
        return map === undefined ? nativeFrom(this, items) : nativeFrom(this, items, map, self);
      }
      if (map !== undefined) toCallable(map);
      const made = this === NativeArray || !isConstructor(this) ? undefined : this;
      const method = items[iteratorSymbol];
      if (method !== undefined && method !== null) {
        return nativeFrom(this, iterableBy(items, toCallable(method)), map, self);
      }
      const o = ToObject(items);
      const length = toLength(o.length);
      if (made === undefined && length > 2 ** 32 - 1)
        throw new NativeRangeError("Invalid array length");
      const a = made === undefined ? [] : construct(made, [length]);
      for (let k = 0; k < length; k++) {
        put(a, k, map === undefined ? o[k] : apply(map, self, [o[k], k]), made === undefined);
      }
      a.length = length;
      return a;
    },
  });
  const nativeFrom = uncurry(arrays.from);

  // V8's own Promise.all takes quadratic time. Only short Arrays go to it.
  const SHORT_PROMISES = 2 ** 9;
  const promises = replace(Promise, {
    all(iterable) {
      if (isShort(iterable, SHORT_PROMISES)) return apply(promises.all, this, [iterable]);
      return combine(this, iterable, (next, then, reject) =>
        apply(then, next.promise, [next.resolve((v) => v), reject]),
      );
    },
    allSettled(iterable) {
      if (isShort(iterable, SHORT_PROMISES)) return apply(promises.allSettled, this, [iterable]);
      return combine(this, iterable, (next, then) =>
        apply(then, next.promise, [
          next.resolve((value) => ({ status: "fulfilled", value })),
          next.resolve((reason) => ({ status: "rejected", reason })),
        ]),
      );
    },
  });

  // Subscribes to each promise of `iterable`; resolves to the list of what they became.
  function combine(C, iterable, subscribe) {
    const { promise, resolve, reject } = capability(C);
    try {
      const promiseResolve = toCallable(C.resolve);
      const values = [];
      let remaining = 1;
      const settle = () => {
        if (--remaining === 0) apply(resolve, undefined, [values]);
      };
      for (const v of iterableOf(iterable)) {
        const index = values.length;
        put(values, index, undefined, true);
        const next = apply(promiseResolve, C, [v]);
        let called = false;
        const once = (what) => (x) => {
          if (called) return undefined;
          called = true;
          define(values, index, what(x));
          return settle();
        };
        remaining++;
        subscribe({ __proto__: null, promise: next, resolve: once }, next.then, reject);
      }
      settle();
    } catch (error) {
      apply(reject, undefined, [error]);
    }
    return promise;
  }
  function capability(C) {
    if (!isConstructor(C))
      throw new NativeTypeError("Promise resolve or reject function is not callable");
    let resolve;
    let reject;
    const promise = construct(C, [
      (yes, no) => {
        if (resolve !== undefined || reject !== undefined)
          throw new NativeTypeError("Promise executor has already been invoked");
        resolve = yes;
        reject = no;
      },
    ]);
    toCallable(resolve);
    toCallable(reject);
    return { __proto__: null, promise, resolve, reject };
  }

  // --- Typed arrays ---

  const getterOf = (name) => uncurry(getOwnPropertyDescriptor(TypedArrayPrototype, name).get);
  const viewBuffer = getterOf("buffer");
  const viewOffset = getterOf("byteOffset");
  const viewName = getterOf(Symbol.toStringTag);
  const kinds = {
    __proto__: null,
    Int8Array,
    Uint8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
    BigInt64Array,
    BigUint64Array,
  };
  const Counts = Uint32Array;
  const toView = (v) => {
    if (!isTyped(v)) throw new NativeTypeError("this is not a typed array.");
    return viewLength(v);
  };

  // Sorts runs natively, then merges them pairwise.
  function sortView(view, length) {
    const Kind = kinds[viewName(view)];
    const buffer = viewBuffer(view);
    const offset = viewOffset(view);
    const width = Kind.BYTES_PER_ELEMENT;
    if (width <= 2) return countingSort(view, length, Kind, width);
    for (let k = 0; k < length; k += SORT_RUN) {
      nativeSortView(new Kind(buffer, offset + k * width, min(SORT_RUN, length - k)));
    }
    let from = view;
    let to = new Kind(length);
    for (let run = SORT_RUN; run < length; run *= 2) {
      for (let k = 0; k < length; k += 2 * run) {
        mergeRuns(from, to, k, min(k + run, length), min(k + 2 * run, length));
      }
      const swap = from;
      from = to;
      to = swap;
    }
    if (from !== view) for (let k = 0; k < length; k++) view[k] = from[k];
    return view;
  }
  // -0 before 0, NaN last.
  const comesBefore = (x, y) =>
    x < y || (y !== y && x === x) || (x === 0 && y === 0 && is(x, -0) && is(y, 0));
  function mergeRuns(from, to, start, middle, end) {
    let left = start;
    let right = middle;
    for (let k = start; k < end; k++) {
      if (left < middle && (right >= end || !comesBefore(from[right], from[left])))
        to[k] = from[left++];
      else to[k] = from[right++];
    }
  }
  function countingSort(view, length, Kind, width) {
    const low = Kind === kinds.Int8Array ? -128 : Kind === kinds.Int16Array ? -32768 : 0;
    const span = width === 1 ? 256 : 65536;
    const counts = new Counts(span);
    for (let k = 0; k < length; k++) counts[view[k] - low]++;
    let at = 0;
    for (let v = 0; v < span; v++) for (let n = counts[v]; n > 0; n--) view[at++] = v + low;
    return view;
  }

  const views = replace(TypedArrayPrototype, {
    sort(compare) {
      if (compare !== undefined && typeof compare !== "function") {
        throw new NativeTypeError("The comparison function must be either a function or undefined");
      }
      const length = toView(this);
      if (compare !== undefined) {
        if (length > 2 ** 25)
          throw new NativeRangeError("sort: over 33554432 elements with a comparison");
        return nativeSortView(this, (x, y) => compare(x, y));
      }
      return length <= SORT_RUN ? nativeSortView(this) : sortView(this, length);
    },
    join(separator) {
      const length = toView(this);
      return length <= SHORT_TEXT ? nativeJoinView(this, separator) : join(this, length, separator);
    },
    toLocaleString(locales, options) {
      return joinLocale(this, toView(this), toLocales(locales), options);
    },
    reduce(f, initial) {
      toView(this);
      toCallable(f);
      const step = (sum, v, k, o) => f(sum, v, k, o);
      return arguments.length > 1 ? nativeReduce(this, step, initial) : nativeReduce(this, step);
    },
    reduceRight(f, initial) {
      toView(this);
      toCallable(f);
      const step = (sum, v, k, o) => f(sum, v, k, o);
      return arguments.length > 1
        ? nativeReduceRight(this, step, initial)
        : nativeReduceRight(this, step);
    },
    set(source, offset) {
      if (
        typeof source !== "object" ||
        source === null ||
        isTyped(source) ||
        isShort(source, SHORT)
      ) {
        return nativeSet(this, source, offset);
      }
      const length = toView(this);
      const start = toInteger(offset);
      const count = toLength(source.length);
      if (start < 0 || start + count > length)
        throw new NativeRangeError("offset is out of bounds");
      for (let k = 0; k < count; k++) this[start + k] = source[k];
    },
  });
  const nativeSortView = uncurry(views.sort);
  const nativeJoinView = uncurry(views.join);
  const nativeReduce = uncurry(views.reduce);
  const nativeReduceRight = uncurry(views.reduceRight);
  const nativeSet = uncurry(views.set);

  const kindsFrom = replace(TypedArray, {
    from(source, map, self) {
      if (!isConstructor(this)) throw new NativeTypeError("this is not a constructor");
      if (map !== undefined) toCallable(map);
      const method = source[iteratorSymbol];
      if (method !== undefined && method !== null) {
        return nativeViewFrom(this, iterableBy(source, toCallable(method)), map, self);
      }
      const o = ToObject(source);
      const length = toLength(o.length);
      const view = construct(this, [length]);
      if (toView(view) < length) throw new NativeTypeError("the typed array made is too small");
      for (let k = 0; k < length; k++)
        view[k] = map === undefined ? o[k] : apply(map, self, [o[k], k]);
      return view;
    },
  });
  const nativeViewFrom = uncurry(kindsFrom.from);
})();
