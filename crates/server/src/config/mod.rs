//! Settings: one table, from which flags, the file, CONFIG and their help derive.
//!
//! ```text
//! table (name, kind, default, bounds) ──> flags of `nigh serve` ─┐
//!                                     ──> TOML file ─────────────┼──> Config ──> CONFIG GET / SET
//!                                     ──> defaults ──────────────┘
//! ```
//!
//! 1. A `Config` holds a value of the right kind and within bounds for every row, always.
//! 2. An unknown name is an error that names it and the nearest known one; nothing is ignored.
//!
//! Plain data; the shard has its own copy, which CONFIG SET changes.

mod file;
mod rewrite;
mod table;
mod value;

pub use file::load;
pub(crate) use rewrite::rewrite;
pub use table::{Setting, SettingKind, setting, settings};
pub use value::{ConfigError, Value};

use nigh_store::SyncMode;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings of one server. Starts with the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    values: BTreeMap<&'static str, Value>,
    /// The program `nigh`, by which new sources are tried in a process of their own; none: they are
    /// compiled where they are to run at once.
    pub checker: Option<PathBuf>,
    /// The settings file, into which CONFIG REWRITE writes.
    pub file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let values = settings().iter().map(|row| (row.name, row.default_value())).collect();
        Self { values, checker: None, file: None }
    }
}

impl Config {
    /// Sets a setting from its text, as a flag, the file or CONFIG SET gives it.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no such setting or the text isn't one of its values.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let row = setting(name).ok_or_else(|| ConfigError::unknown(name))?;
        let value = row.parse(text)?;
        self.values.insert(row.name, value);
        Ok(())
    }

    /// Gives a setting the value that it has in others.
    ///
    /// # Panics
    /// If the table has no row of that name: a mistake of the caller.
    pub fn copy(&mut self, name: &'static str, other: &Config) {
        self.values.insert(name, other.value(name).clone());
    }

    /// The value of a setting.
    ///
    /// # Panics
    /// If the table has no row of that name: a mistake of the caller.
    pub fn value(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or_else(|| panic!("no setting {name} in the table"))
    }

    /// The value of a setting as text, as CONFIG GET answers it.
    pub fn text(&self, name: &str) -> String {
        self.value(name).to_string()
    }

    /// The value of a number or size setting.
    ///
    /// # Panics
    /// If the setting is of another kind: a mistake of the caller.
    pub fn number(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => panic!("setting {name} is no number but {other}"),
        }
    }

    /// The value of a number or size setting that can't be negative.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(0)
    }

    /// The value of a number setting that can't be negative.
    pub fn unsigned(&self, name: &str) -> u64 {
        u64::try_from(self.number(name)).unwrap_or(0)
    }

    /// The value of a yes/no setting.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Flag(true))
    }

    /// The TCP port, 0 for none.
    pub fn port(&self) -> u16 {
        u16::try_from(self.number("port")).unwrap_or(0)
    }

    /// When the log is synced.
    ///
    /// # Panics
    /// If the table lists a mode that the store doesn't know: a test reads all.
    pub fn sync_mode(&self) -> SyncMode {
        let mode = SyncMode::of_name(&self.text("appendfsync"));
        mode.expect("the table lists the modes of the store")
    }

    /// The folder of the arenas; by default one in `/dev/shm`, named after the `port` listened on.
    pub fn shm_dir(&self, port: u16) -> PathBuf {
        match self.text("shm-dir") {
            text if text.is_empty() => PathBuf::from(format!("/dev/shm/nigh-{port}")),
            text => PathBuf::from(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every default is a value that its own row accepts, so a file of all defaults loads.
    #[test]
    fn defaults_are_valid_values() {
        let config = Config::default();
        for row in settings() {
            let text = config.text(row.name);
            let parsed = row.parse(&text);
            assert_eq!(parsed.as_ref().ok(), Some(config.value(row.name)), "{}", row.name);
        }
    }

    /// A slip of the pen is answered with the name that was meant.
    #[test]
    fn unknown_setting_is_named_with_the_nearest() {
        let error = Config::default().set("maxclient", "3").expect_err("unknown");
        let text = error.to_string();
        assert!(text.contains("`maxclient`") && text.contains("`maxclients`"), "{text}");
    }

    /// A client that asks for what Nigh doesn't have learns the one value that is taken, and why.
    #[test]
    fn a_setting_with_one_value_says_why() {
        let mut config = Config::default();
        for (name, text, reason) in [
            ("save", "900 1", "must be empty: Nigh saves no snapshots: see appendonly, and BACKUP"),
            ("databases", "16", "must be 1: Nigh has one database"),
            ("databases", "x", "must be 1: Nigh has one database"),
        ] {
            let error = config.set(name, text).expect_err("refused").to_string();
            assert_eq!(error, format!("setting `{name}`: {reason}"));
            assert!(!setting(name).expect("a row").mutable, "CONFIG SET has Redis's texts");
        }
    }

    /// The names of the modes of syncing are the store's.
    #[test]
    fn the_store_knows_all_modes_of_syncing() {
        let mut config = Config::default();
        assert_eq!(config.sync_mode(), SyncMode::EverySecond);
        for mode in SyncMode::ALL {
            config.set("appendfsync", mode.name()).expect("a mode");
            assert_eq!(config.sync_mode(), mode);
        }
        let Some(SettingKind::Choice(names)) = setting("appendfsync").map(|row| row.kind) else {
            panic!("words")
        };
        assert_eq!(names.len(), SyncMode::ALL.len());
    }

    /// A size of a ring is a power of two, with or without a unit.
    #[test]
    fn some_sizes_are_powers_of_two() {
        let mut config = Config::default();
        config.set("local-ring-bytes", "1mb").expect("a power of two");
        assert_eq!(config.size("local-ring-bytes"), 1 << 20);
        for bad in ["0", "-4096", "2048", "5000", "1m", "2gb", "x"] {
            let error = config.set("local-ring-bytes", bad).expect_err(bad).to_string();
            assert!(
                error.starts_with("setting `local-ring-bytes`: argument must be a "),
                "{error}"
            );
        }
        assert_eq!(config.size("local-ring-bytes"), 1 << 20, "an error changes nothing");
    }

    /// Sizes take units, and bounds hold.
    #[test]
    fn sizes_take_units_and_bounds() {
        let mut config = Config::default();
        config.set("proto-max-bulk-len", "1mb").expect("a size");
        assert_eq!(config.size("proto-max-bulk-len"), 1 << 20);
        config.set("proto-max-bulk-len", "2m").expect("a size");
        assert_eq!(config.size("proto-max-bulk-len"), 2_000_000);
        for bad in ["", "x", "-1", "1", "600mb", "99999999999999999999", "1.5mb"] {
            assert!(config.set("proto-max-bulk-len", bad).is_err(), "{bad}");
        }
        assert_eq!(config.size("proto-max-bulk-len"), 2_000_000, "an error changes nothing");
    }
}
