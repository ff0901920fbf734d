#!js name=lying_flags
// Flags that run code.
export const f = () => 1;
f.flags = new Proxy([], { get() { for (;;); } });
