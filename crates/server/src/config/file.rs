//! The configuration file: TOML, one key a setting.
//!
//! ```toml
//! port = 6380
//! maxmemory = "4gb"
//! bind = ["127.0.0.1", "::1"]
//! ```

use super::table::{SettingKind, setting};
use super::{Config, ConfigError};
use std::path::Path;

/// Longest configuration file, in bytes: many times what all settings take.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// Reads a file into `config`, over what is there.
///
/// # Errors
/// [`ConfigError`] if the file can't be read, isn't TOML, or has an unknown or wrong setting.
pub fn load(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let file_error =
        |reason: String| ConfigError::File { path: path.display().to_string(), reason };
    let meta = std::fs::metadata(path).map_err(|error| file_error(error.to_string()))?;
    if meta.len() > MOST_FILE_BYTES {
        return Err(file_error(format!("longer than {MOST_FILE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| file_error(error.to_string()))?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| file_error(one_line(&error.to_string())))?;
    for (name, value) in &table {
        if is_other_than_written(name, value) {
            return Err(file_error(format!("`{name}` must be a string")));
        }
        let text = as_text(value).ok_or_else(|| {
            file_error(format!(
                "`{name}` must be a string, number, true or false, or a list of strings"
            ))
        })?;
        config.set(name, &text).map_err(|error| file_error(error.to_string()))?;
    }
    Ok(())
}

/// Whether a text is given as a number or a flag, of which TOML doesn't keep how it was written:
/// 0o660 is 432.
fn is_other_than_written(name: &str, value: &toml::Value) -> bool {
    let is_text = |kind| matches!(kind, SettingKind::Text(_) | SettingKind::Secret(_));
    setting(name).is_some_and(|row| is_text(row.kind)) && (value.is_integer() || value.is_bool())
}

/// A value as the text that a flag would have.
fn as_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(if *flag { "yes" } else { "no" }.to_owned()),
        toml::Value::Array(items) => {
            let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            items.map(|items| items.join(" "))
        }
        _ => None,
    }
}

/// An error of several lines in one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().expect("a file in the temporary folder");
        std::fs::write(file.path(), text).expect("it takes some text");
        let mut config = Config::default();
        load(&mut config, file.path()).map(|()| config)
    }

    /// Each kind of value is read from TOML's own types.
    #[test]
    fn file_sets_every_kind() {
        let config =
            load_text("port = 7000\nfresh = true\nmaxmemory = \"1gb\"\nbind = [\"::1\"]\n");
        let config = config.expect("a right file");
        assert_eq!(config.port(), 7000);
        assert!(config.flag("fresh"));
        assert_eq!(config.size("maxmemory"), 1 << 30);
        assert_eq!(config.text("bind"), "::1");
    }

    /// Permissions that were written as TOML writes octal numbers, 0o660, were read as the number
    /// 432, and that as octal digits: each user of the machine could connect. A password `true`
    /// became `yes`.
    #[test]
    fn a_number_is_no_text() {
        for line in ["unixsocketperm = 0o660", "unixsocketperm = 770", "requirepass = 0x10"] {
            let error = load_text(line).expect_err(line).to_string();
            assert!(error.ends_with("must be a string"), "{error}");
        }
        assert!(load_text("requirepass = true").is_err());
        let config = load_text("unixsocketperm = \"660\"").expect("a string");
        assert_eq!(config.text("unixsocketperm"), "660");
    }

    /// A wrong file is refused with the file, the name and what is near it.
    #[test]
    fn unknown_and_malformed_settings_are_refused() {
        let error = load_text("prot = 7000\n").expect_err("unknown").to_string();
        assert!(error.contains("`prot`") && error.contains("`port`"), "{error}");
        assert!(load_text("port = \n").is_err());
        assert!(load_text("port = 1.5\n").is_err());
        assert!(load_text("[section]\nport = 1\n").is_err());
    }
}
