// Finds all functions that user code reaches: globals, the properties of these and of their
// prototypes, getters and setters, and objects to which only syntax leads.

const { ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;

const hidden = {
  __proto__: null,
  "%Function%": () => {},
  "%AsyncFunction%": async () => {},
  "%Generator%": (function* () {})(),
  "%GeneratorFunction%": function* () {},
  "%AsyncGenerator%": (async function* () {})(),
  "%AsyncGeneratorFunction%": async function* () {},
  "%ArrayIterator%": [][Symbol.iterator](),
  "%StringIterator%": ""[Symbol.iterator](),
  "%MapIterator%": new Map()[Symbol.iterator](),
  "%SetIterator%": new Set()[Symbol.iterator](),
  "%RegExpStringIterator%": "".matchAll(/a/g),
  "%Revocation%": Proxy.revocable({}, {}),
  "%Arguments%": (function () {
    return arguments;
  })(),
  "%StrictArguments%": (function () {
    "use strict";
    return arguments;
  })(),
};
new Promise((resolve, reject) => {
  hidden["%resolve%"] = resolve;
  hidden["%reject%"] = reject;
});

const keyText = (key) => (typeof key === "symbol" ? `[${key.description}]` : String(key));

// Rows of {path, f, owner}; `db` and `record` are of the call that asks.
function intrinsics(db, record) {
  const seen = new Set();
  const found = [];
  const functions = new Set();
  const add = (path, f, owner) => {
    if (functions.has(f)) return;
    functions.add(f);
    found.push({ path, f, owner });
  };
  // By distance from the globals, so that each has its shortest name; a prototype is three steps
  // away.
  const distances = [[]];
  const later = (path, o, distance) => {
    while (distances.length <= distance) distances.push([]);
    distances[distance].push([path, o]);
  };
  const visit = (path, o, distance) => {
    if ((typeof o !== "object" && typeof o !== "function") || o === null || seen.has(o)) return;
    seen.add(o);
    for (const key of ownKeys(o)) {
      const at = path === "" ? keyText(key) : `${path}.${keyText(key)}`;
      const d = getOwnPropertyDescriptor(o, key);
      for (const part of ["value", "get", "set"]) {
        const name = part === "value" ? at : `${part} ${at}`;
        if (typeof d[part] === "function") add(name, d[part], o);
        later(name, d[part], distance + 1);
      }
    }
    later(`${path}.__proto__`, getPrototypeOf(o), distance + 3);
  };
  later("", globalThis, 0);
  later("%TypedArray%", getPrototypeOf(Uint8Array), 1);
  for (const name of ownKeys(hidden)) {
    if (typeof hidden[name] === "function") add(name, hidden[name], hidden);
    later(name, hidden[name], 1);
  }
  later("db", db, 1);
  later("record", record, 1);
  for (let i = 0; i < distances.length; i++) for (const [path, o] of distances[i]) visit(path, o, i);
  return found;
}

// A small receiver that suits a method of `owner`.
const receivers = new Map([
  [Array.prototype, () => [1, 2, 3]],
  [String.prototype, () => "abcabc"],
  [Number.prototype, () => 255.5],
  [Boolean.prototype, () => true],
  [Symbol.prototype, () => Symbol("s")],
  [BigInt.prototype, () => 77n],
  [Function.prototype, () => isNaN],
  [Object.prototype, () => ({ a: 1 })],
  [Error.prototype, () => new Error("m")],
  [Date.prototype, () => new Date(0)],
  [RegExp.prototype, () => /a/g],
  [Map.prototype, () => new Map([[1, 2]])],
  [Set.prototype, () => new Set([1])],
  [WeakMap.prototype, () => new WeakMap()],
  [WeakSet.prototype, () => new WeakSet()],
  [Promise.prototype, () => Promise.resolve(1)],
  [ArrayBuffer.prototype, () => new ArrayBuffer(64)],
  [DataView.prototype, () => new DataView(new ArrayBuffer(64))],
  [getPrototypeOf(Uint8Array).prototype, () => new Uint8Array(64)],
  [getPrototypeOf(Uint8Array), () => Uint8Array],
  [getPrototypeOf(hidden["%ArrayIterator%"]), () => [1, 2][Symbol.iterator]()],
  [getPrototypeOf(hidden["%Generator%"]), () => hidden["%Generator%"]],
]);
