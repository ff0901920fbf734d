// Searching, splitting and replacing in text; see operations.js for the two ways of each method,
// and the invariants.

"use strict";

(() => {
  const { replace, uncurry, put, ToString, toInteger, apply, gatherer } = globalThis.nighBuiltins;

  // Longest string (UTF-16 units) for native methods that spend up to 0.1 µs a unit.
  const SHORT_STRING = 2 ** 16;
  // Most comparisons of units in one native search: below 10 ms.
  const SEARCH_STEPS = 2 ** 22;
  // Longest text (UTF-16 units) of which a method makes a regular expression: compiled in 10 ms.
  const MAX_PATTERN = 2 ** 15;
  // Most units of an expression times those of a text: to compare all takes below 100 ms.
  const REGEXP_STEPS = 2 ** 28;

  const { ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { min, max } = Math;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const symbols = Symbol;
  const StringPrototype = String.prototype;
  const RegExpPrototype = RegExp.prototype;
  const nativeIndexOf = uncurry(StringPrototype.indexOf);
  const nativeLastIndexOf = uncurry(StringPrototype.lastIndexOf);
  const slice = uncurry(StringPrototype.slice);

  const toText = (v, name) => {
    if (v === undefined || v === null) {
      throw new NativeTypeError(`String.prototype.${name} called on null or undefined`);
    }
    return ToString(v);
  };

  // --- Searching in pieces, small enough even for a pathological pattern ---

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

  // The text for which a plain regular expression stands; undefined if it is not plain, or if user
  // code has changed it or its class.
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
  const matchWord = (s, source, regexp) => {
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
    // Finds all places before the first call, as the standard says.
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
      if (method !== undefined && method !== null) return apply(method, separator, [this, limit]);
      return splitText(ToString(this), separator, limit);
    },
    replace(pattern, replacement) {
      if (isQuick(this, pattern, replacement)) return nativeReplace(this, pattern, replacement);
      if (this === undefined || this === null) toText(this, "replace");
      const method = protocol(pattern, symbols.replace);
      if (method !== undefined && method !== null)
        return apply(method, pattern, [this, replacement]);
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
          return apply(method, pattern, [this, replacement]);
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
      if (method !== undefined && method !== null) return apply(method, pattern, [this]);
      return nativeMatch(ToString(this), patternText(pattern, "match"));
    },
    matchAll(pattern) {
      if (this === undefined || this === null) toText(this, "matchAll");
      if (typeof pattern === "object" || typeof pattern === "function")
        return nativeMatchAll(this, pattern);
      return nativeMatchAll(ToString(this), patternText(pattern, "matchAll"));
    },
    search(pattern) {
      if (this === undefined || this === null) toText(this, "search");
      const method = protocol(pattern, symbols.search);
      if (method !== undefined && method !== null) return apply(method, pattern, [this]);
      return nativeSearch(ToString(this), patternText(pattern, "search"));
    },
  });
  // The text of a pattern from which V8 makes a regular expression.
  function patternText(pattern, name) {
    if (pattern === undefined) return undefined;
    const text = ToString(pattern);
    if (text.length > MAX_PATTERN)
      throw new NativeRangeError(`${name}: a pattern of over ${MAX_PATTERN} characters`);
    return text;
  }
  const nativeSplit = uncurry(texts.split);
  const nativeMatch = uncurry(texts.match);
  const nativeMatchAll = uncurry(texts.matchAll);
  const nativeSearch = uncurry(texts.search);
  const nativeReplace = uncurry(texts.replace);
  const nativeReplaceAll = uncurry(texts.replaceAll);
  // A short string, a pattern that is a string, and a replacement that cannot make a long result.
  const isQuick = (s, p, r) =>
    typeof s === "string" &&
    s.length <= SHORT_STRING &&
    typeof p === "string" &&
    p.length * s.length <= SEARCH_STEPS &&
    (typeof r === "string" ? r.length <= 64 : typeof r === "function");

  // --- Regular expressions ---

  // V8 is fast only with its own RegExp.prototype.exec and RegExp, so these two stay native; other
  // methods are replaced. Native ones are interruptible where the code of an expression backtracks,
  // and between matches. They aren't while they search a long word that nearly matches in many
  // places.
  function checkSteps(regexp, s) {
    if (!isRegExp(regexp)) return;
    const { length } = regExpSource(regexp);
    if (length * s.length > REGEXP_STEPS)
      throw new NativeRangeError(
        `a regular expression of ${length} characters on a text of ${s.length}: ` +
          `the product is over ${REGEXP_STEPS}`,
      );
  }
  const isObject = (v) => (typeof v === "object" && v !== null) || typeof v === "function";
  // Whether the text may be so long that the method has to look at it.
  const isLongText = (regexp, text) =>
    isObject(regexp) && (typeof text !== "string" || text.length > SHORT_STRING);
  // The word for which V8 would search a long text in one step; undefined otherwise.
  const longWord = (regexp, s) => (s.length > SHORT_STRING ? wordOf(regexp) : undefined);

  const expressions = replace(RegExpPrototype, {
    test(text) {
      if (!isLongText(this, text)) return nativeTest(this, text);
      const s = ToString(text);
      checkSteps(this, s);
      return nativeTest(this, s);
    },
    compile(pattern, flags) {
      const source = isObject(pattern) ? pattern : patternText(pattern, "compile");
      return nativeCompile(this, source, flags);
    },
    [symbols.match](text) {
      if (!isLongText(this, text)) return nativeMatchBy(this, text);
      const s = ToString(text);
      const word = longWord(this, s);
      if (word !== undefined && regExpGlobal(this)) return matchWord(s, word, this);
      checkSteps(this, s);
      return nativeMatchBy(this, s);
    },
    [symbols.matchAll](text) {
      if (!isLongText(this, text)) return nativeMatchAllBy(this, text);
      const s = ToString(text);
      checkSteps(this, s);
      return nativeMatchAllBy(this, s);
    },
    [symbols.search](text) {
      if (!isLongText(this, text)) return nativeSearchBy(this, text);
      const s = ToString(text);
      checkSteps(this, s);
      return nativeSearchBy(this, s);
    },
    [symbols.replace](text, replacement) {
      if (!isLongText(this, text)) return nativeReplaceBy(this, text, replacement);
      const s = ToString(text);
      const word = longWord(this, s);
      if (word !== undefined) return replaceWord(s, word, replacement, this);
      checkSteps(this, s);
      return nativeReplaceBy(this, s, replacement);
    },
    [symbols.split](text, limit) {
      if (!isLongText(this, text)) return nativeSplitBy(this, text, limit);
      const s = ToString(text);
      const word = longWord(this, s);
      if (word !== undefined) return splitText(s, word, limit);
      checkSteps(this, s);
      return nativeSplitBy(this, s, limit);
    },
  });
  const nativeTest = uncurry(expressions.test);
  const nativeCompile = uncurry(expressions.compile);
  const nativeMatchBy = uncurry(expressions[symbols.match]);
  const nativeMatchAllBy = uncurry(expressions[symbols.matchAll]);
  const nativeSearchBy = uncurry(expressions[symbols.search]);
  const nativeReplaceBy = uncurry(expressions[symbols.replace]);
  const nativeSplitBy = uncurry(expressions[symbols.split]);
  const isRegExpLike = (v) => {
    if ((typeof v !== "object" || v === null) && typeof v !== "function") return false;
    const match = v[symbols.match];
    return match !== undefined ? !!match : isRegExp(v);
  };

  const shared = globalThis.nighBuiltins;
  shared.toText = toText;
  shared.indexOf = indexOf;
  shared.nativeLastIndexOf = nativeLastIndexOf;
  shared.slice = slice;
})();
