//! Three shards over one partition: the first one writes.

#[path = "stories/mod.rs"]
mod stories;

const SETTINGS: &[(&str, &str)] = &[("shards", "3")];
