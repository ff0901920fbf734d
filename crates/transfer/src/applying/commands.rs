//! Commands of an AOF.

use super::Applier;
use super::keys::Fault;
use crate::aof::{
    Expiry, Meaning, NewExpiry, Words, database, fault_of_swap, meaning_of, name_of, of_get_ex,
    of_restore, of_set, wrong,
};
use crate::left_out::SCRIPTS;
use crate::target::TargetError;

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
            Meaning::Move => return Ok(self.moved(words)?),
            Meaning::Copy => return Ok(self.copied(words)?),
            // Libraries are of all databases.
            Meaning::Other(SCRIPTS) => return Ok(self.leave_out(meaning, words)?),
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
            Meaning::As(name) => self.pass(name, words)?,
            Meaning::Expire { unit, relative } => {
                let expiry = Expiry::read(words.get(2), unit, relative).ok_or_else(malformed)?;
                self.expire(words.get(1), expiry)?;
            }
            Meaning::GetEx => match of_get_ex(words).ok_or_else(malformed)? {
                NewExpiry::Kept => {}
                NewExpiry::None => {
                    self.target.command([b"PERSIST".as_slice(), words.get(1)].into_iter())?;
                }
                NewExpiry::At(expiry) => self.expire(words.get(1), expiry)?,
            },
            Meaning::Rename => self.renamed(words.get(1), words.get(2))?,
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
            _ => self.leave_out(meaning, words)?,
        }
        Ok(())
    }

    /// What Nigh has no command for. A string that isn't right afterwards is removed.
    fn leave_out(&mut self, meaning: Meaning, words: &Words) -> Result<(), TargetError> {
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
        self.target.command([b"FLUSHALL".as_slice()].into_iter())
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), TargetError> {
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

    fn expire(&mut self, key: &[u8], expiry: Expiry) -> Result<(), TargetError> {
        let expiry = self.sent_expiry(expiry.at(self.manner.now_ms));
        self.target.command([b"PEXPIREAT".as_slice(), key, expiry.as_bytes()].into_iter())
    }

    /// SET, SETNX, GETSET.
    fn set(&mut self, words: &Words, expiry: NewExpiry) -> Result<(), TargetError> {
        let (key, value) = (words.get(1), words.get(2));
        let expiry = match expiry {
            NewExpiry::Kept => {
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
