// Methods that consume iterables; see operations.js for the two ways of each, and the invariants.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    put,
    define,
    toLength,
    toCallable,
    construct,
    apply,
    defineProperty,
    SHORT_TEXT,
  } = globalThis.nighBuiltins;

  const { setPrototypeOf } = Reflect;
  const NativeArray = Array;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const { iterator: iteratorSymbol } = Symbol;
  const ToObject = Object;

  // --- Iterables ---

  // This takes the method once.
  const iterableBy = (iterable, method) => ({
    __proto__: null,
    [iteratorSymbol]: () => apply(method, iterable, []),
  });
  // The same for a native consumer, which is interruptible only if each step enters JavaScript: the
  // user's `next` may be native too.
  const stoppableBy = (iterable, method) => ({
    __proto__: null,
    [iteratorSymbol]: () => stoppable(apply(method, iterable, [])),
  });
  function stoppable(iterator) {
    if ((typeof iterator !== "object" || iterator === null) && typeof iterator !== "function") {
      return iterator; // the consumer refuses it
    }
    const next = iterator.next;
    return {
      __proto__: null,
      next: () => apply(next, iterator, []),
      get return() {
        const close = iterator.return;
        if (close === undefined || close === null) return undefined;
        return () => apply(close, iterator, []);
      },
    };
  }
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
        return nativeFrom(this, stoppableBy(items, toCallable(method)), map, self);
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

  // V8's own Promise.all takes quadratic time, so only short Arrays go to it.
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

  // Subscribes to each promise of `iterable`. Returns a promise of the list of their outcomes.
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

  // --- AggregateError: V8 lists the characters of a string in one go ---

  const NativeAggregateError = AggregateError;
  const CheckedAggregateError = function AggregateError(errors, message, options) {
    const list = [];
    for (const error of iterableOf(errors)) put(list, list.length, error, true);
    const target = new.target === undefined ? CheckedAggregateError : new.target;
    return construct(NativeAggregateError, [list, message, options], target);
  };
  const attributes = (value) => ({ __proto__: null, value, writable: true, enumerable: false });
  setPrototypeOf(CheckedAggregateError, Error);
  defineProperty(CheckedAggregateError, "length", { __proto__: null, value: 2 });
  defineProperty(CheckedAggregateError, "prototype", {
    __proto__: null,
    value: NativeAggregateError.prototype,
    writable: false,
  });
  defineProperty(
    NativeAggregateError.prototype,
    "constructor",
    attributes(CheckedAggregateError),
  );
  defineProperty(globalThis, "AggregateError", attributes(CheckedAggregateError));

  const shared = globalThis.nighBuiltins;
  shared.stoppableBy = stoppableBy;
  shared.isConstructor = isConstructor;
})();
