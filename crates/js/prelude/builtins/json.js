// JSON; see operations.js for the two ways of each method, and the invariants.

"use strict";

(() => {
  const {
    replace,
    isShort,
    put,
    define,
    ToString,
    toLength,
    apply,
    defineProperty,
    slice,
    unitAt,
    objectKeys,
    SHORT,
  } = globalThis.nighBuiltins;

  // Longest JSON text (UTF-16 units) for the native parser: below 50 ms for the slowest, which is
  // deep nesting.
  const SHORT_JSON = 2 ** 17;
  // Longest part (units) of a long text that goes to the native parser.
  const JSON_PART = 2 ** 14;

  const { deleteProperty } = Reflect;
  const { isArray } = Array;
  const { prototype: ObjectPrototype } = Object;
  const { min } = Math;
  const NativeSyntaxError = SyntaxError;

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
  // The place after the array or object that begins at `at`, or -1 if it is longer than JSON_PART.
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
  // Decodes a long string in pieces, cut between escapes.
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
    if (from !== end - 1) throw bad(s, end - 1); // the quote is in the last escape
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
  // Iterative, as the native parser is: depth costs heap, not stack.
  function parseLong(s) {
    let container; // innermost open array or object
    let parents; // linked list of {container, key, parents}
    let key; // of the next member, if the container is an object
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
      // It ends here, and so may the containers around it.
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
    // The native one is interruptible, except over a long list of names, long texts and typed
    // arrays (keys.js has their toJSON).
    stringify(value, replacer, space) {
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
})();
