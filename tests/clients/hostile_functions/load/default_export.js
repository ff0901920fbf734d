#!js name=default_export
// Exports that are no functions, and getters that aren't there.
export default class {}
export { default as f } from "nothing";
