#!js name=patterns
// Regular expressions: that go back, that are long, whose parts are code.

const flat = (unit, count) => {
  const s = unit.repeat(count);
  s.charCodeAt(7);
  return s;
};

/** The classic. */
export const backtracking = () => /(a*)*b/.test("a".repeat(50));
/** With a look behind. */
export const look_behind = () => /(?<=(a+)+)b/.test("a".repeat(50) + "c");
/** With a look ahead and a back reference. */
export const back_reference = () => /^(?=(a+)+$)\1\1b/.test("a".repeat(50) + "c");
/** Case without case: each unit is folded. */
export const ignore_case = () => {
  const s = flat("\u0130\u212a", 2 ** 23);
  for (;;) /\u017f\u017f\u017fx/iu.test(s);
};
/** Polynomial over a long text. */
export const polynomial = () => /a*a*a*a*b/.test(flat("a", 2 ** 16));
/** A class of all there is, negated. */
export const classes = () => {
  for (let i = 0; ; i++) new RegExp(`[^${String.fromCodePoint(i % 60000)}]\\p{L}\\P{Lu}`, "iu").test("ab");
};
/** A pattern of 16 MB. */
export const long_pattern = () => new RegExp(flat("a", 2 ** 24)).test("b");
/** A million alternatives. */
export const alternatives = () => new RegExp("a|".repeat(2 ** 18)).test("b");
/** Counted counts. */
export const counted = () => new RegExp("((a{1,1000}){1,1000}){1,1000}b").test("a".repeat(5000));
/** A thousand groups for each match. */
export const groups = () => {
  const re = new RegExp("()".repeat(10000) + "a", "g");
  return flat("a", 2 ** 20).replace(re, "").length;
};
/** Named groups with a replacement of names. */
export const named_groups = () => {
  const re = new RegExp(Array.from({ length: 3000 }, (_, i) => `(?<n${i}>)`).join("") + "a", "g");
  return flat("a", 2 ** 18).replace(re, "$<n1>".repeat(1000)).length;
};
/** An exec of one's own that never says that it has ended. */
export const own_exec = () => {
  const re = /a/g;
  re.exec = () => ({ index: 0, 0: "", length: 1 });
  return re[Symbol.replace]("aaa", "b");
};
/** lastIndex that goes back. */
export const own_last_index = () => {
  const re = /a/g;
  Object.defineProperty(re, "lastIndex", { get: () => 0, set() {} });
  return "aaa".match(re);
};
/** A split by each place. */
export const split_each = () => flat("a", 2 ** 24).split(/(?:)/).length;
/** All matches of 16 MB, as strings. */
export const match_each = () => flat("ab", 2 ** 23).match(/./g).length;
/** The protocol's methods called by their symbols: a word of 16 KB in 16 MB. */
export const by_symbol = () => {
  const word = "a".repeat(2 ** 13) + "b" + "a".repeat(2 ** 13);
  return RegExp.prototype[Symbol.replace].call(new RegExp(word), flat("a", 2 ** 24), "");
};
/** The last match's contexts are copies. */
export const contexts = () => {
  const s = flat("a", 2 ** 24) + "b";
  for (;;) {
    /b/.test(s);
    RegExp.leftContext.charCodeAt(3);
  }
};
/** Sticky, at each place of a long text. */
export const sticky = () => {
  const re = /a*b/y;
  const s = flat("a", 2 ** 20);
  for (let i = 0; ; i = (i + 1) % s.length) {
    re.lastIndex = i;
    re.test(s);
  }
};
/** Recompiled without end. */
export const compiled = () => {
  const re = /a/;
  for (let i = 0; ; i++) re.compile(`(${i}|b)*c`).test("d");
};
