//! Commands of an AOF.

use super::Applier;
use super::keys::Fault;
use crate::aof::{Meaning, Words, meaning_of, name_of};
use crate::left_out::SCRIPTS;
use crate::rdb::restored;
use crate::source::SourceError;
use crate::target::TargetError;

/// The error that words can't be what the command has; the caller knows the offset.
fn wrong(words: &Words, offset: u64) -> Fault {
    let what = format!("{} with words that it can't have", name_of(words).escape_debug());
    SourceError::Malformed { offset, what }.into()
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

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
                let db = number(words.get(1)).and_then(|db| u64::try_from(db).ok());
                self.selected = db.ok_or_else(malformed)?;
                return Ok(());
            }
            Meaning::Flush { all } => return Ok(self.flush_keys(all)?),
            Meaning::SwapDb => return self.swap(words, offset),
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
            Meaning::Set => self.set(words).ok_or_else(malformed)??,
            Meaning::SetFor(unit) => {
                let time = number(words.get(2)).and_then(|time| time.checked_mul(unit));
                let expiry = time.map(|time| self.manner.now_ms.saturating_add(time));
                self.string(words.get(1), words.get(3), Some(expiry.ok_or_else(malformed)?))?;
            }
            Meaning::As(name) => self.pass(name, words)?,
            Meaning::Expire { unit, relative } => {
                let time = number(words.get(2)).and_then(|time| time.checked_mul(unit));
                let time = time.ok_or_else(malformed)?;
                let base = if relative { self.manner.now_ms } else { 0 };
                self.expire(words.get(1), base.saturating_add(time))?;
            }
            Meaning::GetEx => self.get_ex(words).ok_or_else(malformed)??,
            Meaning::Rename => self.renamed(words.get(1), words.get(2))?,
            Meaning::Restore => self.restore(words, offset)?,
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

    fn swap(&mut self, words: &Words, offset: u64) -> Result<(), Fault> {
        let db = |at: usize| number(words.get(at)).and_then(|db| u64::try_from(db).ok());
        if db(1) != Some(self.manner.db) && db(2) != Some(self.manner.db) {
            return Ok(());
        }
        let what =
            "SWAPDB, which Nigh can't follow: make a new AOF with BGREWRITEAOF, or import an \
                    RDB file"
                .into();
        Err(SourceError::Malformed { offset, what }.into())
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

    fn expire(&mut self, key: &[u8], expiry_ms: i64) -> Result<(), TargetError> {
        let expiry = self.sent_expiry(expiry_ms);
        self.target.command([b"PEXPIREAT".as_slice(), key, expiry.as_bytes()].into_iter())
    }

    /// The expiry that an option and its number mean; `None` if it is no such option.
    fn expiry_of(&self, option: &[u8], time: &[u8]) -> Option<i64> {
        let now = self.manner.now_ms;
        let time = number(time)?;
        let expiry = match option.to_ascii_uppercase().as_slice() {
            b"EX" => now.checked_add(time.checked_mul(1000)?)?,
            b"PX" => now.checked_add(time)?,
            b"EXAT" => time.checked_mul(1000)?,
            b"PXAT" => time,
            _ => return None,
        };
        Some(expiry)
    }

    /// SET with its options, SETNX, GETSET. `None`: they are wrong.
    fn set(&mut self, words: &Words) -> Option<Result<(), TargetError>> {
        let (mut expiry, mut keeps, mut at) = (None, false, 3);
        if words.len() < 3 {
            return None;
        }
        while at < words.len() {
            let option = words.get(at);
            if ["NX", "XX", "GET"].into_iter().any(|name| is(option, name)) {
                at += 1; // it succeeded
            } else if is(option, "KEEPTTL") {
                (keeps, at) = (true, at + 1);
            } else {
                (expiry, at) = (Some(self.expiry_of(option, words.get(at + 1))?), at + 2);
            }
        }
        let (key, value) = (words.get(1), words.get(2));
        Some(match expiry {
            _ if keeps => self.target.command([b"SET", key, value, b"KEEPTTL"].into_iter()),
            Some(expiry) if !self.manner.puts_off && self.is_over(expiry) => {
                self.over += 1;
                self.remove(key)
            }
            _ => self.string(key, value, expiry),
        })
    }

    fn get_ex(&mut self, words: &Words) -> Option<Result<(), TargetError>> {
        if words.len() < 3 {
            return Some(Ok(()));
        }
        if is(words.get(2), "PERSIST") {
            return Some(self.target.command([b"PERSIST".as_slice(), words.get(1)].into_iter()));
        }
        let expiry = self.expiry_of(words.get(2), words.get(3))?;
        Some(self.expire(words.get(1), expiry))
    }

    /// `RESTORE key ttl payload [REPLACE] [ABSTTL] …`
    fn restore(&mut self, words: &Words, offset: u64) -> Result<(), Fault> {
        let Some(time) = number(words.get(2)).filter(|_| words.len() >= 4) else {
            return Err(wrong(words, offset));
        };
        let Some(value) = restored(words.get(3)).map_err(|_| wrong(words, offset))? else {
            self.left_out.add("RESTORE of other types", words.get(1));
            return Ok(self.remove(words.get(1))?);
        };
        let is_absolute = words.iter().skip(4).any(|word| is(word, "ABSTTL"));
        let base = if is_absolute { 0 } else { self.manner.now_ms };
        let expiry = (time != 0).then(|| base.saturating_add(time));
        Ok(self.string(words.get(1), &value, expiry)?)
    }
}
