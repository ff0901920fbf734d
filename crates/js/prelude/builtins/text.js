// Builtins on text, and what makes text of lists, that V8 cannot interrupt; see arrays.js for the
// two ways of each method, and the invariants.
//
// Long strings are worked off in pieces, cut where that cannot change the result.
//
// What stays native, and what bounds it (measured on V8 10.2 with the default limits):
//   reading a string of 2^28 characters for the first time (V8 joins its parts then), number and date
//     parsing, comparison, trim: 0.1 to 1 s; bounded by V8's longest string, 2^29, and the heap limit
//   spread and for…in over an object with 500,000 keys: 1 s; bounded by the heap limit
//   the same over a long string or typed array: 0.1 µs an index and more, so over 2^25 of them for longer
//     than any grace period; bounded by V8's longest string and the limit of ArrayBuffers
//   `new Uint8Array({length: 6e7})`: 3 s; bounded by the limit of ArrayBuffers
//   `new RegExp(pattern)` with a pattern of megabytes, and RegExp.prototype[Symbol.replace] called by its
//     symbol on a text of that size; bounded by V8's longest string
// Syntax and constructors cannot be replaced without making all code slower. A call that is not back within
// the grace period after its time limit ends the process; the arenas survive.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    isShort,
    put,
    ToString,
    toInteger,
    toLength,
    apply,
    SHORT_TEXT,
    MAX_STRING,
  } = globalThis.nighBuiltins;

  // Longest string (UTF-16 units) that goes to the native method where that spends up to 0.1 µs a unit.
  const SHORT_STRING = 2 ** 16;
  // Text is worked off in pieces of so many units: below 10 ms each at the slowest (normalize).
  const PIECE = 2 ** 16;
  // Most comparisons of units in one native search: below 10 ms.
  const SEARCH_STEPS = 2 ** 22;
  // Longest run (units) without a place to cut when text is normalized: sorting marks is quadratic.
  const MAX_RUN = 2 ** 11;
  // Longest string (units) for functions of a locale, which cannot be cut: below 100 ms.
  const MAX_LOCALE_STRING = 2 ** 20;
  const MAX_LOCALES = 64; // in one list of locales

  const { ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { prototype: ArrayPrototype } = Array;
  const { min, max } = Math;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const ToObject = Object;
  const symbols = Symbol;
  const StringPrototype = String.prototype;
  const RegExpPrototype = RegExp.prototype;
  const TypedArray = getPrototypeOf(Uint8Array);
  const TypedArrayPrototype = TypedArray.prototype;
  const viewLength = uncurry(getOwnPropertyDescriptor(TypedArrayPrototype, "length").get);
  const { isView } = ArrayBuffer;
  const nativeIndexOf = uncurry(StringPrototype.indexOf);
  const nativeLastIndexOf = uncurry(StringPrototype.lastIndexOf);
  const slice = uncurry(StringPrototype.slice);
  const unitAt = uncurry(StringPrototype.charCodeAt);
  const joinList = uncurry(ArrayPrototype.join);
  const brandOfView = uncurry(
    getOwnPropertyDescriptor(TypedArrayPrototype, Symbol.toStringTag).get,
  );

  const isTyped = (o) => isView(o) && brandOfView(o) !== undefined;
  const toText = (v, name) => {
    if (v === undefined || v === null) {
      throw new NativeTypeError(`String.prototype.${name} called on null or undefined`);
    }
    return ToString(v);
  };

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
        // Long strings are only linked, not copied, so that no join takes long.
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

  // Without Intl, which 00_primordials.js removes, nobody can make a Locale.
  const isLocale =
    globalThis.Intl === undefined
      ? () => false
      : (() => {
          const native = uncurry(getOwnPropertyDescriptor(Intl.Locale.prototype, "baseName").get);
          return (v) => {
            try {
              native(v);
              return true;
            } catch {
              return false;
            }
          };
        })();
  function toLocales(locales) {
    if (locales === undefined || typeof locales === "string" || locales === null) return locales;
    if (typeof locales === "object" && isLocale(locales)) return locales;
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

  // --- Searching: pieces so small that even a pathological pattern is found missing in time ---

  function indexOf(s, pattern, from) {
    const last = s.length - pattern.length;
    const step = max(1, (SEARCH_STEPS / max(pattern.length, 1)) | 0);
    if (last < from) return -1;
    if (last - from < step) return nativeIndexOf(s, pattern, from);
    for (let at = from; at <= last; at += step) {
      const end = min(at + step - 1, last) + pattern.length;
      const found = nativeIndexOf(slice(s, at, end), pattern);
      if (found >= 0) return at + found;
    }
    return -1;
  }
  function lastIndexOf(s, pattern, from) {
    const last = min(from, s.length - pattern.length);
    const step = max(1, (SEARCH_STEPS / max(pattern.length, 1)) | 0);
    if (last < step) return nativeLastIndexOf(s, pattern, from);
    for (let end = last; end >= 0; end -= step) {
      const at = max(end - step + 1, 0);
      const found = nativeLastIndexOf(slice(s, at, end + pattern.length), pattern);
      if (found >= 0) return at + found;
    }
    return -1;
  }
  const notRegExp = (v, name) => {
    if ((typeof v !== "object" || v === null) && typeof v !== "function") return;
    const match = v[symbols.match];
    if (match !== undefined ? match : isRegExp(v)) {
      throw new NativeTypeError(
        `First argument to String.prototype.${name} must not be a regular expression`,
      );
    }
  };
  const getter = (name) => uncurry(getOwnPropertyDescriptor(RegExpPrototype, name).get);
  const regExpGlobal = getter("global");
  const regExpSticky = getter("sticky");
  const regExpIgnoreCase = getter("ignoreCase");
  const regExpSource = getter("source");
  const NativeRegExp = RegExp;
  const regExpExec = RegExpPrototype.exec;
  const regExpMatch = RegExpPrototype[Symbol.match];
  const regExpReplace = RegExpPrototype[Symbol.replace];
  const regExpSplit = RegExpPrototype[Symbol.split];
  const isRegExp = (v) => {
    if (v === RegExpPrototype) return false;
    try {
      regExpGlobal(v);
      return true;
    } catch {
      return false;
    }
  };

  replace(StringPrototype, {
    indexOf(pattern, from) {
      const s = toText(this, "indexOf");
      const p = ToString(pattern);
      return indexOf(s, p, min(max(toInteger(from), 0), s.length));
    },
    includes(pattern, from) {
      const s = toText(this, "includes");
      notRegExp(pattern, "includes");
      const p = ToString(pattern);
      return indexOf(s, p, min(max(toInteger(from), 0), s.length)) >= 0;
    },
    lastIndexOf(pattern, from) {
      const s = toText(this, "lastIndexOf");
      const p = ToString(pattern);
      const n = +from;
      return lastIndexOf(s, p, n !== n ? s.length : min(max(toInteger(n), 0), s.length));
    },
  });

  // --- Splitting and replacing ---

  // Calls the method that `pattern` has under a symbol. A native one that would search a long string for a
  // plain word (V8 does that in one go, without regexp code) is done by `word` instead.
  function callProtocol(method, pattern, self, argument, name, word) {
    const native =
      name === "match" ? regExpMatch : name === "replace" ? regExpReplace : regExpSplit;
    if (method !== native)
      return apply(method, pattern, name === "match" ? [self] : [self, argument]);
    const s = ToString(self);
    const source = s.length > SHORT_STRING ? wordOf(pattern) : undefined;
    if (source !== undefined) return word(s, source, argument, pattern);
    return apply(method, pattern, name === "match" ? [s] : [s, argument]);
  }
  // The text that a regular expression stands for, if it is a plain one and nobody tampered with it.
  function wordOf(regexp) {
    if (!isRegExp(regexp) || getPrototypeOf(regexp) !== RegExpPrototype) return undefined;
    if (ownKeys(regexp).length !== 1 || RegExpPrototype.exec !== regExpExec) return undefined;
    if (
      RegExpPrototype.constructor !== NativeRegExp ||
      regExpSticky(regexp) ||
      regExpIgnoreCase(regexp)
    )
      return undefined;
    const source = regExpSource(regexp);
    for (let i = 0; i < source.length; i++) {
      const c = source[i];
      if (
        nativeIndexOf("\\^$.*+?()[]{}|/\n\r\u2028\u2029", c) >= 0 ||
        (c >= "\ud800" && c <= "\udfff")
      )
        return undefined;
    }
    return source;
  }
  const replaceWord = (s, source, replacement, regexp) => {
    const call = typeof replacement === "function";
    const template = call ? replacement : ToString(replacement);
    const every = regExpGlobal(regexp);
    if (every) regexp.lastIndex = 0;
    return replaceText(s, source, template, every);
  };
  const splitWord = (s, source, limit) => splitText(s, source, limit);
  const matchWord = (s, source, _, regexp) => {
    if (!regExpGlobal(regexp)) return apply(regExpMatch, regexp, [s]);
    regexp.lastIndex = 0;
    const list = [];
    for (let at = indexOf(s, source, 0); at >= 0; at = indexOf(s, source, at + source.length)) {
      put(list, list.length, source, true);
    }
    return list.length === 0 ? null : list;
  };

  const protocol = (v, symbol) => (v === undefined || v === null ? undefined : v[symbol]);

  // GetSubstitution for a string pattern (no captures).
  function substitute(all, s, at, matched, template) {
    let from = 0;
    for (;;) {
      const dollar = nativeIndexOf(template, "$", from);
      if (dollar < 0 || dollar === template.length - 1) break;
      const c = template[dollar + 1];
      const known = c === "$" || c === "&" || c === "`" || c === "'";
      all.add(slice(template, from, dollar));
      if (c === "$") all.add("$");
      else if (c === "&") all.add(matched);
      else if (c === "`") all.add(slice(s, 0, at));
      else if (c === "'") all.add(slice(s, at + matched.length));
      else all.add("$");
      from = dollar + (known ? 2 : 1);
    }
    all.add(slice(template, from));
  }
  function replaceText(s, pattern, replacement, every) {
    const call = typeof replacement === "function";
    const template = call ? "" : ToString(replacement);
    const plain = !call && nativeIndexOf(template, "$") < 0;
    const advance = max(pattern.length, 1);
    const places = [];
    // All places are found before the first call, as the standard says.
    for (let at = indexOf(s, pattern, 0); at >= 0;) {
      put(places, places.length, at, true);
      if (!every) break;
      at = at + advance > s.length ? -1 : indexOf(s, pattern, at + advance);
    }
    if (places.length === 0) return s;
    const all = gatherer("");
    let end = 0;
    for (let i = 0; i < places.length; i++) {
      const at = places[i];
      all.add(slice(s, end, at));
      if (call) all.add(ToString(replacement(pattern, at, s)));
      else if (plain) all.add(template);
      else substitute(all, s, at, pattern, template);
      end = at + pattern.length;
    }
    all.add(slice(s, end));
    return all.text();
  }
  function splitText(s, separator, limit) {
    const count = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
    const sep = ToString(separator);
    const list = [];
    if (count === 0) return list;
    if (separator === undefined) return [s];
    if (s.length === 0) return sep.length > 0 ? [s] : list;
    if (sep.length === 0) {
      for (let k = 0; k < s.length && k < count; k++) put(list, k, s[k], true);
      return list;
    }
    let from = 0;
    for (let at = indexOf(s, sep, 0); at >= 0; at = indexOf(s, sep, from)) {
      put(list, list.length, slice(s, from, at), true);
      if (list.length >= count) return list;
      from = at + sep.length;
    }
    put(list, list.length, slice(s, from), true);
    return list;
  }

  const texts = replace(StringPrototype, {
    split(separator, limit) {
      if (isQuick(this, separator, "") && (typeof limit !== "object" || limit === null)) {
        return nativeSplit(this, separator, limit);
      }
      if (this === undefined || this === null) toText(this, "split");
      const method = protocol(separator, symbols.split);
      if (method !== undefined && method !== null)
        return callProtocol(method, separator, this, limit, "split", splitWord);
      return splitText(ToString(this), separator, limit);
    },
    replace(pattern, replacement) {
      if (isQuick(this, pattern, replacement)) return nativeReplace(this, pattern, replacement);
      if (this === undefined || this === null) toText(this, "replace");
      const method = protocol(pattern, symbols.replace);
      if (method !== undefined && method !== null)
        return callProtocol(method, pattern, this, replacement, "replace", replaceWord);
      const s = ToString(this);
      return replaceText(
        s,
        ToString(pattern),
        typeof replacement === "function" ? replacement : ToString(replacement),
        false,
      );
    },
    replaceAll(pattern, replacement) {
      if (isQuick(this, pattern, replacement)) return nativeReplaceAll(this, pattern, replacement);
      if (this === undefined || this === null) toText(this, "replaceAll");
      if (pattern !== undefined && pattern !== null) {
        if (isRegExpLike(pattern)) {
          const flags = pattern.flags;
          if (flags === undefined || flags === null || nativeIndexOf(ToString(flags), "g") < 0) {
            throw new NativeTypeError("replaceAll must be called with a global RegExp");
          }
        }
        const method = pattern[symbols.replace];
        if (method !== undefined && method !== null)
          return callProtocol(method, pattern, this, replacement, "replace", replaceWord);
      }
      const s = ToString(this);
      return replaceText(
        s,
        ToString(pattern),
        typeof replacement === "function" ? replacement : ToString(replacement),
        true,
      );
    },
    match(pattern) {
      if (this === undefined || this === null) toText(this, "match");
      const method = protocol(pattern, symbols.match);
      if (method === undefined || method === null) return nativeMatch(this, pattern);
      return callProtocol(method, pattern, this, undefined, "match", matchWord);
    },
  });
  const nativeSplit = uncurry(texts.split);
  const nativeMatch = uncurry(texts.match);
  const nativeReplace = uncurry(texts.replace);
  const nativeReplaceAll = uncurry(texts.replaceAll);
  // A short string, a pattern that is a string, and a replacement that cannot make a long result.
  const isQuick = (s, p, r) =>
    typeof s === "string" &&
    s.length <= SHORT_STRING &&
    typeof p === "string" &&
    p.length * s.length <= SEARCH_STEPS &&
    (typeof r === "string" ? r.length <= 64 : typeof r === "function");
  const isRegExpLike = (v) => {
    if ((typeof v !== "object" || v === null) && typeof v !== "function") return false;
    const match = v[symbols.match];
    return match !== undefined ? !!match : isRegExp(v);
  };

  // --- Whole texts in pieces ---

  // Applies `f` to pieces of `s`; `cut(s, i)` says where near `i` a cut cannot change the result.
  function inPieces(s, piece, cut, f) {
    const all = gatherer("");
    for (let at = 0; at < s.length;) {
      const end = s.length - at <= piece ? s.length : cut(s, at + piece);
      all.add(f(slice(s, at, end)));
      at = end;
    }
    return all.text();
  }
  const isLow = (unit) => unit >= 0xdc00 && unit <= 0xdfff;
  const betweenPoints = (s, i) => (isLow(unitAt(s, i)) ? i + 1 : i);

  // Before these units a text can be cut for every form: what they decompose to begins with a character of
  // combining class 0 that never composes with one before it. tests/vectors/sequences.mjs checks them all.
  const beginsSequence = (u) =>
    u < 0x300 ||
    (u >= 0x370 && u <= 0x482) ||
    (u >= 0x48a && u <= 0x590) ||
    (u >= 0x5d0 && u <= 0x5ea) ||
    (u >= 0x620 && u <= 0x64a) ||
    (u >= 0x904 && u <= 0x939) ||
    (u >= 0xe01 && u <= 0xe30) ||
    (u >= 0x1e00 && u <= 0x20cf) ||
    (u >= 0x2100 && u <= 0x2bff) ||
    (u >= 0x3041 && u <= 0x3096) ||
    (u >= 0x30a1 && u <= 0x30fa) ||
    (u >= 0x3400 && u <= 0x9fff) ||
    (u >= 0xac00 && u <= 0xd7a3) ||
    (u >= 0xd83c && u <= 0xd83e) ||
    (u >= 0xd840 && u <= 0xd87f);
  const beforeSequence = (s, i) => {
    const end = min(i + MAX_RUN, s.length);
    for (let k = i; k < end; k++) if (beginsSequence(unitAt(s, k))) return k;
    if (end === s.length) return end;
    throw new NativeRangeError(`normalize: more than ${MAX_RUN} characters in one sequence`);
  };
  function checkRuns(s) {
    let run = 0;
    for (let k = 0; k < s.length; k++) {
      run = beginsSequence(unitAt(s, k)) ? 0 : run + 1;
      if (run > MAX_RUN * 4)
        throw new NativeRangeError(
          `normalize: more than ${MAX_RUN * 4} characters in one sequence`,
        );
    }
  }
  // A capital sigma becomes small by what stands around it: no cut but after a space or a line's end.
  const lowerCut = (s, i) => {
    const end = min(i + PIECE, s.length);
    for (let k = i; k < end; k++) {
      const u = unitAt(s, k);
      if (u === 0x20 || u === 0x0a) return k;
    }
    return betweenPoints(s, i);
  };

  const cases = replace(StringPrototype, {
    normalize(form) {
      const s = toText(this, "normalize");
      const f = form === undefined ? "NFC" : ToString(form);
      if (s.length <= MAX_RUN || (f !== "NFC" && f !== "NFD" && f !== "NFKC" && f !== "NFKD"))
        return nativeNormalize(s, f);
      checkRuns(s);
      return inPieces(s, PIECE, beforeSequence, (part) => nativeNormalize(part, f));
    },
    toUpperCase() {
      const s = toText(this, "toUpperCase");
      return s.length <= PIECE
        ? nativeUpper(s)
        : inPieces(s, PIECE, betweenPoints, (part) => nativeUpper(part));
    },
    toLowerCase() {
      const s = toText(this, "toLowerCase");
      if (s.length <= PIECE) return nativeLower(s);
      const cut = indexOf(s, "\u03a3", 0) < 0 ? betweenPoints : lowerCut;
      return inPieces(s, PIECE, cut, (part) => nativeLower(part));
    },
    toLocaleUpperCase(locales) {
      return nativeLocaleUpper(localeText(this, "toLocaleUpperCase"), toLocales(locales));
    },
    toLocaleLowerCase(locales) {
      return nativeLocaleLower(localeText(this, "toLocaleLowerCase"), toLocales(locales));
    },
    localeCompare(that, locales, options) {
      const s = localeText(this, "localeCompare");
      return nativeCompare(
        s,
        localeText(ToString(that), "localeCompare"),
        toLocales(locales),
        options,
      );
    },
  });
  const nativeNormalize = uncurry(cases.normalize);
  const nativeUpper = uncurry(cases.toUpperCase);
  const nativeLower = uncurry(cases.toLowerCase);
  const nativeLocaleUpper = uncurry(cases.toLocaleUpperCase);
  const nativeLocaleLower = uncurry(cases.toLocaleLowerCase);
  const nativeCompare = uncurry(cases.localeCompare);
  function localeText(v, name) {
    const s = toText(v, name);
    if (s.length > MAX_LOCALE_STRING)
      throw new NativeRangeError(`${name}: string over ${MAX_LOCALE_STRING} characters`);
    return s;
  }

  replace(String, {
    raw(template, ...values) {
      const strings = objectOf(objectOf(template, "String.raw").raw, "String.raw");
      const length = toLength(strings.length);
      const all = gatherer("");
      for (let k = 0; k < length; k++) {
        all.add(ToString(strings[k]));
        if (k + 1 < length && k < values.length) all.add(ToString(values[k]));
      }
      return all.text();
    },
  });

  // The first place from `i` on that is in no escape; `continues` tells an escape that belongs to the one
  // before. A longer row of those than 32 units is an error wherever it is cut.
  const escapeCut = (continues) => (s, i) => {
    const end = min(i + 32, s.length);
    for (let k = i; k < end; k++) {
      const escape = nativeLastIndexOf(slice(s, k - 5, k + 1), "%");
      if (escape < 0 || (escape === 5 && !continues(unitAt(s, k + 1) | 0x20))) return k;
    }
    return end;
  };
  const betweenEscapes = escapeCut(() => false);
  const betweenCharacters = escapeCut((u) => u === 0x38 || u === 0x39 || u === 0x61 || u === 0x62);
  const pieced = (native, cut) => (v) => {
    const s = ToString(v);
    return s.length <= PIECE ? native(s) : inPieces(s, PIECE, cut, native);
  };
  const code = (name, cut) => {
    const native = globalThis[name];
    if (native === undefined) return; // not among the allowed globals
    const coder = pieced(native, cut);
    replace(globalThis, {
      [name](text) {
        return coder(text);
      },
    });
  };
  code("encodeURI", betweenPoints);
  code("encodeURIComponent", betweenPoints);
  code("escape", (s, i) => i);
  code("decodeURI", betweenCharacters);
  code("decodeURIComponent", betweenCharacters);
  code("unescape", betweenEscapes);

  const shared = globalThis.nighBuiltins;
  shared.toLocales = toLocales;
  shared.join = join;
  shared.joinLocale = joinLocale;
  shared.indexOf = indexOf;
  shared.lastIndexOf = lastIndexOf;
  shared.slice = slice;
  shared.unitAt = unitAt;
  shared.isTyped = isTyped;
  shared.viewLength = viewLength;
})();
