//! Commands of an AOF by which a value gets another name: RENAME, COPY, MOVE.
//!
//! 1. In the file such a command succeeded. If Nigh hasn't the source, that was of another type: so
//!    what lies under the new name isn't a string any more, and is removed.
//! 2. Two names may lie in different partitions of Nigh, which refuses then: the value is read and
//!    written by its new name.
//! 3. What is lost under its old name (`lost.rs`) is lost under the new one.
//! 4. Any other refusal ends the import: it doesn't tell whether the source is there.

use nigh_resp::frame::Frame;

use super::Applier;
use super::keys::{Fault, KEY_BYTES_MAX, LONG_KEYS};
use super::shift::SHIFT_MS;
use crate::aof::Words;
use crate::target::TargetError;

/// How Nigh refuses a command on two partitions.
const APART: &[u8] = b"CROSSSLOT";
/// How Nigh refuses a command whose source isn't there.
const ABSENT: &[u8] = b"ERR no such key";

impl Applier {
    /// RENAME of one key to another name.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8], offset: u64) -> Result<(), Fault> {
        if to.len() > KEY_BYTES_MAX {
            self.left_out.add(LONG_KEYS, to);
            return Ok(self.remove(from)?);
        }
        if from.len() > KEY_BYTES_MAX {
            return Ok(self.remove(to)?); // Nigh never had the source
        }
        if self.lost.take(from) {
            self.remove(to)?;
            return Ok(self.lost.add(to, offset)?);
        }
        self.lost.take(to);
        let reply = self.target.ask(&[b"RENAME", from, to])?;
        match reply.error() {
            None => Ok(()),
            Some(text) if text.starts_with(APART) => {
                self.value_again(from, to)?;
                Ok(self.remove(from)?)
            }
            Some(ABSENT) => Ok(self.remove(to)?),
            Some(_) => Err(self.target.refused(&reply, to).into()),
        }
    }

    /// `COPY from to [DB number] [REPLACE]`.
    pub(super) fn copied(&mut self, words: &Words, offset: u64) -> Result<(), Fault> {
        let (from, to, ours) = (words.get(1), words.get(2), self.manner.db);
        let option = (3..words.len()).find(|at| words.get(*at).eq_ignore_ascii_case(b"DB"));
        let db =
            option.map_or(self.selected.to_string().into_bytes(), |at| words.get(at + 1).to_vec());
        let into_ours = db == ours.to_string().as_bytes();
        if !into_ours || self.selected != ours {
            if into_ours {
                self.left_out.add("strings copied from another database", to);
                self.remove(to)?;
                self.lost.add(to, offset)?;
                return Ok(());
            }
            self.left_out.add(&format!("commands in database {}", db.escape_ascii()), to);
            return Ok(());
        }
        if to.len() > KEY_BYTES_MAX {
            self.left_out.add(LONG_KEYS, to);
            return Ok(());
        }
        if from.len() > KEY_BYTES_MAX {
            return Ok(self.remove(to)?);
        }
        if self.lost.has(from) {
            self.remove(to)?;
            return Ok(self.lost.add(to, offset)?);
        }
        self.lost.take(to);
        let reply = self.target.ask(&[b"COPY", from, to, b"REPLACE"])?;
        match (&reply, reply.error()) {
            (_, Some(text)) if text.starts_with(APART) => Ok(self.value_again(from, to)?),
            (Frame::Integer(1), _) => Ok(()),
            (Frame::Integer(0), _) | (_, Some(ABSENT)) => Ok(self.remove(to)?),
            _ => Err(self.target.refused(&reply, to).into()),
        }
    }

    /// `MOVE key db`.
    pub(super) fn moved(&mut self, words: &Words, offset: u64) -> Result<(), Fault> {
        let (key, ours) = (words.get(1), self.manner.db);
        if self.selected == ours {
            let kind = format!("commands in database {}", words.get(2).escape_ascii());
            self.left_out.add(&kind, key);
            return Ok(self.remove(key)?);
        }
        if words.get(2) == ours.to_string().as_bytes() {
            self.left_out.add("keys moved from another database", key);
            self.lost.add(key, offset)?;
        }
        Ok(())
    }

    /// Writes a value under another name. If it isn't there, that name goes.
    fn value_again(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        let reply = self.target.ask(&[b"PEXPIRETIME", from])?;
        let Some(expiry) = reply.integer() else { return Err(self.target.refused(&reply, from)) };
        let reply = self.target.ask(&[b"GET", from])?;
        if reply.is_null() {
            return self.remove(to);
        }
        let Some(value) = reply.bytes() else { return Err(self.target.refused(&reply, from)) };
        let expiry = Some(expiry).filter(|at| *at >= 0);
        // It was put off before.
        self.string(to, value, expiry.map(|at| if at >= SHIFT_MS { at - SHIFT_MS } else { at }))
    }
}
