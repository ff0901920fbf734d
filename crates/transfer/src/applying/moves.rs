//! Commands of an AOF by which a value gets another name: RENAME, COPY, MOVE.
//!
//! 1. In the file such a command succeeded. If Nigh hasn't the source, that was of another type: so
//!    what lies under the new name isn't a string any more, and is removed.
//! 2. Two names may lie in different partitions of Nigh, which refuses then: the value is read and
//!    written by its new name.

use nigh_resp::frame::Frame;

use super::Applier;
use super::shift::SHIFT_MS;
use crate::aof::Words;
use crate::target::TargetError;

/// How Nigh refuses a command on two partitions.
const APART: &[u8] = b"CROSSSLOT";

impl Applier {
    /// RENAME of one key to another name.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        let reply = self.target.ask(&[b"RENAME", from, to])?;
        match reply.error() {
            None => Ok(()),
            Some(text) if text.starts_with(APART) => {
                self.value_again(from, to)?;
                self.remove(from)
            }
            Some(_) => self.remove(to),
        }
    }

    /// `COPY from to [DB number] [REPLACE]`.
    pub(super) fn copied(&mut self, words: &Words) -> Result<(), TargetError> {
        let (from, to, ours) = (words.get(1), words.get(2), self.manner.db);
        let option = (3..words.len()).find(|at| words.get(*at).eq_ignore_ascii_case(b"DB"));
        let db =
            option.map_or(self.selected.to_string().into_bytes(), |at| words.get(at + 1).to_vec());
        let into_ours = db == ours.to_string().as_bytes();
        if !into_ours || self.selected != ours {
            if into_ours {
                self.left_out.add("strings copied from another database", to);
                return self.remove(to);
            }
            self.left_out.add(&format!("commands in database {}", db.escape_ascii()), to);
            return Ok(());
        }
        let reply = self.target.ask(&[b"COPY", from, to, b"REPLACE"])?;
        match (&reply, reply.error()) {
            (_, Some(text)) if text.starts_with(APART) => self.value_again(from, to),
            (Frame::Integer(1), _) => Ok(()),
            _ => self.remove(to),
        }
    }

    /// `MOVE key db`.
    pub(super) fn moved(&mut self, words: &Words) -> Result<(), TargetError> {
        let (key, ours) = (words.get(1), self.manner.db);
        if self.selected == ours {
            let kind = format!("commands in database {}", words.get(2).escape_ascii());
            self.left_out.add(&kind, key);
            return self.remove(key);
        }
        if words.get(2) == ours.to_string().as_bytes() {
            self.left_out.add("keys moved from another database", key);
        }
        Ok(())
    }

    /// Writes a value under another name. If it isn't there, that name goes.
    fn value_again(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        let expiry = self.target.ask(&[b"PEXPIRETIME", from])?.integer();
        let value = self.target.ask(&[b"GET", from])?;
        let Some(value) = value.bytes() else { return self.remove(to) };
        let expiry = expiry.filter(|at| *at >= 0);
        // It was put off before.
        self.string(to, value, expiry.map(|at| if at >= SHIFT_MS { at - SHIFT_MS } else { at }))
    }
}
