// Typed arrays; see operations.js for the two ways of each method, and the invariants.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    toInteger,
    toLength,
    toCallable,
    construct,
    apply,
    toLocales,
    join,
    joinLocale,
    isTyped,
    viewLength,
    iterableBy,
    isConstructor,
    SHORT,
    SHORT_TEXT,
  } = globalThis.nighBuiltins;
  delete globalThis.nighBuiltins;

  // Most elements of a typed array that one native sort gets: below 20 ms.
  const SORT_RUN = 2 ** 17;

  const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { min } = Math;
  const { is } = Object;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const { iterator: iteratorSymbol } = Symbol;
  const ToObject = Object;
  const TypedArray = getPrototypeOf(Uint8Array);
  const TypedArrayPrototype = TypedArray.prototype;

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
