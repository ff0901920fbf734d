//! Three shards over one partition: the first one writes.

mod common;
mod stories;

const SETTINGS: &[(&str, &str)] = &[("shards", "3")];
