#!js name=heap_top_level
// The top level takes the heap.
export const all = [];
export const f = () => 1;
for (;;) all.push(new Array(1000).fill(1));
