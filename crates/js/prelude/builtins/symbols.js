// Symbol.for and Symbol.keyFor, by a table for each context. V8's own table belongs to the isolate:
// it serves all tenants, and V8 never removes a symbol from it, so that it could fill the heap for
// good. This one goes with its context. See operations.js for the invariants.

"use strict";

(() => {
  const { replace, uncurry, ToString } = globalThis.nighBuiltins;

  const { getOwnPropertyDescriptor } = Reflect;
  const NativeSymbol = Symbol;
  const NativeTypeError = TypeError;
  const descriptionOf = uncurry(getOwnPropertyDescriptor(Symbol.prototype, "description").get);

  // The snapshot has it empty, so each context begins with an empty one.
  const registered = new SafeMap(); // key -> symbol, whose description is the key

  replace(Symbol, {
    for(value) {
      const key = ToString(value);
      let symbol = registered.get(key);
      if (symbol === undefined) {
        symbol = NativeSymbol(key);
        registered.set(key, symbol);
      }
      return symbol;
    },
    keyFor(symbol) {
      if (typeof symbol !== "symbol") {
        throw new NativeTypeError("Symbol.keyFor was called with what is not a symbol");
      }
      const key = descriptionOf(symbol);
      return key !== undefined && registered.get(key) === symbol ? key : undefined;
    },
  });
})();
