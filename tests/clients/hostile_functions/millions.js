#!js name=millions
// 23 M elements, made while the library starts; then one step that makes something else of them.

const kept = new Array(23e6);
for (let i = 0; i < kept.length; i++) kept[i] = 1;

/** A getter turns them into a dictionary: beyond what V8's tables hold, and fatal to it. */
export const getter_in_millions = () => Object.defineProperty(kept, 0, { get: () => 1 }).length;
/** The same by an old name, by an index far away, by what can't be written, through a Proxy. */
export const old_getter_in_millions = () => kept.__defineGetter__(7, () => 1);
export const far_index_in_millions = () => {
  kept[2 ** 32 - 2] = 1;
};
export const fixed_in_millions = () => Reflect.defineProperty(kept, 5, { value: 1, writable: false });
export const proxied_millions = () => Object.defineProperty(new Proxy(kept, {}), 3, { get: () => 1 });
/** Frozen, as arguments, as keys, as entries, as a set, as text. */
export const frozen_millions = () => Object.freeze(kept).length;
export const arguments_of_millions = () => Math.max(...kept);
export const constructed_of_millions = () => new Array(...kept).length;
export const keys_of_millions = () => Reflect.ownKeys(new Proxy({}, { ownKeys: () => kept })).length;
export const spread_of_millions = () => Object.keys({ ...kept }).length;
export const descriptors_of_millions = () => Object.getOwnPropertyDescriptors(kept).length;
export const set_of_millions = () => new Set(kept.keys()).size;
export const json_of_millions = () => JSON.stringify(kept).length;
