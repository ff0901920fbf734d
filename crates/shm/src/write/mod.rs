//! The arena's only writer: one file for each thing that it does.

pub(crate) mod append;
pub(crate) mod change;
pub(crate) mod clean;
pub(crate) mod cleaner;
pub(crate) mod commit;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod extend;
pub(crate) mod fill;
pub(crate) mod grow;
pub(crate) mod ids;
pub(crate) mod journal;
pub(crate) mod lasting;
pub(crate) mod maintain;
pub(crate) mod over;
pub(crate) mod root_map;
pub(crate) mod roots;
pub(crate) mod sound;
pub(crate) mod spread;
pub(crate) mod standing;
pub(crate) mod tell;
pub(crate) mod writer;

#[cfg(test)]
mod tests;
