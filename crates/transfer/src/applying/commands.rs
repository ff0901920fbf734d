//! Commands of an AOF.

use super::Applier;
use super::keys::{Fault, KEY_BYTES_MAX, LONG_KEYS};
use crate::aof::{
    Expiry, Meaning, NewExpiry, Words, database, fault_of_swap, meaning_of, name_of, of_get_ex,
    of_restore, of_set, wrong,
};
use crate::left_out::SCRIPTS;
use crate::target::TargetError;

/// Most keys, and bytes of keys and values, of a part of a command: with these a commit is far
/// below a fourth of the smallest journal. A longer value is a part of its own.
const PART_KEYS: usize = 1000;
const PART_BYTES: usize = 64 << 10;

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

impl Applier {
    /// Applies a command, which stands at `offset`, or counts why not.
    pub(crate) fn command(&mut self, words: &Words, offset: u64) -> Result<(), Fault> {
        let meaning = meaning_of(words);
        let malformed = || wrong(words, offset);
        match meaning {
            Meaning::Nothing => return Ok(()),
            Meaning::Select => {
                self.selected = database(words.get(1)).ok_or_else(malformed)?;
                return Ok(());
            }
            Meaning::Flush { all } => return Ok(self.flush_keys(all)?),
            Meaning::SwapDb => {
                return fault_of_swap(words, offset, self.manner.db)
                    .map_or(Ok(()), |it| Err(it.into()));
            }
            Meaning::Move => return self.moved(words, offset),
            Meaning::Copy => return self.copied(words, offset),
            // Libraries are of all databases.
            Meaning::Other(SCRIPTS) => return self.leave_out(meaning, words, offset),
            _ => {}
        }
        if self.selected != self.manner.db {
            let kind = format!("commands in database {}", self.selected);
            self.left_out.add(&kind, words.get(1));
            return Ok(());
        }
        match meaning {
            Meaning::Set => self.set(words, of_set(words).ok_or_else(malformed)?)?,
            Meaning::SetFor(unit) => {
                let expiry = Expiry::read(words.get(2), unit, true).ok_or_else(malformed)?;
                self.string(words.get(1), words.get(3), Some(expiry.at(self.manner.now_ms)))?;
            }
            Meaning::As(name) if self.lost.has(words.get(1)) => {
                self.left_out.add(&format!("{name} of strings that were left out"), words.get(1));
            }
            Meaning::As(name) => self.pass(name, words)?,
            Meaning::Keys(name, each) => {
                if !(words.len() - 1).is_multiple_of(each) {
                    return Err(malformed().into());
                }
                self.in_parts(name, each, words)?;
            }
            Meaning::Expire { unit, relative } => {
                let expiry = Expiry::read(words.get(2), unit, relative).ok_or_else(malformed)?;
                self.expire(words.get(1), expiry)?;
            }
            Meaning::Persist => self.persist(words.get(1))?,
            Meaning::GetEx => match of_get_ex(words).ok_or_else(malformed)? {
                NewExpiry::Kept => {}
                NewExpiry::None => self.persist(words.get(1))?,
                NewExpiry::At(expiry) => self.expire(words.get(1), expiry)?,
            },
            Meaning::Rename => self.renamed(words.get(1), words.get(2), offset)?,
            Meaning::Restore => match of_restore(words).ok_or_else(malformed)? {
                (Some(value), expiry) => {
                    let expiry = expiry.map(|expiry| expiry.at(self.manner.now_ms));
                    self.string(words.get(1), &value, expiry)?;
                }
                (None, _) => {
                    self.left_out.add("RESTORE of other types", words.get(1));
                    self.remove(words.get(1))?;
                }
            },
            _ => self.leave_out(meaning, words, offset)?,
        }
        Ok(())
    }

    /// What Nigh has no command for. A string that isn't right afterwards is removed.
    fn leave_out(&mut self, meaning: Meaning, words: &Words, offset: u64) -> Result<(), Fault> {
        match meaning {
            Meaning::Other(kind) => self.left_out.add(kind, words.get(1)),
            Meaning::Overwrites(at, kind) => {
                self.left_out.add(kind, words.get(at));
                self.remove(words.get(at))?;
            }
            Meaning::MayStore(kind) => {
                self.left_out.add(kind, words.get(1));
                let store =
                    |at: &usize| is(words.get(*at), "STORE") || is(words.get(*at), "STOREDIST");
                if let Some(at) = (2..words.len().saturating_sub(1)).rev().find(store) {
                    self.remove(words.get(at + 1))?;
                }
            }
            Meaning::ChangesString(at) => {
                let kind = format!("strings changed by {}, removed", name_of(words));
                self.left_out.add(&kind, words.get(at));
                self.remove(words.get(at))?;
                self.lost.add(words.get(at), offset)?;
            }
            _ => {
                let name = name_of(words).escape_debug().to_string();
                let name: String = name.chars().take(40).collect();
                self.left_out.add(&format!("unknown commands {name}"), words.get(1));
            }
        }
        Ok(())
    }

    fn flush_keys(&mut self, all: bool) -> Result<(), TargetError> {
        // What was left out of there is gone at the source, too.
        if all {
            self.left_out.all_flushed();
        } else if self.selected == self.manner.db {
            self.left_out.ours_flushed();
        } else {
            self.left_out.other_flushed(self.selected);
            return Ok(());
        }
        self.lost.clear();
        self.target.command([b"FLUSHALL".as_slice()].into_iter())
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.lost.take(key);
        self.target.command([b"DEL".as_slice(), key].into_iter())
    }

    fn pass(&mut self, name: &'static str, words: &Words) -> Result<(), TargetError> {
        let bytes = words.iter().map(|word| word.len() as u64).sum();
        self.target.begin(words.len(), bytes)?;
        self.target.word(name.as_bytes())?;
        for word in words.iter().skip(1) {
            self.target.word(word)?;
        }
        self.target.end()
    }

    /// Sends a command of any number of keys in parts, each of which Nigh takes. What stands in the
    /// file need not be one commit here: transactions aren't either.
    fn in_parts(
        &mut self,
        name: &'static str,
        each: usize,
        words: &Words,
    ) -> Result<(), TargetError> {
        let (mut part, mut bytes) = (vec![name.as_bytes()], 0);
        for at in (1..words.len()).step_by(each) {
            if words.get(at).len() > KEY_BYTES_MAX {
                // Nigh never had it, so there is nothing to remove.
                if each > 1 {
                    self.left_out.add(LONG_KEYS, words.get(at));
                }
                continue;
            }
            self.lost.take(words.get(at));
            let key = (at..at + each).map(|at| words.get(at));
            let key_bytes: usize = key.clone().map(<[u8]>::len).sum();
            let is_full = part.len() > PART_KEYS * each || bytes + key_bytes > PART_BYTES;
            if is_full && part.len() > 1 {
                self.target.command(part.iter().copied())?;
                part.truncate(1);
                bytes = 0;
            }
            bytes += key_bytes;
            part.extend(key);
        }
        if part.len() > 1 {
            self.target.command(part.iter().copied())?;
        }
        Ok(())
    }

    fn persist(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.target.command([b"PERSIST".as_slice(), key].into_iter())
    }

    fn expire(&mut self, key: &[u8], expiry: Expiry) -> Result<(), TargetError> {
        let expiry = self.sent_expiry(expiry.at(self.manner.now_ms));
        self.target.command([b"PEXPIREAT".as_slice(), key, expiry.as_bytes()].into_iter())
    }

    /// SET, SETNX, GETSET.
    fn set(&mut self, words: &Words, expiry: NewExpiry) -> Result<(), TargetError> {
        let (key, value) = (words.get(1), words.get(2));
        let expiry = match expiry {
            NewExpiry::Kept => {
                self.lost.take(key);
                return self.target.command([b"SET", key, value, b"KEEPTTL"].into_iter());
            }
            NewExpiry::None => None,
            NewExpiry::At(expiry) => Some(expiry.at(self.manner.now_ms)),
        };
        if !self.manner.puts_off && expiry.is_some_and(|expiry| self.is_over(expiry)) {
            self.over += 1;
            return self.remove(key);
        }
        self.string(key, value, expiry)
    }
}
