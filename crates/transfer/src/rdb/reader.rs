//! Reads an RDB file key by key.
//!
//! ```text
//! open ─> next ─> Key ─> value (pieces) ─> next … ─> End (checksum compared)
//!                  └────── (left out) ──────^
//! ```
//!
//! 1. Memory: the buffer, one key, and a window of a packed value.
//! 2. A value that isn't asked for is walked over by its lengths. A type or opcode that isn't known
//!    ends the reading.
//! 3. `End` comes only when the checksum, if the file has one, was that of the bytes.
//!
//! Any thread; one at a time.

use std::io::Read;

use super::ValueKind;
use super::opcode::{self, kind_of};
use super::strings::{self, STRING_BYTES_MAX, StoredText};
use super::values::{self, module_name};
use crate::source::{Input, SourceError};

/// Highest version of Redis's own format that is known.
const VERSION_MAX: u32 = 12;
/// The version of Valkey's own format that is known. Up to 11 it writes Redis's.
const VALKEY_VERSION: u32 = 80;
/// Version from which on a checksum follows the end.
const VERSION_WITH_SUM: u32 = 5;
/// What is kept of an aux field: more than the longest that is looked for.
const AUX_BYTES: usize = 64;
/// What is kept of a library's first line, at most.
const LINE_BYTES: usize = 1024;

/// A key that was found; its value comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The database.
    pub db: u64,
    /// The type of its value.
    pub kind: ValueKind,
    /// When it is over, Unix ms.
    pub expiry_ms: Option<i64>,
    /// Bytes of the value, if it is a string.
    pub value_bytes: u64,
}

/// What comes next in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// A key; [`RdbReader::key`] has its name.
    Key(Entry),
    /// A library of functions; the first line of its source, or the beginning of that.
    Function(String),
    /// Data that a module keeps beside the keys; the module's name.
    ModuleData(String),
    /// The end.
    End,
}

/// A value that was not read yet.
enum Pending {
    String(StoredText),
    Other(u8),
}

/// A reader of an RDB file.
pub struct RdbReader<R> {
    input: Input<R>,
    version: u32,
    is_valkey: bool,
    is_aof_base: bool,
    db: u64,
    key: Vec<u8>,
    pending: Option<Pending>,
}

impl<R: Read> RdbReader<R> {
    /// Reads the file's head.
    ///
    /// # Errors
    /// [`SourceError::UnknownFormat`], [`SourceError::UnknownVersion`], and those of reading.
    pub fn open(mut input: Input<R>) -> Result<Self, SourceError> {
        input.begin_sum();
        let head: [u8; 9] = input.array("the head of an RDB file")?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let (version, is_valkey) = match (text.strip_prefix("REDIS"), text.strip_prefix("VALKEY")) {
            (Some(version), _) => (version, false),
            (None, Some(version)) => (version, true),
            (None, None) => {
                let first = head.escape_ascii().to_string();
                return Err(SourceError::UnknownFormat { first });
            }
        };
        let number = version.parse().ok().filter(|number| match is_valkey {
            false => (1..=VERSION_MAX).contains(number),
            true => *number == VALKEY_VERSION,
        });
        let Some(number) = number else {
            let version = version.escape_debug().to_string();
            return Err(SourceError::UnknownVersion { version });
        };
        Ok(Self {
            input,
            version: number,
            is_valkey,
            is_aof_base: false,
            db: 0,
            key: Vec::new(),
            pending: None,
        })
    }

    /// Whether the file says that it is the beginning of an AOF: then commands may follow its end.
    pub fn is_aof_base(&self) -> bool {
        self.is_aof_base
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The name of the key that was found last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The input behind what was read.
    pub fn into_input(self) -> Input<R> {
        self.input
    }

    /// What comes next. A value that was not read is left out.
    ///
    /// # Errors
    /// A [`SourceError`]; nothing can be read behind it.
    pub fn next_found(&mut self) -> Result<Found, SourceError> {
        self.skip_value()?;
        let mut expiry_ms = None;
        loop {
            let offset = self.input.offset();
            let number = self.input.byte("the file: its end is missing")?;
            match number {
                opcode::OP_EXPIRY_MS => {
                    expiry_ms = Some(i64::from_le_bytes(self.input.array("an expiry")?));
                }
                opcode::OP_EXPIRY_S => {
                    let seconds = i32::from_le_bytes(self.input.array("an expiry")?);
                    expiry_ms = Some(i64::from(seconds) * 1000);
                }
                opcode::OP_SELECT_DB => self.db = strings::length(&mut self.input, "a database")?,
                opcode::OP_EOF => return self.end(),
                _ => match kind_of(number, self.is_valkey) {
                    Some(kind) => return self.entry(number, kind, expiry_ms),
                    None => {
                        if let Some(found) = self.between(number, offset)? {
                            return Ok(found);
                        }
                    }
                },
            }
        }
    }

    fn entry(
        &mut self,
        number: u8,
        kind: ValueKind,
        expiry_ms: Option<i64>,
    ) -> Result<Found, SourceError> {
        self.key.clear();
        strings::append(&mut self.input, "a key", &mut self.key)?;
        let mut value_bytes = 0;
        self.pending = Some(if kind == ValueKind::String {
            let text = strings::text(&mut self.input, "a value")?;
            value_bytes = text.bytes();
            Pending::String(text)
        } else {
            Pending::Other(number)
        });
        Ok(Found::Key(Entry { db: self.db, kind, expiry_ms, value_bytes }))
    }

    /// What stands between keys. `None`: nothing that a caller must know.
    fn between(&mut self, number: u8, offset: u64) -> Result<Option<Found>, SourceError> {
        let input = &mut self.input;
        match number {
            opcode::OP_AUX => self.aux()?,
            opcode::OP_RESIZE_DB => {
                strings::length(input, "a size")?;
                strings::length(input, "a size")?;
            }
            opcode::OP_IDLE => drop(strings::length(input, "an idle time")?),
            opcode::OP_FREQ => drop(input.byte("a frequency")?),
            opcode::OP_FUNCTION_2 => {
                let source = strings::beginning(input, "a library", LINE_BYTES)?;
                let line = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
                return Ok(Some(Found::Function(line.escape_ascii().to_string())));
            }
            opcode::OP_FUNCTION_PRE_GA => {
                let name = strings::beginning(input, "a library's name", LINE_BYTES)?;
                strings::skip(input, "a library's engine")?;
                if strings::length(input, "a library")? > 0 {
                    strings::skip(input, "a library's description")?;
                }
                strings::skip(input, "a library")?;
                return Ok(Some(Found::Function(name.escape_ascii().to_string())));
            }
            opcode::OP_MODULE_AUX => {
                let id = strings::length(input, "a module's id")?;
                strings::length(input, "a module's data")?;
                strings::length(input, "a module's data")?;
                values::skip_module(input)?;
                return Ok(Some(Found::ModuleData(module_name(id))));
            }
            opcode::OP_SLOT_INFO => {
                for _ in 0..3 {
                    strings::length(input, "a slot")?;
                }
            }
            opcode::OP_SLOT_IMPORT if self.is_valkey => {
                strings::skip(input, "a slot's import")?;
                for _ in 0..strings::length(input, "a slot's import")? {
                    strings::length(input, "a slot's import")?;
                    strings::length(input, "a slot's import")?;
                }
            }
            _ => return Err(SourceError::UnknownType { offset, number }),
        }
        Ok(None)
    }

    fn aux(&mut self) -> Result<(), SourceError> {
        let mut field = [Vec::new(), Vec::new()];
        for part in &mut field {
            *part = strings::beginning(&mut self.input, "an aux field", AUX_BYTES)?;
        }
        if matches!(field[0].as_slice(), b"aof-base" | b"aof-preamble") && field[1] != b"0" {
            self.is_aof_base = true;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Found, SourceError> {
        let found = self.input.end_sum();
        let offset = self.input.offset();
        if self.version >= VERSION_WITH_SUM {
            let expected = u64::from_le_bytes(self.input.array("the checksum")?);
            // Zero: the server was told not to compute it.
            if expected != 0 && expected != found {
                return Err(SourceError::Checksum { offset, expected, found });
            }
        }
        Ok(Found::End)
    }

    /// Hands out the value of the string that was found last, in pieces. Without one: nothing.
    ///
    /// # Errors
    /// A [`SourceError`], or what `each` returns.
    pub fn value<E: From<SourceError>>(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.pending.take() {
            Some(Pending::String(text)) => {
                strings::body(&mut self.input, &text, "a value", &mut each)
            }
            other => {
                self.pending = other;
                Ok(())
            }
        }
    }

    fn skip_value(&mut self) -> Result<(), SourceError> {
        match self.pending.take() {
            None => Ok(()),
            Some(Pending::Other(number)) => values::skip(&mut self.input, number),
            Some(Pending::String(StoredText::Integer(_))) => Ok(()),
            Some(Pending::String(StoredText::Plain(bytes)))
            | Some(Pending::String(StoredText::Packed { packed_bytes: bytes, .. })) => {
                self.input.skip(bytes, "a value")
            }
        }
    }
}

/// The string in the payload of DUMP and RESTORE; `None` if it is a value of another type.
///
/// # Errors
/// As [`RdbReader::next_found`].
pub(crate) fn restored(payload: &[u8]) -> Result<Option<Vec<u8>>, SourceError> {
    let mut input = Input::new(payload, 0);
    if input.byte("a payload")? != opcode::STRING {
        return Ok(None);
    }
    let mut value = Vec::new();
    strings::append(&mut input, "a payload", &mut value)?;
    debug_assert!(value.len() as u64 <= STRING_BYTES_MAX);
    Ok(Some(value))
}
