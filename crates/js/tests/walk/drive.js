// The functions that the walk calls. A case is an operation `b` (a builtin, or a statement) on a
// value of kind `k` in the way `p`. `prepare` makes the values in a call of its own; `once` and
// `loop` run the case.

const kindNames = ownKeys(kinds);
// Ways to call a builtin: x is the large value, y its companion, n a small receiver that suits.
const ways = [
  (x) => [x],
  (x) => [x, x],
  (x, y) => [x, y],
  (x) => [x, isNaN],
  (x) => [x, 0, 2 ** 53 - 1],
  (x) => [x, "x", "yy"],
  (x) => [x, 2 ** 28, "ab"],
  (x) => [x, 1, x],
  (x, y, n) => [n, x],
  (x, y, n) => [n, 1, x],
  (x, y, n) => [n, x, x],
  (x, y, n) => [n, x, isNaN],
  (x, y, n) => [n, isNaN, undefined, x],
  (x, y, n) => [n, 1, 1, x],
  (x, y) => [y, x],
  (x, y) => [y, x, ""],
  (x) => [undefined, x],
];
const newWays = [(x) => [x], (x) => [x, x], (x) => [isNaN, x], (x, y) => [x, y], (x) => [1, 1, x]];
// Operations that change their receiver or arguments: the next case gets a new value.
const CHANGES =
  /\.(sort|fill|copyWithin|reverse|shift|unshift|splice|push|pop|freeze|seal|preventExtensions|setPrototypeOf|definePropert\w+|assign|set\w*|delete\w*|clear|add|next|return|throw|compile|exec|test|__\w+|\[\w*Symbol\.\w+\])$|^set |^(new )?Proxy/;
const CHANGING_STATEMENT = /delete|=(?!=)|\+\+|--|yield|of x/;

const isConstructor = (f) => {
  try {
    Reflect.construct(Object, [], f);
    return true;
  } catch {
    return false;
  }
};

let operations;
function prepareOperations(db) {
  if (operations !== undefined) return;
  operations = intrinsics(db, db.get("big")).map((row) => ({
    ...row,
    made: isConstructor(row.f),
    changes: CHANGES.test(row.path),
  }));
}

// The large values, kept from case to case.
let held;
let x;
let y;

const changes = (b) =>
  b < operations.length ? operations[b].changes : CHANGING_STATEMENT.test(statements[b - operations.length][0]);

export function prepare(db, [b, k]) {
  prepareOperations(db);
  if (held !== k) {
    held = x = y = undefined;
    x = kinds[kindNames[k]]();
    y = companion(kindNames[k], x);
    held = k;
  }
  return 1;
}

const receiver = (row, db) => {
  if (row.path.startsWith("db.")) return db;
  if (row.path.startsWith("record.")) return db.get("big");
  return receivers.get(row.owner)?.() ?? row.owner;
};
// The function without arguments that does a case.
function jobOf(row, p, db) {
  const n = receiver(row, db);
  if (p < ways.length) return row.f.bind(...ways[p](x, y, n));
  return row.f.bind(undefined, ...newWays[p - ways.length](x, y));
}

export function once(db, [b, , p]) {
  if (changes(b)) held = undefined;
  if (b >= operations.length) return statements[b - operations.length][1](x, y, isNaN, db, db.get("big"));
  const job = jobOf(operations[b], p, db);
  try {
    if (p < ways.length) job();
    else new job();
  } catch {
    // Many combinations make no sense: an error is a fine end.
  }
  return 1;
}

export function loop(db, [b, , p]) {
  held = undefined;
  if (b >= operations.length) return statements[b - operations.length][2](x, y, isNaN, db, db.get("big"));
  const job = jobOf(operations[b], p, db);
  if (p < ways.length) {
    for (;;) {
      try {
        job();
      } catch {}
    }
  }
  for (;;) {
    try {
      new job();
    } catch {}
  }
}

export const fine = () => 1;

// The names, a line each: kinds; then operations and in how many ways each is done.
export function names(db) {
  prepareOperations(db);
  const lines = kindNames.map((name) => `kind ${name}`);
  for (const { path, made } of operations) {
    lines.push(`builtin ${ways.length + (made ? newWays.length : 0)} ${path}`);
  }
  for (const [text] of statements) lines.push(`statement 1 ${text}`);
  return lines;
}
