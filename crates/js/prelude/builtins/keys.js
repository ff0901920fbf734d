// Keys of objects; see operations.js for the two ways of each method, and the invariants.

"use strict";

(() => {
  const { replace, uncurry, isProxy, apply } = globalThis.nighBuiltins;

  // Most indices of a string or typed array whose keys are listed: V8 needs 0.1 µs for each, and aborts the
  // process where an array of them would be too long.
  const MAX_KEYS = 2 ** 18;

  const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { isArray } = Array;
  const { keys: objectKeys, prototype: ObjectPrototype } = Object;
  const NativeRangeError = RangeError;
  const { isView } = ArrayBuffer;
  const TypedArrayPrototype = getPrototypeOf(Uint8Array).prototype;
  const viewLength = uncurry(getOwnPropertyDescriptor(TypedArrayPrototype, "length").get);
  const brandOfView = uncurry(
    getOwnPropertyDescriptor(TypedArrayPrototype, Symbol.toStringTag).get,
  );

  const isTyped = (o) => isView(o) && brandOfView(o) !== undefined;

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

  const shared = globalThis.nighBuiltins;
  shared.objectKeys = objectKeys;
  shared.checkKeys = checkKeys;
  shared.isTyped = isTyped;
  shared.viewLength = viewLength;
})();
