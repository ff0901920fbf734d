#!js name=flooding_top_level
// Microtasks that follow each other behind a top level that has ended.
export const f = () => 1;
const flood = () => Promise.resolve().then(flood);
flood();
