#!js name=self_import
// A module that imports itself.
import * as me from "self_import";
export const f = () => me;
