// Joins lists into text, and reads lists of locales; see operations.js for the two ways of each
// method, and the invariants.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    put,
    ToString,
    toLength,
    SHORT_TEXT,
    MAX_STRING,
  } = globalThis.nighBuiltins;

  const MAX_LOCALES = 64; // in one list of locales
  const MAX_LOCALE = 1024; // units of a locale's name

  const { prototype: ArrayPrototype } = Array;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const ToObject = Object;
  const joinList = uncurry(ArrayPrototype.join);

  // Joins many strings without a deep tree of concatenations: `add` gathers, `text` returns all.
  function gatherer(separator) {
    let text = "";
    let list = [];
    let first = true;
    const flush = () => {
      if (list.length === 0) return;
      const part = joinList(list, separator);
      text = first ? part : text + separator + part;
      first = false;
      list = [];
    };
    return {
      __proto__: null,
      add(s) {
        put(list, list.length, s, true);
        // A long string is linked, not copied, so that no join takes long.
        if (list.length === 1024 || s.length > 1024) flush();
      },
      text() {
        flush();
        return text;
      },
    };
  }

  // --- join, toLocaleString ---

  function join(o, length, separator) {
    const sep = separator === undefined ? "," : ToString(separator);
    if (sep.length > 0 && (length - 1) * sep.length > MAX_STRING) {
      throw new NativeRangeError("Invalid string length");
    }
    const all = gatherer(sep);
    for (let k = 0; k < length; k++) {
      const v = o[k];
      all.add(v === undefined || v === null ? "" : ToString(v));
    }
    return all.text();
  }
  const arrayText = replace(ArrayPrototype, {
    join(separator) {
      if (isShort(this, SHORT_TEXT)) return nativeJoin(this, separator);
      const o = objectOf(this, "Array.prototype.join");
      return join(o, toLength(o.length), separator);
    },
    toLocaleString(locales, options) {
      const list = toLocales(locales);
      if (isShort(this, 64)) return nativeToLocaleString(this, list, options);
      const o = objectOf(this, "Array.prototype.toLocaleString");
      return joinLocale(o, toLength(o.length), list, options);
    },
  });
  const nativeJoin = uncurry(arrayText.join);
  const nativeToLocaleString = uncurry(arrayText.toLocaleString);

  function objectOf(v, name) {
    if (v === undefined || v === null)
      throw new NativeTypeError(`${name} called on null or undefined`);
    return ToObject(v);
  }
  function joinLocale(o, length, locales, options) {
    if (length - 1 > MAX_STRING) throw new NativeRangeError("Invalid string length");
    const all = gatherer(",");
    for (let k = 0; k < length; k++) {
      const v = o[k];
      all.add(v === undefined || v === null ? "" : ToString(v.toLocaleString(locales, options)));
    }
    return all.text();
  }

  // --- Locales: a list of them may be any object ---

  // There is no Intl.Locale: 00_primordials.js removes Intl.
  function toLocales(locales) {
    if (locales === undefined || locales === null) return locales;
    if (typeof locales === "string") {
      if (locales.length > MAX_LOCALE)
        throw new NativeRangeError(`a locale of over ${MAX_LOCALE} characters`);
      return locales;
    }
    const o = ToObject(locales);
    const length = toLength(o.length);
    if (length > MAX_LOCALES) throw new NativeRangeError(`more than ${MAX_LOCALES} locales`);
    const list = [];
    for (let k = 0; k < length; k++) if (k in o) put(list, list.length, o[k], true);
    return list;
  }
  // A method whose first argument is a list of locales.
  function guardLocales(owner, names) {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const native = uncurry(owner[name]);
      replace(owner, {
        [name](locales, options) {
          return native(this, toLocales(locales), options);
        },
      });
    }
  }
  guardLocales(Number.prototype, ["toLocaleString"]);
  guardLocales(BigInt.prototype, ["toLocaleString"]);
  guardLocales(Date.prototype, ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]);

  const shared = globalThis.nighBuiltins;
  shared.gatherer = gatherer;
  shared.objectOf = objectOf;
  shared.toLocales = toLocales;
  shared.join = join;
  shared.joinLocale = joinLocale;
})();
