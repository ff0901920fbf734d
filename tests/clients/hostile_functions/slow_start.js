#!js name=slow_start
// A library that takes its whole limit to start; whoever is stopped makes it start again, in everybody's next call.

let n = 0;
for (let i = 0; i < 3e8; i++) n += i % 7;

/** The plain loop. */
export const slow_start = () => {
  for (;;) n++;
};
