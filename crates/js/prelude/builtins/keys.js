// Keys of objects, and the attributes of properties; see operations.js for the two ways of each
// method, and the invariants.
//
// Here the second way is an error. A list of millions of keys has no use. V8 makes it in one step,
// of 0.1 to 0.4 µs and some 100 bytes a key, and ends the process beyond its longest array.

"use strict";

(() => {
  const { replace, uncurry, isProxy, targetOf, define, apply, SHORT, SHORT_TEXT } =
    globalThis.nighBuiltins;

  // Most indices of an Array, a string or a typed array whose keys may be listed: below 10 ms for
  // the keys alone, 50 ms with their descriptors.
  const MAX_KEYS = 2 ** 17;

  const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
  const { isArray, prototype: ArrayPrototype } = Array;
  const { keys: objectKeys, prototype: ObjectPrototype } = Object;
  const NativeRangeError = RangeError;
  const NativeTypeError = TypeError;
  const { iterator: iteratorSymbol } = Symbol;
  const { isView } = ArrayBuffer;
  const nativeValues = ArrayPrototype.values;
  const TypedArrayPrototype = getPrototypeOf(Uint8Array).prototype;
  const viewLength = uncurry(getOwnPropertyDescriptor(TypedArrayPrototype, "length").get);
  const brandOfView = uncurry(
    getOwnPropertyDescriptor(TypedArrayPrototype, Symbol.toStringTag).get,
  );

  const isTyped = (o) => isView(o) && brandOfView(o) !== undefined;
  const isObject = (o) => (typeof o === "object" && o !== null) || typeof o === "function";

  // --- Lists of keys ---

  const hasOwn = uncurry(ObjectPrototype.hasOwnProperty);
  const stringOf = uncurry(String.prototype.valueOf);
  // The number of indices of an Array, a string, a String object, a typed array, or a proxy of
  // these.
  function indicesOf(v) {
    if (typeof v === "string") return v.length;
    if (typeof v !== "object" || v === null) return 0;
    const o = targetOf(v);
    if (isArray(o)) return o.length;
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
  // Makes each of these functions of `owner` call `check(o, label)` first.
  function guardEach(owner, names, label, check) {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const native = owner[name];
      const text = `${label}.${name}`;
      replace(owner, {
        [name](o) {
          check(o, text);
          return native(o);
        },
      });
    }
  }
  guardEach(
    Object,
    ["keys", "values", "entries", "getOwnPropertyNames", "getOwnPropertyDescriptors"],
    "Object",
    checkKeys,
  );
  guardEach(Reflect, ["ownKeys"], "Reflect", checkKeys);

  // JSON.stringify looks for toJSON in each object of a value, nested ones too.
  const { toJSON } = {
    toJSON() {
      checkKeys(this, "JSON.stringify: a typed array");
      return this;
    },
  };
  defineProperty(TypedArrayPrototype, "toJSON", {
    __proto__: null,
    value: toJSON,
    writable: true,
    enumerable: false,
    configurable: true,
  });

  // --- Attributes: an unusual one makes V8 move all elements into a hash table, in one step ---

  // Whether an object may have millions of elements. V8 tells the number for Arrays only. Another
  // object that has the element SHORT was mostly filled from 0 on.
  function isLong(v) {
    if (typeof v !== "object" || v === null) return false;
    const o = targetOf(v);
    if (isArray(o)) return o.length > SHORT;
    return !isView(o) && hasOwn(o, SHORT);
  }
  function tooLong(name) {
    return new NativeRangeError(`${name}: an object of more than ${SHORT} elements`);
  }
  // Names and symbols may be defined on a long object too; elements and `length` may not.
  function checkDefine(o, key, name) {
    if (!isLong(o)) return key;
    const known = isObject(key) ? ownKeys({ __proto__: null, [key]: 0 })[0] : key;
    if (typeof known === "symbol") return known;
    const text = `${known}`;
    if (text === "length" || (text >= "0" && text < ":")) throw tooLong(name);
    return text;
  }
  const defining = replace(Object, {
    assign(target, ...sources) {
      for (let i = 0; i < sources.length; i++) checkKeys(sources[i], "Object.assign");
      return apply(defining.assign, undefined, arguments);
    },
    defineProperty(o, key, attributes) {
      return defining.defineProperty(
        o,
        checkDefine(o, key, "Object.defineProperty"),
        attributes,
      );
    },
    defineProperties(o, properties) {
      checkKeys(properties, "Object.defineProperties");
      if (isLong(o)) throw tooLong("Object.defineProperties");
      return defining.defineProperties(o, properties);
    },
    create(prototype, properties) {
      checkKeys(properties, "Object.create");
      return defining.create(prototype, properties);
    },
    // Entry by entry, since nothing stops the native one on a long Array.
    fromEntries(iterable) {
      if (
        !isObject(iterable) ||
        isProxy(iterable) ||
        !isArray(iterable) ||
        iterable.length <= SHORT_TEXT ||
        iterable[iteratorSymbol] !== nativeValues
      ) {
        return defining.fromEntries(iterable);
      }
      const made = {};
      for (let k = 0; k < iterable.length; k++) {
        const entry = iterable[k];
        if (!isObject(entry)) throw new NativeTypeError("Iterator value is not an entry object");
        const key = entry[0];
        define(made, key, entry[1]);
      }
      return made;
    },
  });
  const reflecting = replace(Reflect, {
    defineProperty(o, key, attributes) {
      return reflecting.defineProperty(
        o,
        checkDefine(o, key, "Reflect.defineProperty"),
        attributes,
      );
    },
  });
  const accessors = replace(ObjectPrototype, {
    __defineGetter__(key, get) {
      return apply(accessors.__defineGetter__, this, [
        checkDefine(this, key, "__defineGetter__"),
        get,
      ]);
    },
    __defineSetter__(key, set) {
      return apply(accessors.__defineSetter__, this, [
        checkDefine(this, key, "__defineSetter__"),
        set,
      ]);
    },
  });
  // An Array takes these attributes without a hash table.
  function checkFreeze(o, name) {
    if (isLong(o) && (isProxy(o) || !isArray(o))) throw tooLong(name);
  }
  guardEach(Object, ["freeze", "seal", "preventExtensions"], "Object", checkFreeze);
  guardEach(Reflect, ["preventExtensions"], "Reflect", checkFreeze);

  const shared = globalThis.nighBuiltins;
  shared.objectKeys = objectKeys;
  shared.isTyped = isTyped;
  shared.viewLength = viewLength;
})();
