// Checks the ranges of beginsSequence in prelude/builtins/text.js against this node's Unicode
// tables: the first character of a full decomposition must have combining class 0, and be the
// second one of no composition.
//
//   node crates/js/tests/vectors/sequences.mjs

import { readFileSync } from "node:fs";
import vm from "node:vm";

const source = readFileSync(new URL("../../prelude/builtins/text.js", import.meta.url), "utf8");
const from = source.indexOf("(u) =>", source.indexOf("const beginsSequence"));
const beginsSequence = vm.runInThisContext(source.slice(from, source.indexOf(";\n", from)));

const points = [];
for (let point = 0; point < 0x110000; point++) {
  if (point < 0xd800 || point > 0xdfff) points.push(String.fromCodePoint(point));
}
const seconds = new Set();
for (const character of points) {
  for (const part of [...character.normalize("NFD")].slice(1)) seconds.add(part);
}
// U+0345 has the highest class: all others but 0 are sorted before it.
const isStarter = (c) => c !== "\u0345" && `\u0345${c}`.normalize("NFD") === `\u0345${c.normalize("NFD")}`;
const chosen = points.filter((c) => beginsSequence(c.charCodeAt(0)));
const wrong = chosen.filter((c) => {
  const [first] = c.normalize("NFKD");
  return seconds.has(first) || !isStarter(first);
});
console.log(`${chosen.length} characters, ${wrong.length} wrong ${wrong.join(" ")}`);
process.exitCode = wrong.length === 0 && chosen.length > 100_000 ? 0 : 1;
