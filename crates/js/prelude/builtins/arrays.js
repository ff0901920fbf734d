// Methods of arrays; see operations.js for the two ways of each, and the invariants.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    isProxy,
    put,
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
    apply,
    SHORT,
    MAX_LENGTH,
  } = globalThis.nighBuiltins;

  const { isArray, prototype: ArrayPrototype } = Array;
  const { trunc, max, min } = Math;
  const NativeTypeError = TypeError;
  const { isConcatSpreadable } = Symbol;

  // Most elements, of all Arrays together, for the native concat, which copies in blocks.
  const CONCAT_SHORT = 2 ** 19;

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
      if (c === undefined) a.length = length;
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
    concat(...items) {
      if (isSmall(this, items)) return apply(moves.concat, this, items);
      const o = toObject(this, "concat");
      const c = speciesOf(o);
      const a = speciesCreate(c, 0);
      let n = append(a, 0, o, c === undefined);
      for (let i = 0; i < items.length; i++) n = append(a, n, items[i], c === undefined);
      a.length = n;
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
    // The native sort is interruptible if its comparison is JavaScript, as each of these is. But it
    // can't be stopped over a huge `length`. So objects other than Arrays are sorted as a list.
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
  // Whether the operands of concat are surely short: Arrays and primitives, which run no user code.
  function isSmall(self, items) {
    if (!isArray(self) || isProxy(self)) return false;
    let count = self.length;
    for (let i = 0; i < items.length; i++) {
      const item = items[i];
      if ((typeof item !== "object" && typeof item !== "function") || item === null) continue;
      if (!isArray(item) || isProxy(item)) return false;
      count += item.length;
    }
    return count <= CONCAT_SHORT;
  }
  // One argument of concat; returns the next free index of `a`.
  function append(a, n, item, fresh) {
    if ((typeof item === "object" && item !== null) || typeof item === "function") {
      const spreadable = item[isConcatSpreadable];
      if (spreadable === undefined ? isArray(item) : spreadable) {
        const length = toLength(item.length);
        if (n + length > MAX_LENGTH) throw new NativeTypeError("Invalid array length");
        for (let k = 0; k < length; k++) if (k in item) put(a, n + k, item[k], fresh);
        return n + length;
      }
    }
    if (n >= MAX_LENGTH) throw new NativeTypeError("Invalid array length");
    put(a, n, item, fresh);
    return n + 1;
  }
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
})();
