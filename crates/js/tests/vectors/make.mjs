// Makes builtins.txt: the results of JavaScript's own builtins for some hundred random calls, and
// for a few on long receivers. Run it with a node that has none of Nigh's replacements:
//
//   node crates/js/tests/vectors/make.mjs > crates/js/tests/vectors/builtins.txt
//
// Each line: the body of a function, a tab, and the result as `show` (in support.js) prints it.

import { readFileSync } from "node:fs";
import vm from "node:vm";

const context = vm.createContext({});
vm.runInContext(readFileSync(new URL("support.js", import.meta.url), "utf8"), context);

let seed = 20220601;
const rnd = (n) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return (seed >>> 8) % n;
};
const pick = (a) => a[rnd(a.length)];
const el = () =>
  pick([
    "1",
    "2",
    "-0",
    "0",
    "NaN",
    '"a"',
    '"b"',
    "undefined",
    "null",
    "[1,2]",
    "[3,[4]]",
    "{}",
    "10",
    "9",
    "true",
    '"10"',
    "1.5",
  ]);
function arr() {
  const k = rnd(9);
  const n = rnd(7);
  let xs = [...Array(n)].map(() => (rnd(5) ? el() : "")).join(",");
  if (xs.endsWith(",") || xs === "") {
  }
  const a = `[${xs}]`;
  switch (k) {
    case 0:
    case 1:
    case 2:
      return a;
    case 3:
      return `({...${a},length:${pick([n, n + 1, '"3"', "-1", "NaN", 2.7])}})`;
    case 4:
      return `new P(${a},log)`;
    case 5:
      return `Object.freeze(${a})`;
    case 6:
      return `new Sub(${rnd(5)}).concat(${a})`;
    case 7:
      return pick(['"abc"', "5", "null", "undefined", "true"]);
    case 8:
      return `Object.assign(Object.create({1:"inh"}),{0:1,length:3})`;
  }
}
const int = () =>
  pick([
    "0",
    "1",
    "2",
    "-1",
    "-2",
    "3",
    "undefined",
    "Infinity",
    "-Infinity",
    "NaN",
    '"1"',
    "1.9",
    '{valueOf(){log.push("v");return 1}}',
    "null",
    "1e10",
  ]);
const cb = () =>
  pick([
    "(v,i,o)=>(log.push(v,i,typeof o),v)",
    "(v,i)=>i%2",
    "(v)=>v",
    "isNaN",
    "(v)=>[v,[v]]",
    "null",
    "()=>{throw new TypeError()}",
    "(v,i,o)=>{o.length=0;return true}",
    "(v,i,o)=>{ o[i+1]=7; return v}",
    "function(v){log.push(this);return this}",
  ]);
const str = () =>
  pick([
    '"abcabc"',
    '"aaaa"',
    '""',
    '"a"',
    '"ab"',
    '"xabxabx"',
    '"ΑΣ ΑΣ"',
    '"İi̇ß"',
    '"e\\u0301\\u0316a\\u0316\\u0301"',
    '"ｶﾞ가ᄀ\\u1161"',
    "5",
    "null",
    "undefined",
    '"\\ud83d\\ude00a\\ud83d"',
    '{toString(){log.push("ts");return "aXa"}}',
    '"%E4%BD%A0%41%zz"',
    '"%u1234%41%u"',
    '"a b c d e f g h i j"',
    "/a/g",
    "/b/",
    "/(a)(b)?/g",
    "/a/y",
    "/a/gi",
    "/(?:)/g",
    "/a/gu",
    "/[ab]/",
  ]);
const rep = () =>
  pick([
    '"x"',
    '"$&$&"',
    '"$`|$\'|$$|$1|$<a>|$"',
    '(m,i,s)=>(log.push(m,i,s),m+"!")',
    "undefined",
    "5",
    '"$0$"',
  ]);
function expr() {
  const w = rnd(20);
  if (w < 9) {
    const m = pick([
      "includes",
      "indexOf",
      "lastIndexOf",
      "forEach",
      "map",
      "filter",
      "some",
      "every",
      "find",
      "findIndex",
      "findLast",
      "findLastIndex",
      "reduce",
      "reduceRight",
      "fill",
      "reverse",
      "copyWithin",
      "shift",
      "unshift",
      "slice",
      "splice",
      "flat",
      "flatMap",
      "sort",
      "join",
      "toLocaleString",
      "concat",
      "toString",
    ]);
    let args;
    if (["includes", "indexOf", "lastIndexOf"].includes(m))
      args = pick([[el()], [el(), int()], []]);
    else if (["fill"].includes(m)) args = pick([[el()], [el(), int(), int()], [el(), int()]]);
    else if (["copyWithin", "slice", "splice"].includes(m)) {
      args = [...Array(rnd(4))].map(int);
      if (m === "splice" && rnd(2)) args.push(el(), el(), el());
    } else if (["shift", "reverse"].includes(m)) args = [];
    else if (m === "unshift" || m === "concat")
      args = [...Array(rnd(3))].map(() => (rnd(2) ? el() : arr()));
    else if (m === "flat") args = pick([[], ["2"], ["Infinity"], ["-1"], ["0"]]);
    else if (m === "sort")
      args = pick([[], ["(a,b)=>a-b"], ["undefined"], ["null"], ["(a,b)=>b>a?1:-1"], ["()=>NaN"]]);
    else if (m === "join") args = pick([[], ['"-"'], ["undefined"], ['""'], ["5"]]);
    else if (m === "toLocaleString" || m === "toString") args = [];
    else if (m.startsWith("reduce"))
      args = pick([
        ["(a,v,i,o)=>(log.push(a,v,i,typeof o),v)"],
        ['(a,v)=>a+""+v', '"s"'],
        ["null"],
        ["(a,v)=>v", "undefined"],
      ]);
    else args = pick([[cb()], [cb(), "{}"], [cb(), "1"]]);
    return `let t=${arr()}; let r=Array.prototype.${m}.call(${["t", ...args].join(",")}); return [r,t,r===t]`;
  }
  if (w < 14) {
    const m = pick([
      "indexOf",
      "includes",
      "lastIndexOf",
      "split",
      "replace",
      "replaceAll",
      "match",
      "normalize",
      "toUpperCase",
      "toLowerCase",
      "localeCompare",
      "toLocaleUpperCase",
      "search",
    ]);
    let args;
    if (["indexOf", "includes", "lastIndexOf"].includes(m))
      args = pick([[str()], [str(), int()], []]);
    else if (m === "split")
      args = pick([[str()], [str(), int()], [], ['""'], ["undefined", int()]]);
    else if (m.startsWith("replace")) args = [str(), rep()];
    else if (m === "normalize") args = pick([[], ['"NFD"'], ['"NFKC"'], ['"NFKD"'], ['"X"']]);
    else if (m === "match" || m === "search" || m === "localeCompare") args = [str()];
    else args = [];
    return `let p=${args[0] ?? "undefined"}; let r=String.prototype.${m}.call(${[str(), ...(args.length ? ["p", ...args.slice(1)] : [])].join(",")}); return [r,p&&p.lastIndex]`;
  }
  if (w < 15)
    return `return ${pick(["encodeURIComponent", "encodeURI", "decodeURI", "decodeURIComponent"])}(${str()})`;
  if (w < 16) {
    const j = () => {
      const k = rnd(9);
      return k < 3
        ? pick([
            "1",
            "-0",
            '"a"',
            '"\\\\n\\\\u0041x"',
            "true",
            "null",
            "1e3",
            "01",
            "tru",
            '"',
            "-",
            '"\t"',
          ])
        : k < 6
          ? "[" + [...Array(rnd(4))].map(j).join(pick([",", " , ", ",,"])) + "]"
          : "{" +
            [...Array(rnd(4))]
              .map(() => '"' + pick(["a", "b", "__proto__", "1", "0"]) + '":' + j())
              .join(",") +
            pick(["}", "} ", "}", "}", "},", ""]);
    };
    return `return JSON.parse(${JSON.stringify(j() + pick(["", "  ", "", " 1"]))}${rnd(4) ? "" : ',function(k,v){log.push(k,v);return k==="0"?undefined:v}'})`;
  }
  if (w < 18) {
    const T = pick([
      "Uint8Array",
      "Int8Array",
      "Int16Array",
      "Float64Array",
      "Float32Array",
      "Int32Array",
      "BigInt64Array",
      "Uint32Array",
      "Uint8ClampedArray",
    ]);
    const big = T[0] === "B";
    const xs = [...Array(rnd(14))].map(() =>
      big
        ? pick(["1n", "-5n", "3n", "0n"])
        : pick(["1", "200", "-3", "0", "-0", "NaN", "2.5", "Infinity"]),
    );
    const m = pick([
      "sort()",
      "sort((a,b)=>a<b?1:-1)",
      "join()",
      'join("-")',
      "reduce((a,v,i,o)=>(log.push(v,i,typeof o),v))",
      "reduceRight((a,v)=>v,1)",
      "toLocaleString()",
      "set([1,2])",
      "set({0:5,length:1},1)",
      "set({length:99})",
      "toString()",
    ]);
    return pick([
      `let t=new ${T}([${xs}]);let r=t.${m};return [r,t,r===t]`,
      `return ${T}.from(${pick([`[${xs}]`, `new Set([${xs}])`, `{length:2,0:${xs[0] || 1}}`, '"123"', "null"])}${pick(["", ",(v,i)=>v", ",null"])})`,
    ]);
  }
  if (w < 19)
    return `return Array.from.call(${pick(["Array", "Sub", "undefined", "Object", "isNaN"])},${pick(["[1,2,,3]", '"añ😀"', "new Set([1,2])", "{length:3,1:2}", "null", "5", "new Map([[1,2]])", "{[Symbol.iterator]:5}", '{*[Symbol.iterator](){try{yield 1;yield 2}finally{log.push("closed")}}}'])}${pick(["", ",(v,i)=>(log.push(v,i),v)", ",null", ",()=>{throw new TypeError}", ",function(){return this},7"])})`;
  return pick([
    'return String.raw({raw:["a","b"]},1,2)',
    "return String.raw`a${1}\\n`",
    "return String.raw({raw:null})",
    "return Math.max.apply(null,{length:2,0:5,1:7})",
    "return Reflect.apply(Math.max,null,5)",
    'return Math.max.apply(null,"ab")',
    "return Reflect.construct(Array,{length:2,0:1,1:2})",
    "return Reflect.construct(Date)",
    'return Object.keys("abc")',
    'return Object.assign({},"ab",{x:1},null)',
    'return JSON.stringify({a:1,b:2,c:[{a:2}]},["a","c"])',
    "return Object.entries([1,,2])",
    "return Proxy(1,2)",
    "return Reflect.ownKeys(1)",
    "let {proxy,revoke}=Proxy.revocable([1,2],{});let x=proxy.includes(1);revoke();return [x,proxy.map(x=>x)]",
    "return new Proxy([1,2,3],{}).map(x=>x)",
    'return [Proxy.length,Proxy.name,"prototype" in Proxy,typeof Proxy]',
    "return (5).toLocaleString()",
    "return Function.prototype.apply.call(5)",
    "return new [].map(x=>x)",
  ]);
}

const LONG = "const long = Array.from({length: 140000}, (_, i) => i * 7919 % 1009);";
const TEXT = "const text = 'ab\\u00e9\\u0323 c\\u03a3 '.repeat(20000);";
const digest = (what) =>
  `let h = 0; const s = ${what}; for (let i = 0; i < s.length; i++) h = (Math.imul(h, 31) + s.charCodeAt(i)) | 0; return [s.length, h];`;
const long = [
  "return [long.indexOf(7), long.includes(-1), long.lastIndexOf(7), long.indexOf(7, 5000)]",
  "return long.map((v) => v + 1).filter((v) => v % 3 === 0).reduce((a, b) => (a * 31 + b) % 65521, 0)",
  "return [long.some((v) => v > 1008), long.every((v) => v < 1009), long.reduceRight((a, b) => a - b)]",
  digest("long.sort().join()"),
  digest("long.sort((a, b) => b - a).join('-')"),
  digest("long.reverse().join()"),
  digest("long.slice(-139990, -1).join()"),
  "const cut = long.splice(10, 100000, 'x', 'y'); return [cut.length, long.length, long[10], long[11], long[12]]",
  "const first = long.shift(); return [first, long.length, long[0], long.unshift(1, 2), long[2]]",
  "long.fill(3, 100).copyWithin(0, 139000); return [long[0], long[999], long[1000], long.length]",
  "delete long[5]; return [5 in long.map((v) => v), 5 in long.reverse(), 139994 in long, long.flat().length]",
  "return long.flatMap((v) => [v, [v]]).length",
  digest("new Float64Array(long).map((v) => v / 3 - 100).sort().join()"),
  digest("new Int16Array(long).sort().join()"),
  digest("BigInt64Array.from(long, BigInt).sort().toString()"),
  digest(
    "JSON.stringify(JSON.parse(JSON.stringify({ a: long, b: { c: 'é\\n'.repeat(100000), d: [] } })))",
  ),
  "let n = 0; JSON.parse(JSON.stringify(long), (k, v) => (n++, v)); return n",
  "try { JSON.parse('[' + '1,'.repeat(100000) + ']') } catch (e) { return e.name }",
];
const texts = [
  ...["NFC", "NFD", "NFKC", "NFKD"].map((f) => digest(`text.normalize("${f}")`)),
  digest("text.toUpperCase()"),
  digest("text.toLowerCase()"),
  digest("text.replaceAll('b', '[$&$$]')"),
  digest("text.replace(/ab/g, (m, at) => at)"),
  digest("text.split(' ').join('|')"),
  digest("text.split(/c/).join('|')"),
  digest("encodeURIComponent(text)"),
  digest("decodeURIComponent(encodeURIComponent(text))"),
  "return [text.indexOf('ab', 70000), text.lastIndexOf('ab', 70000), text.includes('ba'), text.match(/ab/g).length]",
];

const lines = [];
const run = (body) => vm.runInContext(`show((log) => { "use strict"; ${body} })`, context);
while (lines.length < 700) {
  const body = expr();
  try {
    lines.push(`${body}\t${run(body)}`);
  } catch {
    // a random expression that does not compile
  }
}
for (const body of long) lines.push(`${LONG} ${body}\t${run(`${LONG} ${body}`)}`);
for (const body of texts) lines.push(`${TEXT} ${body}\t${run(`${TEXT} ${body}`)}`);
process.stdout.write(lines.join("\n") + "\n");
