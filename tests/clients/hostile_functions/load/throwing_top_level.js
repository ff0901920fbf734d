#!js name=throwing_top_level
// What is thrown there has a message that doesn't end.
export const f = () => 1;
throw { get message() { for (;;); } };
