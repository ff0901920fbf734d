// Whole texts: their case, form and escapes; see operations.js for the two ways of each method, and
// the invariants.
//
// These methods work on pieces of a long string, cut where a cut cannot change the result.

"use strict";

(() => {
  const {
    replace,
    uncurry,
    ToString,
    toLength,
    gatherer,
    objectOf,
    toLocales,
    toText,
    indexOf,
    nativeLastIndexOf,
    slice,
  } = globalThis.nighBuiltins;

  // Units of a piece: below 10 ms for the slowest method (normalize).
  const PIECE = 2 ** 16;
  // Longest run (units) without a place to cut, for normalize: it sorts marks in quadratic time.
  const MAX_RUN = 2 ** 11;
  // Longest string (units) for methods with a locale, whose text cannot be cut: below 100 ms.
  const MAX_LOCALE_STRING = 2 ** 20;

  // Longest string (units) that is read as a number or a date: below 2 ms.
  const MAX_NUMBER_STRING = 2 ** 20;

  const { min } = Math;
  const NativeRangeError = RangeError;
  const StringPrototype = String.prototype;
  const unitAt = uncurry(StringPrototype.charCodeAt);

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

  // Before these units, a text can be cut for every form. Their decomposition begins with a
  // character of combining class 0, which never composes with one before it.
  // tests/vectors/sequences.mjs checks all.
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
  // The small form of a capital sigma depends on its neighbours. So a cut is at a space or a line's
  // end.
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

  // Whether the escape with this first digit belongs to the one before it.
  const continues = (u) => u === 0x38 || u === 0x39 || u === 0x61 || u === 0x62;
  // The first place from `i` on that is in no escaped character. A row of over 32 units of escapes
  // that belong together is an error, wherever it is cut.
  const betweenCharacters = (s, i) => {
    const end = min(i + 32, s.length);
    for (let k = i; k < end; k++) {
      const escape = nativeLastIndexOf(slice(s, k - 5, k + 1), "%");
      if (escape < 0 || (escape === 5 && !continues(unitAt(s, k + 1) | 0x20))) return k;
    }
    return end;
  };
  const pieced = (native, cut) => (v) => {
    const s = ToString(v);
    return s.length <= PIECE ? native(s) : inPieces(s, PIECE, cut, native);
  };
  const code = (name, cut) => {
    const coder = pieced(globalThis[name], cut);
    replace(globalThis, {
      [name](text) {
        return coder(text);
      },
    });
  };
  code("encodeURI", betweenPoints);
  code("encodeURIComponent", betweenPoints);
  code("decodeURI", betweenCharacters);
  code("decodeURIComponent", betweenCharacters);

  // --- Texts that are read as one number, date or attribute ---

  // `v`, as a string unless it is a primitive; throws if it is longer than `limit` units.
  function bounded(v, limit, name) {
    const s = (typeof v === "object" && v !== null) || typeof v === "function" ? ToString(v) : v;
    if (typeof s === "string" && s.length > limit)
      throw new NativeRangeError(`${name}: string over ${limit} characters`);
    return s;
  }
  const numbers = replace(globalThis, {
    parseFloat(text) {
      return numbers.parseFloat(bounded(text, MAX_NUMBER_STRING, "parseFloat"));
    },
    parseInt(text, radix) {
      return numbers.parseInt(bounded(text, MAX_NUMBER_STRING, "parseInt"), radix);
    },
  });
  replace(Number, { parseFloat: globalThis.parseFloat, parseInt: globalThis.parseInt });
  const dates = replace(Date, {
    parse(text) {
      return dates.parse(bounded(text, MAX_NUMBER_STRING, "Date.parse"));
    },
  });
  const tagged = ["anchor", "fontcolor", "fontsize", "link"];
  for (let i = 0; i < tagged.length; i++) {
    const name = tagged[i];
    const native = uncurry(StringPrototype[name]);
    replace(StringPrototype, {
      [name](text) {
        return native(this, bounded(text, PIECE, name));
      },
    });
  }

  const shared = globalThis.nighBuiltins;
  shared.unitAt = unitAt;
})();
