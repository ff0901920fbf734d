#!js name=endless_top_level
// The top level doesn't end.
export const f = () => 1;
for (;;);
