// Large values of each kind, for the walk over all builtins: `kinds[name]()` makes one. Each is
// about as large as the default limits of heap and buffers (256 MiB each) allow, or large enough to
// make an algorithm slow. `companion(name, x)` is its second operand: a needle for a text, a text
// for a regular expression, an equal but other value for a comparison.

const flat = (unit, count) => {
  const s = unit.repeat(count);
  s.charCodeAt(7); // joins the parts
  return s;
};
const bytesOf = (Kind, bytes) => new Kind(bytes / Kind.BYTES_PER_ELEMENT);
const wrapped = (steps, value, wrap) => {
  for (let i = 0; i < steps; i++) value = wrap(value);
  return value;
};
const filled = (count, make) => {
  const a = [];
  for (let i = 0; i < count; i++) a.push(make(i));
  return a;
};
const named = (count, make) => {
  const o = {};
  for (let i = 0; i < count; i++) o["k" + i] = make(i);
  return o;
};
const spreadable = (o) => {
  o[Symbol.isConcatSpreadable] = true;
  return o;
};

const MIB = 2 ** 20;
const MAX_STRING = 2 ** 29 - 24;
const NEEDLE = "a".repeat(2 ** 12) + "b" + "a".repeat(2 ** 12);

const kinds = {
  __proto__: null,
  // Text: flat, of one or two bytes a unit; as a tree; of what is slow to search, to parse, to
  // compare.
  text: () => flat("a", 2 ** 24),
  longText: () => flat("a", 2 ** 27),
  wideText: () => flat("\u0101", 2 ** 24),
  treeText: () => "a".repeat(MAX_STRING),
  wideTree: () => "\u0101".repeat(2 ** 28),
  deepTree: () => wrapped(2 ** 20, "ab", (s) => s + "cdefghijklmnop"),
  digits: () => flat("9", 2 ** 22),
  spaces: () => flat(" ", 2 ** 26),
  emoji: () => flat("\ud83d\ude00", 2 ** 23),
  marks: () => flat("A\u030a\u0316", 2 ** 22),
  escapes: () => flat("%41", 2 ** 22),
  openJson: () => flat("[", 2 ** 22),
  listJson: () => "[" + flat('{"a":1},', 2 ** 19) + "1]",
  dollars: () => flat("$&", 2 ** 20),
  pattern: () => flat("(a|b)", 2 ** 12),
  wideClass: () => "[" + filled(2 ** 14, (i) => String.fromCharCode(0x100 + 3 * i)).join("") + "]",
  textObject: () => Object(flat("a", 2 ** 24)),
  longSymbol: () => Symbol(flat("a", 2 ** 24)),
  // Arrays: packed, with holes, sparse, nested, of getters.
  numbers: () => new Array(2 ** 22).fill(7),
  doubles: () => new Array(2 ** 22).fill(1.5),
  objects: () => filled(2 ** 19, (i) => ({ i })),
  texts: () => filled(2 ** 18, (i) => "text " + i),
  holes: () => new Array(23e6),
  longestHoles: () => new Array(2 ** 32 - 1),
  sparse: () => {
    const a = [];
    for (let i = 0; i < 2 ** 17; i++) a[i * 30011] = i;
    return a;
  },
  arrays: () => filled(2 ** 6, () => new Array(2 ** 16).fill(1)),
  bigTexts: () => new Array(2 ** 12).fill("a".repeat(2 ** 20)),
  bytesArrays: () => new Array(2 ** 10).fill(new Uint8Array(2 ** 22)),
  pairs: () => filled(2 ** 18, (i) => ["k" + i, i]),
  getters: () => {
    const a = [];
    for (let i = 0; i < 2 ** 17; i++) Object.defineProperty(a, i, { get: () => i, enumerable: true });
    return a;
  },
  deepArray: () => wrapped(2 ** 18, [], (a) => [a]),
  wideNest: () => wrapped(2 ** 5, [1], (a) => [a, a]),
  // Objects that only claim to be long.
  longest: () => ({ length: 2 ** 53 - 1 }),
  long: () => ({ length: 2 ** 28 }),
  spreadableLong: () => spreadable({ length: 2 ** 28 }),
  // Buffers and views of them.
  buffer: () => new ArrayBuffer(128 * MIB),
  view: () => new DataView(new ArrayBuffer(128 * MIB)),
  bytes: () => new Uint8Array(128 * MIB),
  someBytes: () => new Uint8Array(8e6).fill(1),
  spreadableBytes: () => spreadable(new Uint8Array(16 * MIB)),
  clamped: () => bytesOf(Uint8ClampedArray, 128 * MIB),
  int8: () => bytesOf(Int8Array, 128 * MIB),
  int16: () => bytesOf(Int16Array, 128 * MIB),
  uint16: () => bytesOf(Uint16Array, 128 * MIB),
  int32: () => bytesOf(Int32Array, 128 * MIB),
  uint32: () => bytesOf(Uint32Array, 128 * MIB),
  float32: () => bytesOf(Float32Array, 128 * MIB),
  float64: () => bytesOf(Float64Array, 128 * MIB),
  bigInt64: () => bytesOf(BigInt64Array, 128 * MIB),
  bigUint64: () => bytesOf(BigUint64Array, 128 * MIB),
  // Objects: many properties, indices, accessors; deep ones; chains of prototypes.
  names: () => named(2 ** 18, (i) => i),
  indices: () => {
    const o = {};
    for (let i = 0; i < 2 ** 20; i++) o[i] = i;
    return o;
  },
  farIndices: () => {
    const o = {};
    for (let i = 0; i < 2 ** 18; i++) o[i * 8191] = i;
    return o;
  },
  descriptors: () => named(2 ** 17, (i) => ({ value: i })),
  heldBytes: () => ({ data: new Uint8Array(20e6) }),
  heldText: () => ({ data: flat("\n", 2 ** 25) }),
  deepObject: () => wrapped(2 ** 18, {}, (o) => ({ o })),
  heirs: () => wrapped(2 ** 19, {}, (o) => Object.create(o)),
  table: () => new Map(filled(2 ** 19, (i) => [i, i])),
  set: () => new Set(filled(2 ** 19, (i) => i)),
  weakTable: () => new WeakMap(filled(2 ** 17, () => [{}, 1])),
  // Numbers.
  bigInt: () => 3n ** 600000n,
  hugeInt: () => (1n << (2n ** 29n)) - 1n,
  // Regular expressions.
  explosion: () => /(a*)*b/,
  plain: () => /a{100}b/g,
  each: () => /a/g,
  eachPoint: () => /./gsu,
  sticky: () => /a*b/y,
  backward: () => /(?<=(a+)+b)c/,
  word: () => new RegExp(NEEDLE),
  groups: () => new RegExp("()".repeat(2 ** 14)),
  namesGroups: () => new RegExp(filled(2 ** 12, (i) => `(?<g${i}>)`).join("")),
  // Functions, proxies, iterators, promises.
  bound: () => wrapped(2 ** 18, isNaN, (f) => f.bind(undefined)),
  manyBound: () => isNaN.bind.apply(isNaN, filled(2 ** 15, (i) => i)),
  proxyOfBytes: () => new Proxy(new Uint8Array(16 * MIB), {}),
  proxyOfHoles: () => new Proxy(new Array(2 ** 32 - 1), {}),
  proxyOfNames: () => new Proxy(named(2 ** 17, (i) => i), {}),
  proxies: () => wrapped(2 ** 16, {}, (o) => new Proxy(o, {})),
  liar: () =>
    new Proxy({}, { ownKeys: () => filled(2 ** 17, (i) => "k" + i), has: () => true, get: () => 1 }),
  endless: () => ({ [Symbol.iterator]: () => ({ next: Array }) }), // `[]` is never done
  values: () => Array.prototype.values.call({ length: 2 ** 53 - 1 }),
  entries: () => new Uint8Array(64 * MIB).entries(),
  matches: () => flat("a", 2 ** 24).matchAll(/a/g),
  parameters: () =>
    (function () {
      return arguments;
    }).apply(undefined, new Array(60000).fill(1)),
  error: () => new Error(flat("a", 2 ** 24), { cause: flat("b", 2 ** 24) }),
  causes: () => wrapped(2 ** 17, new Error("a"), (cause) => ({ __proto__: Error.prototype, cause })),
  // Not longer: V8 walks a chain of prototypes whenever one more is put before it.
  errorHeirs: () => wrapped(2 ** 14, new Error("a"), (cause) => ({ __proto__: cause, cause })),
  thenable: () => ({ then: isNaN, length: 2 ** 28 }),
  // Small ones that make others long.
  million: () => 2 ** 28,
  safest: () => 2 ** 53 - 1,
  infinite: () => Infinity,
};

const textOf = { __proto__: null, explosion: 40, backward: 2 ** 12, groups: 10, namesGroups: 10 };
const companions = {
  __proto__: null,
  text: () => NEEDLE,
  longText: () => NEEDLE,
  wideText: () => "\u0101".repeat(2 ** 12) + "b" + "\u0101".repeat(2 ** 12),
  treeText: () => "a".repeat(MAX_STRING - 1) + "b",
  wideTree: () => "\u0101".repeat(2 ** 28 - 1) + "b",
  dollars: () => "$",
  textObject: () => NEEDLE,
  digits: () => "9",
  hugeInt: () => 3n ** 10000000n,
  bigInt: () => 5n ** 400000n,
  names: () => "k7",
  heirs: () => "missing",
  proxies: () => "missing",
};
const regExps = new Set(
  "explosion plain each eachPoint sticky backward word groups namesGroups".split(" "),
);
function companion(name, x) {
  if (regExps.has(name)) return flat("a", textOf[name] ?? 2 ** 24);
  return companions[name]?.() ?? x;
}
