// For make.mjs and tests/js/builtins.rs: functions that the expressions use, and `show`, which prints
// a result with its property attributes, and the steps that were logged on the way.
const show = function show(f) {
  let log = [];
  const seen = new Map();
  function d(v, n) {
    if (typeof v === "string") return JSON.stringify(v);
    if (typeof v === "bigint") return v + "n";
    if (typeof v === "symbol") return "sym";
    if (typeof v === "function") return "fn";
    if (Object.is(v, -0)) return "-0";
    if (typeof v !== "object" || v === null) return String(v);
    if (n > 6) return "...";
    if (seen.has(v)) return "#";
    seen.set(v, 1);
    let r = Object.prototype.toString.call(v) + (v.constructor ? v.constructor.name : "") + "{";
    const ks = Object.getOwnPropertyNames(v).filter((k) => k !== "stack" && k !== "message");
    for (const k of ks) {
      const p = Object.getOwnPropertyDescriptor(v, k);
      r +=
        k +
        ":" +
        (p.writable ? 1 : 0) +
        (p.enumerable ? 1 : 0) +
        (p.configurable ? 1 : 0) +
        ("value" in p ? d(p.value, n + 1) : "acc") +
        ",";
    }
    seen.delete(v);
    return r + "}";
  }
  try {
    const v = f(log);
    return d(v, 0) + "|" + log.map((x) => d(x, 0)).join(";");
  } catch (e) {
    return (
      "threw " +
      (e && e.constructor && e.constructor.name) +
      "|" +
      log.map((x) => d(x, 0)).join(";")
    );
  }
};
class Sub extends Array {}
const P = function (a, log) {
  return new Proxy(a, {
    get(t, k, r) {
      log.push("get " + String(k));
      return Reflect.get(t, k);
    },
    has(t, k) {
      log.push("has " + String(k));
      return k in t;
    },
    set(t, k, v) {
      log.push("set " + String(k));
      t[k] = v;
      return true;
    },
    deleteProperty(t, k) {
      log.push("del " + String(k));
      return delete t[k];
    },
    defineProperty(t, k, d) {
      log.push("def " + String(k));
      return Reflect.defineProperty(t, k, d);
    },
  });
};
