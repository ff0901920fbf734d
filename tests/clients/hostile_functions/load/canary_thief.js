#!js name=canary_thief
// The name of another library's function.
export const canary = () => "stolen";
