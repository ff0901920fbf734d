#!js name=long_switch_of_strings
// Compiled when it is called first, at load.
const words = Array.from({ length: 100000 }, (_, i) => "w" + i);
export const f = () => words.length;
for (let i = 0; i < 1e9; i++) words[i % 100000] += i;
