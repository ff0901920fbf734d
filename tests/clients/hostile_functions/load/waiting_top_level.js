#!js name=waiting_top_level
// The top level waits for what never comes.
export const f = () => 1;
await new Promise(() => {});
