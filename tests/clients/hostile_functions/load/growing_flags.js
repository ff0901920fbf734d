#!js name=growing_flags
// Flags that are very many.
export const f = () => 1;
f.flags = new Array(2 ** 32 - 1);
