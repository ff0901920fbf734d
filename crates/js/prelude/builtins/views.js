// Typed arrays; see operations.js for the two ways of each method, and the invariants.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    toInteger,
    toLength,
    relative,
    relativeEnd,
    toCallable,
    construct,
    apply,
    toLocales,
    join,
    joinLocale,
    isTyped,
    viewLength,
    stoppableBy,
    isConstructor,
    SHORT,
    SHORT_TEXT,
  } = globalThis.nighBuiltins;
  delete globalThis.nighBuiltins;

  // Most elements for one native sort: below 20 ms.
  const SORT_RUN = 2 ** 17;
  // Most elements for any other native method: below 5 ms, fresh pages included.
  const PIECE = 2 ** 20;

  const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { min, max } = Math;
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
  const NativeArrayBuffer = ArrayBuffer;
  const bufferLength = uncurry(
    getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get,
  );
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

  // --- Long typed arrays, in pieces ---

  const isLong = (v) => isTyped(v) && viewLength(v) > PIECE;
  const kindOf = (view) => kinds[viewName(view)];
  // Elements `from` to `from + count` of a view.
  function part(view, from, count) {
    const Kind = kindOf(view);
    const at = viewOffset(view) + from * Kind.BYTES_PER_ELEMENT;
    return new Kind(viewBuffer(view), at, count);
  }
  function fillLong(view, value, from, to) {
    const one = new (kindOf(view))(1);
    nativeFill(one, value); // converts it once
    const length = viewLength(view);
    const start = relative(from, length);
    const end = relativeEnd(to, length);
    for (let k = start; k < end; k += PIECE) nativeFill(view, one[0], k, min(k + PIECE, end));
    return view;
  }
  // The first index from `from` on that `native` finds, which tells a place or whether there is one.
  // For the latter, the result is the first index of its piece.
  function findLong(view, x, from, native) {
    const length = viewLength(view);
    for (let k = relative(from, length); k < length; k += PIECE) {
      const found = native(part(view, k, min(PIECE, length - k)), x);
      // `false >= 0` is true.
      if (found === true || (found !== false && found >= 0)) return k + +found;
    }
    return -1;
  }
  function findLastLong(view, x, last) {
    for (let end = last + 1; end > 0; end -= PIECE) {
      const start = max(end - PIECE, 0);
      const found = nativeLastIndexOf(part(view, start, end - start), x);
      if (found >= 0) return start + found;
    }
    return -1;
  }
  function reverseLong(view) {
    for (let low = 0, high = viewLength(view) - 1; low < high; low++, high--) {
      const v = view[low];
      view[low] = view[high];
      view[high] = v;
    }
    return view;
  }
  // Copies `count` elements in an order in which none is overwritten before it is copied.
  function moveLong(view, to, from, count) {
    if (from < to && to < from + count) {
      for (let end = count; end > 0; end -= PIECE) {
        const start = max(end - PIECE, 0);
        nativeCopyWithin(view, to + start, from + start, from + end);
      }
    } else {
      for (let k = 0; k < count; k += PIECE) {
        nativeCopyWithin(view, to + k, from + k, from + min(k + PIECE, count));
      }
    }
    return view;
  }
  function copyLong(target, at, source, from, count) {
    for (let k = 0; k < count; k += PIECE) {
      nativeSet(target, part(source, from + k, min(PIECE, count - k)), at + k);
    }
    return target;
  }
  function sliceLong(view, from, count) {
    return copyLong(new (kindOf(view))(count), 0, view, from, count);
  }
  // The callback for a native walk over a long view. It is always JavaScript: V8 looks for a stop
  // only there.
  const stoppable = (view, f) =>
    typeof f === "function" && isLong(view)
      ? function (v, k, o) {
          return apply(f, this, [v, k, o]);
        }
      : f;
  function walks(names) {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const native = uncurry(TypedArrayPrototype[name]);
      replace(TypedArrayPrototype, {
        [name](f, self) {
          return native(this, stoppable(this, f), self);
        },
      });
    }
  }
  walks(["forEach", "map", "filter", "some", "every", "find", "findIndex"]);

  const pieces = replace(TypedArrayPrototype, {
    fill(value, from, to) {
      return isLong(this) ? fillLong(this, value, from, to) : nativeFill(this, value, from, to);
    },
    indexOf(x, from) {
      return isLong(this)
        ? findLong(this, x, from, nativeIndexOf)
        : nativeIndexOf(this, x, from);
    },
    includes(x, from) {
      return isLong(this)
        ? findLong(this, x, from, nativeIncludes) >= 0
        : nativeIncludes(this, x, from);
    },
    lastIndexOf(x, from) {
      const given = arguments.length > 1;
      if (!isLong(this))
        return given ? nativeLastIndexOf(this, x, from) : nativeLastIndexOf(this, x);
      const length = viewLength(this);
      const n = given ? toInteger(from) : length - 1;
      return findLastLong(this, x, n >= 0 ? min(n, length - 1) : length + n);
    },
    reverse() {
      return isLong(this) ? reverseLong(this) : nativeReverse(this);
    },
    copyWithin(target, from, to) {
      if (!isLong(this)) return nativeCopyWithin(this, target, from, to);
      const length = viewLength(this);
      const at = relative(target, length);
      const start = relative(from, length);
      const count = min(relativeEnd(to, length) - start, length - at);
      return moveLong(this, at, start, count);
    },
    slice(from, to) {
      if (!isLong(this)) return nativeSlice(this, from, to);
      const length = viewLength(this);
      const start = relative(from, length);
      const end = relativeEnd(to, length);
      const count = end - start;
      // The class that the user has set instead of the view's own makes the result.
      if (count <= PIECE || this.constructor !== kindOf(this))
        return nativeSlice(this, start, end);
      return sliceLong(this, start, count);
    },
  });
  const nativeFill = uncurry(pieces.fill);
  const nativeIndexOf = uncurry(pieces.indexOf);
  const nativeIncludes = uncurry(pieces.includes);
  const nativeLastIndexOf = uncurry(pieces.lastIndexOf);
  const nativeReverse = uncurry(pieces.reverse);
  const nativeCopyWithin = uncurry(pieces.copyWithin);
  const nativeSlice = uncurry(pieces.slice);

  const buffers = replace(NativeArrayBuffer.prototype, {
    slice(from, to) {
      const length = bufferLength(this);
      const start = relative(from, length);
      const end = relativeEnd(to, length);
      if (end - start <= PIECE || this.constructor !== NativeArrayBuffer)
        return nativeSliceBuffer(this, start, end);
      const bytes = new kinds.Uint8Array(end - start);
      copyLong(bytes, 0, new kinds.Uint8Array(this, start, end - start), 0, end - start);
      return viewBuffer(bytes);
    },
  });
  const nativeSliceBuffer = uncurry(buffers.slice);

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
      if (isLong(source) && isTyped(this)) return setLong(this, source, toInteger(offset));
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

  function setLong(view, source, at) {
    const count = viewLength(source);
    if (at < 0 || at + count > viewLength(view))
      throw new NativeRangeError("offset is out of bounds");
    // In one buffer, the copy could overwrite elements of the source before it reads them.
    const shared = viewBuffer(view) === viewBuffer(source);
    copyLong(view, at, shared ? sliceLong(source, 0, count) : source, 0, count);
  }

  const kindsFrom = replace(TypedArray, {
    from(source, map, self) {
      if (!isConstructor(this)) throw new NativeTypeError("this is not a constructor");
      if (map !== undefined) toCallable(map);
      const method = source[iteratorSymbol];
      if (method !== undefined && method !== null) {
        return nativeViewFrom(this, stoppableBy(source, toCallable(method)), map, self);
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
