//! Values of settings, and the texts that they are read from.

use super::table::{Setting, SettingKind, settings};
use std::fmt;

/// The value of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number in the setting's unit.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no setting of that name.
    #[error("there is no setting `{name}`; the nearest is `{nearest}`")]
    Unknown {
        /// As it was given.
        name: String,
        /// The known name that differs least.
        nearest: &'static str,
    },
    /// The text isn't a value of the setting.
    #[error("setting `{name}`: {reason}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What is wrong, and what is accepted.
        reason: String,
    },
    /// The file can't be read or isn't TOML.
    #[error("configuration file {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong, and where.
        reason: String,
    },
}

impl ConfigError {
    /// The error for an unknown name.
    pub(super) fn unknown(name: &str) -> Self {
        let name: String = name.chars().take(MOST_QUOTED_CHARS).collect();
        let names = settings().iter().map(|row| row.name);
        let nearest = names.min_by_key(|row| strsim::levenshtein(row, &name));
        Self::Unknown { name, nearest: nearest.unwrap_or("port") }
    }

    /// What is wrong, without the setting's name, as CONFIG SET says it.
    pub fn reason(&self) -> String {
        match self {
            Self::Invalid { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }
}

/// Characters of an unknown name that an error quotes, and that are compared.
const MOST_QUOTED_CHARS: usize = 64;

impl Setting {
    /// The default as a value.
    ///
    /// # Panics
    /// If the row contradicts itself; a test reads all rows.
    pub fn default_value(&self) -> Value {
        self.parse(self.default).unwrap_or_else(|error| panic!("default of {error}"))
    }

    /// Reads a value of this setting from its text.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if the text is no such value.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        self.read(text).map_err(|error| match self.reason_of_single_value() {
            Some(reason) => ConfigError::Invalid { name: self.name, reason },
            None => error,
        })
    }

    /// What to say to another value than the only one; `None` if there are several. CONFIG SET
    /// never says it: such a setting is fixed.
    fn reason_of_single_value(&self) -> Option<String> {
        let value = match self.kind {
            SettingKind::Choice([""]) => "empty".to_owned(),
            SettingKind::Choice([only]) => (*only).to_owned(),
            SettingKind::Number(min, max) if min == max => min.to_string(),
            _ => return None,
        };
        Some(format!("must be {value}: {}", self.help.trim_end_matches('.')))
    }

    fn read(&self, text: &str) -> Result<Value, ConfigError> {
        let invalid = |reason: String| ConfigError::Invalid { name: self.name, reason };
        let size = || {
            let what = "argument must be a memory value";
            parse_size(text).ok_or_else(|| invalid(what.to_owned()))
        };
        let within = |number: i64, min, max| match (min..=max).contains(&number) {
            true => Ok(Value::Number(number)),
            false => Err(invalid(format!("argument must be between {min} and {max} inclusive"))),
        };
        match self.kind {
            SettingKind::Number(min, max) => {
                let number = text.parse();
                let what = "argument couldn't be parsed into an integer";
                within(number.map_err(|_| invalid(what.to_owned()))?, min, max)
            }
            SettingKind::Bytes(min, max) => within(size()?, min, max),
            SettingKind::PowerOfTwo(min, max) => match size()? {
                number if (min..=max).contains(&number) && number.count_ones() == 1 => {
                    Ok(Value::Number(number))
                }
                _ => Err(invalid(format!("argument must be a power of two from {min} to {max}"))),
            },
            SettingKind::Flag => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" => Ok(Value::Flag(true)),
                "no" | "false" => Ok(Value::Flag(false)),
                _ => Err(invalid("argument must be 'yes' or 'no'".to_owned())),
            },
            SettingKind::Choice(choices) => {
                let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(text));
                found.map(|choice| Value::Text((*choice).to_owned())).ok_or_else(|| {
                    let list = choices.join(", ");
                    invalid(format!("argument(s) must be one of the following: {list}"))
                })
            }
            SettingKind::Text(max_bytes) | SettingKind::Secret(max_bytes) => {
                if text.len() > max_bytes {
                    return Err(invalid(format!("argument must have at most {max_bytes} bytes")));
                }
                if matches!(self.kind, SettingKind::Text(_)) && text.contains('\0') {
                    return Err(invalid("argument must not contain a zero byte".to_owned()));
                }
                Ok(Value::Text(text.to_owned()))
            }
        }
    }
}

/// A size with Redis's units: k, m, g are powers of ten, kb, mb, gb powers of two.
fn parse_size(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: i64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}
